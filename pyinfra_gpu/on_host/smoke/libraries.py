"""Which torch each process imported, and which of the libraries under it are really mapped.

Two copies of one library in a process, or the right name from the wrong place, make errors far
from their cause: a second libtorch has its own type registry, an older libnccl lacks symbols, the
libcuda of a "compat" directory does not talk to the driver of a GeForce card, and one from a
"stubs" directory talks to no driver at all.

And by what the ranks' store is served. `TCPStore.libuvBackend` only repeats what the client was
constructed with; the name of the server's thread tells: "pt_tcpstore_uv" with libuv, "pt_tcpstore"
without.
"""

from __future__ import annotations

import os
import re
import sys
import sysconfig
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .check import Facts, Want, fail, pairs

if TYPE_CHECKING:
    from .worker import Rank

_ALWAYS = ("libtorch_cpu", "libtorch_python", "libc10")
_WITH_GPU = ("libtorch_cuda", "libc10_cuda", "libnccl", "libcudart", "libcuda")
_NAMES = (*_ALWAYS, *_WITH_GPU, "libtorch", "libcudnn", "libcublas", "libcublasLt")
_FILE = re.compile(r"(?P<name>lib[A-Za-z0-9_]+?)(-[0-9a-f]{8,})?\.so(\.[\d.]+)?")
"""A library's file name; wheels that bundle a library put a hash behind its name."""


_LIBUV = "pt_tcpstore_uv"


def home() -> str:
    """Return where this interpreter's own torch is, if it has one."""
    return str(Path(sysconfig.get_path("platlib")).resolve() / "torch")


def measure(it: Rank) -> None:
    """Record the fact "libraries"."""
    with it.journal.measuring("libraries") as value:
        value.update(read())


def read(maps: Path = Path("/proc/self/maps"), prefix: str = sys.prefix) -> dict[str, Any]:
    """Return the fact "libraries": which files are mapped, and which of them this environment has.

    + maps: the process's memory map; prefix: the virtual environment
    """
    names = parse(maps.read_text(errors="replace").splitlines())
    packages = next(Path(prefix).glob("lib/python3*/site-packages"), Path(prefix))
    own = {
        name: [
            str(path.resolve())
            for folder in ("torch/lib", "nvidia/*/lib")
            for path in packages.glob(f"{folder}/{name}[.-]*")
        ]
        for name in names
    }
    return {"prefix": str(Path(prefix).resolve()), "mapped": names, "own": own}


def parse(lines: Sequence[str]) -> dict[str, list[str]]:
    """Return library -> the paths of its mapped files, from the lines of a memory map."""
    found: dict[str, set[str]] = {}
    for line in lines:
        fields = line.rstrip("\n").split(maxsplit=5)
        file = _FILE.match(fields[5].rpartition("/")[2]) if len(fields) == 6 else None
        if file and fields[5].startswith("/") and file["name"] in _NAMES:
            found.setdefault(file["name"], set()).add(fields[5])
    return {name: sorted(paths) for name, paths in sorted(found.items())}


def imported(facts: Facts, want: Want) -> str:
    """Judge whether each process imported the environment's own torch; torchrun is no rank."""
    wanted = facts[min(facts)]["identity"]["torch"]
    for number, fact in facts.items():
        version, path = fact["identity"]["torch"], fact["identity"]["torch_path"]
        if (version, path) != (wanted, want.torch_path):
            rank = fact["identity"].get("rank")
            who = "torchrun" if rank is None else f"rank {number}"
            expected = f"expected {wanted} in {want.torch_path}"
            fail(f"{who} imported torch {version} from {path}, {expected}", rank)
    return f"torch {wanted}"


