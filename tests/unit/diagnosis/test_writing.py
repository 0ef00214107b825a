"""An answer as a person reads it: 80 columns, whole commands, and no escape sequences."""

from __future__ import annotations

import shlex

import verdicts

from pyinfra_gpu.diagnosis.catalogue import catalogue
from pyinfra_gpu.on_host.diagnosis import writing
from pyinfra_gpu.on_host.diagnosis.causes import Step
from pyinfra_gpu.on_host.diagnosis.explain import Answer

LONG = "echo 'a quoted part that stays whole' " + "--more words " * 9 + '"and "'


def test_cause_line_steps_and_what_followed_stand_in_this_order() -> None:
    followed = verdicts.found(name="nccl-peer-gone", short="Another rank ended first.")
    lines = writing.lines(verdicts.answer(verdicts.found(), followed, followed))
    assert lines == [
        "/dev/shm is full. NCCL puts its buffers there.",
        "",
        "Seen in rank 1 (nccl-shm-full)",
        "  > Error while creating shared memory segment /dev/shm/nccl-x (size 9637888)",
        "",
        "What to do",
        "  1. See what is free:",
        "       df -h /dev/shm",
        "",
        "Also in the log, and not the cause",
        "  nccl-peer-gone: Another rank ended first.",
    ]


def test_a_long_command_is_broken_where_a_shell_does_not_mind() -> None:
    (lines,) = writing.steps((Step("Do this", LONG),))
    assert max(map(len, lines)) <= 80
    joined = "\n".join(lines[1:]).replace("\\\n", " ")
    assert shlex.split(joined) == shlex.split(LONG)


def test_code_in_a_sentence_is_not_broken() -> None:
    code = "`sudo apt-get update && sudo apt-get install nvidia-dkms-580-open`"
    (lines,) = writing.steps((Step(f"Some words before it, then {code}, and more words behind."),))
    assert any(code in line for line in lines)


def test_each_entry_fits_eighty_columns() -> None:
    for entry in catalogue().entries.values():
        found = verdicts.found(cause=entry.cause, short="", fix=entry.fix, line="x " * 400)
        for line in writing.lines(verdicts.answer(found)):
            # A quoted part of a command cannot be broken.
            assert len(line) <= 80 or len(shlex.split(line.rstrip("\\"))) == 1, entry.name


def test_what_a_log_says_reaches_the_terminal_as_text() -> None:
    evil = "\x1b]0;owned\x07\x1b[2J[bold]x[/bold]\r\n:smile:"
    found = verdicts.found(line=evil, cause=evil, short="", source=evil, fix=(Step(evil, evil),))
    for answer in (verdicts.answer(found), verdicts.answer(unexplained=evil)):
        shown = "\n".join(writing.lines(answer))
        assert "\x1b" not in shown and "\r" not in shown
        assert "[bold]x[/bold]" in shown
        assert ":smile:" in shown


def test_the_end_of_a_log_keeps_its_indentation() -> None:
    lines = writing.lines(verdicts.answer(unexplained="Traceback:\n  File x\n" + "y" * 90))
    assert lines[-3:] == ["  Traceback:", "    File x", f"  {'y' * 75}..."]
    assert writing.lines(Answer()) == ["The log is empty."]


def test_colour_is_for_terminals() -> None:
    answer = verdicts.answer(verdicts.found())
    assert "\x1b" in "\n".join(writing.lines(answer, colour=True))
