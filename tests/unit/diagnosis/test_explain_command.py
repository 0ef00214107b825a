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

from pyinfra_gpu import explain as cli
from pyinfra_gpu.cli import main
from pyinfra_gpu.on_host.diagnosis.explain import explain as found

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
    """The command: its exit code, standard output and standard error."""

    def typed(*words: object, stdin: bytes = b"", terminal: bool = False) -> tuple[int, str, str]:
        given = io.TextIOWrapper(io.BytesIO(stdin))
        monkeypatch.setattr(given, "isatty", lambda: terminal)
        monkeypatch.setattr(sys, "stdin", given)
        code = main(["explain", *map(str, words)])
        return code, *capsys.readouterr()

    return typed


def test_a_log_is_explained_at_eighty_columns(explain: Explain) -> None:
    code, out, _ = explain(stdin=LOG.encode())
    assert code == 0
    assert "\nSeen in standard input, rank 1 (cuda-out-of-memory)\n  > [rank1]: torch.OutOf" in out
    assert "\nWhat to do\n  1. " in out
    assert "\n       nvidia-smi" in out
    assert max(map(len, out.splitlines())) <= 80


def test_files_and_json(explain: Explain, tmp_path: Path) -> None:
    names = [str(tmp_path / name) for name in ("rank0.log", "rank1.log")]
    for name, text in zip(names, ("step 1 loss 0.5\n", LOG), strict=True):
        Path(name).write_text(text)
    code, out, _ = explain("--json", *names)
    answer = json.loads(out)
    assert (code, set(answer)) == (0, {"found", "unexplained", "failed", "unread"})
    root = answer["found"][0]
    assert (root["name"], root["rank"], root["source"]) == ("cuda-out-of-memory", 1, names[1])
    assert set(root["fix"][0]) == {"text", "run"}


def test_an_unknown_failure_is_shown_with_its_last_lines(explain: Explain) -> None:
    code, out, _ = explain("-", stdin=UNKNOWN.encode())
    assert (code, out.startswith("No cause found: ")) == (2, True)
    assert out.endswith("  KeyError: 'label'\n")
    code, out, _ = explain("--json", stdin=UNKNOWN.encode())
    answer = json.loads(out)
    assert (code, answer["found"], answer["failed"]) == (2, [], True)


def test_who_sits_at_a_terminal_is_told_what_is_expected(explain: Explain) -> None:
    asked = "paste the log here, then press Ctrl-D on a line of its own:\n"
    assert explain(terminal=True) == (2, "The log is empty.\n", asked)
    assert "No known failure is in this log." in explain(stdin=b"step 1 loss 0.5\n")[1]


@pytest.mark.parametrize(
    "packed",
    [
        b"\xef\xbb\xbf" + LOG.encode(),
        b"\xff\x80 not UTF-8\n" + LOG.encode(),
        LOG.replace("\n", "\r\n").encode(),
        LOG.replace("out of memory", "out\x00 of memory").encode(),
    ],
    ids=["bom", "not-utf-8", "crlf", "nul"],
)
def test_the_bytes_of_a_log_may_be_many_things(explain: Explain, packed: bytes) -> None:
    code, out, _ = explain(stdin=packed)
    assert (code, "cuda-out-of-memory" in out) == (0, True)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (gzip.compress(LOG.encode()), "is not a text: unpack it, such as with `zcat`"),
        (bytes(range(256)) * 20, "is not a text"),
        (None, "cannot be read: No such file or directory"),
    ],
)
def test_what_cannot_be_read_is_one_sentence(
    explain: Explain, tmp_path: Path, content: bytes | None, said: str
) -> None:
    file = tmp_path / "run.log.x"
    if content is not None:
        file.write_bytes(content)
    code, out, error = explain(file)
    assert error.startswith(f"Error: {file} {said}")
    assert (code, out, error.count("\n")) == (1, "", 1)


