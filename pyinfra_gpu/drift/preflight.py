"""Why a host cannot become what is declared: judged before anything is written."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from pyinfra_gpu.compatibility import Due, HostFacts, check_host
from pyinfra_gpu.drift import (
    cuda,
    driver,
    layout,
    packages,
    preflight_build,
    preflight_driver,
    preflight_gpus,
)
from pyinfra_gpu.drift.finding import Finding, Id, Stage, note, stop
from pyinfra_gpu.drift.rules import Rules, if_known, known
from pyinfra_gpu.facts.fields import Unknown
from pyinfra_gpu.facts.record import SHARED_MEMORY
from pyinfra_gpu.on_host.smoke.host import shm_trial_mib
from pyinfra_gpu.on_host.train.checks import SHM_MIB
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

_LEAST_VAR_MIB = 102.4
"""What the package manager itself needs below /var, for lists, its database and its log."""
_SPARE_MIB = 8
_OF_TORCH = 10_000  # files; its wheel alone has more
_OF_PACKAGES = 1_000
"""Files that the smallest of the driver's packages bring, and what is unpacked beside them."""
_NAMED = 3  # so many libraries are told
_TOOLKIT = ", or without a toolkit declare `cuda_toolkit = False`"
_CLEAN = ": `journalctl --vacuum-size=100M` and the package manager's cache are the usual places"
_BOOT, _INSTALLED = "/boot", " for what is to be installed"


def summary(spec: HostSpec, record: Record) -> str:
    """Say in a few words what kind of machine this is."""
    del spec
    system = record.system
    ram, gpus = if_known(system.ram_mib, 0), if_known(record.gpus.devices, ())
    memory = f"{ram / 1024:.0f} GiB" if ram else "unknown RAM"
    count = f"{len(gpus)} NVIDIA GPU{'s' if len(gpus) != 1 else ''}"
    count = "GPUs unknown" if isinstance(record.gpus.devices, Unknown) else count
    return f"{system.os_name}, {system.cpu_count} CPUs, {memory}, {count}"


def _operating_system(spec: HostSpec, record: Record) -> Iterator[Finding]:
    """Judge the distribution, and its release where the driver comes from a repository for it."""
    system, id_ = record.system, Id.PREFLIGHT_OS_UNSUPPORTED
    supported = catalogue().supported_releases()
    brings_driver = spec.accelerator == "nvidia" and spec.driver.source != "present"
    if spec.privilege == "none":
        return  # nothing is installed from the distribution: which one it is does not matter
    if system.init != "systemd":
        action = "boot it with systemd, or declare `privilege = 'none'`"
        yield stop(id_, f"pid 1 is {system.init}, not systemd", "a host with systemd", action)
    elif system.os_version not in supported.get(str(system.os_id), ()) and (
        brings_driver or system.os_id not in supported
    ):
        releases = ", ".join(f"{name} {'/'.join(each)}" for name, each in supported.items())
        expected = f"one of the supported: {releases}"
        yield stop(id_, f"runs {system.os_name}", expected, "install one of them")


def _ignored(spec: HostSpec, record: Record) -> Iterator[Finding]:
    del record
    if spec.ignored:
        yield note(
            Id.PREFLIGHT_KEYS_IGNORED,
            f"{some(spec.ignored, _NAMED)} of its data is for hosts with GPUs",
            f"nothing that the stack {spec.stack} does not read",
            "left alone, as in a default for all hosts",
        )


def _prefix(spec: HostSpec, record: Record) -> Iterator[Finding]:
    """Judge the way to the prefix: who can change it sends root wherever they like."""
    if spec.privilege == "none":
        return
    if open_ := known(record.layout.open, "who can change the way to the prefix"):
        yield stop(
            Id.PREFLIGHT_PREFIX_OPEN,
            f"somebody else than root can change {open_}, and `prefix` is {spec.paths.prefix}",
            "a prefix below directories that root alone can change, since root works there",
            'choose a `prefix` below /opt, or declare `privilege = "none"`',
        )


