"""What keeps the driver stage from working on a host, judged before it writes anything."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Literal

from pyinfra_gpu.drift import driver
from pyinfra_gpu.drift.driver_archive import (
    archive,
    from_nvidia,
    has_prebuilt,
    trusts_nvidia,
)
from pyinfra_gpu.drift.driver_repository import repository
from pyinfra_gpu.drift.driver_running import users
from pyinfra_gpu.drift.finding import CannotTell, Finding, Id, stop
from pyinfra_gpu.facts.fields import Unknown
from pyinfra_gpu.packages import apt, files
from pyinfra_gpu.packages.names import (
    branch_of,
    is_driver,
    is_helper,
    names_its_version,
    plain,
)
from pyinfra_gpu.stacks import catalogue

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyinfra_gpu.facts.record import Record
    from pyinfra_gpu.spec import HostSpec, Modules
    from pyinfra_gpu.stacks import Archive

_FLAVOURS: tuple[Modules, ...] = ("open", "proprietary")
_KINDS: tuple[Literal["compute", "full"], ...] = ("compute", "full")

MOVES = frozenset(
    {
        Id.DRIVER_NOT_INSTALLED,
        Id.DRIVER_BRANCH_MOVED,
        Id.DRIVER_VERSION_DIFFERS,
        Id.DRIVER_VERSIONS_MIXED,
        Id.DRIVER_PACKAGE_INCOMPLETE,
        Id.DRIVER_WRONG_FLAVOUR,
        Id.DRIVER_LIBRARIES_DIFFER,
        Id.DRIVER_FILES_DAMAGED,
    }
)
"""Findings that are repaired by installing other packages of the driver.

Those that a reload repairs are not among them: whether that may be done now is `driver_reboot`'s to
say, in the driver stage, which writes nothing else then.
"""

BUILDS = MOVES | {Id.DRIVER_MODULE_NOT_BUILT, Id.DRIVER_MODULE_NOT_BUILT_FOR_NEXT_KERNEL}
"""Findings after which the kernel gets a module that is built, and signed, on the host."""

_MAKES_INITRAMFS = BUILDS | {
    Id.DRIVER_BLACKLIST_DIFFERS,
    Id.DRIVER_INITRAMFS_STALE,
    Id.DRIVER_NOUVEAU_LOADED,
}

# Repositories that carry drivers. NVIDIA's others (container tools, development tools) do not.
_CARRIES_DRIVERS = re.compile(
    r"cuda/repos|cuda-repo-|nvidia-driver-local|graphics-drivers|repo\.download\.nvidia"
)
# The ends of versions that only the distributions' own archives have, for the updates of a
# release; NVIDIA's packages end in -1 or -0ubuntu1.
_OF_AN_ARCHIVE = re.compile(r"-0ubuntu0\.\d\d\.\d\d|[~+]deb\d+u\d+")


def obstacles(spec: HostSpec, record: Record) -> list[Finding | CannotTell]:
    """Return why the driver cannot become what is declared."""
    if spec.accelerator == "cpu":
        return []
    loaded = record.driver.loaded
    if isinstance(loaded, Unknown):
        return [CannotTell(f"whether the NVIDIA driver is loaded cannot be told ({loaded.reason})")]
    found: list[Finding | CannotTell | None]
    if spec.driver.source == "present":
        found = [_nothing_loaded(spec, record)]
    else:
        found = [
            _packages_known(spec, record),
            _runfile(spec, record),
            _other_source(spec, record) if trusts_nvidia(spec) else None,
            _other_archive(spec, record) if from_nvidia(spec) else _other_driver(spec, record),
            _secure_boot(spec, record),
            _busy(spec, record),
        ]
    return [each for each in found if each]


def makes_initramfs(spec: HostSpec, record: Record) -> bool:
    """Tell whether something is to be repaired that is followed by another initramfs."""
    return bool(_ids(spec, record) & _MAKES_INITRAMFS)


def _ids(spec: HostSpec, record: Record) -> set[Id]:
    return {each.id for each in driver.judge(spec, record)}


def _nothing_loaded(spec: HostSpec, record: Record) -> Finding | None:
    """Somebody else keeps the driver: without one, all that follows would fail later."""
    if record.driver.loaded is not None:
        return None
    free = [
        name
        for name, loaded in (("nouveau", record.driver.nouveau), ("nova", record.driver.nova))
        if loaded is True
    ]
    bound = f"; {' and '.join(free)} is loaded and has to go first" if free else ""
    remedy = (
        "declare `driver_source = 'nvidia'`" if spec.privilege == "sudo" else "ask who has root"
    )
    return stop(
        Id.PREFLIGHT_NO_DRIVER,
        found=f"no NVIDIA driver is loaded{bound}",
        expected="a driver that somebody else installed, as driver_source = 'present' says",
        action=f"install branch {spec.driver.branch} ({spec.driver.minimum} or newer) with"
        f" {spec.driver.modules} kernel modules and reboot, or {remedy}",
    )


def _packages_known(spec: HostSpec, record: Record) -> Finding | None:
    if not from_nvidia(spec):
        return _archive_known(spec, record)
    source = repository(spec, record)
    if isinstance(source, str):
        return stop(
            Id.PREFLIGHT_DRIVER_PACKAGES_UNKNOWN,
            found=source,
            expected="a package repository of NVIDIA's for this host",
            action="declare `driver_repository_url` with its key and keyring, or"
            " `driver_source = 'present'`",
        )
    os_id, branch = str(record.system.os_id), spec.driver.branch
    wanted = catalogue().driver_packages(
        os_id, branch or 0, spec.driver.modules, spec.driver.packages
    )
    if wanted is not None:
        return None
    return stop(
        Id.PREFLIGHT_DRIVER_PACKAGES_UNKNOWN,
        found=f"no packages of driver branch {branch} with {spec.driver.modules} modules are known"
        f" for {record.system.os_name}",
        expected="packages of the declared driver",
        action="install the driver yourself and declare `driver_source = 'present'`",
    )


def _archive_known(spec: HostSpec, record: Record) -> Finding | None:
    """Which branches a release's archive carries, the rule `branch-not-in-archive` says."""
    own, branch = archive(spec, record), spec.driver.branch or 0
    flavour, kind = spec.driver.modules, spec.driver.packages
    if own is not None and own.driver(branch, flavour, kind):
        return None
    return stop(
        Id.PREFLIGHT_DRIVER_PACKAGES_UNKNOWN,
        found=f"no packages of driver branch {branch} with {flavour} modules are known in the"
        f" archive of {record.system.os_name}",
        expected="packages of the declared driver",
        action="declare `driver_source = 'nvidia'`, or install the driver yourself and declare"
        " `driver_source = 'present'`",
    )


