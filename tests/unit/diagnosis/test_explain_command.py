"""`pyinfra-gpu explain`: what it reads, what it prints, how it ends."""

from __future__ import annotations

import gzip
import io
import json
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from pyinfra_gpu.cli import main
from pyinfra_gpu.diagnosis import reading
from pyinfra_gpu.on_host.diagnosis import log as lines
from pyinfra_gpu.text import unbroken, wrapped

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
    assert out.startswith("CUDA-17  CUDA, rank 1\n  > [rank1]: torch.OutOfMemoryError: CUDA out")
    for heading in ("\nWhy\n", "\nWhat to do\n  1. "):
        assert heading in out
    commands = [line for line in out.splitlines() if "nvidia-smi --query-compute-apps" in line]
    assert [line.strip().removeprefix("1. ") for line in commands] == [
        "nvidia-smi --query-compute-apps=pid,name,used_memory --format=csv"
    ]
    assert all(len(line) <= 80 for line in out.splitlines() if line not in commands)


def test_a_file_and_json(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    file = tmp_path / "run.log"
    file.write_text(LOG)
    assert command(monkeypatch, "--json", str(file)) == 0
    answer = json.loads(capsys.readouterr().out)
    assert set(answer) == {"findings", "suppressed", "unclassified", "tail"}
    (finding,) = answer["findings"]
    assert set(finding) == {"id", "layer", "kind", "evidence", "decided_by", "cause", "fix"}
    assert (finding["id"], finding["layer"], finding["kind"]) == ("CUDA-17", "cuda", "root")
    assert answer["unclassified"] is False
    assert answer["tail"] == []


def test_an_unknown_failure_is_shown_with_its_last_lines(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command(monkeypatch, "-", stdin=UNKNOWN.encode()) == 2
    out = capsys.readouterr().out
    assert out.startswith("No cause found: none of the ")
    assert out.endswith("  KeyError: 'label'\n")
    assert command(monkeypatch, "--json", stdin=UNKNOWN.encode()) == 2
    answer = json.loads(capsys.readouterr().out)
    assert answer == {
        "findings": [],
        "suppressed": [],
        "unclassified": True,
        "tail": UNKNOWN.splitlines(),
    }


def test_an_empty_log(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert command(monkeypatch) == 2
    assert "The log is empty." in capsys.readouterr().out


def test_who_sits_at_a_terminal_is_told_what_is_expected(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command(monkeypatch, stdin=LOG.encode(), terminal=True) == 0
    assert (
        capsys.readouterr().err == "paste the log here, then press Ctrl-D on a line of its own:\n"
    )
    assert command(monkeypatch, stdin=LOG.encode()) == 0
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    "packed",
    [
        gzip.compress(LOG.encode()),
        b"\xff\xfe" + LOG.encode("utf-16-le"),
        b"\xfe\xff" + LOG.encode("utf-16-be"),
        b"\xef\xbb\xbf" + LOG.encode(),
        b"\xff\x80 not UTF-8\n" + LOG.encode(),
        LOG.replace("\n", "\r\n").encode(),
        LOG.replace("out of memory", "out\x00 of memory").encode(),
        gzip.compress(b"\xff\xfe" + LOG.encode("utf-16-le")),
        gzip.compress((LOG + "x" * 9).encode())[:-4],
    ],
    ids=["gzip", "utf-16", "big-endian", "bom", "not-utf-8", "crlf", "nul", "both", "cut-gzip"],
)
def test_the_bytes_of_a_log_may_be_many_things(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], packed: bytes
) -> None:
    assert command(monkeypatch, stdin=packed) == 0
    assert capsys.readouterr().out.startswith("CUDA-17 ")


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"\xfd7zXZ\x00rest", "is packed; unpack it: xz -dc FILE | pyinfra-gpu explain"),
        (b"\x28\xb5\x2f\xfdrest", "zstd -dc"),
        (b"\x1f\x8b\x08\x00garbage", "is damaged"),
    ],
)
def test_what_cannot_be_read_is_one_sentence(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    content: bytes,
    said: str,
) -> None:
    file = tmp_path / "run.log.x"
    file.write_bytes(content)
    assert command(monkeypatch, str(file)) == 1
    error = capsys.readouterr().err
    assert error.startswith(f"pyinfra-gpu explain: {file} ")
    assert said in error
    assert error.count("\n") == 1


