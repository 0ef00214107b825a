"""Is the kernel's side of the driver as declared: built, allowed, loaded? Judged, not touched."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from pyinfra_gpu.drift.driver_packages import Packages, packages
from pyinfra_gpu.drift.driver_repository import as_declared, found_at
from pyinfra_gpu.drift.finding import Deviation
from pyinfra_gpu.facts.fields import Unknown
from pyinfra_gpu.packages.apt.names import LIBRARIES
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

SERVICES = {
    "nvidia-persiste": "nvidia-persistenced",
    "nv-hostengine": "nvidia-dcgm",
    "nv-fabricmanage": "nvidia-fabricmanager",
    "nvidia-powerd": "nvidia-powerd",
    "nvidia-imex": "nvidia-imex",
}
"""Services of NVIDIA's that may be stopped and started again: process name (the kernel keeps 15
letters of it) -> unit.
"""

_LIBRARY = re.compile(r"/lib(?:cuda|nvidia-ml)\.so\.(\d{3}\.\d{2,3}(?:\.\d{2})?)")


def library_version(path: str | Unknown | None) -> str | None:
    """Return the driver's version in a library's file name, None where it has none."""
    match = _LIBRARY.search(path) if isinstance(path, str) else None
    return match[1] if match and isinstance(path, str) and path.endswith(match[1]) else None


def users(record: Record) -> tuple[str, ...] | Unknown:
    """Return who uses the GPUs, beside NVIDIA's own services."""
    found = record.driver.users
    if isinstance(found, Unknown):
        return found
    return tuple(text for text in found if not _is_service(text))


def _is_service(text: str) -> bool:
    match = re.fullmatch(r"pid \d+ \((.*)\)", text)
    return bool(match) and match[1] in SERVICES  # type: ignore[index]


def next_kernel(record: Record) -> str | None:
    """Return the kernel that the next boot takes; None where it cannot be told."""
    if isinstance(record.kernel.installed, Unknown) or isinstance(record.system.kernel, Unknown):
        return None
    return record.kernel.newest or record.system.kernel


def kernels(record: Record) -> tuple[str, ...]:
    """Return the running kernel and, where it is another, the next one."""
    running = record.system.kernel
    following = next_kernel(record)
    names = [name for name in (running, following) if isinstance(name, str)]
    return tuple(dict.fromkeys(names))


def without_headers(record: Record) -> tuple[str, ...]:
    """Return those of both kernels for which no module could be built."""
    headers = record.kernel.headers
    if isinstance(headers, Unknown):
        return ()
    return tuple(kernel for kernel in kernels(record) if headers.get(kernel) is False)


def unbuilt(spec: HostSpec, record: Record) -> tuple[str, ...]:
    """Return those of both kernels that have no module of the installed packages' version."""
    modules, found = record.kernel.modules, packages(spec, record)
    if isinstance(modules, Unknown) or len(found.versions) != 1:
        return ()
    version = found.versions[0]
    return tuple(kernel for kernel in kernels(record) if modules.get(kernel) != version)


def deviations(spec: HostSpec, record: Record) -> list[Deviation]:
    """Return what is not as declared of headers, modules, blacklist, libraries and service."""
    found = packages(spec, record)
    return [
        *_headers(record),
        *_modules(spec, record, found),
        *_libraries(record, found),
        *_blacklist(record),
        *_initramfs(record),
        *_free_drivers(record),
        *_loaded(spec, record),
        *_persistenced(spec, record, found),
        *_runfile(record),
    ]


def _headers(record: Record) -> list[Deviation]:
    lacking = without_headers(record)
    if not lacking:
        return []
    return [
        Deviation(
            id="driver.headers-missing",
            found=f"no headers for kernel {', '.join(lacking)}",
            expected="headers, to build the driver's module with",
            effect="repair",
            action="install them",
            packages=tuple(f"linux-headers-{kernel}" for kernel in lacking),
        )
    ]


def _modules(spec: HostSpec, record: Record, found: Packages) -> list[Deviation]:
    if isinstance(record.kernel.modules, Unknown):
        return []
    deviations = []
    for kernel in unbuilt(spec, record):
        version = record.kernel.modules.get(kernel)
        running = kernel == record.system.kernel
        deviations.append(
            Deviation(
                id="driver.module-not-built" + ("" if running else "-for-next-kernel"),
                found=f"{f'module {version}' if version else 'no module'} for kernel {kernel}",
                expected=f"module {found.versions[0]}"
                + ("" if running else ", or the next boot has no GPU"),
                effect="repair",
                action=f"build it for {kernel}",
                packages=("linux-image*", "linux-headers*", "dkms", "gcc*", *found.wanted),
            )
        )
    return deviations


def _libraries(record: Record, found: Packages) -> list[Deviation]:
    """What packages of one version cannot explain; mixed versions are told as that."""
    if len(found.versions) != 1:
        return []
    version = found.versions[0]
    paths = (record.driver.libcuda, record.driver.libml)
    wrong = [p for p in paths if library_version(p) not in (None, version)]
    if not wrong:
        return []
    return [
        Deviation(
            id="driver.libraries-differ",
            found=" and ".join(str(path) for path in wrong),
            expected=f"the libraries of driver {version}",
            effect="repair",
            action="install the packages of these libraries again",
            packages=LIBRARIES,
        )
    ]


