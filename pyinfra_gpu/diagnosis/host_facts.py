"""What one look at a host says about the cause of a failure there."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from pyinfra_gpu.facts.fields import Unknown
from pyinfra_gpu.facts.record import SHARED_MEMORY
from pyinfra_gpu.text import some

if TYPE_CHECKING:
    from pyinfra_gpu.facts.record import Record

_FULL_DISK, _FULL_SHM, _SMALL_SHM, _LITTLE_RAM = 256, 64, 1024, 16 << 10  # MiB
_SHOWN = 3  # processes, folders

FACTS = (
    *("module-differs-from-library", "module-missing", "gpu-lost", "nouveau-loaded", "gpu-busy"),
    *("secure-boot", "no-libcuda", "compat-on-path"),
    *("shm-small", "shm-full", "disk-full", "memory-low"),
)
"""The names that hints of the catalogue use, as `host: NAME`."""


def facts_of(record: Record) -> dict[str, str]:
    """Return fact -> detail, such as "gpu-busy" -> "a GPU is used by pid 812 (python3)".

    A fact that does not hold, or is unknown, is left out.
    """
    return {name: reported for each in (_gpus, _loading, _room) for name, reported in each(record)}


def _gpus(record: Record) -> Iterator[tuple[str, str]]:
    driver, devices = record.driver, _known(record.gpus.devices, ())
    loaded, library = driver.loaded, re.search(r"/libcuda\.so\.(\d[\d.]*)$", str(driver.libcuda))
    if isinstance(loaded, str) and library and library[1] != loaded:
        yield (
            "module-differs-from-library",
            f"the loaded module is {loaded}, libcuda is {library[1]}",
        )
    if loaded is None and driver.on_disk is None and devices:
        text = f"no nvidia module is loaded, or installed for kernel {record.system.kernel}"
        yield "module-missing", text
    lost = [gpu.address for gpu in devices if gpu.driver is None]
    if lost and isinstance(loaded, str):
        text = f"of {len(devices)} GPUs on PCI, no driver is bound to {some(lost, _SHOWN)}"
        yield "gpu-lost", text
    bound = {gpu.driver for gpu in devices}
    for name, there in (("nouveau", driver.nouveau), ("nova", driver.nova)):
        if there is True or name in bound:
            yield "nouveau-loaded", f"{name} is loaded"
    if users := _known(driver.users, ()):
        yield "gpu-busy", f"a GPU is used by {some(users, _SHOWN)}"


def _loading(record: Record) -> Iterator[tuple[str, str]]:
    mok = record.driver.mok
    if record.system.secure_boot is True and mok is not True:
        known = "" if mok is False else " known to be"
        text = f"Secure Boot is on, and the key that signs modules is not{known} enrolled"
        yield "secure-boot", text
    if record.driver.libcuda is None:
        yield "no-libcuda", "the loader's cache has no libcuda.so.1"
    cache = _known(record.libcuda.cache, ())
    first = next((entry for entry in cache if entry.name == "libcuda.so.1"), None)
    for path in (first.path, first.real or "") if first else ():  # the loader takes the first
        if "/compat" in path:
            yield "compat-on-path", f"the loader takes {path}"
            return


def _room(record: Record) -> Iterator[tuple[str, str]]:
    room, ram = record.storage, record.system.ram_mib
    if room.shm_mib is None:
        yield "shm-small", f"there is no {SHARED_MEMORY}"
    if _below(_SMALL_SHM, room.shm_mib):
        yield "shm-small", f"{SHARED_MEMORY} has {room.shm_mib} MiB"
    if _below(_FULL_SHM, room.shm_free_mib):
        yield "shm-full", f"{SHARED_MEMORY} has {room.shm_free_mib} MiB free"
    places = {"the prefix": room.free_mib, "/usr": room.usr_mib, "/var": room.var_mib}
    full = [f"{name} has {n} MiB free" for name, n in places.items() if _below(_FULL_DISK, n)]
    if full:
        yield "disk-full", some(full, _SHOWN)
    if _below(_LITTLE_RAM, ram):
        yield "memory-low", f"the host has {ram} MiB of RAM"


def _below(limit: int, size: object) -> bool:
    return isinstance(size, int) and size < limit


def _known(value: Any, otherwise: Any) -> Any:
    """Return what the host told, or what stands for it where it would not."""
    return otherwise if isinstance(value, Unknown) else value
