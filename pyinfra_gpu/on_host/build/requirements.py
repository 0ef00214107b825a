"""What the build itself needs: CMake, ninja and the tree's own requirements, apart from torch's."""

from __future__ import annotations

import hashlib

from . import tree
from .commands import Commands
from .files import remove, sync
from .place import Place
from .plan import Plan


def install(plan: Plan, place: Place, run: Commands) -> None:
    """Have a virtual environment with the tools in it; the one that is there where it fits."""
    wanted = [*plan.tools, *tree.requires(place.source)]
    text = "\n".join([plan.python, *wanted])
    stamp = hashlib.sha256(text.encode()).hexdigest()
    mark = place.environment / ".pyinfra-gpu-tools"
    if mark.exists() and mark.read_text().strip() == stamp:
        return
    remove(place.environment)
    make_environment(plan, place.environment, run)
    what = "installing what builds torch"
    install_into(plan, place.environment, wanted, run, what=what)
    listed = run.run([*_uv(plan, "freeze", place.environment)], what="listing the tools")
    (place.root / "tools.txt").write_text("\n".join(listed) + "\n", encoding="utf-8")
    mark.write_text(f"{stamp}\n")
    sync(place.root)


def make_environment(plan: Plan, folder: object, run: Commands) -> None:
    """Make an empty virtual environment of the declared Python."""
    words = [plan.uv, "venv", "--quiet", "--no-managed-python", "--no-config"]
    words += ["--cache-dir", plan.cache, "--python", plan.python, str(folder)]
    run.run(words, what="making a virtual environment")


def install_into(
    plan: Plan, folder: object, wanted: list[str], run: Commands, *, what: str
) -> None:
    """Install requirements, or wheels, into an environment from the declared places."""
    words = _uv(plan, "install", folder)
    words += ["--cache-dir", plan.cache, *plan.sources, *wanted]
    run.run(words, what=what)


def _uv(plan: Plan, verb: str, folder: object) -> list[str]:
    return [plan.uv, "pip", verb, "--no-config", "--python", f"{folder}/bin/python"]
