"""Is the kernel's side of the driver as declared: built, allowed, loaded? Judged, not touched."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from pyinfra_gpu.drift.driver_inventory import archive, kernels, of_ours, packages
from pyinfra_gpu.drift.finding import Finding, Id, repair, report
from pyinfra_gpu.drift.rules import if_known, known
from pyinfra_gpu.packages.names import of_kernel
from pyinfra_gpu.text import some

if TYPE_CHECKING:
    from pyinfra_gpu.facts.record import Record
    from pyinfra_gpu.spec import HostSpec


IDS = (
    Id.DRIVER_HOLD_DIFFERS,
    Id.DRIVER_MODULE_NOT_BUILT,
    Id.DRIVER_INITRAMFS_STALE,
    Id.DRIVER_MODULE_NAME_DIFFERS,
)
"""What `driver.ready_for_boot` repairs."""


def unbuilt(spec: HostSpec, record: Record) -> tuple[str, ...]:
    """Return those of both kernels that have no module of the installed packages' version."""
    modules, versions = if_known(record.kernel.modules, None), packages(spec, record).versions
    if modules is None or len(versions) != 1:
        return ()
    return tuple(kernel for kernel in kernels(record) if modules.get(kernel) != versions[0])


def owed(spec: HostSpec, record: Record) -> tuple[str, ...]:
    """Return the kernels for which the module is to be built: anew where DKMS has forgotten it."""
    return unbuilt(spec, record) or (kernels(record)[:1] if unregistered(spec, record) else ())


def unregistered(spec: HostSpec, record: Record) -> bool:
    """Tell whether DKMS has nothing from which to build the module for a kernel to come."""
    sources, versions = if_known(record.kernel.sources, None), packages(spec, record).versions
    if sources is None or archive(spec, record) or len(versions) != 1:
        return False
    return versions[0] not in sources


def wrongly_held(spec: HostSpec, record: Record) -> tuple[str, ...]:
    """Return the driver's packages that are not on hold, or are, against `driver_hold`."""
    following = packages(spec, record).following
    return tuple(each.name for each in following if each.held is not spec.driver.hold)


@of_ours
def _holds(spec: HostSpec, record: Record) -> Iterator[Finding]:
    known(record.nvidia.packages)
    if names := wrongly_held(spec, record):
        state, action = ("not on hold", "put") if spec.driver.hold else ("on hold", "take")
        yield repair(
            Id.DRIVER_HOLD_DIFFERS,
            f"{some(names, 3)} {state}",
            f"driver_hold = {spec.driver.hold}",
            f"{action} them {'on' if spec.driver.hold else 'off'} hold",
        )


@of_ours
def _modules(spec: HostSpec, record: Record) -> Iterator[Finding]:
    known(record.kernel.installed)
    modules, found = known(record.kernel.modules), packages(spec, record)
    missing = unbuilt(spec, record)
    for kernel in missing:
        version, running = modules.get(kernel), kernel == record.system.kernel
        yield repair(
            Id.DRIVER_MODULE_NOT_BUILT,
            f"{f'module {version}' if version else 'no module'} for kernel {kernel}",
            f"module {found.versions[0]}{'' if running else ', or the next boot has no GPU'}",
            f"install the distribution's for {kernel}"
            if archive(spec, record)
            else f"build it for {kernel}",
            (*of_kernel(kernel), "dkms", *found.wanted),
        )
    if not missing and unregistered(spec, record):
        yield repair(
            Id.DRIVER_MODULE_NOT_BUILT,
            f"DKMS has no source of module {found.versions[0]}",
            f"module {found.versions[0]} registered, or the next kernel gets none",
            "register and build it",
            ("dkms", *found.wanted),
        )


@of_ours
def _module_name(spec: HostSpec, record: Record) -> Iterator[Finding]:
    """A rule of modprobe's in a file of somebody's is left alone: it may be there on purpose."""
    rule = known(record.driver.module)
    if not packages(spec, record).installed or rule is None or rule.startswith("nvidia "):
        return
    name, _, file = rule.partition(" ")
    yield report(
        Id.DRIVER_MODULE_NAME_DIFFERS,
        f"`modprobe nvidia` {'runs' if '/' in name else 'loads'} {name}, by {file}",
        "nvidia",
        "left alone, since the file is not ours: remove that rule; see whose it is",
        f"dpkg -S {file}",
        stops=True,
    )


@of_ours
def _initramfs(spec: HostSpec, record: Record) -> Iterator[Finding]:
    if known(record.kernel.initramfs) == "stale":
        yield repair(
            Id.DRIVER_INITRAMFS_STALE,
            "the initramfs is older than the blacklist",
            "an initramfs with the blacklist in it",
            "update the initramfs",
        )


RULES = (_module_name, _holds, _modules, _initramfs)
