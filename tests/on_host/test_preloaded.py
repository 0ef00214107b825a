"""The preloaded Python that other tests here use: what it forks is as what a real one starts."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from pyinfra_gpu.on_host.smoke import environment
from tests.on_host import preloaded
from tests.on_host.preloaded import Preloaded

_ABOUT = """
import json, os, signal, sys
about = {
    "arguments": sys.argv, "all": sys.orig_argv, "path": sys.path, "executable": sys.executable,
    "name": __name__, "directory": os.getcwd(), "environment": sorted(os.environ.items()),
    "files": sorted(os.listdir("/proc/self/fd")), "session": os.getsid(0) == os.getpid(),
    "signals": {n.name: str(signal.getsignal(n)) for n in signal.Signals},
    "encodings": [(f.encoding, f.errors, f.line_buffering) for f in (sys.stdout, sys.stderr)],
    "input": sys.stdin.read(),
}
print(json.dumps(about, indent=1))
print("beside it", file=sys.stderr, flush=True)
"""
PROGRAMS = {
    "tells what it has": _ABOUT,
    "ends with a number": "raise SystemExit(7)",
    "ends with a large number": "raise SystemExit(1000)",
    "ends with a sentence": "raise SystemExit('no torch')",
    "raises": "raise ValueError('wrong')",
    "aborts": "import os; print('before', flush=True); os.abort()",
    "is killed": "import os, signal; os.kill(os.getpid(), signal.SIGKILL)",
    "is interrupted": (  # where the suite runs in the background, the signal came ignored
        "import os, signal; signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "os.kill(os.getpid(), signal.SIGINT)"
    ),
    "leaves at once": "import os; print('unwritten'); os._exit(3)",
    "has something to do at its end": "import atexit; atexit.register(print, 'last')",
    "has a thread that ends later": (
        "import threading, time\n"
        "threading.Thread(target=lambda: (time.sleep(0.1), print('later'))).start()"
    ),
}


@pytest.fixture(scope="module")
def forked() -> Iterator[Preloaded]:
    with preloaded.serving(sys.executable, ["xml.dom.minidom"]) as serving:
        yield serving


def run(python: Preloaded | str, folder: Path, *arguments: str) -> tuple[int, str]:
    """Return exit code and output; of a traceback its last line."""
    variables = environment.for_cpu({**os.environ, "TORCHDYNAMO_DISABLE": "1", "AMONG": "others"})
    with (folder / "output").open("w+b") as output:
        if isinstance(python, Preloaded):
            started = python.start(arguments, stdout=output.fileno(), cwd=folder, env=variables)
            code = started.wait(60)
        else:
            code = subprocess.run(
                [python, *arguments],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                cwd=folder,
                env=variables,
                check=False,
            ).returncode
    told = (folder / "output").read_text()
    return code, told.splitlines()[-1] if told.startswith("Traceback") else told


def write(folder: Path, program: str) -> str:
    file = folder / "program.py"
    file.write_text(program)
    return str(file)


@pytest.mark.parametrize("what", PROGRAMS)
def test_a_program_runs_as_with_a_real_interpreter(
    what: str, forked: Preloaded, tmp_path: Path
) -> None:
    file = write(tmp_path, PROGRAMS[what])
    code, output = run(sys.executable, tmp_path, file, "one", "two")
    assert run(forked, tmp_path, file, "one", "two") == (code, output)
    assert code or output


def test_a_zipped_program_and_a_module_run_as_with_a_real_interpreter(
    forked: Preloaded, tmp_path: Path
) -> None:
    with zipfile.ZipFile(tmp_path / "program.pyz", "w") as file:
        file.writestr("__main__.py", f"import part\n{_ABOUT}")
        file.writestr("part.py", "print('imported')")
    write(tmp_path, _ABOUT)
    zipped = str(tmp_path / "program.pyz")
    for arguments in ([zipped, "-v"], ["-m", "program", "-v"], ["-u", zipped]):
        code, output = run(sys.executable, tmp_path, *arguments)
        assert run(forked, tmp_path, *arguments) == (code, output)
        assert (code, '"arguments"' in output) == (0, True)


def test_only_what_it_was_told_to_import_is_there_already(
    forked: Preloaded, tmp_path: Path
) -> None:
    told = "import sys; print('xml.dom.minidom' in sys.modules, 'wave' in sys.modules)"
    assert run(forked, tmp_path, write(tmp_path, told)) == (0, "True False\n")


_PARENT = """
import atexit, json, os, signal, subprocess, sys, wave
from pathlib import Path
atexit.register(print, "the parent's end")
signal.signal(signal.SIGTERM, lambda *_: None)
Path("child.py").write_text('''
import json, os, signal, sys
from pathlib import Path
print(json.dumps({
    "parent": os.getppid(), "leads": os.getsid(0) == os.getpid(), "cwd": os.getcwd(),
    "forked": "xml.dom.minidom" in sys.modules, "state": "wave" in sys.modules,
    "term": signal.getsignal(signal.SIGTERM) == signal.SIG_DFL, "words": sys.argv[1:],
    "shown": Path("/proc/self/cmdline").read_text().rstrip(chr(0)).split(chr(0))[1:],
    "files": len(os.listdir("/proc/self/fd")), "set": os.environ.get("SET"),
}))
sys.exit(5)
''')
print("not written yet", end="")
def start(**changes):
    child = subprocess.Popen([sys.executable, "../child.py", "word"], stdout=subprocess.PIPE,
        env={**os.environ, "SET": "1", **changes}, start_new_session=True, cwd="below")
    told = json.loads(child.communicate()[0])
    assert told.pop("parent") == os.getpid() and child.returncode == 5
    return told
