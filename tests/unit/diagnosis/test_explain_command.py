"""`pyinfra-gpu explain`: what it reads, what it prints, how it ends."""

from __future__ import annotations

import gzip
import io
import json
import os
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from pyinfra_gpu.cli import main
from pyinfra_gpu.explain import cli as reading

PROJECT = Path(__file__).resolve().parents[3]
PROBES = Path(__file__).parents[1] / "fixtures" / "probe"
LOG = (
    "[rank1]: Traceback (most recent call last):\n"
    '[rank1]:   File "/home/ada/train.py", line 3, in <module>\n'
    "[rank1]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 1 has a"
    " total capacity of 31.36 GiB of which 1.02 GiB is free.\n"
)
UNKNOWN = (
    "Traceback (most recent call last):\n  File \"train.py\", line 3, in f\nKeyError: 'label'\n"
)
ERROR_803 = (
    "RuntimeError: Unexpected error from cudaGetDeviceCount(). Error 803:"
    " system has unsupported display driver / cuda driver combination\n"
)
Explain = Callable[..., tuple[int, str, str]]


@pytest.fixture
def explain(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Explain:
    """Return what runs the command: its exit code, what it printed, and its errors."""

    class Stdin(io.TextIOWrapper):
        terminal = False

        def isatty(self) -> bool:
            return self.terminal

    def run(
        *words: object, stdin: str | bytes = b"", terminal: bool = False
    ) -> tuple[int, str, str]:
        given = Stdin(io.BytesIO(stdin.encode() if isinstance(stdin, str) else stdin))
        given.terminal = terminal
        monkeypatch.setattr(sys, "stdin", given)
        code = main(["explain", *map(str, words)])
        return (code, *capsys.readouterr())

    return run


def test_a_log_is_explained_at_eighty_columns(explain: Explain) -> None:
    code, out, err = explain(stdin=LOG, terminal=True)
    assert code == 0
    assert err == "paste the log here, then press Ctrl-D on a line of its own:\n"
    for words in (
        "\nSeen in standard input, rank 1 (cuda-out-of-memory)\n  > ",
        "torch.OutOfMemoryError: CUDA out of memory.",
        "\nWhat to do\n  1. ",
        "\n       nvidia-smi",
    ):
        assert words in out
    assert max(map(len, out.splitlines())) <= 80


def test_files_and_json(explain: Explain, tmp_path: Path) -> None:
    names = [str(tmp_path / name) for name in ("rank0.log", "rank1.log")]
    Path(names[0]).write_text("step 1 loss 0.5\n")
    Path(names[1]).write_text(LOG)
    code, out, _ = explain("--json", *names)
    answer = json.loads(out)
    assert (code, set(answer)) == (0, {"found", "unexplained", "failed", "unread"})
    root = answer["found"][0]
    assert (root["name"], root["rank"], root["source"]) == ("cuda-out-of-memory", 1, names[1])
    assert set(root["fix"][0]) == {"text", "run"}


@pytest.mark.parametrize(
    ("stdin", "words", "failed"),
    [
        ("", "The log is empty.", False),
        ("step 1 loss 0.5\n", "No known failure is in this log.", False),
        (UNKNOWN, "No cause found: ", True),
        (UNKNOWN, "  KeyError: 'label'\n", True),
    ],
)
def test_without_a_cause_it_says_whether_anything_failed(
    stdin: str, words: str, failed: bool, explain: Explain
) -> None:
    code, out, _ = explain("-", stdin=stdin)
    assert code == 2
    assert words in out
    answer = json.loads(explain("--json", stdin=stdin)[1])
    assert (answer["found"], answer["failed"]) == ([], failed)


@pytest.mark.parametrize(
    "packed",
    [
        gzip.compress(LOG[:90].encode()) + gzip.compress(LOG[90:].encode()),
        gzip.compress((LOG + os.urandom(99_000).hex()).encode())[:-4],
        b"\xef\xbb\xbf\xff\x80 not UTF-8\n" + LOG.replace("\n", "\r\n").encode(),
        LOG.replace("out of memory", "out\x00 of memory").encode(),
    ],
    ids=["two-gzips", "cut-gzip", "bom-crlf-not-utf-8", "nul"],
)
def test_the_bytes_of_a_log_may_be_many_things(explain: Explain, packed: bytes) -> None:
    code, out, _ = explain(stdin=packed)
    assert (code, "cuda-out-of-memory" in out) == (0, True)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"\x1f\x8b\x08\x00garbage", "is damaged"),
        (bytes(range(256)) * 20, "is not a text"),
        (None, "cannot be read: No such file or directory"),
        (..., "cannot be read: Is a directory"),
    ],
)
def test_what_cannot_be_read_is_one_sentence(
    explain: Explain, tmp_path: Path, content: object, said: str
) -> None:
    file = tmp_path if content is ... else tmp_path / "run.log.x"
    if isinstance(content, bytes):
        file.write_bytes(content)
    code, out, error = explain(file)
    assert (code, out, error.count("\n")) == (1, "", 1)
    assert error.startswith(f"pyinfra-gpu explain: {file} ")
    assert said in error


