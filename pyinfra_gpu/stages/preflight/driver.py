"""What keeps GPUs and driver from becoming what is declared, judged before anything is written."""

from __future__ import annotations

import re
from collections.abc import Iterator

from pyinfra_gpu.facts.fields import Unknown
from pyinfra_gpu.facts.record import NvidiaPackage, PciGpu, Record
from pyinfra_gpu.packages import files
from pyinfra_gpu.packages.names import is_driver, plain
from pyinfra_gpu.spec import HostSpec
from pyinfra_gpu.stacks import catalogue
from pyinfra_gpu.stages.driver import findings as driver
from pyinfra_gpu.stages.driver.findings import users
from pyinfra_gpu.stages.driver.inventory import (
    archive,
    from_nvidia,
    of_gpus,
    ours,
    packages,
    repository,
    trusts_nvidia,
)
from pyinfra_gpu.stages.finding import Finding, Id, stop
from pyinfra_gpu.stages.rules import if_known, known, running, where
from pyinfra_gpu.text import some

INSTALLS = {Id.DRIVER_NOT_INSTALLED, Id.DRIVER_VERSION_DIFFERS, Id.DRIVER_FILES_DAMAGED}
"""Findings that are repaired by installing other packages of the driver."""

BUILDS = INSTALLS | {Id.DRIVER_MODULE_NOT_BUILT}
"""Findings after which the kernel gets a module that is built, and signed, on the host."""

_OTHER = Id.PREFLIGHT_OTHER_DRIVER
_OF_KERNELS = "linux-modules-nvidia-"

# Repositories that carry drivers. NVIDIA's others (container tools, development tools) do not.
_CARRIES_DRIVERS = re.compile(
    r"cuda/repos|cuda-repo-|nvidia-driver-local|graphics-drivers|repo\.download\.nvidia"
)
# The ends of versions that only the distributions' own archives have, for the updates of a
# release; NVIDIA's packages end in -1 or -0ubuntu1.
_OF_AN_ARCHIVE = re.compile(r"-0ubuntu0\.\d\d\.\d\d|[~+]deb\d+u\d+")


def due(spec: HostSpec, record: Record) -> set[Id]:
    """Return what the driver stage has to repair."""
    return {each.id for each in driver.judge(spec, record)}


def makes_initramfs(spec: HostSpec, record: Record) -> bool:
    """Tell whether something is to be repaired that is followed by another initramfs."""
    makes = BUILDS | {Id.DRIVER_BLACKLIST_DIFFERS, Id.DRIVER_INITRAMFS_STALE}
    return bool(due(spec, record) & makes)


# -- the GPUs on the bus


def _devices(spec: HostSpec, record: Record) -> Iterator[Finding]:
    """Compare number and model; a GPU without BAR1, its window for the host, cannot be used.

    Where the firmware places none, the driver ends with "No devices were found"
    (open-gpu-kernel-modules issue 862).
    """
    there, id_ = known(record.gpus.devices, "what is on the PCI bus"), Id.PREFLIGHT_GPUS_DIFFER
    if len(there) != spec.gpu.count:
        stacks = catalogue().stacks.values()
        cpu = next(each.name for each in stacks if each.accelerator == "cpu")
        without = "" if there else f"; for a host without a GPU declare `stack = {cpu!r}`"
        found = f"{len(there)} NVIDIA GPU{'s' * (len(there) != 1)} on the PCI bus"
        action = f"check seating, power and Above-4G decoding, or correct `gpu_count`{without}"
        yield stop(id_, found, f"gpu_count = {spec.gpu.count}", action)
        return
    wanted, names = spec.gpu.model, {each: _model(each) for each in there}
    ids = catalogue().gpus[wanted].pci_ids if wanted else ()
    others = [x for x in there if wanted and x.pci_id not in ids and (ids or names[x])]
    for each in others[:1]:
        found = f"{each.address} is {', '.join(filter(None, (each.pci_id, names[each])))}"
        expected = " ".join([f"gpu_model = {wanted!r}", *(f"({each})" for each in ids)])
        action = f"correct `gpu_model`, or see what it is with `lspci -nn -s {each.address}`"
        yield stop(id_, found, expected, action)
    if without_window := [each.address for each in there if each.bar1 is False]:
        found = f"{', '.join(without_window)} has no BAR1 aperture"
        action = "switch on Above 4G Decoding and Resizable BAR in the machine's firmware setup"
        yield stop(id_, found, "one, or the driver finds no device", action)


def _model(device: PciGpu) -> str | None:
    """Return the model of which a device has a PCI id, if it is a known one."""
    rows = catalogue().gpus.items()
    return next((name for name, each in rows if device.pci_id in each.pci_ids), None)


def capabilities(spec: HostSpec, record: Record) -> tuple[str, ...]:
    """Return the GPUs' compute capabilities: the declared model's, else of those known by PCI id.

    An id that is not known says nothing; () on cpu stacks.
    """
    if spec.gpu.compute_capability:
        return (spec.gpu.compute_capability,)
    models = [_model(each) for each in if_known(record.gpus.devices, ()) if of_gpus(spec)]
    return tuple(catalogue().gpus[name].compute_capability for name in models if name)


# -- the driver


