"""What keeps the driver stage from working on a host, judged before it writes anything."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from pyinfra_gpu.drift import driver
from pyinfra_gpu.drift.driver_inventory import (
    archive,
    from_nvidia,
    of_ours,
    trusts_nvidia,
)
from pyinfra_gpu.drift.driver_repository import repository
from pyinfra_gpu.drift.driver_running import users
from pyinfra_gpu.drift.finding import Finding, Id, stop
from pyinfra_gpu.drift.rules import if_known, known
from pyinfra_gpu.facts.fields import Unknown
from pyinfra_gpu.packages import apt, files
from pyinfra_gpu.packages.names import (
    is_driver,
    is_helper,
    names_its_version,
    plain,
)
from pyinfra_gpu.stacks import catalogue
from pyinfra_gpu.text import some

if TYPE_CHECKING:
    from pyinfra_gpu.facts.record import Record
    from pyinfra_gpu.spec import HostSpec

MOVES = {Id.DRIVER_NOT_INSTALLED, Id.DRIVER_VERSION_DIFFERS, Id.DRIVER_FILES_DAMAGED}
"""Findings that are repaired by installing other packages of the driver.

Those that a reload repairs are not among them: whether that may be done now is `driver_reboot`'s to
say, in the driver stage, which writes nothing else then.
"""

BUILDS = MOVES | {Id.DRIVER_MODULE_NOT_BUILT}
"""Findings after which the kernel gets a module that is built, and signed, on the host."""

_MAKES_INITRAMFS = BUILDS | {Id.DRIVER_BLACKLIST_DIFFERS, Id.DRIVER_INITRAMFS_STALE}

_OF_KERNELS = "linux-modules-nvidia-"

# Repositories that carry drivers. NVIDIA's others (container tools, development tools) do not.
_CARRIES_DRIVERS = re.compile(
    r"cuda/repos|cuda-repo-|nvidia-driver-local|graphics-drivers|repo\.download\.nvidia"
)
# The ends of versions that only the distributions' own archives have, for the updates of a
# release; NVIDIA's packages end in -1 or -0ubuntu1.
_OF_AN_ARCHIVE = re.compile(r"-0ubuntu0\.\d\d\.\d\d|[~+]deb\d+u\d+")


def makes_initramfs(spec: HostSpec, record: Record) -> bool:
    """Tell whether something is to be repaired that is followed by another initramfs."""
    return bool(_ids(spec, record) & _MAKES_INITRAMFS)


def _ids(spec: HostSpec, record: Record) -> set[Id]:
    return {each.id for each in driver.judge(spec, record)}


def _loaded(spec: HostSpec, record: Record) -> Iterator[Finding]:
    """Somebody else keeps the driver: without one, all that follows would fail later."""
    if spec.accelerator == "cpu":
        return
    loaded = known(record.driver.loaded, "whether the NVIDIA driver is loaded")
    if spec.driver.source != "present" or loaded is not None:
        return
    free = [name for name in ("nouveau", "nova") if getattr(record.driver, name) is True]
    bound = f"; {' and '.join(free)} is loaded and has to go first" if free else ""
    ours = "declare `driver_source = 'nvidia'`"
    remedy = ours if spec.privilege == "sudo" else "ask who has root"
    yield stop(
        Id.PREFLIGHT_NO_DRIVER,
        f"no NVIDIA driver is loaded{bound}",
        "a driver that somebody else installed, as driver_source = 'present' says",
        f"install branch {spec.driver.branch} ({spec.driver.minimum} or newer) with"
        f" {spec.driver.modules} kernel modules and reboot, or {remedy}",
    )


@of_ours
def _packages_known(spec: HostSpec, record: Record) -> Iterator[Finding]:
    """Which branches a release's archive carries, the rule `branch-not-in-archive` says."""
    known(record.driver.loaded, "whether the NVIDIA driver is loaded")
    driver, os_name, id_ = spec.driver, record.system.os_name, Id.PREFLIGHT_INCOMPATIBLE
    branch, expected = driver.branch or 0, "packages of the declared driver"
    found = f"no packages of driver branch {branch} with {driver.modules} modules are known"
    present = "install the driver yourself and declare `driver_source = 'present'`"
    if not from_nvidia(spec):
        own = archive(spec, record)
        if own is None or not own.driver(branch, driver.modules, driver.packages):
            found += f" in the archive of {os_name}"
            action = f"declare `driver_source = 'nvidia'`, or {present}"
            yield stop(id_, found, expected, action)
    elif isinstance(source := repository(spec, record), str):
        expected = "a package repository of NVIDIA's for this host"
        action = (
            "declare `driver_repository_url` with its key and keyring, or `driver_source ="
            " 'present'`"
        )
        yield stop(id_, source, expected, action)
    else:
        words = (str(record.system.os_id), branch, driver.modules, driver.packages)
        if catalogue().driver_packages(*words) is None:
            yield stop(id_, f"{found} for {os_name}", expected, present)


@of_ours
def _runfile(spec: HostSpec, record: Record) -> Iterator[Finding]:
    runfile = record.driver.runfile
    if _ids(spec, record) & MOVES:
        known(runfile, "whether a .run file installed a driver")
    if if_known(runfile, False):
        yield stop(
            Id.PREFLIGHT_OTHER_DRIVER,
            "a driver was installed by NVIDIA's .run file",
            "packages alone, since two drivers overwrite each other's files",
            "remove it with `sudo nvidia-uninstall`, or declare `driver_source = 'present'`",
        )


