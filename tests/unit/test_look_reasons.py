"""Why a look at a host came to nothing, from what its login shell or sudo said."""

from __future__ import annotations

import pytest

from pyinfra_gpu.engine.look import _why

_NO_COMMAND = "whether it runs a command and sudo"
SAID: dict[str, tuple[list[str], tuple[str, ...]]] = {
    "nothing": ([], ("the login shell ended without a word", "log in there by hand (`ssh HOST`)")),
    "nologin": (
        ["This account is currently not available."],
        ("This account is currently not available.; log in there by hand", _NO_COMMAND),
    ),
    "a switch's own shell, which marks the place": (
        ["Welcome", "% Invalid input: exec sh -c", "          ^"],
        ("% Invalid input: exec sh -c; log in there by hand", _NO_COMMAND, '`privilege = "none"`'),
    ),
    "no word at all": (["~", "^"], ("^; log in there by hand", _NO_COMMAND)),
}


@pytest.mark.parametrize("name", SAID)
def test_what_a_login_shell_said_is_told_with_what_helps(name: str) -> None:
    said, reported = SAID[name]
    sentence = _why(said)
    assert [part for part in reported if part not in sentence] == []
    assert "\n" not in sentence
