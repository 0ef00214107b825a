"""What is installed on the controller is locked by hash, with what builds the project itself."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from pyinfra_gpu.stacks import catalogue

PROJECT = Path(__file__).resolve().parents[2]
LOCK = (PROJECT / "requirements.lock").read_text(encoding="utf-8")
LOCKED = dict(re.findall(r"^([a-z0-9-]+)==(\S+)(?: ;[^\\\n]*)? \\\n    --hash=sha256:", LOCK, re.M))
DECLARED = tomllib.loads((PROJECT / "pyproject.toml").read_text(encoding="utf-8"))


def names(requirements: list[str]) -> set[str]:
    return {re.split(r"[<>=\[ ;]", each)[0].lower() for each in requirements}


def test_every_package_has_a_hash_and_no_place_to_be_fetched_from() -> None:
    assert len(LOCKED) == len(re.findall(r"^[a-z0-9-]+==", LOCK, re.M))
    assert not re.search(r"^-|://", LOCK, re.M)


@pytest.mark.parametrize("extra", ["test", "lock"])
def test_what_runs_and_what_is_used_here_is_locked(extra: str) -> None:
    project = DECLARED["project"]
    assert names(project["dependencies"]) | names(project["optional-dependencies"][extra]) <= {
        *LOCKED
    }


def test_what_builds_the_project_is_locked_and_nothing_else_is_fetched_for_it() -> None:
    assert names(DECLARED["build-system"]["requires"]) <= {*LOCKED}
    makefile = (PROJECT / "Makefile").read_text(encoding="utf-8")
    (line,) = re.findall(r".*\$\(PIP\) install .*-e \.", makefile)
    assert "--no-deps" in line
    assert "--no-build-isolation" in line


def test_the_uv_of_the_tests_is_that_of_the_hosts() -> None:
    """So what is shown of it here holds there. Where it differs: `make requirements`."""
    assert {stack.uv for stack in catalogue().stacks.values()} == {LOCKED["uv"]}
