"""The look: its parts, each in a process of its own, and the owner's half by the owner alone."""

from __future__ import annotations

import os
import time

from . import apt, driver, files, needs, power, storage, system, torch, training
from .frame import TOO_LATE, Host, Part, collect, json

TYPE_CHECKING = False  # to load `typing` takes as long as a fifth of the look
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

    from .frame import Facts

FIRST_LINE = "pyinfra-gpu-probe 1"
LAST_LINE = "pyinfra-gpu-probe end"
_PATIENCE_S = 25.0  # for one part, of the time for all of them
_TICK_S = 5.0
_BELOW_THE_PREFIX = ("storage", "smoke.stamp", "cuda.proof", "libcuda.proof")
_BELOW_THE_PREFIX_OF_OWNER = ("owned", "build", "torch", "training", "environment.text", "smoke")

WITHOUT_NVIDIA: dict[str, Any] = {
    "driver.module": None,
    "driver.users": [],
    "driver.persistenced": None,
    "driver.persistenced_enabled": None,
    "driver.runfile": False,
    "driver.mok": None,
    "kernel.installed": [],
    "kernel.modules": {},
    "kernel.headers": {},
    "kernel.sources": [],
    "kernel.initramfs": "",
    "nvidia.repository": None,
    "nvidia.source_lines": [],
    "nvidia.keyring": None,
    "nvidia.changes": [],
    "nvidia.lost": [],
    "cuda.toolkits": [],
    "cuda.missing": [],
    "cuda.link": None,
    "cuda.alternative": None,
    "cuda.nvcc_on_path": None,
    "cuda.proof": None,
    "libcuda.libdir": "",
    "libcuda.cache": [],
    "libcuda.links": {},
    "libcuda.files": [],
    "libcuda.loader_paths": [],
    "libcuda.proof": None,
    "power.sessions": [],
    "power.inhibitors": [],
    "power.reboots": [],
}
"""What is told of a host where no NVIDIA driver is wanted, and so is not looked at."""
OWNER_WITHOUT_NVIDIA: dict[str, Any] = {
    "cuda.shell_lines": [],
    "cuda.gcc": None,
    "cuda.gxx": False,
    "cuda.compiler": None,
    "cuda.glibc": None,
    "cuda.nvcc": None,
}


class Owner:
    """As whom the owner's half is looked at.

    + apart: whether that is another user than root, who looks
    + problem: why nobody can be; "" where that can
    """

    def __init__(self, host: Host) -> None:
        self.name = files.Users().name(host.uid)
        self.uid, self.gid, self.home = host.uid, os.getgid(), ""
        self.apart, self.problem = False, ""
        declared = host.asked["owner"]
        if host.uid != 0 or declared == "-":
            return
        self.name = declared or system.user_of(host)
        found = _find(self.name)
        if found is None:
            self.apart, self.problem = True, f"there is no user {self.name} on this host"
        elif found[0] != 0:
            self.apart = True
            self.uid, self.gid, self.home = found

    def become(self, host: Host) -> None:
        """Be the owner and nobody else, for good."""
        os.initgroups(self.name, self.gid)
        os.setgid(self.gid)
        os.setuid(self.uid)
        os.environ.clear()
        host.environment = {"PATH": host.path, "LC_ALL": "C"}
        host.uid = self.uid


def _find(name: str) -> tuple[int, int, str] | None:
    """Find a user: by the system's list, else by whoever the system asks, who may hang."""
    users = files.Users()
    for row in users.local():
        if row[0] == name:
            return users.find(name)
    asked = Part("", lambda: {"user": lambda: users.find(name)})
    members, _ = collect([asked], time.monotonic() + _TICK_S)
    value = "".join(members).partition(":")[2]
    if not value.startswith("["):
        return None
    uid, gid, home = value[1:-1].split(",", 2)
    return int(uid), int(gid), home.strip('"')


def roots_parts(host: Host, owner: Owner, *, stuck: bool) -> dict[str, Callable[[], Facts]]:
    """Return the parts that whoever looks tells, by the names with which their keys begin.

    A fact that hangs takes those behind it along, so what is below the prefix comes last. There are
    few parts: to begin a process takes as long as most of them.
    """
    asked, nvidia = host.asked, host.asked["nvidia"]

    def machine() -> Facts:
        found = {**system.launcher(host, owner.name, owner.uid), **system.facts(host)}
        return {**found, **(power.facts(host) if nvidia else {}), **apt.facts(host)}

    def drivers_and_room() -> Facts:
        asking = driver.Driver(host)
        found = dict(driver.facts(asking))
        if nvidia:
            found.update(driver.libcuda(asking))
            found.update(driver.kernel(asking))
            found.update(driver.cuda(host))
        if not stuck:
            found.update(storage.facts(host, as_root=owner.apart))
            found["smoke.stamp"] = lambda: files.believed(asked["stamp"], as_root=owner.apart)
            found.update(_proofs(host, owner) if nvidia else {})
        return found

    return {
        "system launcher gpus driver.mok power packages nvidia": machine,
        "driver kernel cuda libcuda storage smoke.stamp": drivers_and_room,
    }


