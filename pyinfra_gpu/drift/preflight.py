"""Why a host cannot become what is declared: judged before anything is written."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from pyinfra_gpu.compatibility import Due, HostFacts, Refusal, check_host
from pyinfra_gpu.drift import (
    cuda,
    driver,
    packages,
    preflight_build,
    preflight_driver,
    preflight_gpus,
    preflight_inodes,
    preflight_memory,
    preflight_mounts,
)
from pyinfra_gpu.drift.finding import CannotTell, Finding, Id, Stage, stop
from pyinfra_gpu.facts.fields import Unknown
from pyinfra_gpu.stacks import catalogue
from pyinfra_gpu.text import some

if TYPE_CHECKING:
    from pyinfra_gpu.facts.record import Record
    from pyinfra_gpu.spec import HostSpec

STAGE = Stage.PREFLIGHT
# What of a version is compared: a Python of one's own may call itself "3.11.2+".
_NUMBERS = re.compile(r"\d{1,9}(?:\.\d{1,9}){0,5}", re.ASCII)

_TAKES_GIB = {Id.DRIVER_NOT_INSTALLED: (1.0, 0.5), Id.CUDA_NOT_INSTALLED: (5.0, 3.0)}
"""What is to be installed -> GiB below /usr, and below /var for the packages themselves."""

_LEAST_VAR_GIB = 0.1
"""What the package manager itself needs below /var, for lists, its database and its log."""
_SPARE_MIB = 8
_NAMED = 3  # so many libraries are told
_TOOLKIT = ", or without a toolkit declare `cuda_toolkit = False`"
_CLEAN = ": `journalctl --vacuum-size=100M` and the package manager's cache are the usual places"


def summary(spec: HostSpec, record: Record) -> str:
    """Say in a few words what kind of machine this is."""
    del spec
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


def judge(spec: HostSpec, record: Record) -> list[Finding]:
    """Return every reason why this host cannot become what is declared; the run stops at each.

    + spec: what is declared
    + record: what the host looks like

    What the driver stage repairs itself (no driver, another one, nouveau) is no reason, unless
    somebody works on the GPUs meanwhile.
    """
    found = [each for each in _obstacles(spec, record) if isinstance(each, Finding)]
    return [*found, *(_incompatible(spec, each) for each in _incompatibilities(spec, record))]


def needed(spec: HostSpec, record: Record) -> tuple[object, ...]:
    """Return what this stage cannot do without and could not be told, as `CannotTell`."""
    return tuple(each for each in _obstacles(spec, record) if isinstance(each, CannotTell))


def _obstacles(spec: HostSpec, record: Record) -> list[Finding | CannotTell]:
    found = [
        _operating_system(spec, record),
        _prefix(spec, record),
        _owner(spec, record),
        _disk(spec, record),
        *preflight_mounts.obstacles(spec, record),
        _package_manager(spec, record),
        *_system_disk(spec, record),
        _boot(spec, record),
        _memory(spec, record),
        *preflight_memory.obstacles(spec, record),
        *_preloads(record),
        *preflight_gpus.obstacles(spec, record),
        *preflight_driver.obstacles(spec, record),
        *preflight_build.obstacles(spec, record),
    ]
    return [each for each in found if each]


def _incompatibilities(spec: HostSpec, record: Record) -> list[Refusal]:
    return check_host(spec, host_facts(spec, record))


def _incompatible(spec: HostSpec, refusal: Refusal) -> Finding:
    return stop(
        Id.PREFLIGHT_INCOMPATIBLE,
        found=refusal.found,
        expected=refusal.allowed,
        action=refusal.remedy,
    )


def _operating_system(spec: HostSpec, record: Record) -> Finding | None:
    system = record.system
    if spec.privilege == "none":
        return None  # nothing is installed from the distribution: which one it is does not matter
    if system.init != "systemd":
        return stop(
            Id.PREFLIGHT_OS_UNSUPPORTED,
            found=f"pid 1 is {system.init}, not systemd",
            expected="a host with systemd",
            action="boot it with systemd, or declare `privilege = 'none'`",
        )
    supported = catalogue().supported_releases()
    if system.os_version in supported.get(str(system.os_id), ()):
        return None
    known = ", ".join(f"{name} {'/'.join(versions)}" for name, versions in supported.items())
    return stop(
        Id.PREFLIGHT_OS_UNSUPPORTED,
        found=f"runs {system.os_name}",
        expected=f"one of the supported: {known}",
        action="install one of them",
    )


def _prefix(spec: HostSpec, record: Record) -> Finding | CannotTell | None:
    """Judge the way to the prefix: who can change it sends root wherever they like."""
    open_ = record.layout.open
    if spec.privilege == "none" or open_ is None:
        return None
    if isinstance(open_, Unknown):
        return CannotTell(f"cannot tell who can change the way to the prefix: {open_.reason}")
    return stop(
        Id.PREFLIGHT_PREFIX_OPEN,
        found=f"somebody else than root can change {open_}, and `prefix` is {spec.paths.prefix}",
        expected="a prefix below directories that root alone can change, since root works there",
        action='choose a `prefix` below /opt, or declare `privilege = "none"`',
    )


def _owner(spec: HostSpec, record: Record) -> Finding | None:
    problem = record.layout.owner_problem
    if spec.privilege == "none" or not isinstance(problem, str):
        return None
    return stop(
        Id.PREFLIGHT_OWNER_UNUSABLE,
        found=problem,
        expected="an owner as whom programs run: root runs none of the owner's",
        action="make that user or install what is missing, or declare another `owner`",
    )


def _disk(spec: HostSpec, record: Record) -> Finding | CannotTell | None:
    if record.torch.version is not None:
        return None  # what needs the space is already there
    free = record.storage.free_mib
    need = spec.preflight.min_disk_gib
    if isinstance(free, Unknown):
        return CannotTell(f"free disk space at {spec.paths.prefix} is unknown ({free.reason})")
    if free >= need * 1024:
        return None
    return stop(
        Id.PREFLIGHT_DISK_TOO_SMALL,
        found=f"{free / 1024:.1f} GiB free at {spec.paths.prefix}",
        expected=f"{need:g} GiB",
        action="free some space, choose another `prefix`, or lower `preflight_min_disk_gib` if you"
        " know better",
    )


def _package_manager(spec: HostSpec, record: Record) -> CannotTell | None:
    """Nothing is written where nobody knows what is installed."""
    installed = record.packages.installed
    if spec.privilege == "none" or not isinstance(installed, Unknown):
        return None
    return CannotTell(f"which packages are installed cannot be told: {installed.reason}")


def _boot(spec: HostSpec, record: Record) -> Finding | CannotTell | None:
    """Judge whether another initramfs has room beside those that are there: it is made first.

    A full /boot leaves the driver's packages half configured, and a kernel that may not boot.
    """
    free, largest = record.storage.boot_mib, record.storage.initrd_mib
    makes = preflight_driver.makes_initramfs(spec, record)
    if free is None or not isinstance(largest, int) or not largest or not makes:
        return None
    need = largest + _SPARE_MIB
    if isinstance(free, Unknown):
        return CannotTell(f"free disk space at /boot is unknown ({free.reason})")
    if free >= need:
        return None
    return stop(
        Id.PREFLIGHT_BOOT_TOO_SMALL,
        found=f"{free} MiB free at /boot",
        expected=f"{need} MiB, for another initramfs",
        action=f"remove {_unused_kernels(record)}, or make it larger",
    )


def _unused_kernels(record: Record) -> str:
    installed = record.kernel.installed
    used = (record.system.kernel, record.kernel.newest)
    old = () if isinstance(installed, Unknown) else [each for each in installed if each not in used]
    return f"the packages of kernel {some([*old], 3)}, which is not used" if old else "files there"


def _system_disk(spec: HostSpec, record: Record) -> list[Finding | CannotTell]:
    """Compare with what driver and toolkit take below /usr, and their packages on the way there.

    The package manager checks neither beforehand; a full /usr leaves packages half installed.
    """
    judged = (*driver.judge(spec, record), *cuda.judge(spec, record), *packages.judge(spec, record))
    acting = any(each.acts for each in judged)
    ids = {each.id for each in judged} & set(_TAKES_GIB)
    found: list[Finding | CannotTell] = [*preflight_inodes.obstacles(spec, record, acting=acting)]
    for place, free, column in (
        ("/usr", record.storage.usr_mib, 0),
        ("/var", record.storage.var_mib, 1),
    ):
        need = sum(_TAKES_GIB[each][column] for each in ids)
        if acting and place == "/var":
            need = max(need, _LEAST_VAR_GIB)
        if isinstance(free, Unknown) and need:
            found.append(CannotTell(f"free disk space at {place} is unknown ({free.reason})"))
        elif isinstance(free, int) and free < need * 1024:
            found.append(
                stop(
                    Id.PREFLIGHT_SYSTEM_DISK_TOO_SMALL,
                    found=f"{_room(free)} free at {place}",
                    expected=f"{_needed(need)} for what is to be installed",
                    action="free some space there"
                    + (_TOOLKIT if Id.CUDA_NOT_INSTALLED in ids else _CLEAN if column else ""),
                )
            )
    return found


def _room(mib: float) -> str:
    return f"{mib / 1024:.1f} GiB" if mib >= 1024 else f"{mib:.0f} MiB"


def _needed(gib: float) -> str:
    return f"{gib:g} GiB" if gib >= 1 else f"{gib * 1024:.0f} MiB"


def _memory(spec: HostSpec, record: Record) -> Finding | CannotTell | None:
    ram = record.system.ram_mib
    need = spec.preflight.min_ram_gib
    if isinstance(ram, Unknown):
        return CannotTell(f"the amount of memory is unknown ({ram.reason})")
    # The kernel keeps some of what is installed for itself, so a "32 GiB" host shows about 31.
    if ram >= need * 1024 * 0.9:
        return None
    return stop(
        Id.PREFLIGHT_MEMORY_TOO_SMALL,
        found=f"has {ram / 1024:.1f} GiB of memory",
        expected=f"{need:g} GiB",
        action="lower `preflight_min_ram_gib` if you know better",
    )


def _preloads(record: Record) -> list[Finding]:
    """Judge what the loader puts into every program, e.g. an agent that watches the host."""
    rows, problem = record.system.preload, record.system.preload_problem
    if isinstance(rows, Unknown):
        return []
    gone = [row[2:] for row in rows if row.startswith("0 ")]
    if isinstance(problem, str) or gone:
        what = f"{some(gone, _NAMED)} is not there" if gone else f"the loader says {problem}"
        return [
            stop(
                Id.PREFLIGHT_PRELOAD_BROKEN,
                found=f"/etc/ld.so.preload has every program load what cannot be loaded: {what}",
                expected="libraries that are there: until then every program says so, in front of"
                " all that it says",
                action="take its line out of /etc/ld.so.preload, or install again what wrote it",
            )
        ]
    if not rows:
        return []
    return [
        Finding(
            id=Id.PREFLIGHT_PRELOADED,
            found=f"every program loads {some([row[2:] for row in rows], _NAMED)}, by"
            " /etc/ld.so.preload",
            expected="nothing but what a program asks for",
            effect="note",
            action="left alone, being somebody's: think of it where programs behave oddly",
        )
    ]


def host_facts(spec: HostSpec, record: Record) -> HostFacts:
    """Return what the compatibility rules need; what could not be read is not judged there.

    The driver that is loaded says nothing while the driver stage is still to bring another.
    """

    def known(value: object) -> str | None:
        return value if isinstance(value, str) else None

    def numbers(value: object) -> str | None:
        found = _NUMBERS.match(value) if isinstance(value, str) else None
        return found[0] if found else None

    stays = not (spec.driver.source != "present" and driver_moves(spec, record))
    open_modules = record.driver.open_modules
    gcc = known(record.cuda.gcc) if spec.cuda.toolkit else None
    return HostFacts(
        python=numbers(record.torch.python) or numbers(record.system.python3),
        gcc=int(gcc.partition(".")[0]) if gcc else None,
        architecture=known(record.system.architecture) or "x86_64",
        driver_loaded=numbers(record.driver.loaded) if stays else None,
        compute_capabilities=preflight_gpus.capabilities(spec, record),
        open_modules=open_modules if stays and isinstance(open_modules, bool) else None,
        glibc=numbers(record.cuda.glibc),
        distribution=f"{record.system.os_id} {record.system.os_version}",
        due=_due(spec, record),
    )


def _due(spec: HostSpec, record: Record) -> frozenset[Due]:
    """Return what is to come from NVIDIA's repository; what is there may have left it since."""
    due: set[Due] = set()
    if {each.id for each in driver.judge(spec, record)} & preflight_driver.MOVES:
        due.add("driver")
    missing = {Id.CUDA_NOT_INSTALLED, Id.CUDA_VERSION_DIFFERS, Id.CUDA_HALF_REMOVED}
    if {each.id for each in cuda.judge(spec, record)} & missing:
        due.add("toolkit")
    return frozenset(due)


def driver_moves(spec: HostSpec, record: Record) -> bool:
    """Tell whether the next run replaces, builds or reloads the driver."""
    return any(
        each.effect == "restart" or each.id in preflight_driver.BUILDS
        for each in driver.judge(spec, record)
    )
