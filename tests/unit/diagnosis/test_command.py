"""Why a command of ours failed: the cause, the line that says it and the first step."""

from __future__ import annotations

import subprocess
import sys

import pytest

from pyinfra_gpu.diagnosis.command import explain_lines
from pyinfra_gpu.engine.steps import reason

# What a step's output says -> what the run says to do about it.
REMEDIES = {
    "OSError: [Errno 28] No space left on device": "`df -h; df -i`",
    "error: Failed to fetch: `http://127.0.0.1:9/simple/torch/`": "declare another index",
    "fatal: unable to access 'https://x.org/': Could not resolve host: x.org": "Check network",
    "fatal: unable to access 'http://x:9/': Failed to connect to x port 9: Connection refused": (
        "See proxy settings and the route"
    ),
    "fatal: reference is not a tree: 0123456789abcdef0123456789abcdef01234567": "training_commit",
    "mv: cannot move 'a' to '/opt/b': Directory not empty": "move it away",
    "error: No interpreter found for Python 3.99 in managed installations": "`uv python list; ",
    "sudo: unknown user ada": "correct the `owner` key",
    "  x No solution found when resolving dependencies:": "Read which package asks for what",
    "  Because torchx was not found in the package registry and you require torchx, so": (
        "See what is offered"
    ),
    "The virtual environment was not created because ensurepip is not available.": (
        "Install it: `sudo apt-get install python3-venv`"
    ),
    "sh: 1: git: not found": "`sudo apt-get install PACKAGE`",
    "cp: cannot create regular file '/opt/x': Permission denied": "the `owner` key",
}


@pytest.mark.parametrize("line", REMEDIES)
def test_the_line_and_what_to_do_are_said(line: str) -> None:
    sentence = explain_lines(["Collecting torch", line, "  (exit 1)"])
    assert sentence is not None
    assert " ".join(line.split()) in sentence
    assert REMEDIES[line] in sentence
    assert "\n" not in sentence
    assert reason(["Collecting torch", line, "  (exit 1)"]) == sentence


def test_who_said_it_stands_before_the_line() -> None:
    line = "E: Failed to fetch http://mirror.example/InRelease  503  Service Unavailable"
    sentence = explain_lines([line], said_by="apt")
    assert sentence is not None
    assert f"(apt: {' '.join(line.split())}). " in sentence
    assert reason(["what was that"], said_by="apt") == "apt says: what was that"


def test_without_a_known_cause_the_last_line_has_to_do() -> None:
    assert explain_lines(["all is well", "what was that"]) is None
    assert reason(["all is well", "what\x1b[2J was that" + " x" * 400]).startswith("what was that")
    assert len(reason(["y" * 900])) == 300
    assert "by hand" in reason([])
    assert explain_lines([]) is None


def test_a_program_that_is_missing_is_named() -> None:
    assert "unzip" in (explain_lines(["bash: line 3: unzip: command not found"]) or "")


def test_a_run_without_a_failure_never_reads_the_catalogue() -> None:
    code = (
        "import sys, pyinfra_gpu.operations.driver, pyinfra_gpu.operations.pytorch;"
        " sys.exit('pyinfra_gpu.diagnosis.catalogue' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
