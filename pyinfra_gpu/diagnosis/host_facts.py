"""From what a look at a host saw, and from the catalogue's words, to what decides a reading."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, TypeVar

from pyinfra_gpu.facts.fields import Unknown
from pyinfra_gpu.on_host.diagnosis.host_facts import YES_OR_NO, Condition, HostFacts
from pyinfra_gpu.stacks import catalogue as stacks
from pyinfra_gpu.stacks.reading import expected, misplaced

if TYPE_CHECKING:
    from pyinfra_gpu.facts.record import Record, TorchRecord

T = TypeVar("T")

_SIZE = re.compile(r"(<|>=) (\d{1,9})")
_LIBRARY = re.compile(r"/libcuda\.so\.(\d[\d.]*)$")


def facts_of(record: Record) -> HostFacts:
    """Return what a look at the host tells.

    The probe cannot tell whether torch has libuv, nor whether a run was in a container:
    whoever knows adds it with `dataclasses.replace`.
    """
    driver = record.driver
    library = _LIBRARY.search(driver.libcuda) if isinstance(driver.libcuda, str) else None
    return HostFacts(
        driver_loaded=None if isinstance(driver.loaded, Unknown) else driver.loaded is not None,
        driver_version=_known(driver.loaded),
        library_version=library[1] if library else None,
        compat_on_path=_compat_on_path(record),
        # None: the machine was not booted through EFI, hence without Secure Boot.
        secure_boot=_known(record.system.secure_boot, default=False),
        key_enrolled=_known(driver.mok),
        nouveau=_nouveau(record),
        torch_cuda=_torch_cuda(record.torch),
        gpus=_names(record),
        shm_mib=_known(record.storage.shm_mib, default=0),
    )


def read_conditions(facts: object) -> tuple[Condition, ...]:
    """Return the conditions of one case of the catalogue.

    + facts: `{compat_on_path: yes}`: a yes or no for what `YES_OR_NO` lists; `gpu`: a part of a
      GPU's name; `shm_mib`: "< N" or ">= N"

    Raises pydantic's errors for anything else, as its validators do.
    """
    if not isinstance(facts, dict):
        raise expected("a mapping")
    return tuple(_condition(str(name), value) for name, value in facts.items())


def _condition(name: str, value: object) -> Condition:
    if name in YES_OR_NO:
        if isinstance(value, bool):
            return Condition(name, value)
        raise misplaced(name, "must be yes or no")
    if name == "gpu":
        if isinstance(value, str) and value:
            return Condition(name, value)
        raise misplaced(name, "must be text")
    if name == "shm_mib":
        if isinstance(value, str) and _SIZE.fullmatch(value):
            return Condition(name, value)
        raise misplaced(name, 'must be "< N" or ">= N" in MiB')
    listed = ", ".join(sorted((*YES_OR_NO, "gpu", "shm_mib")))
    raise misplaced(name, f"is not a field; the fields are {listed}")


def _compat_on_path(record: Record) -> bool | None:
    """The cache is in the loader's order, so its first libcuda.so.1 is the one it takes."""
    found = record.libcuda.cache
    if isinstance(found, Unknown):
        return None
    first = next((entry for entry in found if entry.name == "libcuda.so.1"), None)
    return first is not None and any("/compat" in path for path in (first.path, first.real or ""))


def _torch_cuda(torch: TorchRecord) -> bool | None:
    if not isinstance(torch.version, str) or isinstance(torch.cuda, Unknown):
        return None
    return torch.cuda is not None


def _nouveau(record: Record) -> bool | None:
    loaded, devices = record.driver.nouveau, record.gpus.devices
    bound = not isinstance(devices, Unknown) and any(gpu.driver == "nouveau" for gpu in devices)
    return True if bound else _known(loaded)


def _names(record: Record) -> tuple[str, ...] | None:
    """Only a PCI id that the compatibility data has seen on a real card has a name."""
    if isinstance(record.gpus.devices, Unknown):
        return None
    ids = [f"{gpu.vendor}:{gpu.device}".replace("0x", "") for gpu in record.gpus.devices]
    names = [name for name, gpu in stacks().gpus.items() if set(ids) & set(gpu.pci_ids)]
    return tuple(names) or None


def _known(value: T | Unknown | None, *, default: T | None = None) -> T | None:
    if isinstance(value, Unknown):
        return None
    return default if value is None else value