def _owner(spec: HostSpec, record: Record) -> Iterator[Finding]:
    problem = if_known(record.layout.owner_problem, None)
    if spec.privilege != "none" and problem is not None:
        yield stop(
            Id.PREFLIGHT_OWNER_UNUSABLE,
            problem,
            "an owner as whom programs run: root runs none of the owner's",
            "make that user or install what is missing, or declare another `owner`",
        )


def _another_owner(spec: HostSpec, record: Record) -> Iterator[Finding]:
    """Who logs in does not become the owner of what another user has, but by being declared."""
    if spec.owner is not None or spec.privilege == "none":
        return
    user = known(record.system.user)
    for path in (spec.paths.venv, *layout.owners(spec)):
        whose = getattr(if_known(record.layout.entry(path), None), "owner", None)
        if whose not in (None, user, layout.ROOT):
            yield stop(
                Id.PREFLIGHT_OWNER_UNUSABLE,
                f"{path} belongs to {whose}, and the login is {user}",
                "one owner, whoever logs in",
                f'declare `owner = "{whose}"`, or "{user}" to begin with an empty environment,'
                " what is there being renamed",
            )
            return


def _mounts(spec: HostSpec, record: Record) -> Iterator[Finding]:
    """Judge how file systems are mounted; memory in place of a disk is a note.

    A kernel that finds a disk's errors forbids writing. Hosts that get their root over the network
    at each boot are meant so.
    """
    storage, prefix, id_ = record.storage, spec.paths.prefix, Id.PREFLIGHT_MOUNT_UNFIT
    if place := if_known(storage.noexec, None):
        yield stop(
            id_,
            f"no program can be started below {place}: it is mounted noexec",
            f"a prefix whose programs can be started, and {prefix} is declared",
            f"run `mount -o remount,exec {place}` and take noexec out of /etc/fstab, or choose"
            " another `prefix`",
        )
    place = if_known(storage.readonly, None)
    if place and (place != _BOOT or preflight_driver.makes_initramfs(spec, record)):
        yield stop(
            id_,
            f"{place} is mounted read-only",
            f"file systems that can be written, below {prefix} too",
            "see with `dmesg | grep -iE 'remount|I/O error'` whether the kernel did that after an"
            f" error of the disk; if not, run `mount -o remount,rw {place}` and look at /etc/fstab",
        )
    if place := if_known(storage.volatile, None):
        yield note(
            id_,
            f"{place} is a file system in memory, which a reboot empties",
            f"disks, below {prefix} too",
            "left alone: what is written there takes of the host's memory, and after a reboot all"
            " of it is to be deployed anew, and runs and checkpoints are lost; choose a `prefix` on"
            f" a disk, or mount a disk at {place}",
        )


def _package_manager(spec: HostSpec, record: Record) -> Iterator[Finding]:
    """Nothing is written where nobody knows what is installed."""
    if spec.privilege != "none":
        known(record.packages.installed, "which packages are installed")
    yield from ()


def _room(spec: HostSpec, record: Record) -> Iterator[Finding]:
    """Compare the free space with what is to come: torch, driver and toolkit, an initramfs.

    The package manager checks none of it beforehand: a full /usr leaves packages half installed, a
    full /boot a kernel that may not boot.
    """
    judged = [each for part in (driver, cuda, packages) for each in part.judge(spec, record)]
    acting = any(each.acts for each in judged)
    ids = {each.id for each in judged} & set(_TAKES_GIB)
    yield from _inodes(spec, record, acting=acting)
    storage, prefix = record.storage, str(spec.paths.prefix)
    usr, var = (sum(_TAKES_GIB[each][column] for each in ids) * 1024 for column in (0, 1))
    var = max(var, _LEAST_VAR_MIB) if acting else var
    torch = spec.preflight.min_disk_gib * 1024 if record.torch.version is None else 0
    largest = if_known(storage.initrd_mib, None)
    makes = preflight_driver.makes_initramfs(spec, record)
    boot = largest + _SPARE_MIB if largest and makes else 0
    there = f"free some space there{_TOOLKIT if Id.CUDA_NOT_INSTALLED in ids else ''}"
    lower = "or lower `preflight_min_disk_gib` if you know better"
    for place, fact, need, what, action in (
        (prefix, storage.free_mib, torch, "", f"free some space, choose another `prefix`, {lower}"),
        ("/usr", storage.usr_mib, usr, _INSTALLED, there),
        ("/var", storage.var_mib, var, _INSTALLED, there if ids else f"{there}{_CLEAN}"),
        (_BOOT, storage.boot_mib, boot, ", for another initramfs", _of_boot(record)),
    ):
        free = known(fact, f"the free disk space at {place}") if need else None
        if free is not None and free < need:
            found, expected = f"{_size(free)} free at {place}", f"{_size(need)}{what}"
            yield stop(Id.PREFLIGHT_DISK_TOO_SMALL, found, expected, action)