def _blacklist(record: Record) -> list[Deviation]:
    if as_declared(record, system_files.MODPROBE, BLACKLIST):
        return []
    return [
        Deviation(
            id="driver.blacklist-differs",
            found=found_at(record, system_files.MODPROBE),
            expected="nouveau and nova kept off the GPUs",
            effect="repair",
            action=f"write {system_files.MODPROBE}",
        )
    ]


def _initramfs(record: Record) -> list[Deviation]:
    if record.kernel.initramfs != "stale":
        return []
    return [
        Deviation(
            id="driver.initramfs-stale",
            found="the initramfs is older than the blacklist",
            expected="an initramfs with the blacklist in it",
            effect="repair",
            action="update the initramfs",
        )
    ]


def _free_drivers(record: Record) -> list[Deviation]:
    names = [
        name
        for name, loaded in (("nouveau", record.driver.nouveau), ("nova", record.driver.nova))
        if loaded is True
    ]
    if not names:
        return []
    return [
        Deviation(
            id="driver.nouveau-loaded",
            found=f"{' and '.join(names)} has the GPUs",
            expected="NVIDIA's module to have them",
            effect="restart",
            action="reboot" + _who(record),
            packages=("linux-image*",),
        )
    ]


def _loaded(spec: HostSpec, record: Record) -> list[Deviation]:
    driver = record.driver
    if isinstance(driver.loaded, Unknown) or isinstance(driver.on_disk, Unknown):
        return []
    if driver.loaded is None:
        if driver.nouveau is True or driver.nova is True:
            return []  # told as that
        return [
            Deviation(
                id="driver.not-loaded",
                found="no NVIDIA module is loaded",
                expected=f"module {driver.on_disk or f'of branch {spec.driver.branch}'}",
                effect="restart",
                action="load it",
                packages=("nvidia-kernel*", "nvidia-dkms*", "linux-image*"),
            )
        ]
    installed, flavour = module_owed(record)
    if installed is None:
        return []
    return [
        Deviation(
            id="driver.module-differs",
            found=f"module {driver.loaded}{' of the other flavour' if flavour else ''} is loaded",
            expected=f"{installed}, which is installed",
            effect="restart",
            action="load the installed module" + _who(record),
            packages=(*LIBRARIES, "nvidia*", "libnvidia*"),
        )
    ]


def module_owed(record: Record) -> tuple[str | None, bool]:
    """Return (installed version that ought to be loaded, whether only the flavour differs)."""
    driver = record.driver
    if not isinstance(driver.loaded, str) or not isinstance(driver.on_disk, str):
        return None, False
    flavours = (driver.open_modules, driver.on_disk_open)
    flavour = all(isinstance(each, bool) for each in flavours) and flavours[0] != flavours[1]
    if driver.loaded != driver.on_disk or flavour:
        return driver.on_disk, flavour and driver.loaded == driver.on_disk
    return None, False


def _who(record: Record) -> str:
    """Say what an action has to wait for."""
    found = users(record)
    if isinstance(found, Unknown):
        return ", once it is known who uses the GPUs"
    return f", when they are done: {', '.join(found[:3])}" if found else ""


def _persistenced(spec: HostSpec, record: Record, found: Packages) -> list[Deviation]:
    state, enabled = record.driver.persistenced, record.driver.persistenced_enabled
    if not found.installed or isinstance(state, Unknown) or isinstance(enabled, Unknown):
        return []
    if spec.driver.persistence and state == "masked":
        return [_masked()]
    if spec.driver.persistence and (state != "active" or enabled is False):
        name, action = "off", "enable and start it"
        text = "not there" if state is None else state if state != "active" else "not enabled"
    elif not spec.driver.persistence and (state == "active" or enabled is True):
        name, action = "on", "stop and disable it"
        text = "active" if state == "active" else "enabled"
    else:
        return []
    # An upgrade stops it, and with the old module still loaded it could not start again.
    waits = name == "off" and enabled is True and bool(_loaded(spec, record))
    return [
        Deviation(
            id=f"driver.persistenced-{name}",
            found=f"nvidia-persistenced is {text}",
            expected=f"driver_persistence = {spec.driver.persistence}",
            effect="restart" if waits else "repair",
            action=action,
            packages=("nvidia-persistenced", "nvidia-compute-utils*"),
        )
    ]


def _masked() -> Deviation:
    return Deviation(
        id="driver.persistenced-masked",
        found="nvidia-persistenced is masked",
        expected="driver_persistence = True",
        effect="report",
        action="left alone, since somebody forbade it to start: unmask it, or declare"
        " driver_persistence = False",
        command="sudo systemctl unmask nvidia-persistenced",
    )


def _runfile(record: Record) -> list[Deviation]:
    if record.driver.runfile is not True:
        return []
    return [
        Deviation(
            id="driver.runfile",
            found="a driver was installed by NVIDIA's .run file",
            expected="packages alone",
            effect="report",
            action="two drivers overwrite each other's files; remove that one yourself",
            command="sudo nvidia-uninstall",
        )
    ]
