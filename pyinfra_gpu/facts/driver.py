"""The NVIDIA kernel driver and its library, as the live host shows them."""

from __future__ import annotations

from dataclasses import dataclass

from pyinfra_gpu.facts.fields import Fields, Jsonable, Unknown, not_asked
from pyinfra_gpu.facts.probe import ConcernFact
from pyinfra_gpu.facts.storage import SHARED_MEMORY


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

    def read(self, fields: Fields) -> DriverRecord:
        """Only this concern of the probe's answer."""
        return parse(fields)


def parse(fields: Fields) -> DriverRecord:
    """The driver, from the probe's fields."""
    idle = not_asked(fields)
    return DriverRecord(
        loaded=fields.text("driver.loaded"),
        open_modules=_open_modules(fields.text("driver.version_line")),
        on_disk=fields.text("driver.on_disk"),
        on_disk_open=_on_disk_open(fields.text("driver.license")),
        module=None if idle else fields.text("driver.module"),
        nouveau=fields.flag("driver.nouveau"),
        nova=fields.flag("driver.nova"),
        libcuda=fields.text("driver.libcuda"),
        libml=fields.text("driver.libml"),
        users=() if idle else fields.items("driver.user"),
        persistenced=None if idle else fields.text("driver.persistenced"),
        persistenced_enabled=(
            None if idle else _enabled(fields.text("driver.persistenced_enabled"))
        ),
        runfile=False if idle else fields.flag("driver.runfile"),
        mok=None if idle else _enrolled(fields.text("driver.mok")),
        closed=_closed(fields.items("owned.closed")),
    )


def _closed(paths: tuple[str, ...] | Unknown) -> tuple[str, ...] | Unknown:
    if isinstance(paths, Unknown):
        return paths
    return tuple(path for path in paths if path != SHARED_MEMORY)


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


def _on_disk_open(text: str | Unknown | None) -> bool | Unknown | None:
    """Read the flavour off the module's licence, which only the open one shares with the kernel."""
    if not isinstance(text, str):
        return text
    if text == "NVIDIA":
        return False
    return True if text == "Dual MIT/GPL" else Unknown(f"its licence is {text[:60]!r}")


def _enabled(text: str | Unknown | None) -> bool | Unknown | None:
    """Whether systemd starts a unit with the machine, from its UnitFileState."""
    if not isinstance(text, str):
        return text
    word = text.removesuffix("-runtime")
    if word in ("enabled", "alias"):
        return True
    known = ("disabled", "static", "masked", "indirect", "linked", "generated", "transient")
    return False if word in known else Unknown(f"systemd calls it {text[:40]!r}")


def _enrolled(text: str | Unknown | None) -> bool | Unknown | None:
    """Read mokutil's sentence on a key; a request to enrol it is not yet an enrolment."""
    if not isinstance(text, str):
        return text
    if text.endswith(("is already enrolled", "is already in db")):
        return True
    if text.endswith(("is not enrolled", "is already in the enrollment request")):
        return False
    return Unknown(f"mokutil said {text[:80]!r}")
