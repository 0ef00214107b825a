"""The NVIDIA display and 3D controllers on the PCI bus, whether or not a driver knows them."""

from __future__ import annotations

from dataclasses import dataclass

from pyinfra_gpu.facts.answer import Answer
from pyinfra_gpu.facts.fields import Jsonable, Unknown
from pyinfra_gpu.facts.probe import ConcernFact


@dataclass(frozen=True, kw_only=True, slots=True)
class PciGpu(Jsonable):
    """One controller.

    + address: e.g. "0000:01:00.0"; vendor, device, class_: as the kernel prints them ("0x10de")
    + driver: name of the kernel driver bound to it, None if there is none
    + bar1_mib: size of the window onto the GPU's memory, None if the firmware assigned none
    """

    address: str
    vendor: str
    device: str
    class_: str
    driver: str | Unknown | None
    bar1_mib: int | Unknown | None


@dataclass(frozen=True, kw_only=True, slots=True)
class GpusRecord(Jsonable):
    """All of them, in the order of their addresses."""

    devices: tuple[PciGpu, ...] | Unknown


class Gpus(ConcernFact[GpusRecord]):
    """GPUs on the bus: `pyinfra INVENTORY fact pyinfra_gpu.facts.gpus.Gpus`."""

    def read(self, answer: Answer) -> GpusRecord:
        """Only this concern of what a host answered."""
        return parse(answer)


def parse(answer: Answer) -> GpusRecord:
    """Return this concern, of what a host answered."""
    return answer.part(GpusRecord, "gpus")
