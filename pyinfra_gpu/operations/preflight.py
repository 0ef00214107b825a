"""Refuse what cannot work, before anything is written."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyinfra import host

from pyinfra_gpu import journal
from pyinfra_gpu.compatibility import HostFacts, check_host
from pyinfra_gpu.facts.fields import Unknown
from pyinfra_gpu.facts.look import look
from pyinfra_gpu.operations.converge import Commands, converging, refuse, unreadable
from pyinfra_gpu.stacks import catalogue

if TYPE_CHECKING:
    from pyinfra_gpu.facts.record import PciGpu, Record
    from pyinfra_gpu.spec import HostSpec

STAGE = "preflight"
SUPPORTED = {"debian": ("12", "13"), "ubuntu": ("22.04", "24.04", "26.04")}


@converging(STAGE)
def ready(spec: HostSpec) -> Commands:
    """Ensure that this host can become what is declared; otherwise fail it with one sentence.

    + spec: the host's resolved specification

    Writes nothing, ever. Looks at the operating system, the architecture, free disk and memory,
    the Python to use, the GPUs on the PCI bus and the driver that is loaded.

    **Example:**

    .. code:: python

        preflight.ready(name="Check that this host can work", spec=wanted)
    """
    record = look(spec)
    if record is None:
        yield unreadable(STAGE)
        return
    journal.found(STAGE, summary(record))
    refusals = complaints(spec, record)
    if refusals:
        yield refuse(STAGE, "; ".join(refusals))
        return
    host.noop(f"can become what is declared: {summary(record)}")


def summary(record: Record) -> str:
    """Say in a few words what kind of machine this is."""
    system = record.system
    gpus = record.gpus.devices
    ram = (
        "unknown RAM" if isinstance(system.ram_mib, Unknown) else f"{system.ram_mib / 1024:.0f} GiB"
    )
    gpu_text = (
        "GPUs unknown"
        if isinstance(gpus, Unknown)
        else f"{len(gpus)} NVIDIA GPU{'s' if len(gpus) != 1 else ''}"
    )
    return f"{system.os_name}, {system.cpu_count} CPUs, {ram}, {gpu_text}"


def complaints(spec: HostSpec, record: Record) -> list[str]:
    """Return every reason why this host cannot become what is declared, one sentence each.

    + spec: what is declared
    + record: what the host looks like
    """
    found = [
        _operating_system(spec, record),
        _disk(spec, record),
        _memory(spec, record),
        _gpus(spec, record),
        _driver(spec, record),
    ]
    sentences = [f"{spec.host}: {text}" for text in found if text]
    return sentences + check_host(spec, _host_facts(spec, record))


def _operating_system(spec: HostSpec, record: Record) -> str | None:
    system = record.system
    if spec.privilege == "none":
        return (
            None  # nothing is installed from the distribution, so which one it is does not matter
        )
    if system.init != "systemd":
        return f"pid 1 is {system.init}, not systemd; a host that is installed by us needs systemd"
    if system.os_id in SUPPORTED and system.os_version in SUPPORTED[str(system.os_id)]:
        return None
    known = ", ".join(f"{name} {'/'.join(versions)}" for name, versions in SUPPORTED.items())
    return f"runs {system.os_name}; supported are {known}"


def _disk(spec: HostSpec, record: Record) -> str | None:
    if record.torch.version is not None:
        return None  # what needs the space is already there
    free = record.storage.free_mib
    need = spec.preflight.min_disk_gib
    if isinstance(free, Unknown):
        return f"free disk space at {spec.paths.prefix} is unknown ({free.reason})"
    if free >= need * 1024:
        return None
    return (
        f"{free / 1024:.1f} GiB free at {spec.paths.prefix}, {need:g} GiB needed: free some space,"
        " choose another `prefix`, or lower `preflight_min_disk_gib` if you know better"
    )


def _memory(spec: HostSpec, record: Record) -> str | None:
    ram = record.system.ram_mib
    need = spec.preflight.min_ram_gib
    if isinstance(ram, Unknown):
        return f"the amount of memory is unknown ({ram.reason})"
    # The kernel keeps some of what is installed for itself, so a "32 GiB" host shows about 31.
    if ram >= need * 1024 * 0.9:
        return None
    return f"has {ram / 1024:.1f} GiB of memory, {need:g} GiB needed (`preflight_min_ram_gib`)"


def _gpus(spec: HostSpec, record: Record) -> str | None:
    devices = record.gpus.devices
    if isinstance(devices, Unknown):
        return f"the PCI bus could not be read ({devices.reason})" if spec.gpu.count else None
    if spec.accelerator == "cpu":
        return None  # a cpu stack on a host with GPUs is allowed: it is declared, and labelled
    if len(devices) == spec.gpu.count:
        return _gpu_model(spec, devices)
    return (
        f"gpu_count = {spec.gpu.count} is declared and {len(devices)} NVIDIA GPUs are on the PCI"
        " bus: check seating, power and Above-4G decoding, or correct `gpu_count`"
        + ("" if devices else '; for a host without a GPU declare `stack = "cpu-torch2.13"`')
    )


def _gpu_model(spec: HostSpec, devices: tuple[PciGpu, ...]) -> str | None:
    """Compare with the declared model, where the PCI ids of that model are known."""
    known = catalogue().gpus[spec.gpu.model].pci_ids if spec.gpu.model else ()
    if not known:
        return None
    for device in devices:
        pci_id = f"{device.vendor}:{device.device}".replace("0x", "")
        if pci_id not in known:
            return (
                f"gpu_model = {spec.gpu.model!r} is declared ({', '.join(known)}) and"
                f" {device.address} is {pci_id}: correct `gpu_model`, or see what it is with"
                f" `lspci -nn -s {device.address}`"
            )
    return None


def _driver(spec: HostSpec, record: Record) -> str | None:
    """Refuse a GPU stack where no driver is loaded: there is no stage that installs one yet."""
    if spec.accelerator == "cpu":
        return None
    loaded = record.driver.loaded
    if isinstance(loaded, Unknown):
        return f"whether the NVIDIA driver is loaded cannot be told ({loaded.reason})"
    if loaded is not None:
        return None
    bound = "; nouveau is loaded and has to go first" if record.driver.nouveau is True else ""
    return (
        f"no NVIDIA driver is loaded{bound}, and this release installs none: install branch"
        f" {spec.driver.branch} ({spec.driver.minimum} or newer) with open kernel modules, reboot,"
        " and run again"
    )


def _host_facts(spec: HostSpec, record: Record) -> HostFacts:
    """Return what the compatibility rules need; what could not be read is not judged there."""

    def known(value: object) -> str | None:
        return value if isinstance(value, str) else None

    open_modules = record.driver.open_modules
    capability = spec.gpu.compute_capability
    return HostFacts(
        python=known(record.torch.python) or known(record.system.python3),
        gcc=None,
        architecture=known(record.system.architecture) or "x86_64",
        driver_loaded=known(record.driver.loaded),
        compute_capabilities=(capability,) if capability else (),
        open_modules=open_modules if isinstance(open_modules, bool) else None,
    )