def test_no_file_and_a_folder_are_mistakes(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    for path, reason in (
        (tmp_path / "none", "No such file or directory"),
        (tmp_path, "Is a directory"),
    ):
        assert command(monkeypatch, str(path)) == 1
        captured = capsys.readouterr()
        assert captured.out == ""
        assert captured.err == f"pyinfra-gpu explain: {path} cannot be read: {reason}\n"


@pytest.mark.parametrize("pack", [bytes, gzip.compress], ids=["plain", "gzip"])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-16"])
def test_of_a_very_long_log_the_middle_is_left_out(
    monkeypatch: pytest.MonkeyPatch, pack: type, encoding: str
) -> None:
    monkeypatch.setattr(reading, "HEAD", 1000)
    monkeypatch.setattr(reading, "TAIL", 2000)
    text = "first line\n" + "".join(f"line {n:06}\n" for n in range(300_000)) + "last line\n"
    log = reading.read_log(io.BytesIO(pack(text.encode(encoding))))
    assert log.text.lstrip("\ufeff").startswith("first line\nline 000000\n")
    assert log.text.endswith("line 299999\nlast line\n")
    assert "middle was left out" in log.note
    assert len(log.text.encode(encoding)) < 3100
    assert "\ufffd" not in log.text


@pytest.mark.parametrize(
    ("text", "unread", "most"),
    [
        (
            "a line that says nothing at all\n" * 50_000,
            "the middle 1 MiB of its 2 MiB and lines",
            16,
        ),
        ("x\n" * 130_000, "lines 20,001 to 30,000 of 130,000", 1),
    ],
    ids=["many bytes", "many lines"],
)
def test_what_was_not_read_is_said_and_never_that_nothing_explains_the_log(
    text: str,
    unread: str,
    most: int,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    # Of a log of bytes there is a part of what is kept of a real one.
    for module, name in (
        *((reading, name) for name in ("HEAD", "TAIL")),
        *((lines, name) for name in ("HEAD_LINES", "TAIL_LINES")),
    ):
        monkeypatch.setattr(module, name, getattr(module, name) // most)
    log = tmp_path / "run.log"
    log.write_text(text)
    assert command(monkeypatch, str(log)) == 2
    shown = " ".join(capsys.readouterr().out.split())
    assert "No cause found in what was read of this log" in shown
    assert f"not read was {unread}" in shown
    assert "explains this log" not in shown
    assert command(monkeypatch, str(log), "--json") == 2
    assert json.loads(capsys.readouterr().out)["unread"].startswith(unread)


def test_of_a_log_that_was_read_whole_nothing_is_said_to_be_unread(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command(monkeypatch, stdin=b"x\n") == 2
    assert "known here explains this log" in " ".join(capsys.readouterr().out.split())


def test_a_log_that_unpacks_without_end_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "LARGEST", 10_000_000)
    with pytest.raises(reading.UnreadableError, match="longer than"):
        reading.read_log(io.BytesIO(gzip.compress(bytes(20_000_000))))


def piped(command: str, stdin: bytes = LOG.encode()) -> tuple[int, str, str]:
    """Run `explain` in a shell, as COMMAND with the program as {}: exit code, stdout, stderr."""
    code = "import sys; from pyinfra_gpu.cli import main; sys.exit(main(sys.argv[1:]))"
    program = shlex.join([sys.executable, "-c", code, "explain"])
    line = command.replace("{}", program)
    done = subprocess.run(["bash", "-c", line], input=stdin, capture_output=True, timeout=60)
    return done.returncode, done.stdout.decode(), done.stderr.decode()


def test_a_reader_that_has_seen_enough_is_no_error() -> None:
    code, out, err = piped("{} | head -1; exit ${PIPESTATUS[0]}", stdin=LOG.encode() * 500)
    assert out.startswith("CUDA-17")
    assert (code in (0, 141), err) == (True, "")
    assert piped("{} | true; exit ${PIPESTATUS[0]}")[2] == ""


@pytest.mark.parametrize(
    ("command", "stdin", "words"),
    [
        ("{} <&-", b"", "standard input is closed: name the log's FILE"),
        ("{} >/dev/full", LOG.encode(), "the answer cannot be written: No space left on device"),
        ("{}", bytes(range(256)) * 20, "standard input is not a text"),
    ],
)
def test_what_is_in_the_way_is_one_sentence(command: str, stdin: bytes, words: str) -> None:
    code, out, err = piped(command, stdin)
    assert (code, out) == (1, "")
    assert err.startswith("pyinfra-gpu explain: ")
    assert words in err
    assert err.count("\n") == 1


def test_a_terminal_that_cannot_show_a_letter_gets_its_number() -> None:
    code, out, _ = piped("PYTHONIOENCODING=ascii {}", f"caf\u00e9\n{UNKNOWN}".encode())
    assert code == 2
    assert "caf\\xe9" in out


@pytest.mark.parametrize(
    "line",
    [
        "E  AssertionError: assert 'no kernel image is available for execution on' in 'all good'",
        'print: checking for "NVRM: Xid (PCI:0000:01:00): 79, GPU has fallen off the bus."',
    ],
)
def test_what_a_program_only_talks_about_is_no_cause(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], line: str
) -> None:
    assert command(monkeypatch, stdin=f"{line}\n{UNKNOWN}".encode()) == 2
    assert capsys.readouterr().out.startswith("No cause found")


def test_a_command_in_a_sentence_is_never_broken() -> None:
    long = "`sudo apt-get update && sudo apt-get install --only-upgrade nvidia-dkms-580-open now`"
    assert long[1:-1] in "\n".join(wrapped(unbroken(f"do {long} then"), "  ", "  "))