Path("below").mkdir()
file = open("child.py")
forked, real = start(), start(PYTHONHASHSEED="3")
assert forked.pop("forked") and not real.pop("forked"), "started as it must not be"
assert forked == real and forked["files"] == 4, (forked, real)
assert forked["leads"] and forked["term"] and not forked["state"], forked
assert forked["shown"] == ["../child.py", "word"], forked
assert subprocess.run([sys.executable, "-c", "raise SystemExit(6)"]).returncode == 6
assert subprocess.run(["sh", "-c", "exit 8"]).returncode == 8
"""


def test_what_a_program_starts_is_its_child_and_knows_nothing_of_it(
    forked: Preloaded, tmp_path: Path
) -> None:
    """And variables that act at the start of a process have it started for real."""
    code, output = run(forked, tmp_path, write(tmp_path, _PARENT))
    assert (code, output) == (0, "not written yetthe parent's end\n")


_WAITING = """
import signal, sys, time
signal.signal(signal.SIGTERM, lambda *_: sys.exit(9))
open("ready", "w").close()
time.sleep(1000)
"""


def waiting(python: Preloaded, folder: Path) -> preloaded.Started:
    """Start a program that waits until it is ended; return it once it does."""
    with Path(os.devnull).open("wb") as nothing:
        file = write(folder, _WAITING)
        started = python.start([file], stdout=nothing.fileno(), cwd=folder)
    limit = time.monotonic() + 60
    while not (folder / "ready").exists() and time.monotonic() < limit:
        time.sleep(0.01)
    return started


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 9), (signal.SIGKILL, -9)])
def test_it_takes_signals(
    number: signal.Signals, code: int, forked: Preloaded, tmp_path: Path
) -> None:
    started = waiting(forked, tmp_path)
    assert started.poll() is None
    with pytest.raises(subprocess.TimeoutExpired):
        started.wait(0.01)
    started.send_signal(number)
    assert started.wait(60) == started.poll() == code
    started.kill()  # too late for that, and no error


def test_it_ends_with_whoever_asked_for_it(forked: Preloaded, tmp_path: Path) -> None:
    started = waiting(forked, tmp_path)
    started.connection.close()
    assert gone(started.pid)
    assert run(forked, tmp_path, write(tmp_path, "raise SystemExit(4)")) == (4, "")


def test_everything_ends_with_the_preloaded_python(tmp_path: Path) -> None:
    with preloaded.serving(sys.executable, ["json"]) as python:
        started = waiting(python, tmp_path)
    assert gone(started.pid)
    assert started.wait(60) == -signal.SIGKILL


def gone(pid: int) -> bool:
    """Whether a process ends within the time that a busy machine may need for that."""
    limit = time.monotonic() + 60
    while Path(f"/proc/{pid}").exists() and time.monotonic() < limit:
        time.sleep(0.01)
    return not Path(f"/proc/{pid}").exists()
