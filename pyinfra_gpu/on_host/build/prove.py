"""The proof of a wheel, in a clean environment, before it is installed anywhere."""

from __future__ import annotations

import json
import re
from typing import Any

from . import requirements, tree
from .commands import Commands
from .errors import BuildError
from .fetch import nccl_tag
from .files import remove
from .place import Place
from .plan import Plan
from .wheel import the_wheel, write_manifest

ANSWER = "pyinfra-gpu-proof "
"""Begins the one line in which the process that imported torch tells what it found."""

UV_THREAD = "pt_tcpstore_uv"


def prove(plan: Plan, place: Place, run: Commands, program: str) -> None:
    """Install the wheel into an empty environment, try it there, and write its manifest.

    + program: path of this program, whose `inside` that environment's Python runs
    """
    remove(place.manifest)
    remove(place.proof)
    requirements.make_environment(plan, place.proof, run)
    install(plan, place, run)
    python = str(place.proof / "bin/python")
    lines = run.run([python, "-I", program, "inside"], what="importing the built torch")
    said = next((line for line in reversed(lines) if line.startswith(ANSWER)), None)
    if said is None:
        raise BuildError("the built torch was imported, and the proof said nothing")
    found = json.loads(said.removeprefix(ANSWER))
    stand_in, nccl = tree.is_stand_in(place.source), nccl_tag(place.source)
    proven = judge(plan, found, stand_in=stand_in, nccl=nccl)
    write_manifest(plan, place, run, proven)
    remove(place.proof)


def install(plan: Plan, place: Place, run: Commands) -> None:
    """Install the wheel, and what it needs."""
    wheel = str(the_wheel(place))
    what = "installing the wheel in an empty environment"
    requirements.install_into(plan, place.proof, [wheel], run, what=what)


def judge(
    plan: Plan, found: dict[str, Any], *, stand_in: bool, nccl: str | None = None
) -> dict[str, Any]:
    """Return what is proven, in words; raise BuildError where it is not what is declared.

    + nccl: the tag that the tree pins, such as "v2.27.5-1", None where it pins none
    """
    if found["version"] != plan.version:
        raise BuildError(f"the built torch says it is {found['version']}, not {plan.version}")
    if plan.commit is not None and found["git_version"] != plan.commit:
        raise BuildError(
            f"the built torch says it is of commit {found['git_version']}, not {plan.commit}"
        )
    if found["unloadable"]:
        path, why = found["unloadable"][0]
        said = f"a library of the built torch cannot be loaded: {path}: {why}"
        raise BuildError(said, (why,), why)
    proven = {"imports": True, "libraries": found["libraries"], "commit": plan.commit}
    if stand_in:
        return {**proven, "store": "not tried: a stand-in has none", "archs": "not tried: stand-in"}
    wanted = sorted(f"sm_{arch.replace('.', '')}" for arch in plan.archs)
    made = sorted(arch for arch in found["archs"] if arch.startswith("sm_"))
    if made != wanted:
        raise BuildError(f"the built torch has code for {made}, and {wanted} is declared")
    pinned = re.match(r"v?(\d+\.\d+\.\d+)", nccl or "")
    own = plan.wants("USE_NCCL") and not plan.wants("USE_SYSTEM_NCCL")
    if own and pinned and found["nccl"] != pinned[1]:
        raise BuildError(f"the built torch has NCCL {found['nccl']}, and its tree pins {nccl}")
    if plan.wants("USE_DISTRIBUTED") and found["store"] != [UV_THREAD]:
        raise BuildError(
            "the built torch does not serve its store with libuv:"
            f" {found['store_error'] or found['store']}",
            (str(found["store_error"]),) if found["store_error"] else (),
        )
    return {**proven, "store": UV_THREAD, "archs": made, "nccl": found["nccl"]}
