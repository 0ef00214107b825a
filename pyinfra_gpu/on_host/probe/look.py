"""The look: tables of facts, each found out by a process of its own; the owner's by the owner."""

from __future__ import annotations

import os
import pwd
import time

from . import apt, driver, files, needs, storage, system, torch, training
from .frame import (
    Any,
    Facts,
    Host,
    Mapping,
    begin,
    collect,
    json,
    object_of,
    unknown,
)

FIRST_LINE = "pyinfra-gpu-probe 1"
LAST_LINE = "pyinfra-gpu-probe end"
OWNED = "owned"
"""Under which the owner tells of the paths that are left to the owner."""


def keys(*tables: Facts) -> frozenset[str]:
    """Return all keys of these tables."""
    return frozenset(" ".join(key for table in tables for key in table).split())


OWNERS_KEYS = keys(needs.FACTS, needs.NVIDIA, training.FACTS, torch.FACTS) | {OWNED}
"""The keys for which the owner's word counts, and no other's."""
NVIDIA_KEYS = keys(system.NVIDIA, apt.NVIDIA, driver.NVIDIA, storage.NVIDIA, needs.NVIDIA) | {
    "cuda.proof",
    "libcuda.proof",
}
"""What is not looked at where no NVIDIA driver is wanted; "nvidia" in the answer says whether."""


class Owner:
    """As whom the owner's half is looked at.

    + apart: whether that is another user than root, who looks
    + problem: why nobody can be; None where that can
    + left: the paths of which only the owner may tell, where the owner tells of them
    """

    def __init__(self, host: Host) -> None:
        declared = host.asked["owner"]
        self.as_root = host.uid == 0 and declared != "-"
        mine = files.user_name(host.uid)
        self.name = (declared or system.user_of(host)) if self.as_root else mine
        self.uid, self.gid, self.home = host.uid, os.getgid(), ""
        self.problem: str | None = None
        self.left: list[str] = []
        try:
            known = pwd.getpwnam(self.name)
            self.uid, self.gid, self.home = known.pw_uid, known.pw_gid, known.pw_dir
            self.apart = self.as_root and self.uid != 0
        except KeyError:
            self.apart = self.as_root
            if self.apart:
                self.problem = f"there is no user {self.name} on this host"

    def know_and_become(self, host: Host) -> None:
        """Note what is left to the owner, as root finds it, and be the owner."""
        self.left = _left(host)
        self.become(host)

    def become(self, host: Host) -> None:
        """Be the owner and nobody else, for good."""
        if not self.apart:
            return
        os.initgroups(self.name, self.gid)
        os.setgid(self.gid)
        os.setuid(self.uid)
        os.environ.clear()
        host.environment = {"PATH": host.path, "LC_ALL": "C"}
        host.uid = self.uid


def _left(host: Host) -> list[str]:
    paths, prefix = host.asked["entries"], host.asked["prefix"]
    return files.left_to_owner(paths, prefix) if host.owner.apart else []


def _layout(host: Host) -> tuple[list[str], dict[str, Any]]:
    """Return what is left to the owner, and what stands at the other paths."""
    left = _left(host)
    return left, files.entries(each for each in host.asked["entries"] if each not in left)


def _open_place(host: Host) -> str | None:
    above = os.path.dirname(host.asked["prefix"])
    return files.open_place(above) or None if host.owner.as_root else None


LAYOUT: Facts = {"layout.left layout.entries": _layout, "layout.open": _open_place}
LEFT: Facts = {OWNED: lambda host: files.entries(host.owner.left)}


def _chosen(host: Host, *modules: Any) -> Facts:
    """Return these modules' facts, as far as they are asked for."""
    asked = ("FACTS", "NVIDIA") if host.asked["nvidia"] else ("FACTS",)
    return {key: find for m in modules for each in asked for key, find in getattr(m, each).items()}


def look(asked: Mapping[str, Any], root: str = "") -> str:
    """Return what the host tells, an object in JSON.

    "owner" in it is a text: what the owner told, who may have written anything.

    There are few tables: to begin a process takes as long as most of them. A fact that hangs takes
    those behind it in its table along, so what is below the prefix, which may be on a file server
    that does not answer, comes last.
    """
    host = Host(root, asked)
    until = time.monotonic() + asked["seconds"]
    owner = host.owner = Owner(host)
    tables: list[tuple[Facts, Any]] = [
        (_chosen(host, system, apt), None),
        ({**_chosen(host, driver, storage), **storage.BELOW, **LAYOUT}, None),
    ]
    if not owner.problem:
        tables.append(({**_chosen(host, needs), **training.FACTS}, owner.become))
        tables.append(({**LEFT, **torch.FACTS}, owner.know_and_become))
    reported = collect([(table, begin(host, table, first)) for table, first in tables], until)
    owned = {key: reported.pop(key) for key in OWNERS_KEYS & reported.keys()}
    owners = object_of(owned) if owned else unknown(str(owner.problem))
    more = {"owner": owners, "layout.owner_problem": owner.problem, "nvidia": asked["nvidia"]}
    return object_of({**reported, **{key: json(value) for key, value in more.items()}})


def main(asked: Mapping[str, Any]) -> None:
    """Look, and print what was told between two lines that say so."""
    print(f"\n{FIRST_LINE}\n{look(asked, asked.get('root', ''))}\n{LAST_LINE}", flush=True)
