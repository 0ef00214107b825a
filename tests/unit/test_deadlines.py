"""No call talks to a host past `ask`, which bounds it: held by a look at the source itself."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[2]
PRODUCT = PROJECT / "pyinfra_gpu"

WIRE = ("engine/transport.py", "engine/ask.py")
"""Where a connector is called directly: each of them hands over `_timeout`, or bounds it itself."""

FORBIDDEN = {"get_fact", "get_facts", "run_shell_command", "put_file", "get_file", "exec_command"}
"""What talks to a host past all that."""


@cache
def calls() -> tuple[tuple[str, ast.Call, str], ...]:
    """Return (path, call, the name that is called) of all of the product on the controller."""
    return tuple(
        (name, node, ast.unparse(node.func))
        for path in sorted(PRODUCT.rglob("*.py"))
        if not (name := str(path.relative_to(PRODUCT))).startswith("on_host/")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call)
    )


def last(name: str) -> str:
    return name.rpartition(".")[2]


def test_nothing_talks_to_a_host_past_what_bounds_it() -> None:
    for path, call, name in calls():
        if last(name) in FORBIDDEN:
            assert path in WIRE, f"{path}:{call.lineno}: {name}"


def test_a_connection_is_only_opened_within_a_time() -> None:
    """By the look and after a reboot; the rest is pyinfra's own, and the transport bounds it."""
    for path, call, name in calls():
        if last(name) == "connect" and path != "engine/transport.py":
            assert path in ("engine/look.py", "engine/reboot.py"), f"{path}:{call.lineno}"
            assert "with within(" in (PRODUCT / path).read_text(encoding="utf-8"), path


def test_the_probe_runs_programs_by_what_gives_each_a_limit_alone() -> None:
    begun = re.compile(r"\b(?:posix_spawn|subprocess|os\.system|os\.popen|os\.exec)\(")
    for path in sorted((PRODUCT / "on_host/probe").glob("*.py")):
        code = ast.parse(path.read_text(encoding="ascii"))
        for call in (node for node in ast.walk(code) if isinstance(node, ast.Call)):
            if isinstance(call.func, ast.Attribute) and call.func.attr == "run":
                named = {word.arg for word in call.keywords}
                assert "seconds" in named, f"{path.name}:{call.lineno}"
        found = begun.findall(path.read_text(encoding="ascii"))
        assert len(found) == (path.name == "frame.py"), path.name