def ranks(facts: Facts, want: Want) -> str:
    """Judge whether the ranks are those that were asked for, each a process of its own, all with
    the same torch: another one may reduce in another order, or not at all.
    """
    identities = [fact["identity"] for fact in facts.values()]
    hosts = want.hosts or {identities[0]["host"]: want.ranks}
    boots: dict[str, str] = {}
    for rank, one in zip(facts, identities, strict=True):
        if left := [name for name in one["strays"] if not name.startswith("TORCHELASTIC_")]:
            fail(f"rank {rank} was started with {', '.join(left)} set", rank)
        found = {key: one[key] for key in ("rank", "world_size")}
        wanted = {"rank": rank, "world_size": want.ranks}
        if found != wanted:
            fail(f"rank {rank} reports {pairs(found)}; expected {pairs(wanted)}", rank)
        other = boots.setdefault(one["boot_id"], one["host"])
        if other != one["host"]:
            fail(f"{other} and {one['host']} are the same machine, by its boot id", rank)
    if len({(one["boot_id"], one["pid"]) for one in identities}) < len(facts):
        fail("two ranks are the same process")
    placed = {host: sum(one["host"] == host for one in identities) for host in hosts}
    if len(facts) == want.ranks and placed != dict(hosts):
        fail(f"ranks per host: {pairs(placed)}; expected {pairs(hosts)}")
    if not want.hosts:
        return imported(facts, want)
    versions = {one["torch"]: one["host"] for one in identities}
    if len(versions) > 1:
        fail(", ".join(f"{host} has torch {version}" for version, host in versions.items()))
    return f"{len(facts)} ranks on {len(hosts)} hosts, torch {next(iter(versions))}"


def mapped(facts: Facts, want: Want) -> str:
    """Judge whether each library is mapped once, from the environment or the driver."""
    for number, fact in facts.items():
        found: Mapping[str, Sequence[str]] = fact["libraries"]["mapped"]
        for name, paths in found.items():
            if len(paths) > 1:
                fail(f"{name} is mapped {len(paths)} times: {', '.join(paths)}", number)
            if sentence := _misplaced(name, paths[0], fact["libraries"]):
                fail(f"{name} is taken from {sentence}", number)
        wanted = _ALWAYS if want.on_cpu else _ALWAYS + _WITH_GPU
        if missing := [name for name in wanted if name not in found]:
            fail(f"{', '.join(missing)} not mapped after `import torch` and its first use", number)
    return f"{len(found)} libraries, one file each"


def _misplaced(name: str, path: str, libraries: Mapping[str, Any]) -> str | None:
    """Return what is wrong with the place of a library, None if nothing is.

    From outside of the environment a library may come only if the environment has no copy: torch
    built from source uses those of the CUDA toolkit.
    """
    for odd in ("compat", "stubs"):
        if odd in path.split("/")[:-1]:
            return f"a {odd!r} directory: {path}"
    own, prefix = libraries["own"].get(name, ()), libraries["prefix"]
    of_toolkit = not own and not name.startswith(("libtorch", "libc10"))
    if name == "libcuda" or path.startswith(f"{prefix}/") or path in own or of_toolkit:
        return None
    return f"{path}, outside of {prefix}"


# -- the store


def measure_store(it: Rank) -> None:
    """Record the fact "store": its class, its address as seen by this rank, and its server's
    threads: the server is torchrun normally, or rank 0 if sharing torchrun's store is off.
    """
    from torch.distributed import distributed_c10d

    with it.journal.measuring("store") as value:
        store: Any = distributed_c10d._get_default_store()
        while hasattr(store, "underlying_store"):
            store = store.underlying_store
        address = [getattr(store, "host", None), getattr(store, "port", None)]
        value["used"] = [type(store).__name__, *address]
        told = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
        value["told"] = ["TCPStore", *told]
        value["threads"] = [*_store_threads(os.getppid()), *_store_threads(os.getpid())]


def _store_threads(pid: int) -> list[str]:
    threads = Path(f"/proc/{pid}/task").iterdir()
    names = {(thread / "comm").read_text().strip() for thread in threads}
    return sorted(name for name in names if name.startswith("pt_tcpstore"))


def store(facts: Facts, _: Want) -> str:
    """Judge the store at which the ranks met."""
    for rank, fact in facts.items():
        store = fact["store"]
        if store["used"] != store["told"]:
            fail(f"rank {rank} uses {store['used']}, its environment says {store['told']}", rank)
        if {*store["threads"]} != {_LIBUV}:
            named = ", ".join(store["threads"]) or "none"
            fail(f"the store threads of torchrun and rank {rank} are: {named}", rank)
    return f"{store['told'][1]}:{store['told'][2]}, with libuv"
