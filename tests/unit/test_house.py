"""The house rules that a machine can hold: documents that are true, layers that stay apart."""

from __future__ import annotations

import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

from pyinfra_gpu.compatibility import resolve
from pyinfra_gpu.spec import document

PROJECT = Path(__file__).resolve().parents[2]


def test_the_page_of_keys_is_what_the_declarations_say(tmp_path: Path) -> None:
    document.main(tmp_path)
    page = (PROJECT / document.PAGE).read_text(encoding="utf-8")
    assert (tmp_path / document.PAGE).read_text(encoding="utf-8") == page, document.COMMAND


def test_the_lab_inventory_resolves_as_it_is() -> None:
    shared = group_data("all")
    for name, data in runpy.run_path(str(PROJECT / "inventories" / "lab.py"))["gpu"]:
        assert resolve({**shared, **data}, name).gpu.model == "RTX 5090"


@pytest.mark.parametrize(
    "path", sorted((PROJECT / "group_data").glob("*.py")), ids=lambda p: p.stem
)
def test_every_group_data_file_holds_only_right_values(path: Path) -> None:
    assert resolve(group_data(path.stem), path.stem)


def group_data(name: str) -> dict[str, object]:
    module = runpy.run_path(str(PROJECT / "group_data" / f"{name}.py"))
    return {key: value for key, value in module.items() if key.islower() and key[0] != "_"}


def test_the_controller_never_imports_torch() -> None:
    code = "import pyinfra_gpu.cli, pyinfra_gpu.report.run, sys; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize(
    ("folder", "library", "who"),
    [
        (".", "paramiko", {"transport.py", "ask.py"}),
        ("on_host", "pyinfra", set()),
    ],
)
def test_a_library_is_known_to_those_alone_who_need_it(
    folder: str, library: str, who: set[str]
) -> None:
    form = rf"^\s*(import|from) {library}"
    modules = (PROJECT / "pyinfra_gpu" / folder).rglob("*.py")
    assert {path.name for path in modules if re.search(form, path.read_text(), re.M)} <= who


def test_nobody_reads_a_verdict_but_through_its_type() -> None:
    """What a host wrote is checked once, on arrival; behind that it has fields and no keys."""
    by_key = re.compile(
        r"\b(?:verdict|stamp|stamped|metrics|failed|check|test|explained)\.get\("
        r"|\b(?:verdict|stamp|stamped|metrics|failed)\[\""
    )
    for path in (PROJECT / "pyinfra_gpu").rglob("*.py"):
        if "on_host" not in path.parts:
            for line in path.read_text(encoding="utf-8").splitlines():
                assert not by_key.search(line), f"{path}: {line}"