@of_ours
def _other_source(spec: HostSpec, record: Record) -> Iterator[Finding]:
    """Two repositories with the same names yield a driver that is half of each."""
    if not trusts_nvidia(spec):
        return
    sources, ours = known(record.nvidia.sources, "the package sources"), repository(spec, record)
    if isinstance(ours, str):
        return
    for each in sources:
        # Our own file is the driver stage's to repair, and so is the same repository listed twice.
        own = each.file == files.SOURCES or each.uri.rstrip("/") == ours.url
        if not own and _CARRIES_DRIVERS.search(each.uri):
            yield stop(
                Id.PREFLIGHT_OTHER_DRIVER,
                f"{each.file} names a second source of NVIDIA's packages, {each.uri}",
                f"{ours.url} alone",
                f"`sudo mv {each.file} {each.file}.disabled`, or declare it as"
                " `driver_repository_url`",
            )
            return


@of_ours
def _other_driver(spec: HostSpec, record: Record) -> Iterator[Finding]:
    """Parts of a driver that the declared one's archive does not have.

    Where the distribution's is declared: those of NVIDIA's repository, or of another series of the
    archive, which conflicts with the declared one ("580-open" and "580-server-open").
    """
    packages = known(record.nvidia.packages, "the installed NVIDIA packages")
    own, present = archive(spec, record), "'present' to keep"
    if from_nvidia(spec):
        moves = bool(_ids(spec, record) & MOVES)
        names = [
            plain(each.name)
            for each in packages
            if (is_driver(each.name, each.version) and _OF_AN_ARCHIVE.search(each.version))
            or each.name.startswith(_OF_KERNELS)
            or (moves and _left_behind(each.name, each.version))
        ]
        found = "came from the distribution's archive"
        expected = "none of NVIDIA's repository's own names from elsewhere"
        action = f"`driver_source = 'distribution'` to keep that one, or {present} what is there"
    elif own is not None:
        names = [
            plain(each.name)
            for each in packages
            if is_driver(each.name, each.version) or each.name.startswith(_OF_KERNELS)
            if plain(each.name) not in own.apart and own.series not in plain(each.name)
        ]
        expected = "no other driver's packages beside it"
        found = "is installed, of another driver than driver_source = 'distribution' installs"
        action = (
            f"`driver_source = 'nvidia'` if they are from NVIDIA's repository, or {present} them"
        )
    else:
        return
    if names:
        remove = f"remove them with `{apt.remove_by_hand(names, entirely=True)}`"
        action = f"{remove}, or declare {action}"
        yield stop(Id.PREFLIGHT_OTHER_DRIVER, f"{some(names, 3)} {found}", expected, action)


def _left_behind(name: str, version: str) -> bool:
    """Tell whether a package is what removing a distribution's driver leaves, and is in the way.

    Firmware of the very version that NVIDIA's repository has is the same file in both, over which
    the installation stumbles; with the helper NVIDIA's driver conflicts.
    """
    firmware = names_its_version(name, version) and _OF_AN_ARCHIVE.search(version)
    return bool(firmware) or is_helper(name, version)


@of_ours
def _secure_boot(spec: HostSpec, record: Record) -> Iterator[Finding]:
    """A module that DKMS signs is not loaded before somebody enrolled its key at the console."""
    mok = record.driver.mok
    # One that the distribution signed is loaded, by the key that the firmware knows by shim; what
    # is loaded was accepted, and stays so where nothing else is going to be built.
    accepted = record.driver.loaded is not None and not _ids(spec, record) & BUILDS
    if record.system.secure_boot is not True or mok is True or archive(spec, record):
        return
    if not accepted:
        state = f" (it cannot be told: {mok.reason})" if isinstance(mok, Unknown) else ""
        ubuntu = record.system.os_id == "ubuntu"
        key = "/var/lib/shim-signed/mok/MOK.der" if ubuntu else "/var/lib/dkms/mok.pub"
        signed = ", or declare `driver_source = 'distribution'`: Ubuntu's own modules are signed"
        yield stop(
            Id.PREFLIGHT_SECURE_BOOT,
            f"Secure Boot is on and the key that signs the driver's module is not enrolled{state}",
            "a module that the kernel loads",
            f"run `sudo mokutil --import {key}`, reboot and confirm at the machine's console, or"
            f" switch Secure Boot off in the firmware{signed if ubuntu else ''}",
        )


@of_ours
def _busy(spec: HostSpec, record: Record) -> Iterator[Finding]:
    """Other libraries under a running job: it goes on, and whatever it starts next fails."""
    moving = [each for each in driver.judge(spec, record) if each.id in MOVES]
    if moving and (
        at_work := known(users(record), "who uses the GPUs, and the driver has to move")
    ):
        yield stop(
            Id.PREFLIGHT_GPUS_IN_USE,
            f"the driver has to move ({moving[0].found}; expected {moving[0].expected}), and the"
            f" GPUs are used by {some(at_work, 4)}",
            "nobody's work on the GPUs meanwhile",
            "run again when they are done",
        )


RULES = (_loaded, _packages_known, _runfile, _other_source, _other_driver, _secure_boot, _busy)
"""What keeps the driver from becoming what is declared."""
