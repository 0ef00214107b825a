"""The installed kernels, and what each of them has of the NVIDIA driver."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated

from pydantic import Field

from pyinfra_gpu.facts.answer import Answer
from pyinfra_gpu.facts.fields import Jsonable, Unknown
from pyinfra_gpu.facts.probe import ConcernFact


@dataclass(frozen=True, kw_only=True, slots=True)
class KernelRecord(Jsonable):
    """The kernels; "newest" is the one that the next boot takes unless somebody chose another.

    + installed: kernels with a /boot/vmlinuz-KERNEL, oldest first by version
    + modules: of the running and the newest kernel, the version of the module nvidia that
      modprobe would load, None where there is none
    + headers: of the same two, whether /lib/modules/KERNEL/build leads to a Makefile
    + sources: versions of the driver whose module DKMS can build for a kernel to come
    + initramfs: of the newest kernel (of the running one where /boot shows none): "absent";
      "stale" where a file in /etc/modprobe.d that blacklists nouveau or nova, or is ours, is
      newer; else "fresh". Empty where no NVIDIA driver is wanted
    """

    installed: tuple[str, ...] | Unknown
    modules: Mapping[str, str | None] | Unknown
    headers: Mapping[str, bool] | Unknown
    sources: tuple[str, ...] | Unknown
    initramfs: Annotated[str, Field(pattern="^(fresh|stale|absent)?$")] | Unknown

    @property
    def newest(self) -> str | None:
        """The newest installed kernel; None where none is known."""
        return None if isinstance(self.installed, Unknown) else next(reversed(self.installed), None)


class Kernel(ConcernFact[KernelRecord]):
    """Kernels: `pyinfra INVENTORY fact pyinfra_gpu.facts.kernel.Kernel`."""

    def read(self, answer: Answer) -> KernelRecord:
        """Only this concern of what a host answered."""
        return parse(answer)


def parse(answer: Answer) -> KernelRecord:
    """Return this concern, of what a host answered."""
    return answer.part(KernelRecord, "kernel")
