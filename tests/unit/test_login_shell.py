"""Commands as any login shell hands them on."""

from __future__ import annotations

import shlex
import subprocess

import pytest

from pyinfra_gpu.engine.transport import one_line

SHELLS = ["bash", "rbash", "dash", "busybox sh", "zsh", "fish", "tcsh"]

COMMANDS = {
    "lines": ("echo one\necho two", "one\ntwo\n"),
    "quotes": (f"sh -c {shlex.quote('echo one' + chr(10) + 'echo its')}", "one\nits\n"),
    "a single quote": ('echo "it\'s"\ntrue', "it's\n"),
    "backslashes": ("printf '%s\\n' 'a\\nb\\\\c' '\\047'\n:", "a\\nb\\\\c\n\\047\n"),
    "an exclamation mark": ("[ ! -e /dev/null/x ] && echo 'no!such'", "no!such\n"),
    "other characters": (
        "echo 'caf\N{LATIN SMALL LETTER E WITH ACUTE} %s $HOME `x` $(y)'\n:",
        "caf\N{LATIN SMALL LETTER E WITH ACUTE} %s $HOME `x` $(y)\n",
    ),
    "standard input": ('read -r line\necho "<$line>"', "<typed>\n"),
}


@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize("name", COMMANDS)
def test_every_shell_has_it_run_as_it_stands(name: str, shell: str) -> None:
    command, printed = COMMANDS[name]
    ran = subprocess.run(
        [*shell.split(), "-c", one_line(command)],
        input="typed\n", capture_output=True, text=True, check=False, timeout=30,
    )  # fmt: skip
    assert (ran.stdout, ran.stderr, ran.returncode) == (printed, "", 0)


@pytest.mark.parametrize("name", COMMANDS)
def test_nothing_is_in_it_that_some_shell_reads_otherwise(name: str) -> None:
    made = one_line(COMMANDS[name][0])
    assert not set(made) & {"\n", "!"}
    coded = made.removeprefix('sh -c \'eval "$(printf %b "$1")"\' sh \'').removesuffix("'")
    assert "'" not in coded
    assert "\\\\" not in coded  # which fish would take for one


def test_how_it_ends_is_told() -> None:
    ran = subprocess.run(["sh", "-c", one_line("true\nexit 7")], check=False, timeout=30)
    assert ran.returncode == 7


def test_a_plain_command_stays_as_it_is() -> None:
    assert one_line("sudo -H -n sh -c 'ls /opt'") == "sudo -H -n sh -c 'ls /opt'"
