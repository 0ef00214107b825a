"""The look: its parts, each in a process of its own, and the owner's half by the owner alone."""

from __future__ import annotations

import os
import time
from functools import partial

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

_NOTHING = (
    "driver.module driver.persistenced driver.persistenced_enabled driver.mok nvidia.repository"
    " nvidia.keyring cuda.link cuda.alternative cuda.nvcc_on_path cuda.proof libcuda.proof"
)
_NO_ROWS = (
    "driver.users kernel.installed kernel.sources nvidia.source_lines nvidia.changes"
    " nvidia.lost cuda.toolkits cuda.missing libcuda.cache libcuda.files"
    " libcuda.loader_paths power.sessions power.inhibitors power.reboots"
)
WITHOUT_NVIDIA: dict[str, Any] = {
    **dict.fromkeys(_NOTHING.split()),
    **{key: [] for key in _NO_ROWS.split()},
    **{key: {} for key in ("kernel.modules", "kernel.headers", "libcuda.links")},
    "driver.runfile": False,
    "kernel.initramfs": "",
    "libcuda.libdir": "",
}
"""What is told of a host where no NVIDIA driver is wanted, and so is not looked at."""
OWNER_WITHOUT_NVIDIA: dict[str, Any] = {
    **dict.fromkeys(["cuda.gcc", "cuda.compiler", "cuda.glibc", "cuda.nvcc"]),
    "cuda.shell_lines": [],
    "cuda.gxx": False,
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
    if any(row[0] == name for row in users.local()):
        return users.find(name)
    asked = Part("", lambda: {"user": lambda: users.find(name)})
    members, _ = collect([asked], time.monotonic() + _TICK_S)
    value = "".join(members).partition(":")[2]
    if not value.startswith("["):
        return None
    uid, gid, home = value[1:-1].split(",", 2)
    return int(uid), int(gid), home.strip('"')


Parts = dict[str, "Callable[[], Facts]"]
"""The names with which the keys of a part begin -> what finds its facts."""


def roots_parts(host: Host, owner: Owner, *, stuck: bool) -> Parts:
    """Return the parts that whoever looks tells.

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
            found |= {**driver.libcuda(asking), **driver.kernel(asking), **driver.cuda(host)}
        if stuck:
            return found
        found.update(storage.facts(host, as_root=owner.apart))
        proofs = ("cuda_proof", "libcuda_proof") if nvidia else ()
        noted = {"smoke.stamp": "stamp", **{each.replace("_", "."): each for each in proofs}}
        for key, name in noted.items():
            found[key] = partial(files.believed, asked[name], as_root=owner.apart)
        return found

    return {
        "system launcher gpus driver.mok power packages nvidia": machine,
        "driver kernel cuda libcuda storage smoke.stamp": drivers_and_room,
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


def owners_half(host: Host, owner: Owner, left: list[str], end: float, *, stuck: bool) -> str:
    """Return what the owner tells, an object in JSON, by a process that is the owner.

    + stuck: the prefix does not answer, so nothing in it is asked
    """
    if owner.apart:
        owner.become(host)
    users = files.Users()
    home = owner.home or (users.find(users.name(host.uid)) or (0, 0, ""))[2]

    def given() -> Facts:
        problem = {"system.owners_problem": lambda: system.preload_problem(host)}
        below = {} if stuck else training.facts(host, home)
        return {**problem, **needs.facts(host, home), **below}

    def environment() -> Facts:
        entries = {"owned": lambda: {path: files.entry(path, users) for path in left}}
        return {**entries, **torch.build(host), **torch.facts(host)}

    parts = [Part("storage driver environment cuda system training smoke launcher", given)]
    if not stuck:
        parts.append(Part("owned build torch cuda.glibc", environment))
    members, missing = collect(parts, end)
    if stuck:
        missing.update(dict.fromkeys(_BELOW_THE_PREFIX_OF_OWNER, TOO_LATE))
    without = {} if host.asked["nvidia"] else OWNER_WITHOUT_NVIDIA
    return _object(members, {**without, "missing": missing})


def _object(members: list[str], more: Mapping[str, Any]) -> str:
    return "{" + ",".join([*members, json(more)[1:-1]]) + "}"


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
    first = Part("layout", lambda: layout(host, owner))
    members, missing = collect([first], begun + patience)
    stuck = not first.whole
    numbers = next((row[8:-1] for row in members if row.startswith('"left":')), "")
    left = [asked["entries"][int(each)] for each in numbers.split(",") if each]
    mine = [Part(*each) for each in roots_parts(host, owner, stuck=stuck).items()]
    theirs = []
    if not owner.problem:
        before = end - patience / 5
        theirs.append(
            Part(
                "owner",
                lambda: {"owner": lambda: owners_half(host, owner, left, before, stuck=stuck)},
            )
        )
    roots, why = collect(mine, min(end, time.monotonic() + patience))
    owners, late = collect(theirs, end)
    missing.update(why)
    if stuck:
        missing.update(dict.fromkeys(_BELOW_THE_PREFIX, TOO_LATE))
    told: dict[str, Any] = {} if asked["nvidia"] else dict(WITHOUT_NVIDIA)
    if owner.problem or late:
        told["owner"] = {"?": owner.problem or late["owner"]}
    told.update({"layout.owner_problem": owner.problem or None, "missing": missing})
    return _object([*members, *roots, *owners], told)


def main(asked: Mapping[str, Any]) -> None:
    """Look, and print what was told between two lines that say so."""
    print(f"\n{FIRST_LINE}\n{look(asked, asked.get('root', ''))}\n{LAST_LINE}", flush=True)
