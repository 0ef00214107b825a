"""What hangs, or has no end, on a host: the probe answers in time all the same."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest
from hostile import crowd

sys.path.append(str(Path(__file__).parent / "fixtures" / "probe"))
from nvidia_tree import GPUS, furnish_nvidia
from probing import (  # noqa: F401
    RECORD,
    SITE,
    Tree,
    checkout,
    tree_fixture,
    write,
)

from pyinfra_gpu.facts.fields import Unknown
from pyinfra_gpu.facts.parse import parse
from pyinfra_gpu.on_host.probe.frame import TOO_LATE as LATE
from pyinfra_gpu.on_host.probe.look import FIRST_LINE, LAST_LINE

PROJECT = Path(__file__).resolve().parents[2]
LATE_FOR_GIT = Unknown("git: it did not answer in time")
YES = f"{shutil.which('yes')} 0123456789"  # more than may be kept, long before its time is over
DEAF = "trap '' TERM INT HUP\nn=0\nwhile [ $n -lt 25 ]; do n=$((n + 1)); sleep 1; done"


def impatient(tree: Tree, seconds: float = 1) -> None:
    """Shorten the time of every program."""
    tree.more["limit"] = seconds


def still_running(tree: Tree) -> list[str]:
    """Return what still runs of a look, after two seconds for what is just ending."""
    until = time.monotonic() + 2
    while True:
        found = []
        for path in Path("/proc").glob("[0-9]*/cmdline"):
            with suppress(OSError):
                found += [path.parent.name] if os.fsencode(tree.base) in path.read_bytes() else []
        if not found or time.monotonic() > until:
            return found
        time.sleep(0.1)


def test_a_program_that_does_not_care_for_a_signal_is_killed(tree: Tree) -> None:
    checkout(tree)
    tree.tool("git", DEAF)
    impatient(tree, 0.2)
    record = tree.look()
    assert record.training.commit == LATE_FOR_GIT
    assert record.smoke.stamp is None


def test_a_daemon_that_keeps_the_output_open_is_not_waited_for(tree: Tree) -> None:
    """Its parent has ended, and was no shell's child that anybody could wait for."""
    checkout(tree)
    tree.tool("python3", "sleep 40 &\necho Python 3.11.2")
    tree.tool("git", "sleep 40 &\necho fatal: it broke >&2\nexit 128")
    record = tree.look()
    assert record.system.python3 == "3.11.2"
    assert record.training.commit == Unknown("git: fatal: it broke")


@pytest.mark.parametrize("said", ["echo 0123456789", "printf 0", YES])
def test_a_program_that_never_stops_talking_is_cut(tree: Tree, said: str) -> None:
    checkout(tree)
    tree.tool("git", f"while :; do {said}; done")
    impatient(tree, 0.2)
    record = tree.look()
    assert isinstance(record.training.commit, Unknown)
    assert record.training.commit != Unknown(LATE)  # cut by its own limit, not by that of the look
    assert still_running(tree) == []


PARTS = """
import json, os, signal, sys, time
from contextlib import suppress
from pyinfra_gpu.on_host.probe.frame import Host, begin, collect

def hang(_):
    while True:
        signal.pause()  # a signal that is handled, as that of a child's end, ends one pause only

def forge(_):
    # Write what the owner might, who owns the process, to whatever is open.
    for each in os.listdir("/proc/self/fd"):
        with suppress(OSError):
            os.write(int(each), b'system.ram_mib 0\\nowner "x"\\n')

PARTS = {
    "hangs": {"a.b": lambda _: 1, "a.c b.d": hang},
    "tells": {"c.d": lambda _: "x"},
    "dies": {"dies.now": lambda _: os._exit(1)},
    "floods": {f"floods.{n}": lambda _: "x" * 1000 for n in range(5000)},
}
first = forge if sys.argv[1] == "forged" else None
tables = [PARTS[name] for name in sys.argv[2:]]
begun = [(table, begin(Host("", {}), table, first)) for table in tables]
print(json.dumps(collect(begun, time.monotonic() + 3)))
"""


