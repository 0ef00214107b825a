"""What a build would run, and with which variables, before there is a tree: for a plan in words."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

from . import compile as compiling
from . import configure, settings, tree, wheel
from .place import Place
from .plan import Plan

_JOBS = "JOBS"
"""In the place of a number that memory, cores and the tree decide."""


def shown(plan: Plan, place: Place) -> Iterator[str]:
    """Yield lines: what is fetched, the variables, and the commands.

    Which backend builds a tree stands in the tree alone, so what depends on it is told of both.
    """
    yield f"source: {' '.join(plan.source.values())}"
    yield f"tools: {' '.join(plan.tools)}, and what the tree asks for"
    for name, value in sorted(settings.environment(plan, place, {}, None).items()):
        if name != "HOME":
            yield f"{name}={shlex.quote(value)}"
    for backend in (tree.SETUPTOOLS, tree.SCIKIT):
        yield f"a tree of {backend}:"
        yield f"  configure: {shlex.join(configure.command(plan, place, backend))}"
        yield f"  wheel: {shlex.join(wheel.command(place, backend))}"
    yield f"compile: {shlex.join(compiling.command(place, _JOBS))}"
