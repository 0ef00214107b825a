"""Room on the disk and in shared memory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pyinfra_gpu.facts.answer import Answer
from pyinfra_gpu.facts.fields import Jsonable, Unknown
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

    def read(self, answer: Answer) -> StorageRecord:
        """Only this concern of what a host answered."""
        return parse(answer)


def parse(answer: Answer) -> StorageRecord:
    """Return this concern, of what a host answered."""
    return answer.part(StorageRecord, "storage")