def answered(how: str, *parts: str) -> dict[str, str]:
    """What parts of a look tell, apart from gevent, which takes what the probe waits with."""
    words = [sys.executable, "-c", PARTS, how, *parts]
    more = {**os.environ, "PYTHONPATH": str(PROJECT)}
    done = subprocess.run(words, env=more, capture_output=True, text=True, check=True)
    reported: dict[str, str] = json.loads(done.stdout)
    return reported


def test_a_part_that_hangs_tells_what_it_knew_and_the_others_are_told() -> None:
    late = f'{{"?":"{LATE}"}}'
    reported = answered("plain", "hangs", "tells")
    assert reported == {"a.b": "1", "a.c": late, "b.d": late, "c.d": '"x"'}


def test_a_part_that_dies_is_not_told_and_one_that_floods_is_cut() -> None:
    reported = answered("plain", "dies", "floods")
    early = '{"?":"the look at it ended too early"}'
    assert reported["dies.now"] == reported["floods.4999"] == early
    assert sum(each != early for each in reported.values()) < 1200


def test_of_a_process_only_the_keys_of_its_table_are_taken() -> None:
    assert answered("forged", "tells") == {"c.d": '"x"'}


HANGING = """
import json, os, signal, sys
from pyinfra_gpu.on_host.probe import look
asked = json.load(sys.stdin)
def hangs_below_prefix(real):
    def call(path, *words, **more):
        while str(path).startswith(asked["prefix"]):
            signal.pause()
        return real(path, *words, **more)
    return call
for name in ("stat", "lstat", "open", "statvfs", "access", "listdir", "chdir"):
    setattr(os, name, hangs_below_prefix(getattr(os, name)))
print(look.look(asked, sys.argv[1]))
"""


def test_where_the_prefix_does_not_answer_all_else_is_told(tree: Tree) -> None:
    """What hangs in the kernel cannot be ended: only the process that waits for it is left.

    In a process of its own: gevent, where a test before imported pyinfra's command line, replaces
    what the probe waits with.
    """
    furnish_nvidia(tree)
    checkout(tree)
    done = subprocess.run(
        [sys.executable, "-c", HANGING, str(tree.root)],
        input=json.dumps(tree.asked(**GPUS, seconds=3)),
        env={"PATH": str(tree.tools), "SUDO_USER": "ubuntu", "PYTHONPATH": str(PROJECT)},
        capture_output=True,
        text=True,
        check=True,
    )
    record = parse([FIRST_LINE, done.stdout.strip(), LAST_LINE])
    late = Unknown(LATE)
    assert record.storage.free_mib == late
    assert record.layout.entry(tree.paths.venv) == late
    assert (record.torch.python, record.training.commit, record.smoke.stamp) == (late, late, late)
    assert record.cuda.proof == late
    assert record.cuda.nvcc == "13.0"
    assert isinstance(record.nvidia.packages, tuple)


HUGE = 200 << 30


def test_files_that_are_mostly_holes_are_not_read(tree: Tree) -> None:
    site = tree.venv()
    checkout(tree)
    paths = tree.paths
    for path in (
        Path(paths.training) / "requirements.txt",
        Path(paths.stamp),
        Path(paths.venv) / ".pyinfra-gpu-training.json",
        site / "torch/version.py",
        site / RECORD,
    ):
        write(path, "")
        with path.open("wb") as file:
            file.truncate(HUGE)
    requirements = Path(paths.training) / "requirements.txt"
    (Path(paths.training) / ".git/index").unlink()
    record = tree.look()
    assert record.training.requirements_sha256 == Unknown(f"{requirements} is larger than 4 MiB")
    assert isinstance(record.smoke.stamp, Unknown)
    assert record.training.stamp_text == Unknown("the file is longer than 64 KiB")
    assert record.torch.damaged == (RECORD,)
    assert record.torch.version is None


def test_a_folder_of_100000_names_is_told_of_in_one_word(tree: Tree) -> None:
    site = tree.venv()
    crowd(site, "-1.dist-info")
    record = tree.look()
    where = Path(tree.paths.venv) / SITE
    assert record.torch.distributions == Unknown(f"{where} holds more than 5000")
