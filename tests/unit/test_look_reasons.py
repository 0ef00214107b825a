"""Why a look at a host came to nothing, from what its login shell or sudo said."""

from __future__ import annotations

import pytest

from pyinfra_gpu.engine.look import _why

_NO_COMMAND = "whether it runs a command and sudo"
SAID: dict[str, tuple[list[str], tuple[str, ...]]] = {
    "nothing": ([], ("the login shell ended without a word", "log in there by hand (`ssh HOST`)")),
    "nologin": (
        ["This account is currently not available."],
        ("no shell there, or a restricted one", "`sudo chsh -s /bin/bash USER`"),
    ),
    "a wrong password": (
        ["Sorry, try again.", "Sorry, try again.", "sudo: 3 incorrect password attempts"],
        ("sudo did not accept the password", "`--same-sudo-password`"),
    ),
    "somebody who may not": (
        ["ubuntu is not in the sudoers file."],
        ("ubuntu is not in the sudoers file", "`sudo -l`"),
    ),
    "a restricted shell that finds nothing": (
        ["rbash: line 1: sudo: command not found"],
        ("a restricted one (rbash: line 1: sudo: command not found)", "`sudo chsh -s /bin/bash"),
    ),
    "a restricted shell that was told a path": (
        ["-bash: /bin/sh: restricted: cannot specify `/' in command names"],
        ("a restricted one (-bash: /bin/sh: restricted", "`sudo chsh -s /bin/bash"),
    ),
    "a switch's own shell, which marks the place": (
        ["Welcome", "% Invalid input: exec sh -c", "          ^"],
        ("% Invalid input: exec sh -c; log in there by hand", _NO_COMMAND, '`privilege = "none"`'),
    ),
    "no word at all": (["~", "^"], ("^; log in there by hand", _NO_COMMAND)),
}


@pytest.mark.parametrize("name", SAID)
def test_what_a_login_shell_said_is_told_with_what_helps(name: str) -> None:
    said, told = SAID[name]
    sentence = _why(said)
    assert [part for part in told if part not in sentence] == []
    assert "\n" not in sentence