def _packages_known(spec: HostSpec, record: Record) -> Iterator[Finding]:
    """Which branches a release's archive carries, the rule `branch-not-in-archive` says."""
    known(record.system.os_id, "which distribution it runs")
    source, action = repository(spec, record) if from_nvidia(spec) else None, ""
    found = f"no packages of driver branch {spec.driver.branch} with {spec.driver.modules} modules"
    found += f" are known for {record.system.os_name}"
    if isinstance(source, str):
        found, action = source, "declare `driver_repository_url` with its key and keyring, or "
    elif packages(spec, record).wanted:
        return
    elif source is None:
        action = "declare `driver_source = 'nvidia'`, or "
    action += "install the driver yourself and declare `driver_source = 'present'`"
    yield stop(Id.PREFLIGHT_INCOMPATIBLE, found, "packages of the declared driver", action)


def _runfile(spec: HostSpec, record: Record) -> Iterator[Finding]:
    runfile = record.driver.runfile
    if due(spec, record) & INSTALLS:
        known(runfile, "whether a .run file installed a driver")
    if runfile is True:
        yield stop(
            _OTHER,
            "a driver was installed by NVIDIA's .run file",
            "packages alone, since two drivers overwrite each other's files",
            "remove it with `sudo nvidia-uninstall`, or declare `driver_source = 'present'`",
        )


def _other_source(spec: HostSpec, record: Record) -> Iterator[Finding]:
    """Two repositories with the same names yield a driver that is half of each.

    Our own file is the driver stage's to repair, and so is the same repository listed twice.
    """
    sources, mine = known(record.nvidia.sources, "the package sources"), repository(spec, record)
    if isinstance(mine, str):
        return
    for each in sources:
        another = each.file != files.SOURCES and each.uri.rstrip("/") != mine.url
        if another and _CARRIES_DRIVERS.search(each.uri):
            found = f"{each.file} names a second source of NVIDIA's packages, {each.uri}"
            action = f"`sudo mv {each.file} {each.file}.disabled`, or declare it as"
            yield stop(_OTHER, found, f"{mine.url} alone", f"{action} `driver_repository_url`")
            return


def _other_driver(spec: HostSpec, record: Record) -> Iterator[Finding]:
    """Find packages of another driver, which conflict with the declared one or mix with it.

    Where NVIDIA's is declared: those of a distribution's archive, and, if the driver moves, what
    is left of one. Its firmware may be the same file in both, over which the installation stumbles.
    Where the distribution's is declared: NVIDIA's, and another series of the archive ("580-open"
    and "580-server-open").
    """
    rows = known(record.nvidia.packages, "the installed NVIDIA packages")
    own, moves = archive(spec, record), bool(due(spec, record) & INSTALLS)

    def in_the_way(each: NvidiaPackage) -> bool:
        of_driver = is_driver(each.name, each.version)
        of_kernel = each.name.startswith(_OF_KERNELS)
        if own is not None:
            mine = plain(each.name) in own.apart or own.series in each.name
            return (of_driver or of_kernel) and not mine
        marked = _OF_AN_ARCHIVE.search(each.version) is not None
        return of_kernel or (marked and (of_driver or moves))

    names = [plain(each.name) for each in rows if in_the_way(each)]
    if names and (own or from_nvidia(spec)):
        where_ = (
            "is installed, of another driver" if own else "came from the distribution's archive"
        )
        keep = "`driver_source = 'nvidia'`" if own else "`driver_source = 'distribution'`"
        remove = f"remove them with `sudo apt-get purge {' '.join(names)}`"
        action = f"{remove}, or declare {keep} to keep that driver, or 'present' to keep what is"
        expected = "no other driver's packages"
        yield stop(_OTHER, f"{some(names, 3)} {where_}", expected, f"{action} there")


def _secure_boot(spec: HostSpec, record: Record) -> Iterator[Finding]:
    """A module that DKMS signs is not loaded before somebody enrolled its key at the console."""
    mok = record.driver.mok
    # One that the distribution signed is loaded, by the key that the firmware knows by shim; what
    # is loaded was accepted, and stays so where nothing else is going to be built.
    accepted = record.driver.loaded is not None and not due(spec, record) & BUILDS
    if record.system.secure_boot is not True or mok is True or archive(spec, record) or accepted:
        return
    state = f" (not known: {mok.reason})" if isinstance(mok, Unknown) else ""
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


def _busy(spec: HostSpec, record: Record) -> Iterator[Finding]:
    """Other libraries under a running job: it goes on, and whatever it starts next fails.

    Under a training run the driver stage waits, and says so itself.
    """
    moving = [each for each in driver.judge(spec, record) if each.id in INSTALLS]
    moving = [] if running(record) else moving
    who = users(record) if moving else ()
    if at_work := known(who, "who uses the GPUs, and the driver has to move"):
        found = f"the driver has to move ({moving[0].found}; expected {moving[0].expected}), and"
        found += f" the GPUs are used by {some(at_work, 4)}"
        expected, action = "no work on the GPUs during the repair", "run again when they are done"
        named = moving[0].packages
        yield stop(Id.PREFLIGHT_GPUS_IN_USE, found, expected, action, packages=named)


RULES = (
    *where(of_gpus, _devices),
    *where(ours, _packages_known, _runfile),
    *where(trusts_nvidia, _other_source),
    *where(ours, _other_driver, _secure_boot, _busy),
)
