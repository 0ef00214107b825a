"""The GPUs on the bus: as many and of the kind that is declared, with room for their memory."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from pyinfra_gpu.drift.finding import Finding, Id, note, stop
from pyinfra_gpu.drift.rules import if_known, known
from pyinfra_gpu.stacks import catalogue

if TYPE_CHECKING:
    from pyinfra_gpu.facts.record import PciGpu, Record
    from pyinfra_gpu.spec import HostSpec


def devices(spec: HostSpec, record: Record) -> Iterator[Finding]:
    """Judge the GPUs of a host; on a cpu stack they may be there, and are not used."""
    if spec.accelerator == "cpu":
        return
    there = known(record.gpus.devices, "what is on the PCI bus")
    if len(there) != spec.gpu.count:
        yield _count(spec, len(there))
        return
    yield from _model(spec, there)
    yield from _window(spec, there)


def capabilities(spec: HostSpec, record: Record) -> tuple[str, ...]:
    """Return the GPUs' compute capabilities: the declared model's, else of those known by PCI id.

    An id that is not known says nothing; () on cpu stacks.
    """
    if spec.gpu.compute_capability:
        return (spec.gpu.compute_capability,)
    known_ids = {
        pci_id: model.compute_capability
        for model in catalogue().gpus.values()
        for pci_id in model.pci_ids
    }
    there = if_known(record.gpus.devices, ()) if spec.accelerator == "nvidia" else ()
    return tuple(known_ids[_pci_id(each)] for each in there if _pci_id(each) in known_ids)


def _pci_id(device: PciGpu) -> str:
    return f"{device.vendor}:{device.device}".replace("0x", "")


def _count(spec: HostSpec, there: int) -> Finding:
    stacks = catalogue().stacks.values()
    cpu = next(each.name for each in stacks if each.accelerator == "cpu")
    without = "" if there else f"; for a host without a GPU declare `stack = {cpu!r}`"
    return stop(
        Id.PREFLIGHT_GPUS_DIFFER,
        f"{there} NVIDIA GPU{'s' * (there != 1)} on the PCI bus",
        f"gpu_count = {spec.gpu.count}",
        f"check seating, power and Above-4G decoding, or correct `gpu_count`{without}",
    )


def _model(spec: HostSpec, devices: tuple[PciGpu, ...]) -> Iterator[Finding]:
    """Compare with the declared model, where its PCI ids or those of what is there are known."""
    gpus, wanted = catalogue().gpus, spec.gpu.model
    known_ids = gpus[wanted].pci_ids if wanted else ()
    for device in devices if wanted else ():
        pci_id, ids = _pci_id(device), f" ({', '.join(known_ids)})" if known_ids else ""
        there = [name for name, model in gpus.items() if pci_id in model.pci_ids]
        if (known_ids and pci_id not in known_ids) or (there and wanted not in there):
            yield stop(
                Id.PREFLIGHT_GPUS_DIFFER,
                f"{device.address} is {pci_id}{f', {there[0]}' if there else ''}",
                f"gpu_model = {wanted!r}{ids}",
                f"correct `gpu_model`, or see what it is with `lspci -nn -s {device.address}`",
            )
            return


_SETUP = "switch on Above 4G Decoding and Resizable BAR in the machine's firmware setup"


def _window(spec: HostSpec, devices: tuple[PciGpu, ...]) -> Iterator[Finding]:
    """Judge BAR1, the window onto a GPU's memory.

    Where the firmware places none, the driver ends with "No devices were found"
    (open-gpu-kernel-modules issue 862). A small one is enough for CUDA: the driver leaves windows
    as they are unless told otherwise (EnableResizableBar of nv-reg.h, 0), and many servers give
    256 MiB.
    """
    whole = catalogue().gpus[spec.gpu.model].bar1_mib if spec.gpu.model else None
    sizes = {each.address: each.bar1_mib for each in devices if isinstance(each.bar1_mib, int)}
    small = [address for address, size in sizes.items() if whole is not None and size < whole]
    if without := [each.address for each in devices if each.bar1_mib is None]:
        found = f"{', '.join(without)} has no BAR1 aperture"
        expected = "one, or the driver finds no device"
        yield stop(Id.PREFLIGHT_GPU_WINDOW_SMALL, found, expected, _SETUP)
    elif small:
        yield note(
            Id.PREFLIGHT_GPU_WINDOW_SMALL,
            f"{', '.join(small)} has a BAR1 aperture of {sizes[small[0]]} MiB",
            f"{whole} MiB, all of a {spec.gpu.model}'s memory, for transfers between GPUs without a"
            " detour through the host's memory",
            f"left alone: CUDA works with it, and transfers are slower; {_SETUP}",
        )
