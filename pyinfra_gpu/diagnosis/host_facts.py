"""What one look at a host says about the cause of a failure there."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, TypeVar

from pyinfra_gpu.facts.fields import Unknown
from pyinfra_gpu.facts.record import SHARED_MEMORY
from pyinfra_gpu.text import some

if TYPE_CHECKING:
    from pyinfra_gpu.facts.record import Record

T = TypeVar("T")

_LIBRARY = re.compile(r"/libcuda\.so\.(\d[\d.]*)$")
_FULL_DISK, _FULL_SHM, _SMALL_SHM, _LITTLE_RAM = 256, 64, 1024, 16 << 10  # MiB
_FEW_INODES = 100
_SHOWN = 3  # processes, folders


def facts_of(record: Record) -> dict[str, str]:
    """Return fact -> detail, such as "gpu-busy" -> "a GPU is used by pid 812 (python3)".

    A fact that does not hold, or is unknown, is left out.
    """
    return {name: detail for name, ask in FACTS.items() if (detail := ask(record))}


def _module_differs(record: Record) -> str:
    loaded, path = record.driver.loaded, record.driver.libcuda
    library = _LIBRARY.search(path) if isinstance(path, str) else None
    if not isinstance(loaded, str) or library is None or library[1] == loaded:
        return ""
    return f"the loaded module is {loaded}, libcuda is {library[1]}"


def _module_missing(record: Record) -> str:
    driver = record.driver
    if driver.loaded is not None or driver.on_disk is not None or not _known(record.gpus.devices):
        return ""
    return f"no nvidia module is loaded, or installed for kernel {record.system.kernel}"


def _gpu_lost(record: Record) -> str:
    devices = _known(record.gpus.devices) or ()
    lost = [gpu.address for gpu in devices if gpu.driver is None]
    if not lost or not isinstance(record.driver.loaded, str):
        return ""
    return f"of {len(devices)} GPUs on PCI, no driver is bound to {some(lost, _SHOWN)}"


def _shm_small(record: Record) -> str:
    size = record.storage.shm_mib
    if size is None:
        return f"there is no {SHARED_MEMORY}"
    return f"{SHARED_MEMORY} has {size} MiB" if _below(_SMALL_SHM, size) else ""


def _shm_full(record: Record) -> str:
    free = record.storage.shm_free_mib
    return f"{SHARED_MEMORY} has {free} MiB free" if _below(_FULL_SHM, free) else ""


def _secure_boot(record: Record) -> str:
    enrolled = record.driver.mok
    if record.system.secure_boot is not True or enrolled is True:
        return ""
    known = "" if enrolled is False else " known to be"
    return f"Secure Boot is on, and the key that signs modules is not{known} enrolled"


def _compat_on_path(record: Record) -> str:
    """The loader takes the first libcuda.so.1 of its cache."""
    cache = _known(record.libcuda.cache) or ()
    first = next((entry for entry in cache if entry.name == "libcuda.so.1"), None)
    paths = (first.path, first.real or "") if first else ()
    return next((f"the loader takes {path}" for path in paths if "/compat" in path), "")


def _disk_full(record: Record) -> str:
    room = record.storage
    places = {"the prefix": room.free_mib, "/usr": room.usr_mib, "/var": room.var_mib}
    full = [
        f"{name} has {free} MiB free" for name, free in places.items() if _below(_FULL_DISK, free)
    ]
    inodes = _known(room.inodes) or {}
    full += [f"{path} has {n} inodes free" for path, n in inodes.items() if n < _FEW_INODES]
    return some(full, _SHOWN)


def _memory_low(record: Record) -> str:
    size = record.system.ram_mib
    return f"the host has {size} MiB of RAM" if _below(_LITTLE_RAM, size) else ""


def _gpu_busy(record: Record) -> str:
    users = _known(record.driver.users)
    return f"a GPU is used by {some(users, _SHOWN)}" if users else ""


def _nouveau_loaded(record: Record) -> str:
    bound = {gpu.driver for gpu in _known(record.gpus.devices) or ()}
    for name, loaded in (("nouveau", record.driver.nouveau), ("nova", record.driver.nova)):
        if loaded is True or name in bound:
            return f"{name} is loaded"
    return ""


def _no_libcuda(record: Record) -> str:
    return "the loader's cache has no libcuda.so.1" if record.driver.libcuda is None else ""


FACTS: Mapping[str, Callable[[Record], str]] = MappingProxyType(
    {
        "module-differs-from-library": _module_differs,
        "module-missing": _module_missing,
        "gpu-lost": _gpu_lost,
        "shm-small": _shm_small,
        "shm-full": _shm_full,
        "secure-boot": _secure_boot,
        "compat-on-path": _compat_on_path,
        "disk-full": _disk_full,
        "memory-low": _memory_low,
        "gpu-busy": _gpu_busy,
        "nouveau-loaded": _nouveau_loaded,
        "no-libcuda": _no_libcuda,
    }
)
"""The names that hints of the catalogue use (`host: NAME`) -> what returns the detail, or ""."""


def _below(limit: int, size: int | Unknown | None) -> bool:
    return isinstance(size, int) and size < limit


def _known(value: T | Unknown) -> T | None:
    return None if isinstance(value, Unknown) else value
