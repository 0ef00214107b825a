"""A refusal is as wide as the terminal; the controller and a pipe get each sentence whole."""

from __future__ import annotations

import sys

import pytest

from pyinfra_gpu.on_host.train import saying

TEXT = f"this run cannot start:\n  {'a disk is full ' * 9}\n    free some: `{'x ' * 60}y`"


def test_on_a_terminal_no_words_are_wider_than_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    saying.say(TEXT)
    lines = capsys.readouterr().err.splitlines()
    assert max(map(len, lines)) <= 80
    assert " ".join(" ".join(lines).replace("\\", "").split()).endswith(f"free some: {'x ' * 60}y")


def test_elsewhere_each_line_is_whole(capsys: pytest.CaptureFixture[str]) -> None:
    saying.say(TEXT)
    assert capsys.readouterr().err == f"{TEXT}\n"
