"""Which distribution packages a specification asks for."""

from __future__ import annotations

from typing import Any

import pytest

from pyinfra_gpu.spec import resolve
from pyinfra_gpu.stages.cuda import findings as cuda
from pyinfra_gpu.stages.packages.findings import needed

REPO = {"training_repo": "https://example.org/t.git", "training_commit": "a" * 40}
ALL = ("g++", "git", "python3-dev", "python3-venv")
CASES: dict[str, tuple[dict[str, Any], tuple[str, ...]]] = {
    "torch.compile needs a compiler and Python's headers": (REPO, ALL),
    "no training repo, no git": ({}, ("g++", "python3-dev", "python3-venv")),
    "no torch.compile, no compiler": ({"environment_dynamo": False}, ("python3-venv",)),
    "another Python brings its own headers": (
        {"pytorch_python": "3.12"},
        ("g++", "python3-venv"),
    ),
}


@pytest.mark.parametrize(
    ("declared", "compiler", "packages"),
    [
        (None, "g++", ("g++", "python3-venv")),
        ("gcc-13", "g++-13", ("g++", "g++-13", "gcc-13", "python3-venv")),
        ("clang-18", "clang++-18", ("clang-18", "g++", "python3-venv")),
    ],
)
def test_nvcc_needs_its_compiler(
    declared: str | None, compiler: str, packages: tuple[str, ...]
) -> None:
    spec = resolve({"host_compiler": declared, "environment_dynamo": False}, "ws1")
    assert (cuda.compiler(spec), needed(spec)) == (compiler, packages)


@pytest.mark.parametrize("what", CASES)
def test_what_is_needed(what: str) -> None:
    data, names = CASES[what]
    assert needed(resolve({"stack": "cpu-torch2.13", **data}, "ws1")) == names


@pytest.mark.parametrize(
    ("python", "headers"),
    [("/usr/bin/python3", True), ("3.12", True), ("3.12.3", True), ("python3.12", True),
     ("/usr/bin/python3.12", True), ("3.1", False), ("3.13", False), ("/opt/python3", False)],
)  # fmt: skip
def test_the_distributions_own_python_has_its_headers_by_whatever_name(
    python: str, headers: bool
) -> None:
    spec = resolve({"stack": "cpu-torch2.13", "pytorch_python": python}, "ws1")
    assert ("python3-dev" in needed(spec, "3.12.3")) is headers
