"""Why a command failed on a host, in the sentence of a run: the cause, not the last line."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from pyinfra_gpu.engine.steps import reason

SITE = "/opt/pyinfra-gpu/venv/lib/python3.11/site-packages"
SAID = {
    # what was printed: (what the sentence says is wrong, and what to do)
    "Setting up labmonitor (1.0) ...\nlabmonitor: no licence server\ndpkg: error processing package"
    " labmonitor (--configure):\n installed labmonitor package post-installation script subprocess"
    " returned error exit status 1\nErrors were encountered while processing:\n labmonitor": (
        "Installing or configuring labmonitor failed",
        "dpkg --configure",
    ),
    f"error: failed to remove file `{SITE}/sympy/abc.py`: Permission denied (os error 13)": (
        f"may not read or write {SITE}/sympy (error: failed",
        f"sudo chown -R USER: {SITE}/sympy",
    ),
    "error: Failed to read `x==1.14.0`\n  cause: Failed to read metadata from installed package"
    " `x==1.14.0`\n  cause: failed to open file `/x/METADATA`: No such file or directory (os error"
    " 2)\n\nhint: `x` (v1.14.0) was included because `torch` depends on `x>=1`": (
        "failed to open file `/x/METADATA`",
        "No such file or directory",
    ),
}


@pytest.mark.parametrize("text", SAID, ids=[words for _, words in SAID.values()])
def test_the_cause_is_told_and_what_helps(text: str) -> None:
    wrong, remedy = SAID[text]
    said = reason(["Collecting torch", *text.splitlines()])
    assert (wrong or " ".join(text.split())) in said
    assert remedy in said
    assert "\n" not in said


def test_who_said_it_stands_before_the_line() -> None:
    line = "E: Failed to fetch http://mirror.example/InRelease  503  Service Unavailable"
    assert f"(apt: {' '.join(line.split())}). " in reason([line], said_by="apt")
    assert reason(["what was that"], said_by="apt") == "apt says: what was that"


def test_without_a_known_cause_the_last_line_has_to_do() -> None:
    assert reason(["all is well", "what\x1b[2J was that" + " x" * 400]).startswith("what was that")
    assert len(reason(["y" * 900])) == 300
    assert "by hand" in reason([])


def test_a_run_without_a_failure_never_reads_the_catalogue() -> None:
    code = (
        "import sys, tasks.stages; from pyinfra_gpu.diagnosis.catalogue import catalogue;"
        " sys.exit(catalogue.cache_info().currsize)"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=Path(__file__).parents[2], check=False)
    assert done.returncode == 0
