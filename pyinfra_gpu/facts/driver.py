"""The NVIDIA kernel driver and its library, as the live host shows them."""

from __future__ import annotations

from dataclasses import dataclass

from pyinfra_gpu.facts.answer import Answer
from pyinfra_gpu.facts.fields import Jsonable, Unknown
from pyinfra_gpu.facts.probe import ConcernFact


@dataclass(frozen=True, kw_only=True, slots=True)
class DriverRecord(Jsonable):
    """The driver's parts, which need not agree.

    + loaded: version of the module in the running kernel, None if it is not loaded
    + open_modules: whether the loaded module is the open one
    + on_disk: version of the module that modprobe would load into the running kernel, None if
      there is none; on_disk_open: whether that one is the open one
    + module: what `modprobe nvidia` really loads where a rule of modprobe.d says so, as "NAME FILE"
      with the file of the rule ("nvidia-current-open /etc/modprobe.d/nvidia.conf"), None where none
      does
    + nouveau, nova: whether one of the free drivers, which take the card away, is loaded
    + libcuda, libml: the files behind the linker cache's libcuda.so.1 and libnvidia-ml.so.1 for
      this machine's architecture
    + users: processes that have a GPU's device open, e.g. "pid 812 (python3)"; nvidia-persistenced
      is left out
    + persistenced: state of nvidia-persistenced as systemd says it ("active", "masked"), None if
      there is no such unit; persistenced_enabled: whether it starts with the machine
    + runfile: whether NVIDIA's .run file installed a driver here, past the package manager
    + closed: what the owner may not open, or run: of the GPUs' devices, the libraries that programs
      load, and nvidia-smi
    + mok: whether the key that DKMS signs modules with is enrolled in the firmware; None where
      Secure Boot is off, or there is no such key, or no mokutil to ask
    """

    loaded: str | Unknown | None
    open_modules: bool | Unknown | None
    on_disk: str | Unknown | None
    on_disk_open: bool | Unknown | None
    module: str | Unknown | None
    nouveau: bool | Unknown
    nova: bool | Unknown
    libcuda: str | Unknown | None
    libml: str | Unknown | None
    users: tuple[str, ...] | Unknown
    persistenced: str | Unknown | None
    persistenced_enabled: bool | Unknown | None
    runfile: bool | Unknown
    mok: bool | Unknown | None
    closed: tuple[str, ...] | Unknown


class Driver(ConcernFact[DriverRecord]):
    """The driver: `pyinfra INVENTORY fact pyinfra_gpu.facts.driver.Driver`."""

    def read(self, answer: Answer) -> DriverRecord:
        """Only this concern of what a host answered."""
        return parse(answer)


def parse(answer: Answer) -> DriverRecord:
    """Return this concern, of what a host answered."""
    return answer.part(DriverRecord, "driver")
