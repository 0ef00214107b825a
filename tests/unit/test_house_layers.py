"""The house rules that a machine can hold: rooms in one order, one place that builds findings."""

from __future__ import annotations

import ast
import importlib
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path

import pytest

from pyinfra_gpu.spec import KEYS
from pyinfra_gpu.stages.finding import Id, Stage
from pyinfra_gpu.stages.host import CONCERNS

PROJECT = Path(__file__).resolve().parents[2]
PRODUCT = PROJECT / "pyinfra_gpu"

ROOMS = (
    "text", "output", "whole_file", "host_names", "errors", "stacks",
    "spec", "compatibility", "packages", "facts", "diagnosis", "stages", "engine", "operations",
    "report", "explain", "locking", "remove", "cli",
)  # fmt: skip
"""From the ground up: a room imports those before it, and never one behind it."""

ANYWHERE = {"on_host", "__init__"}
"""What runs on hosts is read as data by whoever needs it, and imports nothing of ours."""


@cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def modules() -> Iterator[tuple[Path, str, ast.Module]]:
    """Yield (path, room, syntax) of each module of the product that runs on the controller."""
    for path in sorted(PRODUCT.rglob("*.py")):
        parts = path.relative_to(PRODUCT).with_suffix("").parts
        if parts[0] not in ANYWHERE:
            yield path, room_of(parts), parsed(path)


def room_of(parts: Sequence[str]) -> str:
    """Return the room of a module; of a stage, its operations stand above the engine."""
    acts = parts[0] == "stages" and parts[-1] == "operations"
    return "operations" if acts else parts[0]


def imports(tree: ast.Module) -> Iterator[str]:
    """Yield the full names of the modules of the product that are imported, wherever it stands."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module:
            if node.module == "pyinfra_gpu":
                yield from (f"pyinfra_gpu.{each.name}" for each in node.names)
            elif node.module.startswith("pyinfra_gpu.stages"):
                yield from (f"{node.module}.{each.name}" for each in node.names)
            elif node.module.startswith("pyinfra_gpu."):
                yield node.module
        elif isinstance(node, ast.Import):
            yield from (each.name for each in node.names if each.name.startswith("pyinfra_gpu."))


def arrows() -> Iterator[tuple[str, str, Path]]:
    """Yield (room, imported room, path) wherever one room imports another."""
    for path, room, tree in modules():
        for name in imports(tree):
            target = room_of(name.split(".")[1:])
            if target not in (*ANYWHERE, room, "__version__"):
                yield room, target, path


def test_every_room_has_its_place_in_the_order() -> None:
    assert {room for _, room, _ in modules()} <= set(ROOMS)


def test_no_arrow_runs_up() -> None:
    up = [
        f"{path.relative_to(PROJECT)} imports {target}"
        for room, target, path in arrows()
        if ROOMS.index(target) >= ROOMS.index(room)
    ]
    assert up == []


def test_only_stages_build_findings() -> None:
    for path, room, tree in modules():
        calls = {
            node.func.id
            for node in ast.walk(tree)
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
        }
        ours = any(each.startswith("pyinfra_gpu.stages.finding.") for each in imports(tree))
        assert room == "stages" or not (ours and {"Finding", "repair", "report", "stop"} & calls), (
            path
        )


def operations() -> dict[str, frozenset[Id]]:
    """Return module.operation -> the findings that it claims, of every operation there is."""
    found: dict[str, frozenset[Id]] = {}
    for path in sorted((PRODUCT / "stages").glob("*/operations.py")):
        stage = path.parent.name
        module = importlib.import_module(f"pyinfra_gpu.stages.{stage}.operations")
        for name, value in vars(module).items():
            if getattr(value, "__module__", "") == module.__name__ and hasattr(value, "repairs"):
                found[f"{stage}.{name}"] = value.repairs
    return found


def test_each_finding_is_made_somewhere_and_claimed_by_exactly_one_operation() -> None:
    assert Counter(id_ for ids in operations().values() for id_ in ids) == Counter(Id)
    files = (PRODUCT / "stages").rglob("*.py")
    made = "".join(p.read_text() for p in files if p.stem not in ("finding", "operations"))
    assert [id_ for id_ in Id if not re.search(rf"\bId\.{id_.name}\b", made)] == []


def test_an_operation_claims_findings_of_its_own_stage_alone() -> None:
    for name, ids in operations().items():
        assert len({each.stage for each in ids}) == 1, name


def test_every_concern_is_judged_for_the_whole_host() -> None:
    judged = {concern.__name__.split(".")[-2] for concern in CONCERNS}  # type: ignore[attr-defined]
    assert judged == {path.parent.name for path in (PRODUCT / "stages").glob("*/operations.py")}


def test_the_stages_of_the_keys_are_stages() -> None:
    assert {key.stage for key in KEYS.values()} - {"general"} <= {*map(str, Stage)}


def strings(tree: ast.Module) -> Iterator[ast.Constant]:
    """Yield each string of a module that is not a docstring."""
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    docstrings = set()
    for node in ast.walk(tree):
        if isinstance(node, documented):
            docstrings |= {
                id(each.value)
                for each in node.body
                if isinstance(each, ast.Expr) and isinstance(each.value, ast.Constant)
            }
    for node in ast.walk(tree):
        text = isinstance(node, ast.Constant) and isinstance(node.value, str)
        if text and id(node) not in docstrings:
            yield node  # type: ignore[misc]


_SHELL = re.compile(r"^\s*(if \[|for \w+ in|while |trap |set -e|case .* in$|fi$|done$|esac$)", re.M)


@pytest.mark.parametrize("package", ["pyinfra_gpu", "pyinfra_gpu_rehearsal"])
def test_no_program_for_a_host_is_a_text_inside_python(package: str) -> None:
    for path in sorted((PROJECT / package).rglob("*.py")):
        for node in strings(parsed(path)):
            lines = str(node.value).strip().count("\n") + 1
            assert lines < 4 or not _SHELL.search(str(node.value)), f"{path}:{node.lineno}"
