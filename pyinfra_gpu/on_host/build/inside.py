"""What the built torch says of itself: run by the Python of an environment that has it."""

from __future__ import annotations

import ctypes
import importlib
import json
import os
import sys
from pathlib import Path
from typing import Any

from .prove import ANSWER

_THREADS = "pt_tcpstore"


def main() -> int:
    """Print one line of JSON."""
    torch = importlib.import_module("torch")
    found: dict[str, Any] = {
        "version": str(torch.__version__),
        "git_version": getattr(torch.version, "git_version", None),
        **_libraries(Path(str(torch.__file__)).parent),
        "archs": [],
        "nccl": None,
        "store": [],
        "store_error": None,
    }
    if hasattr(torch, "cuda"):
        found["archs"] = [*torch.cuda.get_arch_list()]
        found["nccl"] = _nccl(torch)
    if hasattr(torch, "distributed") and torch.distributed.is_available():
        found |= _store()
    sys.stdout.write(f"{ANSWER}{json.dumps(found)}\n")
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


def _nccl(torch: Any) -> str | None:
    try:
        return ".".join(map(str, torch.cuda.nccl.version()))
    except Exception:  # a build without CUDA has no such function behind the name
        return None


def _store() -> dict[str, Any]:
    """Serve a store that asks for libuv, and look at the name of the thread that serves it."""
    distributed = importlib.import_module("torch._C._distributed_c10d")
    before = _threads()
    try:
        store = distributed.TCPStore("127.0.0.1", 0, 1, True, use_libuv=True)
        store.set("key", "value")
        store.get("key")
    except RuntimeError as error:
        return {"store_error": str(error).strip().splitlines()[0][:300]}
    new = {tid: name for tid, name in _threads().items() if tid not in before}
    return {"store": sorted({name for name in new.values() if name.startswith(_THREADS)})}


def _threads() -> dict[str, str]:
    folder = Path("/proc/self/task")
    return {task.name: (task / "comm").read_text().strip() for task in folder.iterdir()}
