"""The wheel: made by the tree's own backend from what is compiled, and named as it is declared."""

from __future__ import annotations

import platform
import zipfile
from pathlib import Path
from typing import Any

from . import tree
from .commands import Commands
from .errors import BuildError
from .fetch import nccl_tag
from .files import digest, read_json, remove, sync, write_json
from .place import Place
from .plan import Plan
from .state import now


def make(plan: Plan, place: Place, run: Commands, jobs: int) -> None:
    """Have exactly one wheel in the folder of wheels."""
    made = place.made
    remove(made)
    words = command(place, tree.backend(place.source))
    run.run(words, what="making the wheel", more={"MAX_JOBS": str(jobs)})
    found = sorted(made.glob("*.whl"))
    if len(found) != 1:
        raise BuildError(f"the build left {len(found)} wheels, and one is expected")
    _named(plan, found[0])
    remove(place.wheels)
    sync(place.root)
    made.rename(place.wheels)


def command(place: Place, backend: str) -> list[str]:
    """Return the words that make a wheel of what is compiled, for a tree of either backend."""
    words = [str(place.environment / "bin/python"), "-m", "build", "--wheel", "--no-isolation"]
    if backend == tree.SCIKIT:
        words += ["-Cbuild-dir=build"]
    return [*words, "--outdir", str(place.made), str(place.source)]


def the_wheel(place: Place) -> Path:
    """Return the wheel that was built. Raises BuildError where none is there."""
    found = sorted(place.wheels.glob("*.whl"))
    if len(found) != 1:
        raise BuildError(f"{place.wheels} holds {len(found)} wheels, and one is expected")
    return found[0]


def is_proven(place: Place) -> bool:
    """Tell whether the wheel lies there as its manifest says."""
    known = read_json(place.manifest)
    path = place.wheels / str(known.get("file"))
    return path.is_file() and digest(path) == known.get("sha256")


def _named(plan: Plan, wheel: Path) -> None:
    """Compare name and version with what is declared; a wheel's name writes + as it is."""
    name, version = wheel.name.split("-")[:2]
    if name != "torch" or version != plan.version:
        raise BuildError(
            f"the wheel is {name} {version}, and torch {plan.version} is declared: the tree does"
            " not take PYTORCH_BUILD_VERSION"
        )


def write_manifest(plan: Plan, place: Place, run: Commands, proven: dict[str, Any]) -> None:
    """Write down what the wheel is: who installs it, and who hands it on, goes by that."""
    wheel = the_wheel(place)
    sync(place.wheels)
    write_json(
        place.manifest,
        {
            "schema": 1,
            "fingerprint": plan.fingerprint,
            "ingredients": dict(plan.ingredients),
            "file": wheel.name,
            "sha256": digest(wheel),
            "size": wheel.stat().st_size,
            "built": now(),
            "stand_in": tree.is_stand_in(place.source),
            "observed": {
                "commit": plan.commit,
                "submodules": _submodules(place, run),
                "nccl": nccl_tag(place.source),
                "compiler": _first_line(run, [run.environment.get("CXX", "g++"), "--version"]),
                "python": platform.python_version(),
                "glibc": platform.libc_ver()[1],
                "machine": platform.machine(),
                "files": _count(wheel),
            },
            "proven": proven,
        },
    )


def _count(wheel: Path) -> int:
    with zipfile.ZipFile(wheel) as content:
        return len(content.namelist())


def _submodules(place: Place, run: Commands) -> int | None:
    """Return how many submodules the source has, None for an archive's."""
    if not (place.source / ".git").exists():
        return None
    words = ["git", "-C", str(place.source), "submodule", "status", "--recursive"]
    return len(run.tried(words)[1])


def _first_line(run: Commands, words: list[str]) -> str:
    lines = run.tried(words)[1]
    return lines[0].strip()[:200] if lines else ""
