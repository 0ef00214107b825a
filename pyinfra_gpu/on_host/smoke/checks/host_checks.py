"""S0, what any host must have before a test makes sense: read here without torch, judged below.

The GPUs' share of this stage is in `gpu`.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..judge.check import Check, Expected, Facts, Finding
from ..options import REHEARSAL_CPU

SHM = Path("/dev/shm")  # noqa: S108 - the very directory that is tested
_MIB = 2**20
_SHM_TRIAL_MIB = {REHEARSAL_CPU: 16}
"""What must be allocatable: with gloo only data loaders use it."""
_SHM_TRIAL_GPU_MIB = 256
"""NCCL's shared-memory transport takes 32 MiB and more a pair of ranks, and data loaders theirs."""
_SHM_WISHED_MIB = 1024
"""NCCL's documentation tells people to raise the 64 MiB that a container has by default to this."""
_DISK_NEEDED_MIB, _DISK_WISHED_MIB = 64, 1024
"""Logs, verdict and compiled kernels need less than the first, a checkpoint more than that."""


def shm_trial_mib(mode: str) -> int:
    """Return the MiB of shared memory that a test in `mode` must be able to get."""
    return _SHM_TRIAL_MIB.get(mode, _SHM_TRIAL_GPU_MIB)


def read(directory: Path, bundle: Path, removed: Mapping[str, str], mode: str) -> dict[str, Any]:
    """Return the facts of this host.

    + directory: where the test writes
    + bundle: the test's own file, by which other running tests are told
    + removed: the variables taken out of the environment, with their values
    """
    return {
        "variables": dict(removed),
        "shm": _shared_memory(SHM, shm_trial_mib(mode)),
        "disk": _disk(directory),
        "others": other_tests(bundle),
    }


def _shared_memory(path: Path, trial_mib: int) -> dict[str, Any]:
    """Allocate as NCCL and data loaders do: a full tmpfs shows in that, not in its size."""
    fact: dict[str, Any] = {"path": str(path), "trial_mib": trial_mib, "error": None}
    try:
        room = os.statvfs(path)
        fact |= {"size_mib": room.f_blocks * room.f_frsize // _MIB}
        fact |= {"free_mib": room.f_bavail * room.f_frsize // _MIB}
        with tempfile.TemporaryFile(dir=path, prefix="smoke-test-") as file:
            os.posix_fallocate(file.fileno(), 0, trial_mib * _MIB)
    except OSError as error:
        fact["error"] = error.strerror or str(error)
        fact["largest"] = _largest(path)
    return fact


def _largest(path: Path) -> list[list[Any]]:
    """Return the three largest files as [name, MiB]."""
    try:
        files = [(entry.stat().st_size, entry.name) for entry in path.iterdir() if entry.is_file()]
    except OSError:
        return []
    return [[name, size // _MIB] for size, name in sorted(files, reverse=True)[:3]]


def _disk(directory: Path) -> dict[str, Any]:
    room = os.statvfs(directory)
    return {
        "path": str(directory),
        "free_mib": room.f_bavail * room.f_frsize // _MIB,
        # 0 inodes in all: a file system that does not count them
        "free_inodes": room.f_favail if room.f_files else None,
    }


def other_tests(bundle: Path) -> list[int]:
    """Return the processes that run this very bundle, without this process and its ancestors.

    The lock on the directory lets no second launcher run, so these are what an earlier one left.
    """
    mine = {os.getpid(), os.getppid()}
    found = []
    for process in Path("/proc").iterdir():
        if process.name.isdigit() and int(process.name) not in mine:
            try:
                words = (process / "cmdline").read_bytes().split(b"\0")
            except OSError:  # it has ended, or is another user's on a host that hides them
                continue
            if str(bundle).encode() in words[1:] and b"python" in words[0]:
                found.append(int(process.name))
    return sorted(found)


def _variables(facts: Facts, _: Expected) -> Finding:
    names = sorted(facts[0]["variables"])
    if not names:
        return Finding(True, [], [])
    detail = f"set here and removed for this test only: {', '.join(names)}; unset where it is set"
    return Finding(True, names, [], detail, status="warn")


def _shm(facts: Facts, expected: Expected) -> Finding:
    shm = facts[0]["shm"]
    path, trial, wished = shm["path"], shm["trial_mib"], _SHM_WISHED_MIB
    measured = {"size_mib": shm.get("size_mib"), "free_mib": shm.get("free_mib")}
    wanted = {"allocatable_mib": trial}
    if shm["error"]:
        largest = ", ".join(f"{name} ({size} MiB)" for name, size in shm["largest"])
        known = f" ({shm['size_mib']} MiB, {shm['free_mib']} free)" if "size_mib" in shm else ""
        detail = f"{trial} MiB cannot be allocated in {path}{known}: {shm['error']}"
        detail += f"; largest files: {largest}" if largest else ""
        return Finding(False, measured, wanted, detail)
    if expected.mode != REHEARSAL_CPU and shm["free_mib"] < wished:
        detail = f"{path} has {shm['free_mib']} MiB free, less than {wished} MiB"
        return Finding(True, measured, {"free_mib": wished}, detail, status="warn")
    return Finding(True, measured, wanted, f"{shm['free_mib']} MiB free")


def _disk_space(facts: Facts, _: Expected) -> Finding:
    disk = facts[0]["disk"]
    free, inodes = disk["free_mib"], disk["free_inodes"]
    measured = {"free_mib": free, "free_inodes": inodes}
    wanted = {"free_mib": _DISK_NEEDED_MIB}
    if free < _DISK_NEEDED_MIB or inodes == 0:
        what = "no inodes" if inodes == 0 else f"{free} MiB"
        detail = f"{disk['path']} has {what} free, the test needs {_DISK_NEEDED_MIB} MiB"
        return Finding(False, measured, wanted, detail)
    if free < _DISK_WISHED_MIB:
        detail = f"{disk['path']} has {free} MiB free, less than {_DISK_WISHED_MIB} MiB"
        return Finding(True, measured, {"free_mib": _DISK_WISHED_MIB}, detail, status="warn")
    return Finding(True, measured, wanted, f"{free} MiB free")


def _no_others(facts: Facts, _: Expected) -> Finding:
    pids = facts[0]["others"]
    if not pids:
        return Finding(True, [], [])
    named = " ".join(map(str, pids))
    detail = f"an earlier smoke test still runs here; end it first: kill {named}"
    return Finding(False, pids, [], detail)


CHECKS: tuple[Check, ...] = (
    Check("S0.environment", ("variables",), _variables),
    Check("S0.shm", ("shm",), _shm),
    Check("S0.disk", ("disk",), _disk_space),
    Check("S0.others", ("others",), _no_others),
)