def _runfile(spec: HostSpec, record: Record) -> Finding | CannotTell | None:
    runfile = record.driver.runfile
    if isinstance(runfile, Unknown):
        if _ids(spec, record) & MOVES:
            return CannotTell(
                f"whether a .run file installed a driver cannot be told ({runfile.reason})"
            )
        return None
    if not runfile:
        return None
    return stop(
        Id.PREFLIGHT_RUNFILE_DRIVER,
        found="a driver was installed by NVIDIA's .run file",
        expected="packages alone, since two drivers overwrite each other's files",
        action="remove it with `sudo nvidia-uninstall`, or declare `driver_source = 'present'`",
    )


def _other_source(spec: HostSpec, record: Record) -> Finding | CannotTell | None:
    """Two repositories with the same names yield a driver that is half of each."""
    sources, ours = record.nvidia.sources, repository(spec, record)
    if isinstance(sources, Unknown):
        return CannotTell(f"the package sources could not be read ({sources.reason})")
    if isinstance(ours, str):
        return None
    other = [
        each
        for each in sources
        # Our own file is the driver stage's to repair, and so is the same repository listed twice.
        if each.file != files.SOURCES
        and each.uri.rstrip("/") != ours.url
        and _CARRIES_DRIVERS.search(each.uri)
    ]
    if not other:
        return None
    return stop(
        Id.PREFLIGHT_SECOND_REPOSITORY,
        found=f"{other[0].file} names a second source of NVIDIA's packages, {other[0].uri}",
        expected=f"{ours.url} alone",
        action=f"`sudo mv {other[0].file} {other[0].file}.disabled`, or declare it as"
        " `driver_repository_url`",
    )


def _named(names: Sequence[str], record: Record) -> tuple[str, str]:
    """Return how packages are named in a finding, and the command that removes them."""
    shown = f"{', '.join(names[:3])}{' and others' if len(names) > 3 else ''}"
    return shown, apt.remove_by_hand(names, entirely=True)


def _other_archive(spec: HostSpec, record: Record) -> Finding | CannotTell | None:
    packages = record.nvidia.packages
    if isinstance(packages, Unknown):
        return CannotTell(f"the installed NVIDIA packages could not be read ({packages.reason})")
    names = [
        plain(each.name)
        for each in packages
        if (is_driver(each.name, each.version) and _OF_AN_ARCHIVE.search(each.version))
        or _of_kernels(each.name)
    ]
    if _ids(spec, record) & MOVES:
        names += [plain(each.name) for each in packages if _left_behind(each.name, each.version)]
    if not names:
        return None
    shown, remove = _named(names, record)
    return stop(
        Id.PREFLIGHT_DISTRIBUTION_DRIVER,
        found=f"{shown} came from the distribution's archive",
        expected="none of NVIDIA's repository's own names from elsewhere",
        action=f"remove them with `{remove}`, or declare `driver_source = 'distribution'` to keep"
        " the distribution's, or 'present' to keep what is there",
    )


