"""The command line `pyinfra-gpu` before a verb has anything to do."""

from __future__ import annotations

import subprocess
import sys

import pytest

from pyinfra_gpu import cli

LOADED = """
import sys
from pyinfra_gpu import cli
sys.argv[1:] = ["explain", "--help"]
try:
    cli.main()
finally:
    print(*sorted(sys.modules), file=sys.stderr)
"""


def test_ctrl_c_while_a_verb_is_imported_is_one_word(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def pressed(module: str) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(cli, "import_module", pressed)
    assert cli.main(["check", "inventory.py"]) == 130
    assert capsys.readouterr().err.strip() == "interrupted"


def test_a_verb_alone_is_imported() -> None:
    done = subprocess.run(
        [sys.executable, "-c", LOADED], capture_output=True, text=True, check=False
    )
    loaded = done.stderr.split()
    assert "Usage: pyinfra-gpu explain" in done.stdout
    assert "pyinfra_gpu.explain" in loaded
    others = ("report", "locking", "operations")
    assert [
        name for name in loaded if name.startswith(tuple(f"pyinfra_gpu.{o}" for o in others))
    ] == []


def test_the_help_lists_every_verb(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["--help"]) == 0
    listed = capsys.readouterr().out
    assert [name for name in cli._COMMANDS if f"\n  {name}" not in listed] == []
    assert cli.main(["chekc"]) == 1
    assert "No such command 'chekc'. Did you mean 'check'?" in capsys.readouterr().err
