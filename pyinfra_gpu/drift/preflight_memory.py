"""Shared memory, in which ranks and data loaders hand each other data: enough, and the owner's."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyinfra_gpu.drift import layout
from pyinfra_gpu.drift.finding import Finding, Id, stop
from pyinfra_gpu.facts.record import SHARED_MEMORY
from pyinfra_gpu.on_host.smoke.host import shm_trial_mib
from pyinfra_gpu.on_host.train.checks import SHM_MIB

if TYPE_CHECKING:
    from pyinfra_gpu.facts.record import Record
    from pyinfra_gpu.spec import HostSpec


def obstacles(spec: HostSpec, record: Record) -> list[Finding]:
    """Return why the smoke test, or a run of `train`, would not start for want of it."""
    need = _need(spec)
    if not need:
        return []
    if record.storage.shm_closed is True:
        return [_closed(spec, record)]
    size = record.storage.shm_mib
    return [_small(spec, size, need)] if isinstance(size, int) and size < need else []


def _need(spec: HostSpec) -> int:
    """Return the MiB that the smoke test tries to get, or the launcher asks for; 0 without both."""
    smoke = shm_trial_mib(spec.smoke.mode) if spec.smoke.run != "skip" else 0
    return max(smoke, SHM_MIB * spec.smoke.ranks if spec.training else 0)


def _closed(spec: HostSpec, record: Record) -> Finding:
    return stop(
        Id.PREFLIGHT_SHARED_MEMORY_CLOSED,
        found=f"{layout.owner_name(spec, record)} may not write in {SHARED_MEMORY}",
        expected="a file system that everybody may write in: ranks and data loaders hand each"
        " other data there",
        action=f"run `mount -o remount,rw,mode=1777 {SHARED_MEMORY}`, and correct its line in"
        " /etc/fstab where there is one",
    )


def _small(spec: HostSpec, size: int, need: int) -> Finding:
    wished = max(1, -(-need // 1024))
    return stop(
        Id.PREFLIGHT_SHARED_MEMORY_SMALL,
        found=f"{SHARED_MEMORY} has {size} MiB",
        expected=f"{need} MiB, for {spec.smoke.ranks} ranks and their data loaders",
        action=f"run `mount -o remount,size={wished}G {SHARED_MEMORY}`, and for good put"
        f" `tmpfs {SHARED_MEMORY} tmpfs size={wished}G 0 0` into /etc/fstab; a container gets it by"
        f" --shm-size={wished}g",
    )
