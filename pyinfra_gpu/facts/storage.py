"""Room on the disk and in shared memory."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from pyinfra_gpu.facts.fields import Fields, Jsonable, Unknown, not_asked
from pyinfra_gpu.facts.probe import ConcernFact

SHARED_MEMORY = "/dev/shm"  # noqa: S108 - the kernel's own, where nothing of ours is written


@dataclass(frozen=True, kw_only=True, slots=True)
class StorageRecord(Jsonable):
    """All in MiB.

    + free_mib: what an ordinary user may still write where the prefix is, or will be
    + usr_mib, var_mib: the same for /usr and /var, None where no NVIDIA driver is wanted
    + boot_mib: the same for /boot, None where there is none, too
    + inodes: how many are free where the prefix is, or will be, by `prefix`, and at /usr and /var;
      without file systems that have no fixed number
    + initrd_mib: size of the largest initramfs there; 0 where there is none
    + readonly: where a file system is mounted read-only that has to be written, None if none
    + volatile: where a file system in memory is mounted that a reboot must not empty, None if none
    + noexec: where a file system is mounted from which nothing of ours can be started, None if none
    + shm_mib, shm_free_mib: size and room of the file system that holds /dev/shm, None if there is
      no /dev/shm
    + shm_closed: whether the owner may not write there
    """

    free_mib: int | Unknown
    usr_mib: int | Unknown | None
    var_mib: int | Unknown | None
    boot_mib: int | Unknown | None
    initrd_mib: int | Unknown | None
    readonly: str | Unknown | None
    volatile: str | Unknown | None
    shm_mib: int | Unknown | None
    shm_free_mib: int | Unknown | None
    shm_closed: bool | Unknown
    noexec: str | Unknown | None
    inodes: Mapping[str, int] | Unknown


class Storage(ConcernFact[StorageRecord]):
    """Room: `pyinfra INVENTORY fact pyinfra_gpu.facts.storage.Storage`."""

    def read(self, fields: Fields) -> StorageRecord:
        """Only this concern of the probe's answer."""
        return parse(fields)


def parse(fields: Fields) -> StorageRecord:
    """The room, from the probe's fields."""
    names = ("shm", "usr", "var", "boot")
    shm, usr, var, boot = (fields.text(f"storage.{name}") for name in names)
    idle, initrd = not_asked(fields), fields.number("storage.initrd")
    closed = fields.items("owned.closed")
    return StorageRecord(
        free_mib=_mib(fields.present("storage.free"), "free"),
        usr_mib=None if idle or usr is None else _mib(usr, "free"),
        var_mib=None if idle or var is None else _mib(var, "free"),
        boot_mib=None if idle or boot is None else _mib(boot, "free"),
        initrd_mib=None if idle else initrd if isinstance(initrd, Unknown) else _up(initrd),
        readonly=fields.text("storage.readonly"),
        volatile=fields.text("storage.volatile"),
        shm_mib=None if shm is None else _mib(shm, "size"),
        shm_free_mib=None if shm is None else _mib(shm, "free"),
        shm_closed=closed if isinstance(closed, Unknown) else SHARED_MEMORY in closed,
        noexec=fields.text("storage.noexec"),
        inodes=_inodes(fields.items("storage.inodes")),
    )


def _up(size: int) -> int:
    return -(-size // 2**20)


def _inodes(rows: tuple[str, ...] | Unknown) -> Mapping[str, int] | Unknown:
    """What is free by place. Btrfs and others make inodes as they need them, and say 0 of 0."""
    if isinstance(rows, Unknown):
        return rows
    found: dict[str, int] = {}
    for row in rows:
        match = re.fullmatch(r"(\d{1,20}) (-?\d{1,20}) (/.*)", row, re.ASCII)
        if not match:
            return Unknown(f"stat said {row[:80]!r}")
        if int(match[1]):
            found[match[3]] = int(match[2])
    return found


def _mib(line: str | Unknown, column: str) -> int | Unknown:
    """One column of a line of `df -P -k`; names of file systems may hold blanks, numbers not."""
    if isinstance(line, Unknown):
        return line
    match = re.search(
        r" +(?P<size>\d{1,18}) +\d{1,18} +(?P<free>-?\d{1,18}) +(?:\d{1,3}%|-) +/", line, re.ASCII
    )
    return int(match[column]) // 1024 if match else Unknown(f"df said {line[:80]!r}")
