"""Where programs cannot be started, nothing can be written, or a reboot empties what was."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyinfra_gpu.drift.finding import Finding, Id, stop
from pyinfra_gpu.drift.preflight_driver import makes_initramfs

if TYPE_CHECKING:
    from pyinfra_gpu.facts.record import Record
    from pyinfra_gpu.spec import HostSpec

_BOOT = "/boot"


def obstacles(spec: HostSpec, record: Record) -> list[Finding]:
    """Return what is wrong with how file systems are mounted; memory in place of a disk is a note.

    Hosts that get their root over the network at each boot are meant so.
    """
    found = (_noexec(spec, record), _read_only(spec, record), _volatile(spec, record))
    return [each for each in found if each]


def _noexec(spec: HostSpec, record: Record) -> Finding | None:
    """Judge whether what is installed and built below the prefix could be started there at all."""
    place = record.storage.noexec
    if not isinstance(place, str):
        return None
    return stop(
        Id.PREFLIGHT_NOEXEC,
        found=f"no program can be started below {place}: it is mounted noexec",
        expected=f"a prefix whose programs can be started, and {spec.paths.prefix} is declared",
        action=f"run `mount -o remount,exec {place}` and take noexec out of /etc/fstab, or choose"
        " another `prefix`",
    )


def _read_only(spec: HostSpec, record: Record) -> Finding | None:
    """Judge whether anything could be written; a kernel that finds a disk's errors forbids it."""
    place = record.storage.readonly
    if not isinstance(place, str) or (place == _BOOT and not makes_initramfs(spec, record)):
        return None
    return stop(
        Id.PREFLIGHT_READ_ONLY,
        found=f"{place} is mounted read-only",
        expected=f"file systems that can be written, below {spec.paths.prefix} too",
        action="see with `dmesg | grep -iE 'remount|I/O error'` whether the kernel did that after"
        f" an error of the disk; if not, run `mount -o remount,rw {place}` and look at /etc/fstab",
    )


def _volatile(spec: HostSpec, record: Record) -> Finding | None:
    place = record.storage.volatile
    if not isinstance(place, str):
        return None
    return Finding(
        id=Id.PREFLIGHT_IN_MEMORY,
        found=f"{place} is a file system in memory, which a reboot empties",
        expected=f"disks, below {spec.paths.prefix} too",
        effect="note",
        action="left alone: what is written there takes of the host's memory, and after a reboot"
        " all of it is to be deployed anew, and runs and checkpoints are lost; choose a `prefix` on"
        f" a disk, or mount a disk at {place}",
    )
