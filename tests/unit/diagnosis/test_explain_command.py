"""`pyinfra-gpu explain`: what it reads, what it prints, how it ends."""

from __future__ import annotations

import gzip
import io
import json
import os
import shlex
import subprocess
import sys
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


def command(
    monkeypatch: pytest.MonkeyPatch, *arguments: str, stdin: bytes = b"", terminal: bool = False
) -> int:
    class Stdin(io.TextIOWrapper):
        def isatty(self) -> bool:
            return terminal

    monkeypatch.setattr(sys, "stdin", Stdin(io.BytesIO(stdin)))
    return main(["explain", *arguments])


def test_a_log_is_explained_at_eighty_columns(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command(monkeypatch, stdin=LOG.encode()) == 0
    out = capsys.readouterr().out
    for words in (
        "\nSeen in standard input, rank 1 (cuda-out-of-memory)\n  > ",
        "torch.OutOfMemoryError: CUDA out of memory.",
        "\nWhat to do\n  1. ",
        "\n       nvidia-smi",
    ):
        assert words in out
    assert max(map(len, out.splitlines())) <= 80


def test_files_and_json(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    names = [str(tmp_path / name) for name in ("rank0.log", "rank1.log")]
    for name, text in zip(names, ("step 1 loss 0.5\n", LOG), strict=True):
        Path(name).write_text(text)
    assert command(monkeypatch, "--json", *names) == 0
    answer = json.loads(capsys.readouterr().out)
    assert set(answer) == {"found", "unexplained", "failed", "unread"}
    root = answer["found"][0]
    assert (root["name"], root["rank"], root["source"]) == ("cuda-out-of-memory", 1, names[1])
    assert set(root["fix"][0]) == {"text", "run"}


def test_an_unknown_failure_is_shown_with_its_last_lines(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command(monkeypatch, "-", stdin=UNKNOWN.encode()) == 2
    out = capsys.readouterr().out
    assert out.startswith("No cause found: ")
    assert out.endswith("  KeyError: 'label'\n")
    assert command(monkeypatch, "--json", stdin=UNKNOWN.encode()) == 2
    answer = json.loads(capsys.readouterr().out)
    assert (answer["found"], answer["failed"]) == ([], True)


def test_who_sits_at_a_terminal_is_told_what_is_expected(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command(monkeypatch, terminal=True) == 2
    asked = "paste the log here, then press Ctrl-D on a line of its own:\n"
    assert capsys.readouterr() == ("The log is empty.\n", asked)
    assert command(monkeypatch, stdin=b"step 1 loss 0.5\n") == 2
    assert "No known failure is in this log." in capsys.readouterr().out


@pytest.mark.parametrize(
    "packed",
    [
        gzip.compress(LOG.encode()),
        gzip.compress(LOG[:90].encode()) + gzip.compress(LOG[90:].encode()),
        gzip.compress((LOG + os.urandom(99_000).hex()).encode())[:-4],
        b"\xef\xbb\xbf" + LOG.encode(),
        b"\xff\x80 not UTF-8\n" + LOG.encode(),
        LOG.replace("\n", "\r\n").encode(),
        LOG.replace("out of memory", "out\x00 of memory").encode(),
    ],
    ids=["gzip", "two-gzips", "cut-gzip", "bom", "not-utf-8", "crlf", "nul"],
)
def test_the_bytes_of_a_log_may_be_many_things(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], packed: bytes
) -> None:
    assert command(monkeypatch, stdin=packed) == 0
    assert "cuda-out-of-memory" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"\x1f\x8b\x08\x00garbage", "is damaged"),
        (bytes(range(256)) * 20, "is not a text"),
        (None, "cannot be read: No such file or directory"),
    ],
)
def test_what_cannot_be_read_is_one_sentence(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    content: bytes | None,
    said: str,
) -> None:
    file = tmp_path / "run.log.x"
    if content is not None:
        file.write_bytes(content)
    assert command(monkeypatch, str(file)) == 1
    out, error = capsys.readouterr()
    assert error.startswith(f"pyinfra-gpu explain: {file} ")
    assert (out, said in error, error.count("\n")) == ("", True, 1)


@pytest.mark.parametrize("pack", [bytes, gzip.compress], ids=["plain", "gzip"])
def test_of_a_very_long_log_head_and_tail_are_read_and_that_is_said(
    pack: type,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
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
    assert command(monkeypatch, str(file)) == 2
    assert f"{file}: {said}" in capsys.readouterr().out
    command(monkeypatch, "--json", str(file))
    assert json.loads(capsys.readouterr().out)["unread"] == {str(file): said}


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


ERROR_803 = (
    "RuntimeError: Unexpected error from cudaGetDeviceCount(). Error 803:"
    " system has unsupported display driver / cuda driver combination\n"
)


def test_the_host_of_the_run_decides(
    lab: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    log = lab.with_name("run.log")
    log.write_text(ERROR_803)
    assert command(monkeypatch, str(log), str(lab), "--limit", "@local") == 0
    out, err = capsys.readouterr()
    shown = " ".join(out.split())
    assert "The loaded kernel module is older than the driver's libraries on this host" in shown
    assert "the loaded module is 570." in shown
    assert err == ""
    assert command(monkeypatch, str(log)) == 0
    assert "on this host" not in " ".join(capsys.readouterr().out.split())


def test_a_host_that_cannot_be_looked_at_leaves_the_log(
    lab: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    lab.with_name("sudo").write_text("#!/bin/sh\necho 'sudo: a password is required' >&2; exit 1\n")
    assert command(monkeypatch, str(lab), "--limit", "@local", stdin=ERROR_803.encode()) == 0
    out, err = capsys.readouterr()
    assert "cuda-driver-combination" in out
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
    words: list[str],
    said: str,
    lab: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    arguments = [word.replace("{}", str(lab)) for word in words]
    assert command(monkeypatch, *arguments, stdin=ERROR_803.encode()) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("pyinfra-gpu explain: ")
    assert said in err
    assert err.count("\n") == 1


# -- in a shell


@pytest.mark.parametrize(
    ("line", "stdin", "code", "words"),
    [
        ("{} <&-", b"", 1, "pyinfra-gpu explain: standard input is closed: name a LOG"),
        ("PYTHONIOENCODING=ascii {}", f"caf\u00e9\n{UNKNOWN}".encode(), 2, "caf\\xe9"),
    ],
)
def test_what_a_shell_gives(line: str, stdin: bytes, code: int, words: str) -> None:
    call = "import sys; from pyinfra_gpu.cli import main; sys.exit(main(sys.argv[1:]))"
    typed = line.replace("{}", shlex.join([sys.executable, "-c", call, "explain"]))
    done = subprocess.run(["bash", "-c", typed], input=stdin, capture_output=True, timeout=60)
    assert done.returncode == code
    assert words in (done.stdout + done.stderr).decode()