def _size(mib: float) -> str:
    return f"{mib / 1024:.1f} GiB".replace(".0 ", " ") if mib >= 1024 else f"{mib:.0f} MiB"


def _of_boot(record: Record) -> str:
    used = (record.system.kernel, record.kernel.newest)
    old = [each for each in if_known(record.kernel.installed, ()) if each not in used]
    what = f"the packages of kernel {some(old, 3)}, which is not used" if old else "files there"
    return f"remove {what}, or make it larger"


def _inodes(spec: HostSpec, record: Record, *, acting: bool) -> Iterator[Finding]:
    """Judge whether files can be made at all; what has no number, or tells none, is not judged.

    + acting: whether packages are to be installed
    """
    free = if_known(record.storage.inodes, {})
    needs = dict.fromkeys(("/usr", "/var"), _OF_PACKAGES) if acting else {}
    if record.torch.version is None:
        needs[str(spec.paths.prefix)] = _OF_TORCH
    for place, need in needs.items():
        if place in free and free[place] < need:
            yield stop(
                Id.PREFLIGHT_DISK_TOO_SMALL,
                f"{max(0, free[place])} inodes free at {place}, so no more files than that",
                f"{need}{_INSTALLED}",
                f"see with `df -i {place}` which file system it is, and remove files there:"
                " `du --inodes -x` finds the folder that has millions",
            )


def _memory(spec: HostSpec, record: Record) -> Iterator[Finding]:
    ram, need = known(record.system.ram_mib, "the amount of memory"), spec.preflight.min_ram_gib
    # The kernel keeps some of what is installed for itself, so a "32 GiB" host shows about 31.
    if ram < need * 1024 * 0.9:
        found = f"has {ram / 1024:.1f} GiB of memory"
        action = "lower `preflight_min_ram_gib` if you know better"
        yield stop(Id.PREFLIGHT_MEMORY_TOO_SMALL, found, f"{need:g} GiB", action)


