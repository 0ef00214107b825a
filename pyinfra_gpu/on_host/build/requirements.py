"""What the build itself needs: CMake, ninja and the tree's own requirements, apart from torch's."""

from __future__ import annotations

import hashlib
from pathlib import Path

from . import tree
from .commands import Commands
from .errors import BuildError
from .files import remove, sync
from .place import Place
from .plan import Plan


def install(plan: Plan, place: Place, run: Commands) -> None:
    """Have a virtual environment with the tools in it; the one that is there where it fits."""
    wanted = [*plan.tools, *tree.requires(place.source)]
    text = "\n".join([plan.python, *wanted, plan.tools_lock or ""])
    stamp = hashlib.sha256(text.encode()).hexdigest()
    mark = place.environment / ".pyinfra-gpu-tools"
    if mark.exists() and mark.read_text().strip() == stamp:
        return
    remove(place.environment)
    make_environment(plan, place.environment, run)
    what = "installing what builds torch"
    if plan.tools_lock is None:
        install_into(plan, place.environment, wanted, run, what=what)
    else:
        install_locked(plan, place.environment, plan.tools_lock, run, what=what)
        # Where all of it is there, nothing is looked for anywhere.
        words = [*_uv(plan, "install", place.environment), "--no-index", *wanted]
        refuse_unlocked(run.tried(words), "what the tree asks for to be built")
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


def install_locked(plan: Plan, folder: Path, lock: str, run: Commands, *, what: str) -> None:
    """Install what a lock names into an environment, each file by its digest."""
    listed = folder / "locked.txt"
    listed.write_text(lock, encoding="utf-8")
    only = ["--require-hashes", "--no-deps", "--only-binary", ":all:", "--requirement"]
    install_into(plan, folder, [*only, str(listed)], run, what=what)


def check(plan: Plan, folder: Path, run: Commands) -> None:
    """Raise BuildError where something in an environment lacks what it needs."""
    refuse_unlocked(run.tried(_uv(plan, "check", folder)), "what the built wheel needs")


def refuse_unlocked(answer: tuple[int, list[str]], needs: str) -> None:
    """Raise BuildError where uv found that a lock does not have everything."""
    status, lines = answer
    if status != 0:
        said = " ".join(line.strip() for line in lines if line.strip())[-300:]
        raise BuildError(
            f"the lock does not have {needs} ({said}): run `pyinfra-gpu lock INVENTORY` again",
            tuple(lines[-3:]),
        )


def _uv(plan: Plan, verb: str, folder: object) -> list[str]:
    return [plan.uv, "pip", verb, "--no-config", "--python", f"{folder}/bin/python"]
