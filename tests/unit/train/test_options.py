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