def _shared_memory(spec: HostSpec, record: Record) -> Iterator[Finding]:
    """Judge where ranks and data loaders hand each other data: large enough, and the owner's.

    It has to have what the smoke test tries to get, or the launcher asks for.
    """
    smoke = shm_trial_mib(spec.smoke.mode) if spec.smoke.run != "skip" else 0
    need = max(smoke, SHM_MIB * spec.smoke.ranks if spec.training else 0)
    size, id_ = if_known(record.storage.shm_mib, None), Id.PREFLIGHT_SHARED_MEMORY_UNFIT
    if need and record.storage.shm_closed is True:
        yield stop(
            id_,
            f"{layout.owner_name(spec, record)} may not write in {SHARED_MEMORY}",
            "a file system that everybody may write in: ranks and data loaders hand each"
            " other data there",
            f"run `mount -o remount,rw,mode=1777 {SHARED_MEMORY}`, and correct its line in"
            " /etc/fstab where there is one",
        )
    elif need and size is not None and size < need:
        wished = max(1, -(-need // 1024))
        yield stop(
            id_,
            f"{SHARED_MEMORY} has {size} MiB",
            f"{need} MiB, for {spec.smoke.ranks} ranks and their data loaders",
            f"run `mount -o remount,size={wished}G {SHARED_MEMORY}`, and for good put"
            f" `tmpfs {SHARED_MEMORY} tmpfs size={wished}G 0 0` into /etc/fstab; a container gets"
            f" it by --shm-size={wished}g",
        )


def _preloads(spec: HostSpec, record: Record) -> Iterator[Finding]:
    """Judge what the loader puts into every program, e.g. an agent that watches the host."""
    del spec
    rows = if_known(record.system.preload, ())
    problem = if_known(record.system.preload_problem, None) if rows else None
    gone = [row[2:] for row in rows if row.startswith("0 ")]
    if problem or gone:
        what = f"{some(gone, _NAMED)} is not there" if gone else f"the loader says {problem}"
        yield stop(
            Id.PREFLIGHT_PRELOADED,
            f"/etc/ld.so.preload has every program load what cannot be loaded: {what}",
            "libraries that are there: until then every program says so, in front of all that it"
            " says",
            "take its line out of /etc/ld.so.preload, or install again what wrote it",
        )
    elif rows:
        yield note(
            Id.PREFLIGHT_PRELOADED,
            f"every program loads {some([row[2:] for row in rows], _NAMED)}, by /etc/ld.so.preload",
            "nothing but what a program asks for",
            "left alone: keep it in mind if programs misbehave",
        )


def _incompatible(spec: HostSpec, record: Record) -> Iterator[Finding]:
    for each in check_host(spec, host_facts(spec, record)):
        yield stop(Id.PREFLIGHT_INCOMPATIBLE, each.found, each.allowed, each.remedy)


def host_facts(spec: HostSpec, record: Record) -> HostFacts:
    """Return what the compatibility rules need; what could not be read is not judged there.

    The driver that is loaded says nothing while the driver stage is still to bring another.
    """
    stays = not (spec.driver.source != "present" and driver_moves(spec, record))
    open_modules = if_known(record.driver.open_modules, None)
    gcc = if_known(record.cuda.gcc, None) if spec.cuda.toolkit else None
    return HostFacts(
        python=_numbers(record.torch.python) or _numbers(record.system.python3),
        gcc=int(gcc.partition(".")[0]) if gcc else None,
        architecture=if_known(record.system.architecture, "x86_64"),
        driver_loaded=_numbers(record.driver.loaded) if stays else None,
        compute_capabilities=preflight_gpus.capabilities(spec, record),
        open_modules=open_modules if stays else None,
        glibc=_numbers(record.cuda.glibc),
        distribution=f"{record.system.os_id} {record.system.os_version}",
        due=_due(spec, record),
    )


def _numbers(value: str | Unknown | None) -> str | None:
    found = _NUMBERS.match(value) if isinstance(value, str) else None
    return found[0] if found else None


def _due(spec: HostSpec, record: Record) -> frozenset[Due]:
    """Return what is to come from NVIDIA's repository; what is there may have left it since."""
    missing = {Id.CUDA_NOT_INSTALLED, Id.CUDA_TOOLKIT_DIFFERS}
    due: set[Due] = set()
    if _ids(driver.judge(spec, record)) & preflight_driver.MOVES:
        due.add("driver")
    if _ids(cuda.judge(spec, record)) & missing:
        due.add("toolkit")
    return frozenset(due)


def _ids(found: Iterable[Finding]) -> set[Id]:
    return {each.id for each in found}


def driver_moves(spec: HostSpec, record: Record) -> bool:
    """Tell whether the next run replaces, builds or reloads the driver."""
    found = driver.judge(spec, record)
    restarts = any(each.effect == "restart" for each in found)
    return restarts or bool(_ids(found) & preflight_driver.BUILDS)


judge = Rules(
    _operating_system,
    _ignored,
    _prefix,
    _owner,
    _another_owner,
    _mounts,
    _package_manager,
    _room,
    _memory,
    _shared_memory,
    _preloads,
    preflight_gpus.devices,
    *preflight_driver.RULES,
    preflight_build.obstacles,
    _incompatible,
)
