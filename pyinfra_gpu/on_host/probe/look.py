"""The look: tables of facts, each found out by a process of its own; the owner's by the owner."""

from __future__ import annotations

import os
import pwd
import time
from functools import partial

from . import apt, driver, files, needs, storage, system, torch, training
from .frame import (
    TOO_LATE,
    Any,
    Asking,
    Facts,
    Host,
    Iterable,
    Mapping,
    NotTold,
    Part,
    collect,
    json,
    object_of,
    unknown,
)

FIRST_LINE = "pyinfra-gpu-probe 1"
LAST_LINE = "pyinfra-gpu-probe end"
_PATIENCE_S = 25.0  # for one part, of the time for all of them
_TICK_S = 5.0

OWNED = "owned"
"""Under which the owner tells of the paths that are left to the owner."""


def keys(*tables: Facts) -> frozenset[str]:
    """Return all keys of these tables."""
    return frozenset(" ".join(key for table in tables for key in table).split())


OWNERS_KEYS = keys(needs.FACTS, needs.NVIDIA, training.FACTS, torch.FACTS) | {OWNED}
"""The keys for which the owner's word counts, and no other's."""
NVIDIA_KEYS = keys(system.NVIDIA, apt.NVIDIA, driver.NVIDIA, storage.NVIDIA, needs.NVIDIA) | {
    "cuda.glibc",
    "cuda.proof",
    "libcuda.proof",
}
"""What is not looked at where no NVIDIA driver is wanted; "nvidia" in the answer says whether."""


class Owner:
    """As whom the owner's half is looked at.

    + apart: whether that is another user than root, who looks
    + problem: why nobody can be; None where that can
    """

    def __init__(self, host: Host) -> None:
        declared = host.asked["owner"]
        as_root = host.uid == 0 and declared != "-"
        mine = files.user_name(host.uid)
        self.name = (declared or system.user_of(host)) if as_root else mine
        known = _find(self.name)
        self.uid, self.gid, self.home = known or (host.uid, os.getgid(), "")
        self.apart = as_root and (known is None or self.uid != 0)
        missing = self.apart and known is None
        self.problem = f"there is no user {self.name} on this host" if missing else None

    def become(self, host: Host) -> None:
        """Be the owner and nobody else, for good."""
        os.initgroups(self.name, self.gid)
        os.setgid(self.gid)
        os.setuid(self.uid)
        os.environ.clear()
        host.environment = {"PATH": host.path, "LC_ALL": "C"}
        host.uid = self.uid


def _find(name: str) -> tuple[int, int, str] | None:
    """Return number, group and home of a user; whoever knows of users may hang."""

    def known() -> Iterable[str]:
        each = pwd.getpwnam(name)
        return map(str, (each.pw_uid, each.pw_gid, each.pw_dir))

    asked = Part(known)
    collect([asked], time.monotonic() + _TICK_S)
    if len(asked.lines) != 3:
        return None
    uid, gid, home = asked.lines
    return int(uid), int(gid), home


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


def _chosen(host: Host, *modules: Any) -> dict[str, Any]:
    """Return these modules' facts, as far as they are asked for."""
    asked = ("FACTS", "NVIDIA") if host.asked["nvidia"] else ("FACTS",)
    return {key: find for m in modules for each in asked for key, find in getattr(m, each).items()}


def _roots_half(host: Host, *, stuck: bool) -> list[Facts]:
    """Return the tables that whoever looks finds out.

    A fact that hangs takes those behind it in its table along, so what is below the prefix comes
    last. There are few tables: to begin a process takes as long as most of them.

    + stuck: the prefix does not answer, so nothing in it is asked
    """
    room = {**_chosen(host, driver, storage), **_unless(stuck, storage.BELOW)}
    return [_chosen(host, system, apt), room]


def _owners_half(host: Host, left: list[str], end: float, *, stuck: bool) -> list[str]:
    """Return what the owner tells, an object in JSON, by a process that is the owner."""
    if host.owner.apart:
        host.owner.become(host)
    given = {**_chosen(host, needs), **_unless(stuck, training.FACTS)}
    venv = _unless(stuck, {OWNED: lambda _: files.entries(left), **torch.FACTS})
    return [object_of(Asking([given, venv], host).answer(end))]


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
