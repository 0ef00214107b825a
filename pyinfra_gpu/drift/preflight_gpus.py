"""The GPUs on the bus: as many and of the kind that is declared, with room for their memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyinfra_gpu.drift.finding import CannotTell, Finding, Id, stop
from pyinfra_gpu.facts.fields import Unknown
from pyinfra_gpu.stacks import catalogue

if TYPE_CHECKING:
    from pyinfra_gpu.facts.record import PciGpu, Record
    from pyinfra_gpu.spec import HostSpec


def obstacles(spec: HostSpec, record: Record) -> list[Finding | CannotTell]:
    """Return what is wrong with the GPUs of a host."""
    devices = record.gpus.devices
    if spec.accelerator == "cpu":
        return []  # a cpu stack on a host with GPUs is allowed: it is declared, and labelled
    if isinstance(devices, Unknown):
        return [CannotTell(f"the PCI bus could not be read ({devices.reason})")]
    if len(devices) != spec.gpu.count:
        return [_count(spec, len(devices))]
    found = (_model(spec, devices), _window(spec, devices))
    return [each for each in found if each]


def capabilities(spec: HostSpec, record: Record) -> tuple[str, ...]:
    """Return the GPUs' compute capabilities: the declared model's, else of those known by PCI id.

    An id that is not known says nothing; () on cpu stacks.
    """
    if spec.gpu.compute_capability:
        return (spec.gpu.compute_capability,)
    devices = record.gpus.devices
    if spec.accelerator == "cpu" or isinstance(devices, Unknown):
        return ()
    known = {
        pci_id: model.compute_capability
        for model in catalogue().gpus.values()
        for pci_id in model.pci_ids
    }
    return tuple(known[_pci_id(each)] for each in devices if _pci_id(each) in known)


def _pci_id(device: PciGpu) -> str:
    return f"{device.vendor}:{device.device}".replace("0x", "")


def _count(spec: HostSpec, there: int) -> Finding:
    stacks = catalogue().stacks.values()
    cpu = next(each.name for each in stacks if each.accelerator == "cpu")
    without = "" if there else f"; for a host without a GPU declare `stack = {cpu!r}`"
    return stop(
        Id.PREFLIGHT_GPU_COUNT_DIFFERS,
        found=f"{there} NVIDIA GPU{'s' * (there != 1)} on the PCI bus",
        expected=f"gpu_count = {spec.gpu.count}",
        action=f"check seating, power and Above-4G decoding, or correct `gpu_count`{without}",
    )


def _model(spec: HostSpec, devices: tuple[PciGpu, ...]) -> Finding | None:
    """Compare with the declared model, where its PCI ids or those of what is there are known."""
    if spec.gpu.model is None:
        return None
    gpus = catalogue().gpus
    known = gpus[spec.gpu.model].pci_ids
    for device in devices:
        pci_id = _pci_id(device)
        there = [name for name, model in gpus.items() if pci_id in model.pci_ids]
        if (known and pci_id not in known) or (there and spec.gpu.model not in there):
            ids = f" ({', '.join(known)})" if known else ""
            name = f", {there[0]}" if there else ""
            return stop(
                Id.PREFLIGHT_GPU_MODEL_DIFFERS,
                found=f"{device.address} is {pci_id}{name}",
                expected=f"gpu_model = {spec.gpu.model!r}{ids}",
                action="correct `gpu_model`, or see what it is with"
                f" `lspci -nn -s {device.address}`",
            )
    return None


_SETUP = "switch on Above 4G Decoding and Resizable BAR in the machine's firmware setup"


def _window(spec: HostSpec, devices: tuple[PciGpu, ...]) -> Finding | None:
    """Judge BAR1, the window onto a GPU's memory.

    Where the firmware places none, the driver ends with "No devices were found"
    (open-gpu-kernel-modules issue 862). A small one is enough for CUDA: the driver leaves windows
    as they are unless told otherwise (EnableResizableBar of nv-reg.h, 0), and many servers give
    256 MiB.
    """
    without = [each.address for each in devices if each.bar1_mib is None]
    if without:
        return stop(
            Id.PREFLIGHT_GPU_WINDOW_MISSING,
            found=f"{', '.join(without)} has no window onto its memory (BAR1)",
            expected="one, or the driver finds no device",
            action=_SETUP,
        )
    whole = catalogue().gpus[spec.gpu.model].bar1_mib if spec.gpu.model else None
    sizes = {each.address: each.bar1_mib for each in devices if isinstance(each.bar1_mib, int)}
    small = [address for address, size in sizes.items() if whole is not None and size < whole]
    if not small:
        return None
    return Finding(
        id=Id.PREFLIGHT_GPU_WINDOW_SMALL,
        found=f"{', '.join(small)} has a window of {sizes[small[0]]} MiB onto its memory (BAR1)",
        expected=f"{whole} MiB, all of a {spec.gpu.model}'s memory, for transfers between GPUs"
        " without a detour through the host's memory",
        effect="note",
        action=f"left alone: CUDA works with it, and transfers are slower; {_SETUP}",
    )
