"""The proof of a wheel, in a clean environment, before it is installed anywhere."""

from __future__ import annotations

import ctypes
import importlib
import json
import os
from contextlib import suppress
from pathlib import Path
from typing import Any

from .steps import Build, BuildError, Plan, digest, remove, write_whole

ANSWER = "pyinfra-gpu-proof "
"""Begins the one line in which the process that imported torch tells what it found."""

UV_THREAD = "pt_tcpstore_uv"


def prove(build: Build, program: str) -> None:
    """Install the wheel into an empty environment, try it there, and write its manifest.

    + program: path of this program, whose `inside` that environment's Python runs
    """
    (wheel,), clean = build.wheels.glob("*.whl"), build.root / "proof"
    build.environment_with(clean, "installing the wheel in an empty environment", str(wheel))
    lines = build.run("importing the built torch", f"{clean}/bin/python", "-I", program, "inside")
    answers = [line[len(ANSWER) :] for line in lines if line.startswith(ANSWER)]
    if not answers:
        raise BuildError("the built torch was imported, and the proof said nothing")
    document = {
        "fingerprint": build.plan.fingerprint,
        "file": wheel.name,
        "sha256": digest(wheel),
        "size": wheel.stat().st_size,
        "proven": judge(build.plan, json.loads(answers[-1])),
    }
    remove(clean)
    build.sync()
    write_whole(build.manifest, json.dumps(document, indent=1, sort_keys=True) + "\n")


def judge(plan: Plan, found: dict[str, Any]) -> dict[str, Any]:
    """Return what is proven; raise BuildError where it is not what is declared."""
    for name, wanted in (("version", plan.version), ("git_version", plan.commit)):
        if found[name] != wanted:
            raise BuildError(f"the built torch says its {name} is {found[name]}, not {wanted}")
    if found["unloadable"]:
        path, why = found["unloadable"][0]
        raise BuildError(f"the built torch's library {path} cannot be loaded", (why,))
    proven = {"libraries": found["libraries"], "commit": plan.commit}
    if plan.rehearsal:
        return proven
    made = sorted(arch for arch in found["archs"] if arch.startswith("sm_"))
    if made != plan.code:
        raise BuildError(f"the built torch has code for {made}, and {plan.code} is declared")
    if plan.distributed and found["store"] != [UV_THREAD]:
        why = str(found["store_error"] or f"its threads are {found['store']}")
        raise BuildError("the built torch does not serve its store with libuv", (why,))
    return {**proven, "store": found["store"], "archs": made, "nccl": found["nccl"]}


# -- inside the environment that has the built torch


def inside() -> int:
    """Print what torch says of itself, as one line of JSON."""
    torch = importlib.import_module("torch")
    found: dict[str, Any] = {
        "version": str(torch.__version__),
        "git_version": getattr(torch.version, "git_version", None),
        **_libraries(Path(str(torch.__file__)).parent),
        "archs": (),
        "nccl": None,
        "store": (),
        "store_error": None,
    }
    if hasattr(torch, "cuda"):
        found["archs"] = [*torch.cuda.get_arch_list()]
        with suppress(Exception):  # a build without CUDA has no such function behind the name
            found["nccl"] = ".".join(map(str, torch.cuda.nccl.version()))
    if hasattr(torch, "distributed") and torch.distributed.is_available():
        found.update(_store())
    print(f"{ANSWER}{json.dumps(found)}")
    return 0


def _libraries(folder: Path) -> dict[str, Any]:
    """Load every library with all of its symbols resolved, as a program would in the end."""
    paths = sorted(path for path in folder.rglob("*.so*") if path.is_file())
    unloadable = []
    for path in paths:
        try:
            ctypes.CDLL(str(path), mode=os.RTLD_NOW)
        except OSError as error:
            unloadable.append([str(path.relative_to(folder)), str(error)[:300]])
    return {"libraries": len(paths), "unloadable": unloadable}


def _store() -> dict[str, Any]:
    """Serve a store that asks for libuv, and look at the name of the thread that serves it."""
    distributed = importlib.import_module("torch._C._distributed_c10d")
    try:
        store = distributed.TCPStore("127.0.0.1", 0, 1, True, use_libuv=True)
        store.set("key", "value")
        store.get("key")
    except RuntimeError as error:
        return {"store_error": str(error).strip().splitlines()[0][:300]}
    threads = {task.read_text().strip() for task in Path("/proc/self/task").glob("*/comm")}
    return {"store": sorted(name for name in threads if name.startswith("pt_tcpstore"))}