def _left_behind(name: str, version: str) -> bool:
    """Tell whether a package is what removing a distribution's driver leaves, and is in the way.

    Firmware of the very version that NVIDIA's repository has is the same file in both, over which
    the installation stumbles; with the helper NVIDIA's driver conflicts.
    """
    firmware = names_its_version(name, version) and _OF_AN_ARCHIVE.search(version)
    return bool(firmware) or is_helper(name, version)


def _other_driver(spec: HostSpec, record: Record) -> Finding | CannotTell | None:
    """The same the other way round: parts of a driver that the declared archive does not have.

    + of NVIDIA's repository, by names that only that one has; + of another series of the archive,
    which conflicts with the declared one ("580-open" and "580-server-open").
    """
    packages, own = record.nvidia.packages, archive(spec, record)
    if isinstance(packages, Unknown):
        return CannotTell(f"the installed NVIDIA packages could not be read ({packages.reason})")
    if own is None:
        return None
    series = re.compile(rf".*-\d{{3}}(?!\d)(?!{re.escape(own.series)})") if own.series else None
    names = [
        plain(each.name)
        for each in packages
        if (is_driver(each.name, each.version) or _of_kernels(each.name))
        and plain(each.name) not in own.apart
        and (_nvidias_alone(each.name, each.version, own, record) or _of(series, each.name))
    ]
    if not names:
        return None
    shown, remove = _named(names, record)
    return stop(
        Id.PREFLIGHT_OTHER_DRIVER,
        found=f"{shown} is installed, of another driver than driver_source = 'distribution'"
        " installs",
        expected="no other driver's packages beside it",
        action=f"remove them with `{remove}`, or declare `driver_source = 'nvidia'` if they are"
        " from NVIDIA's repository, or 'present' to keep them",
    )


def _of_kernels(name: str) -> bool:
    return name.startswith("linux-modules-nvidia-")


def _of(series: re.Pattern[str] | None, name: str) -> bool:
    return series is not None and series.match(plain(name)) is not None


def _nvidias_alone(name: str, version: str, own: Archive, record: Record) -> bool:
    """Tell whether NVIDIA's repository has a package and the distribution's archive does not."""
    known = catalogue().distributions.get(str(record.system.os_id))
    theirs, mine = (
        {
            each
            for rule in rules
            for modules in _FLAVOURS
            for kind in _KINDS
            for each in rule.packages(branch_of(version) or 0, modules, kind) or ()
        }
        for rules in (known.rules if known else (), own.rules)
    )
    return plain(name) in theirs - mine


def _secure_boot(spec: HostSpec, record: Record) -> Finding | None:
    """A module that DKMS signs is not loaded before somebody enrolled its key at the console."""
    if record.system.secure_boot is not True or record.driver.mok is True:
        return None
    if has_prebuilt(spec, record):
        return None  # signed by the distribution, whose key the firmware knows by shim
    if record.driver.loaded is not None and not _ids(spec, record) & BUILDS:
        return None  # what is loaded was accepted, and nothing else is going to be built
    mok = record.driver.mok
    state = f" (it cannot be told: {mok.reason})" if isinstance(mok, Unknown) else ""
    ubuntu = record.system.os_id == "ubuntu"
    key = "/var/lib/shim-signed/mok/MOK.der" if ubuntu else "/var/lib/dkms/mok.pub"
    signed = ", or declare `driver_source = 'distribution'`: Ubuntu's own modules are signed"
    return stop(
        Id.PREFLIGHT_SECURE_BOOT,
        found="Secure Boot is on and the key that signs the driver's module is not enrolled"
        f"{state}",
        expected="a module that the kernel loads",
        action=f"run `sudo mokutil --import {key}`, reboot and confirm at the machine's console,"
        f" or switch Secure Boot off in the firmware{signed if ubuntu else ''}",
    )


def _busy(spec: HostSpec, record: Record) -> Finding | CannotTell | None:
    """Other libraries under a running job: it goes on, and whatever it starts next fails."""
    moving = [each for each in driver.judge(spec, record) if each.id in MOVES]
    if not moving:
        return None
    at_work = users(record)
    if isinstance(at_work, Unknown):
        return CannotTell(
            f"who uses the GPUs cannot be told ({at_work.reason}), and the driver has to move"
        )
    if not at_work:
        return None
    shown = f"{', '.join(at_work[:4])}{' and others' if len(at_work) > 4 else ''}"
    return stop(
        Id.PREFLIGHT_GPUS_IN_USE,
        found=f"the driver has to move ({moving[0].found}; expected {moving[0].expected}), and the"
        f" GPUs are used by {shown}",
        expected="nobody's work on the GPUs meanwhile",
        action="run again when they are done",
    )