@pytest.mark.parametrize("pack", [bytes, gzip.compress], ids=["plain", "gzip"])
def test_of_a_very_long_log_head_and_tail_are_read_and_that_is_said(
    pack: type, monkeypatch: pytest.MonkeyPatch, explain: Explain, tmp_path: Path
) -> None:
    monkeypatch.setattr(reading, "HEAD", 1001)
    monkeypatch.setattr(reading, "TAIL", 2001)
    text = "first line\n" + "".join(f"line {n:06} \u2713\n" for n in range(300_000)) + "last line\n"
    log = reading.read_log(io.BytesIO(pack(text.encode())))
    assert log.text.startswith("first line\nline 000000 ")
    assert log.text.endswith("line 299999 \u2713\nlast line\n")
    assert len(log.text) < 3100
    assert "\ufffd" not in log.text
    file = tmp_path / "run.log"
    file.write_bytes(pack(text.encode()))
    said = "Not read: of its 5 MiB the middle 5 MiB."
    code, out, _ = explain(file)
    assert (code, f"{file}: {said}" in out) == (2, True)
    assert json.loads(explain("--json", file)[1])["unread"] == {str(file): said}


def test_a_log_that_unpacks_without_end_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "LARGEST", 10_000_000)
    with pytest.raises(ValueError, match="longer than"):
        reading.read_log(io.BytesIO(gzip.compress(bytes(20_000_000))))


# -- with an inventory


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An inventory of this machine, whose sudo answers with what the probe saw of another one."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(PROJECT)
    probe = tmp_path / "probe.txt"
    seen = (PROBES / "ubuntu2404-2x-rtx5090.txt").read_text()
    probe.write_text(seen.replace('"driver.loaded": "580.', '"driver.loaded": "570.'))
    sudo = tmp_path / "sudo"
    sudo.write_text(f"#!/bin/sh\ncat {probe}\n")
    sudo.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    fleet = tmp_path / "lab.py"
    data = {"stack": "cpu-torch2.13", "prefix": str(tmp_path / "gpu"), "gpu_count": 0}
    fleet.write_text(f"gpu = [('@local', {data}), ('ws2', {data})]\n")
    return fleet


def test_the_host_of_the_run_decides(lab: Path, explain: Explain) -> None:
    log = lab.with_name("run.log")
    log.write_text(ERROR_803)
    code, out, err = explain(log, lab, "--limit", "@local")
    shown = " ".join(out.split())
    assert (code, err) == (0, "")
    assert "The loaded kernel module is older than the driver's libraries on this host" in shown
    assert "the loaded module is 570." in shown
    code, out, _ = explain(log)
    assert (code, "on this host" in " ".join(out.split())) == (0, False)


def test_a_host_that_cannot_be_looked_at_leaves_the_log(lab: Path, explain: Explain) -> None:
    lab.with_name("sudo").write_text("#!/bin/sh\necho 'sudo: a password is required' >&2; exit 1\n")
    code, out, err = explain(lab, "--limit", "@local", stdin=ERROR_803)
    assert (code, "cuda-driver-combination" in out) == (0, True)
    assert err.startswith("@local could not be looked at: sudo asks for a password there")
    assert err.endswith("; this is explained by the log alone\n")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["{}"], "has 2 hosts: name one with --limit, such as --limit @local"),
        (["{}", "--limit", "ws3"], "ws3"),
        (["none.py", "--limit", "ws1"], "none.py"),
    ],
)
def test_an_inventory_that_cannot_be_meant_is_one_sentence(
    words: list[str], said: str, lab: Path, explain: Explain
) -> None:
    arguments = [word.replace("{}", str(lab)) for word in words]
    code, out, err = explain(*arguments, stdin=ERROR_803)
    assert (code, out, err.count("\n")) == (1, "", 1)
    assert err.startswith("pyinfra-gpu explain: ")
    assert said in err


# -- in a shell


@pytest.mark.parametrize(
    ("command", "stdin", "codes", "out", "error"),
    [
        ("{} | head -1 | wc -l; exit ${PIPESTATUS[0]}", LOG * 500, (0, 141), "1\n", ""),
        ("{} <&-", "", (1,), "", "standard input is closed: name a LOG"),
        ("{} >/dev/full", LOG, (1,), "", "the answer cannot be written: No space left on device"),
        ("PYTHONIOENCODING=ascii {}", f"caf\u00e9\n{UNKNOWN}", (2,), "caf\\xe9", ""),
    ],
)
def test_an_output_that_is_closed_full_or_poor_is_no_traceback(
    command: str, stdin: str, codes: tuple[int, ...], out: str, error: str
) -> None:
    code = "import sys; from pyinfra_gpu.cli import main; sys.exit(main(sys.argv[1:]))"
    line = command.replace("{}", shlex.join([sys.executable, "-c", code, "explain"]))
    done = subprocess.run(["bash", "-c", line], input=stdin.encode(), capture_output=True)
    assert done.returncode in codes
    assert out in done.stdout.decode()
    assert done.stderr.decode() == (f"pyinfra-gpu explain: {error}\n" if error else "")
