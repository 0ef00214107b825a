"""The launcher's command line: what is refused at once, and an answer that nobody takes."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import pytest

from pyinfra_gpu.on_host.train import options


def refused(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    """Return the sentence with which a command line is refused."""
    with pytest.raises(SystemExit) as ended:
        options.parse(words)
    assert ended.value.code == 2
    return capsys.readouterr().err.splitlines()[-1]


def test_a_run_to_repeat_and_a_preset_are_not_taken_both(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The preset was passed over without a word."""
    told = refused(capsys, "start", "--like", "20261122", "big")
    assert told.endswith("--like 20261122 has a preset of its own: give it or big, not both")
    assert options.parse(["start", "--like", "20261122", "--", "big"]).words == ["big"]


def test_a_command_that_there_is_not_is_told_with_the_one_that_was_meant(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """It named what a run's unit runs among the choices."""
    assert refused(capsys, "strat").endswith("there is no command 'strat': did you mean start?")
    told = refused(capsys, "xyz", "--dry")
    assert "the commands are start, try" in told
    assert "supervise" not in told
    assert "again" not in told


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("list", "--curves"), "--curves goes with --json: give both, or leave it out"),
        (("try", "--seconds", "0"), "'0' is no number of seconds from 1 to 999999"),
        (("try", "--seconds", "-1"), "'-1' is no number of seconds from 1 to 999999"),
        # They were found later, as if the preset were wrong: 1, and not 2.
        (("start", "a", "--set", "steps"), "--set: it is written --set steps=VALUE, in one word"),
        (("try", "--set", "=5"), "--set: it is written --set NAME=VALUE, in one word"),
    ],
)
def test_an_option_that_would_do_nothing_is_refused(
    words: tuple[str, ...], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert refused(capsys, *words).endswith(told)


def test_the_help_of_start_shows_what_may_stand_behind_it_and_what_repeats(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit) as ended:
        options.parse(["start", "--help"])
    assert ended.value.code == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "[PRESET] [-- ARGS]" in said
    assert "K=V another value of an argument; may be given again" in said


PRINTS = """
import sys
from pyinfra_gpu.on_host.train import __main__ as train
train.site.load = lambda: None
size = int(sys.argv.pop())
train._run = lambda *_: print("x" * size) or 0
sys.exit(train.main())
"""


@pytest.mark.parametrize("size", [10, 1 << 20])
@pytest.mark.parametrize(
    ("reader", "code", "told"),
    [
        ("full", 1, r"train list[ a-z:]+: No space left on device[^\n]*\n"),
        ("gone", 141, ""),
    ],
)
def test_an_answer_that_nobody_takes_is_a_sentence_or_nothing(
    reader: str, code: int, told: str, size: int
) -> None:
    """Python told of it at its very end, in words of its own."""
    program = [sys.executable, "-c", PRINTS]
    to = "> /dev/full" if reader == "full" else "| true; exit ${PIPESTATUS[0]}"
    pause = "sleep 0.2; " if reader == "gone" else ""  # until `true` has ended
    done = subprocess.run(
        ["bash", "-c", f'{{ {pause}exec "$@"; }} {to}', "bash", *program, "list", str(size)],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONUNBUFFERED": ""},
    )
    assert done.returncode == code
    assert re.fullmatch(told, done.stderr)
