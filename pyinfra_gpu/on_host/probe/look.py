"""The look: tables of facts, each found out by a process of its own; the owner's by the owner."""

from __future__ import annotations

import os
import time
from functools import partial

from . import apt, driver, files, needs, storage, system, torch, training
from .frame import TOO_LATE, Asking, Host, NotTold, Part, collect, json, object_of, unknown

TYPE_CHECKING = False  # to load `typing` takes as long as a fifth of the look
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from .frame import Facts

FIRST_LINE = "pyinfra-gpu-probe 1"
LAST_LINE = "pyinfra-gpu-probe end"
_PATIENCE_S = 25.0  # for one part, of the time for all of them
_TICK_S = 5.0

# A fact that hangs takes those behind it in its table along, so what is below the prefix comes
# last. There are few tables: to begin a process takes as long as most of them.
MACHINE: Facts = {**system.FACTS, **apt.FACTS}
MACHINE_NVIDIA: Facts = {**system.NVIDIA, **apt.NVIDIA}
DRIVER: Facts = {**driver.FACTS, **storage.FACTS}
DRIVER_NVIDIA: Facts = {**driver.NVIDIA, **storage.NVIDIA}
OWNERS: Facts = needs.FACTS
OWNERS_NVIDIA: Facts = needs.NVIDIA
OWNED = "owned"
"""Under which the owner tells of the paths that are left to the owner."""


def keys(*tables: Facts) -> frozenset[str]:
    """Return all keys of these tables."""
    return frozenset(" ".join(key for table in tables for key in table).split())


OWNERS_KEYS = keys(OWNERS, OWNERS_NVIDIA, training.FACTS, torch.FACTS, torch.NVIDIA) | {OWNED}
"""The keys for which the owner's word counts, and no other's."""
NVIDIA_KEYS = keys(MACHINE_NVIDIA, DRIVER_NVIDIA, storage.BELOW_NVIDIA, OWNERS_NVIDIA, torch.NVIDIA)
"""What is not looked at where no NVIDIA driver is wanted; "nvidia" in the answer says whether."""


class Owner:
    """As whom the owner's half is looked at.

    + apart: whether that is another user than root, who looks
    + problem: why nobody can be; None where that can
    """

    def __init__(self, host: Host) -> None:
        self.name = files.user_name(host.uid)
        self.uid, self.gid, self.home = host.uid, os.getgid(), ""
        self.apart = False
        self.problem: str | None = None
        declared = host.asked["owner"]
        if host.uid == 0 and declared != "-":
            self.name = declared or system.user_of(host)
            known = _find(self.name)
            if known is None:
                self.problem = f"there is no user {self.name} on this host"
            else:
                self.uid, self.gid, self.home = known
            self.apart = self.uid != 0 or known is None
        self.home = self.home or (files.find_user(self.name) or (0, 0, ""))[2]

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
    if any(row[0] == name for row in files.local_users()):
        return files.find_user(name)
    asked = Part(lambda: map(str, files.find_user(name) or ()))
    collect([asked], time.monotonic() + _TICK_S)
    uid, gid, home = asked.lines if len(asked.lines) == 3 else ("", "", "")
    return (int(uid), int(gid), home) if uid else None


def _layout(host: Host) -> Facts:
    """What stands at the paths that were asked for, of what is not left to the owner."""
    asked = host.asked["entries"]
    above = os.path.dirname(host.asked["prefix"])
    checks = host.uid == 0 and host.asked["owner"] != "-"

    def entries(_: Host) -> tuple[Any, ...]:
        left = files.left_to_owner(asked, host.asked["prefix"]) if host.owner.apart else []
        numbers = ",".join(str(asked.index(each)) for each in left)
        return numbers, left, files.entries(each for each in asked if each not in left)

    return {
        "left layout.left layout.entries": entries,
        "layout.open": lambda _: (files.open_place(above) or None) if checks else None,
    }


def _roots_half(host: Host, *, stuck: bool) -> list[Facts]:
    """Return the tables that whoever looks finds out.

    + stuck: the prefix does not answer, so nothing in it is asked
    """
    below = {**storage.BELOW, **(storage.BELOW_NVIDIA if host.asked["nvidia"] else {})}
    if not host.asked["nvidia"]:
        return [MACHINE, {**DRIVER, **_unless(stuck, below)}]
    machine = {**MACHINE, **MACHINE_NVIDIA}
    return [machine, {**DRIVER, **DRIVER_NVIDIA, **_unless(stuck, below)}]


def _owners_half(host: Host, left: list[str], end: float, *, stuck: bool) -> list[str]:
    """Return what the owner tells, an object in JSON, by a process that is the owner."""
    if host.owner.apart:
        host.owner.become(host)
    owned: Facts = {OWNED: lambda _: files.entries(left)}
    given = {**OWNERS, **(OWNERS_NVIDIA if host.asked["nvidia"] else {})}
    venv = {**owned, **torch.FACTS, **(torch.NVIDIA if host.asked["nvidia"] else {})}
    tables = [{**given, **_unless(stuck, training.FACTS)}, _unless(stuck, venv)]
    return [object_of(Asking(tables, host).answer(end))]


def _unless(stuck: bool, below: Facts) -> Facts:
    return dict.fromkeys(below, _too_late) if stuck else below


def _too_late(_: Host) -> None:
    raise NotTold(TOO_LATE)


def look(asked: Mapping[str, Any], root: str = "") -> str:
    """Return what the host tells, an object in JSON.

    "owner" in it is a text: what the owner told, who may have written anything.
    """
    host = Host(root, asked)
    begun = time.monotonic()
    end = begun + asked["seconds"]
    patience = min(asked.get("patience", _PATIENCE_S), asked["seconds"] / 2)
    host.owner = Owner(host)
    # First by a process that can be left to itself: what is below the prefix may not answer.
    answer = Asking([_layout(host)], host).answer(begun + patience)
    numbers = answer.pop("left")
    stuck = '"?"' in numbers
    left = [asked["entries"][int(e)] for e in numbers.strip('"').split(",") if e and not stuck]
    mine = Asking(_roots_half(host, stuck=stuck), host)
    answer["owner"] = json(unknown(host.owner.problem or TOO_LATE))
    answer["layout.owner_problem"] = json(host.owner.problem)
    answer["nvidia"] = json(bool(asked["nvidia"]))
    if host.owner.problem:
        return object_of({**answer, **mine.answer(end)})
    half = partial(_owners_half, host, left, end - patience / 5, stuck=stuck)
    theirs = Part(half)
    answer.update(mine.answer(min(end, time.monotonic() + patience)))
    collect([theirs], end)
    if not theirs.problem:
        answer["owner"] = json("".join(theirs.lines))
    return object_of(answer)


def main(asked: Mapping[str, Any]) -> None:
    """Look, and print what was told between two lines that say so."""
    print(f"\n{FIRST_LINE}\n{look(asked, asked.get('root', ''))}\n{LAST_LINE}", flush=True)
