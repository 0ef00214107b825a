"""The NVIDIA display and 3D controllers on the PCI bus, whether or not a driver knows them."""

from __future__ import annotations

import re
from dataclasses import dataclass

from pyinfra_gpu.facts.fields import Fields, Jsonable, Unknown
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

    def read(self, fields: Fields) -> GpusRecord:
        """Only this concern of the probe's answer."""
        return parse(fields)


def parse(fields: Fields) -> GpusRecord:
    """The GPUs, from the probe's fields."""
    rows = fields.items("gpus.device")
    if isinstance(rows, Unknown):
        return GpusRecord(devices=rows)
    devices = []
    for row in rows:
        words = row.split(" ")
        if len(words) < 6:
            return GpusRecord(devices=Unknown(f"the probe's line {row[:60]!r} is incomplete"))
        address, vendor, device, class_, driver, *bars = words
        devices.append(
            PciGpu(
                address=address,
                vendor=vendor,
                device=device,
                class_=class_,
                driver=_driver(driver),
                bar1_mib=_bar1(bars),
            )
        )
    return GpusRecord(devices=tuple(sorted(devices, key=lambda gpu: gpu.address)))


def _driver(word: str) -> str | Unknown | None:
    if word == "?":
        return Unknown("the link to its driver could not be read")
    return None if word == "-" else word


def _bar1(bars: list[str]) -> int | Unknown | None:
    """The size of the second memory window.

    Register windows of GeForce cards have 32 bits and take one of the kernel's six rows; those of
    Hopper and later take two, and BAR1 then stands in the third row.
    """
    if "?" in bars or len(bars) < 3:
        return Unknown("the device's resource file could not be read")
    for row in bars[1:3]:
        match = re.fullmatch(r"0x([0-9a-fA-F]{1,16})-0x([0-9a-fA-F]{1,16})", row)
        if not match:
            return Unknown(f"{row[:60]!r} is not a range of addresses")
        first, last = int(match[1], 16), int(match[2], 16)
        if last > first:
            return (last - first + 1) >> 20
    return None