def test_of_a_very_long_log_head_and_tail_are_read_and_that_is_said(
    explain: Explain, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(cli, "HEAD", 1001)
    monkeypatch.setattr(cli, "TAIL", 2001)
    text = "first line\n" + "".join(f"line {n:06} \u2713\n" for n in range(60_000)) + "last line\n"
    seen: dict[str, str] = {}
    monkeypatch.setattr(cli, "explain", lambda logs, *more: seen.update(logs) or found(logs, *more))
    file = tmp_path / "run.log"
    file.write_text(text)
    said = "Not read: of its 1 MiB the middle 1 MiB."
    assert f"{file}: {said}" in explain(file)[1]
    assert json.loads(explain("--json", file)[1])["unread"] == {str(file): said}
    kept = seen[str(file)]
    assert kept.startswith("first line\nline 000000 ")
    assert kept.endswith("line 059999 \u2713\nlast line\n")
    assert len(kept) < 3100


# -- with an inventory


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An inventory of this machine, whose sudo answers with what the probe saw of another one."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(PROJECT)
    probe, sudo, fleet = (tmp_path / name for name in ("probe.txt", "sudo", "lab.py"))
    seen = (PROBES / "ubuntu2404-2x-rtx5090.txt").read_text()
    probe.write_text(seen.replace('"driver.loaded": "580.', '"driver.loaded": "570.'))
    sudo.write_text(f"#!/bin/sh\ncat {probe}\n")
    sudo.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    data = {"stack": "cpu-torch2.13", "prefix": str(tmp_path / "gpu"), "gpu_count": 0}
    fleet.write_text(f"gpu = [('@local', {data}), ('ws2', {data})]\n")
    return fleet


def test_the_host_of_the_run_decides(explain: Explain, lab: Path) -> None:
    log = lab.with_name("run.log")
    log.write_text(ERROR_803)
    code, out, err = explain(log, lab, "--limit", "@local")
    shown = " ".join(out.split())
    assert (code, err) == (0, "")
    assert "The loaded kernel module is older than the driver's libraries on this host" in shown
    assert "the loaded module is 570." in shown
    assert "on this host" not in " ".join(explain(log)[1].split())


def test_a_host_that_cannot_be_looked_at_leaves_the_log(explain: Explain, lab: Path) -> None:
    lab.with_name("sudo").write_text("#!/bin/sh\necho 'sudo: a password is required' >&2; exit 1\n")
    code, out, err = explain(lab, "--limit", "@local", stdin=ERROR_803.encode())
    assert (code, "cuda-driver-combination" in out) == (0, True)
    assert err.startswith("@local could not be looked at: sudo asks for a password there")
    assert err.endswith("; this is explained by the log alone\n")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["LAB"], "has 2 hosts: name one with --limit, such as --limit @local"),
        (["LAB", "--limit", "ws3"], "ws3"),
        (["none.py", "--limit", "ws1"], "none.py"),
    ],
)
def test_an_inventory_that_cannot_be_meant_is_one_sentence(
    words: list[str], said: str, explain: Explain, lab: Path
) -> None:
    typed = [str(lab) if word == "LAB" else word for word in words]
    code, out, err = explain(*typed, stdin=ERROR_803.encode())
    assert (code, out, err.count("\n")) == (1, "", 1)
    assert err.startswith("Error: ")
    assert said in err


@pytest.mark.parametrize(
    ("line", "stdin", "code", "words"),
    [
        ("{} <&-", b"", 1, "Error: standard input is closed: name a LOG"),
    ],
)
def test_what_a_shell_gives(line: str, stdin: bytes, code: int, words: str) -> None:
    call = "import sys; from pyinfra_gpu.cli import main; sys.exit(main(sys.argv[1:]))"
    typed = line.replace("{}", shlex.join([sys.executable, "-c", call, "explain"]))
    done = subprocess.run(["bash", "-c", typed], input=stdin, capture_output=True, timeout=60)
    assert done.returncode == code
    assert words in (done.stdout + done.stderr).decode()
