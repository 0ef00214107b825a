"""Why a host cannot become what is declared: judged before anything is written."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyinfra_gpu.compatibility import HostFacts, check_host
from pyinfra_gpu.drift import cuda, driver, preflight_driver, preflight_gpus
from pyinfra_gpu.drift.cannot_tell import CannotTell
from pyinfra_gpu.facts.fields import Unknown

if TYPE_CHECKING:
    from pyinfra_gpu.facts.record import Record
    from pyinfra_gpu.spec import HostSpec

_TAKES_GIB = {"driver.not-installed": (1.0, 0.5), "cuda.not-installed": (5.0, 3.0)}
"""What is to be installed -> GiB below /usr, and below /var for the packages themselves."""

SUPPORTED = {"debian": ("12", "13"), "ubuntu": ("22.04", "24.04", "26.04")}


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

    A sentence that only says what could not be read is a `CannotTell`.

    What the driver stage mends itself (no driver, another one, nouveau) is no reason, unless
    somebody works on the GPUs meanwhile.
    """
    found = [
        _operating_system(spec, record),
        _disk(spec, record),
        *_system_disk(spec, record),
        _memory(spec, record),
        *preflight_gpus.complaints(spec, record),
        *preflight_driver.complaints(spec, record),
    ]
    sentences = [type(text)(f"{spec.host}: {text}") for text in found if text]
    return sentences + check_host(spec, host_facts(spec, record))


def _operating_system(spec: HostSpec, record: Record) -> str | None:
    system = record.system
    if spec.privilege == "none":
        return None  # nothing is installed from the distribution: which one it is does not matter
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
        return CannotTell(f"free disk space at {spec.paths.prefix} is unknown ({free.reason})")
    if free >= need * 1024:
        return None
    return (
        f"{free / 1024:.1f} GiB free at {spec.paths.prefix}, {need:g} GiB needed: free some space,"
        " choose another `prefix`, or lower `preflight_min_disk_gib` if you know better"
    )


def _system_disk(spec: HostSpec, record: Record) -> list[str]:
    """Compare with what driver and toolkit take below /usr, and their packages on the way there.

    apt checks neither before dpkg starts; a full /usr leaves packages half installed.
    """
    ids = {
        each.id for each in (*driver.deviations(spec, record), *cuda.deviations(spec, record))
    } & set(_TAKES_GIB)
    found: list[str] = []
    for place, free, column in (
        ("/usr", record.storage.usr_mib, 0),
        ("/var", record.storage.var_mib, 1),
    ):
        need = sum(_TAKES_GIB[each][column] for each in ids)
        if isinstance(free, Unknown) and need:
            found.append(CannotTell(f"free disk space at {place} is unknown ({free.reason})"))
        elif isinstance(free, int) and free < need * 1024:
            found.append(
                f"{free / 1024:.1f} GiB free at {place}, {need:g} GiB needed for what is to be"
                " installed: free some space there, or without a toolkit declare"
                " `cuda_toolkit = False`"
            )
    return found


def _memory(spec: HostSpec, record: Record) -> str | None:
    ram = record.system.ram_mib
    need = spec.preflight.min_ram_gib
    if isinstance(ram, Unknown):
        return CannotTell(f"the amount of memory is unknown ({ram.reason})")
    # The kernel keeps some of what is installed for itself, so a "32 GiB" host shows about 31.
    if ram >= need * 1024 * 0.9:
        return None
    return f"has {ram / 1024:.1f} GiB of memory, {need:g} GiB needed (`preflight_min_ram_gib`)"


def host_facts(spec: HostSpec, record: Record) -> HostFacts:
    """Return what the compatibility rules need; what could not be read is not judged there.

    The driver that is loaded says nothing while the driver stage is still to bring another.
    """

    def known(value: object) -> str | None:
        return value if isinstance(value, str) else None

    stays = not (spec.driver.source == "nvidia" and driver_moves(spec, record))
    open_modules = record.driver.open_modules
    gcc = known(record.cuda.gcc) if spec.cuda.toolkit else None
    return HostFacts(
        python=known(record.torch.python) or known(record.system.python3),
        gcc=int(gcc.partition(".")[0]) if gcc else None,
        architecture=known(record.system.architecture) or "x86_64",
        driver_loaded=known(record.driver.loaded) if stays else None,
        compute_capabilities=preflight_gpus.capabilities(spec, record),
        open_modules=open_modules if stays and isinstance(open_modules, bool) else None,
        glibc=known(record.cuda.glibc),
    )


def driver_moves(spec: HostSpec, record: Record) -> bool:
    """Tell whether the next run replaces, builds or reloads the driver."""
    return any(
        each.effect == "restart" or each.id in preflight_driver.BUILDS
        for each in driver.deviations(spec, record)
    )
