"""The NVIDIA kernel driver and its library, as the live host shows them."""

from __future__ import annotations

from dataclasses import dataclass

from pyinfra_gpu.facts.fields import Fields, Jsonable, Unknown
from pyinfra_gpu.facts.probe import ConcernFact


@dataclass(frozen=True, kw_only=True, slots=True)
class DriverRecord(Jsonable):
    """The driver's parts, which need not agree.

    + loaded: version of the module in the running kernel, None if it is not loaded
    + open_modules: whether the loaded module is the open one
    + on_disk: version of the module that would be loaded next into this kernel
    + nouveau: whether the free driver that takes the card away is loaded
    + libcuda: the file behind the linker cache's libcuda.so.1 for this machine's architecture
    """

    loaded: str | Unknown | None
    open_modules: bool | Unknown | None
    on_disk: str | Unknown | None
    nouveau: bool | Unknown
    libcuda: str | Unknown | None


class Driver(ConcernFact[DriverRecord]):
    """The driver: `pyinfra INVENTORY fact pyinfra_gpu.facts.driver.Driver`."""

    def read(self, fields: Fields) -> DriverRecord:
        """Only this concern of the probe's answer."""
        return parse(fields)


def parse(fields: Fields) -> DriverRecord:
    """The driver, from the probe's fields."""
    return DriverRecord(
        loaded=fields.text("driver.loaded"),
        open_modules=_open_modules(fields.text("driver.version_line")),
        on_disk=fields.text("driver.on_disk"),
        nouveau=fields.flag("driver.nouveau"),
        libcuda=fields.text("driver.libcuda"),
    )


def _open_modules(line: str | Unknown | None) -> bool | Unknown | None:
    """Read the flavour off the first line of /proc/driver/nvidia/version.

    Open: "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.95.05 ...";
    proprietary: "NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.95.05 ...".
    """
    if not isinstance(line, str):
        return line
    if "Open Kernel Module" in line:
        return True
    if "Kernel Module" in line:
        return False
    return Unknown(f"/proc/driver/nvidia/version begins with {line[:60]!r}")
