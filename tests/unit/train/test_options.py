"""The launcher's command line: what is refused before anything is looked at."""

from __future__ import annotations

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


def test_the_help_of_start_shows_what_may_stand_behind_it_and_what_repeats(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit) as ended:
        options.parse(["start", "--help"])
    assert ended.value.code == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "[PRESET] [-- ARGS]" in said
    assert "K=V another value of an argument; may be given again" in said
