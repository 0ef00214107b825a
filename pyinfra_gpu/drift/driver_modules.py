"""Is the kernel's side of the driver as declared: built, allowed, loaded? Judged, not touched."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyinfra_gpu.drift.driver_archive import has_prebuilt, ours
from pyinfra_gpu.drift.driver_inventory import Packages, packages
from pyinfra_gpu.drift.driver_repository import as_declared, found_at, writing
from pyinfra_gpu.drift.finding import Finding, Id, Stage
from pyinfra_gpu.drift.kernels import kernels
from pyinfra_gpu.facts.fields import Unknown
from pyinfra_gpu.packages.names import of_kernel
from pyinfra_gpu.spec import system_files

if TYPE_CHECKING:
    from pyinfra_gpu.facts.record import Record
    from pyinfra_gpu.spec import HostSpec

BLACKLIST = system_files.HEADER + "".join(
    f"{line}\n"
    for line in (
        "blacklist nouveau",
        "options nouveau modeset=0",
        # The new free driver has names of its own since Linux 6.15.
        "blacklist nova_core",
        "blacklist nova_drm",
    )
)


STAGE = Stage.DRIVER

IDS = (
    Id.DRIVER_HOLD_MISSING,
    Id.DRIVER_HOLD_UNWANTED,
    Id.DRIVER_MODULE_NOT_BUILT,
    Id.DRIVER_MODULE_NOT_BUILT_FOR_NEXT_KERNEL,
    Id.DRIVER_MODULE_NOT_REGISTERED,
    Id.DRIVER_BLACKLIST_DIFFERS,
    Id.DRIVER_INITRAMFS_STALE,
)
"""What `driver_modules.settled` repairs."""


def needed(spec: HostSpec, record: Record) -> tuple[object, ...]:
    """Return the facts that this part of the stage cannot do without."""
    if not ours(spec):
        return ()
    kernel = record.kernel
    entry = record.layout.entry(system_files.MODPROBE)
    return (record.nvidia.packages, kernel.installed, kernel.modules, kernel.initramfs, entry)


def summary(spec: HostSpec, record: Record) -> str:
    """Say which kernels the module is built for, where nothing differs."""
    if not ours(spec):
        return ""
    if record.kernel.newest in (None, record.system.kernel):
        return "module built for every kernel"
    return f"module built for every kernel; kernel {record.kernel.newest} comes with the next boot"


def judge(spec: HostSpec, record: Record) -> list[Finding]:
    """Return what is not as declared of holds, modules, blacklist and initramfs."""
    if not ours(spec):
        return []
    found = packages(spec, record)
    return [
        *_holds(spec, record, found),
        *_modules(spec, record, found),
        *_registered(spec, record, found),
        *_blacklist(record),
        *_initramfs(record),
    ]


def unbuilt(spec: HostSpec, record: Record) -> tuple[str, ...]:
    """Return those of both kernels that have no module of the installed packages' version."""
    modules, found = record.kernel.modules, packages(spec, record)
    if isinstance(modules, Unknown) or len(found.versions) != 1:
        return ()
    version = found.versions[0]
    return tuple(kernel for kernel in kernels(record) if modules.get(kernel) != version)


def owed(spec: HostSpec, record: Record) -> tuple[str, ...]:
    """Return the kernels for which the module is to be built: anew where DKMS has forgotten it."""
    missing = unbuilt(spec, record)
    if missing or not unregistered(spec, record):
        return missing
    return kernels(record)[:1]


def unregistered(spec: HostSpec, record: Record) -> bool:
    """Tell whether DKMS has nothing from which to build the module for a kernel to come."""
    sources, versions = record.kernel.sources, packages(spec, record).versions
    if isinstance(sources, Unknown) or has_prebuilt(spec, record) or len(versions) != 1:
        return False
    return versions[0] not in sources


def _registered(spec: HostSpec, record: Record, found: Packages) -> list[Finding]:
    """Find a module that no later kernel would get; where it is not built at all, that is said."""
    if not unregistered(spec, record) or unbuilt(spec, record):
        return []
    return [
        Finding(
            id=Id.DRIVER_MODULE_NOT_REGISTERED,
            found=f"DKMS has no source of module {found.versions[0]}",
            expected=f"module {found.versions[0]} registered, or the next kernel gets none",
            effect="repair",
            action="register and build it",
            packages=("dkms", *found.wanted),
        )
    ]


def _modules(spec: HostSpec, record: Record, found: Packages) -> list[Finding]:
    if isinstance(record.kernel.modules, Unknown):
        return []
    wrong = []
    for kernel in unbuilt(spec, record):
        version = record.kernel.modules.get(kernel)
        running = kernel == record.system.kernel
        wrong.append(
            Finding(
                id=Id.DRIVER_MODULE_NOT_BUILT
                if running
                else Id.DRIVER_MODULE_NOT_BUILT_FOR_NEXT_KERNEL,
                found=f"{f'module {version}' if version else 'no module'} for kernel {kernel}",
                expected=f"module {found.versions[0]}"
                + ("" if running else ", or the next boot has no GPU"),
                effect="repair",
                action=f"install the distribution's for {kernel}"
                if has_prebuilt(spec, record)
                else f"build it for {kernel}",
                packages=(*of_kernel(kernel), "dkms", *found.wanted),
            )
        )
    return wrong


def _blacklist(record: Record) -> list[Finding]:
    if as_declared(record, system_files.MODPROBE, BLACKLIST):
        return []
    return [
        Finding(
            id=Id.DRIVER_BLACKLIST_DIFFERS,
            found=found_at(record, system_files.MODPROBE),
            expected="nouveau and nova kept off the GPUs",
            effect="repair",
            action=writing(record, system_files.MODPROBE),
        )
    ]


def _initramfs(record: Record) -> list[Finding]:
    if record.kernel.initramfs != "stale":
        return []
    return [
        Finding(
            id=Id.DRIVER_INITRAMFS_STALE,
            found="the initramfs is older than the blacklist",
            expected="an initramfs with the blacklist in it",
            effect="repair",
            action="update the initramfs",
        )
    ]


def not_held(found: Packages) -> tuple[str, ...]:
    """Return the driver's packages that are not on hold."""
    return tuple(package.name for package in found.following if not package.held)


def held(found: Packages) -> tuple[str, ...]:
    """Return the driver's packages that are on hold."""
    return tuple(package.name for package in found.following if package.held)


def _holds(spec: HostSpec, record: Record, found: Packages) -> list[Finding]:
    if isinstance(record.nvidia.packages, Unknown):
        return []
    if spec.driver.hold:
        names, id_ = not_held(found), Id.DRIVER_HOLD_MISSING
        text, action = "not on hold", "put them on hold"
    else:
        names, id_ = held(found), Id.DRIVER_HOLD_UNWANTED
        text, action = "on hold", "take them off hold"
    if not names:
        return []
    shown = f"{', '.join(names[:3])}{' and others' if len(names) > 3 else ''}"
    return [
        Finding(
            id=id_,
            found=f"{shown} {text}",
            expected=f"driver_hold = {spec.driver.hold}",
            effect="repair",
            action=action,
        )
    ]