def _proofs(host: Host, owner: Owner) -> Facts:
    cuda, libcuda = host.asked["cuda_proof"], host.asked["libcuda_proof"]
    return {
        "cuda.proof": lambda: files.believed(cuda, as_root=owner.apart),
        "libcuda.proof": lambda: files.believed(libcuda, as_root=owner.apart),
    }


def layout(host: Host, owner: Owner) -> Facts:
    """What stands at the paths that were asked for, of what is not left to the owner."""
    asked = host.asked["entries"]
    users = files.Users()
    left = files.left_to_owner(asked, host.asked["prefix"]) if owner.apart else []
    checks = host.uid == 0 and host.asked["owner"] != "-"
    above = os.path.dirname(host.asked["prefix"])
    return {
        "layout.left": lambda: left,
        "left": lambda: [asked.index(each) for each in left],
        "layout.open": lambda: (files.open_place(above) or None) if checks else None,
        "layout.entries": lambda: {e: files.entry(e, users) for e in asked if e not in left},
    }


def owners_parts(
    host: Host, owner: Owner, left: list[str], *, stuck: bool
) -> dict[str, Callable[[], Facts]]:
    """Return the parts that the owner tells.

    + stuck: the prefix does not answer, so nothing in it is asked
    """
    users = files.Users()
    home = owner.home or (users.find(users.name(host.uid)) or (0, 0, ""))[2]
    problem = {"system.owners_problem": lambda: system.preload_problem(host)}
    entries = {"owned": lambda: {path: files.entry(path, users) for path in left}}
    if stuck:
        return {
            "storage driver environment cuda system": lambda: {**problem, **needs.facts(host, home)}
        }
    return {
        "storage driver environment cuda system training smoke launcher": lambda: {
            **problem,
            **needs.facts(host, home),
            **training.facts(host, home),
        },
        "owned build torch cuda.glibc": lambda: {
            **entries,
            **torch.build(host),
            **torch.facts(host),
        },
    }


def owners_half(host: Host, owner: Owner, left: list[str], end: float, *, stuck: bool) -> str:
    """Return what the owner tells, an object in JSON."""
    parts = owners_parts(host, owner, left, stuck=stuck)
    members, missing = collect([Part(*each) for each in parts.items()], end)
    if stuck:
        missing.update(dict.fromkeys(_BELOW_THE_PREFIX_OF_OWNER, TOO_LATE))
    if not host.asked["nvidia"]:
        members += _members(OWNER_WITHOUT_NVIDIA)
    return "{" + ",".join([*members, *_members({"missing": missing})]) + "}"


def _as_owner(host: Host, owner: Owner, left: list[str], end: float, *, stuck: bool) -> str:
    if owner.apart:
        owner.become(host)
    return owners_half(host, owner, left, end, stuck=stuck)


def _members(found: Mapping[str, Any]) -> list[str]:
    return [f"{json(key)}:{json(value)}" for key, value in found.items()]


def look(asked: Mapping[str, Any], root: str = "") -> str:
    """Return what the host tells, an object in JSON.

    "owner" in it is a text: what the owner told, who may have written anything. "missing" says why
    keys that begin so are not there.
    """
    host = Host(root, asked)
    begun = time.monotonic()
    end = begun + asked["seconds"]
    patience = min(asked.get("patience", _PATIENCE_S), asked["seconds"] / 2)
    owner = Owner(host)
    # First by a process that can be left to itself: what is below the prefix may not answer.
    left: list[str] = []
    first = Part("layout", lambda: layout(host, owner))
    members, missing = collect([first], begun + patience)
    stuck = not first.whole
    for row in members:
        if row.startswith('"left":'):
            left = [asked["entries"][int(each)] for each in row[8:-1].split(",") if each]
    mine = roots_parts(host, owner, stuck=stuck)
    running = [Part(*each) for each in mine.items()]
    before = end - patience / 5
    theirs = (
        []
        if owner.problem
        else [
            Part(
                "owner",
                lambda: {"owner": lambda: _as_owner(host, owner, left, before, stuck=stuck)},
            )
        ]
    )
    roots, why = collect(running, min(end, time.monotonic() + patience))
    owners, late = collect(theirs, end)
    members += roots + owners
    missing.update(why)
    if stuck:
        missing.update(dict.fromkeys(_BELOW_THE_PREFIX, TOO_LATE))
    told: dict[str, Any] = {"layout.owner_problem": owner.problem or None}
    if owner.problem or late:
        told["owner"] = {"?": owner.problem or late["owner"]}
    if not asked["nvidia"]:
        told.update(WITHOUT_NVIDIA)
    return "{" + ",".join([*members, *_members({**told, "missing": missing})]) + "}"


def main(asked: Mapping[str, Any]) -> None:
    """Look, and print what was told between two lines that say so."""
    print(f"\n{FIRST_LINE}\n{look(asked, asked.get('root', ''))}\n{LAST_LINE}", flush=True)
