"""Why a host cannot become what is declared: judged before anything is written."""

from __future__ import annotations

import re
from collections.abc import Iterator

from pyinfra_gpu.compatibility import Due, HostFacts, check_host
from pyinfra_gpu.facts.fields import Unknown
from pyinfra_gpu.facts.record import SHARED_MEMORY, Record
from pyinfra_gpu.on_host.smoke.host import shm_trial_mib
from pyinfra_gpu.spec import HostSpec
from pyinfra_gpu.stacks import catalogue
from pyinfra_gpu.stages.cuda import findings as cuda
from pyinfra_gpu.stages.driver import findings as driver
from pyinfra_gpu.stages.driver.inventory import ours as driver_is_ours
from pyinfra_gpu.stages.finding import Finding, Id, Stage, note, report, stop
from pyinfra_gpu.stages.layout import findings as layout
from pyinfra_gpu.stages.libcuda import findings as libcuda
from pyinfra_gpu.stages.packages import findings as packages
from pyinfra_gpu.stages.preflight import driver as of_driver
from pyinfra_gpu.stages.pytorch import findings as pytorch
from pyinfra_gpu.stages.pytorch_build import findings as pytorch_build
from pyinfra_gpu.stages.rules import Rules, if_known, known, where
from pyinfra_gpu.text import some

STAGE = Stage.PREFLIGHT
# What of a version is compared: a Python of one's own may call itself "3.11.2+".
_NUMBERS = re.compile(r"\d{1,9}(?:\.\d{1,9}){0,5}", re.ASCII)

_TAKES_GIB = {Id.DRIVER_NOT_INSTALLED: (1.0, 0.5), Id.CUDA_NOT_INSTALLED: (5.0, 3.0)}
"""What is to be installed -> GiB below /usr, and below /var for the packages themselves."""
_BRINGS: dict[Due, set[Id]] = {
    "driver": of_driver.INSTALLS,
    "toolkit": {Id.CUDA_NOT_INSTALLED, Id.CUDA_TOOLKIT_DIFFERS},
}
"""What comes from NVIDIA's repository, which may not carry any more what is there."""
_RANK_SHM_MIB = 128  # of /dev/shm, for a rank of a training run and its data loaders
_VAR_MIB = 102.4
"""What the package manager itself needs below /var, for lists, its database and its log."""
_SPARE_MIB = 8
_TMP = "/tmp"  # noqa: S108 - nothing of ours is written there


def summary(spec: HostSpec, record: Record) -> str:
    """Say in a few words what kind of machine this is."""
    del spec
    system, gpus = record.system, record.gpus.devices
    ram = if_known(system.ram_mib, 0)
    memory = f"{ram / 1024:.0f} GiB" if ram else "unknown memory"
    count = "unknown" if isinstance(gpus, Unknown) else len(gpus)
    cpus = f"{system.os_name}, {system.cpu_count} CPUs"
    return f"{cpus}, {memory}, {count} NVIDIA GPU{'s' * (count != 1)}"


def _rooted(spec: HostSpec) -> bool:
    return spec.privilege != "none"


def _operating_system(spec: HostSpec, record: Record) -> Iterator[Finding]:
    """Judge the distribution, and its release where the driver comes from a repository for it."""
    system, id_ = record.system, Id.PREFLIGHT_OS_UNSUPPORTED
    supported = catalogue().supported_releases()
    releases = supported.get(str(system.os_id))
    if system.init != "systemd":
        action = "boot it with systemd, or declare `privilege = 'none'`"
        yield stop(id_, f"pid 1 is {system.init}, not systemd", "a host with systemd", action)
    elif releases is None or (driver_is_ours(spec) and system.os_version not in releases):
        known_ones = ", ".join(f"{name} {'/'.join(each)}" for name, each in supported.items())
        expected = f"one of the supported: {known_ones}"
        yield stop(id_, f"runs {system.os_name}", expected, "install one of them")
    # Nothing is written where nobody knows what is installed.
    known(record.packages.installed, "which packages are installed")


def _ignored(spec: HostSpec, record: Record) -> Iterator[Finding]:
    del record
    if spec.ignored:
        found = f"{some(spec.ignored, 3)} of its data is for hosts with GPUs"
        expected = f"nothing that the stack {spec.stack} does not read"
        action = "left alone, as in a default for all hosts"
        yield note(Id.PREFLIGHT_KEYS_IGNORED, found, expected, action)


def _prefix(spec: HostSpec, record: Record) -> Iterator[Finding]:
    """Judge the way to the prefix: who can change it sends root wherever they like."""
    if open_ := known(record.layout.open, "who can change the way to the prefix"):
        yield stop(
            Id.PREFLIGHT_PREFIX_OPEN,
            f"somebody else than root can change {open_}, and `prefix` is {spec.paths.prefix}",
            "a prefix below directories that root alone can change, since root works there",
            'choose a `prefix` below /opt, or declare `privilege = "none"`',
        )


def _owner(spec: HostSpec, record: Record) -> Iterator[Finding]:
    """Who logs in does not become the owner of what another user has, but by being declared."""
    id_ = Id.PREFLIGHT_OWNER_UNUSABLE
    if problem := if_known(record.layout.owner_problem, None):
        expected = "an owner as whom programs run: root runs none of the owner's"
        action = "make that user or install what is missing, or declare another `owner`"
        yield stop(id_, problem, expected, action)
    user = spec.owner or known(record.system.user)
    for path in (spec.paths.venv, *layout.owners(spec)) if spec.owner is None else ():
        whose = getattr(if_known(record.layout.entry(path), None), "owner", None)
        if whose not in (None, user, layout.ROOT):
            found = f"{path} belongs to {whose}, and the login is {user}"
            action = f'declare `owner = "{whose}"`, or "{user}" to begin with an empty environment,'
            action += " what is there being renamed"
            yield stop(id_, found, "one owner, independent of the login", action)
            return


def _mounts(spec: HostSpec, record: Record) -> Iterator[Finding]:
    """Judge how file systems are mounted; a kernel that finds a disk's errors forbids writing."""
    prefix, id_ = spec.paths.prefix, Id.PREFLIGHT_MOUNT_UNFIT
    place = if_known(record.storage.noexec, None)
    if place == _TMP and spec.environment.dynamo and "TMPDIR" not in spec.environment.variables:
        found, expected = f"{_TMP} is mounted noexec", "one from which built code can be loaded"
        action = "left alone: torch.compile and Triton would fail, so mount it otherwise, or give"
        action += " them another folder by `environment_variables`, as TMPDIR"
        yield report(id_, found, expected, action, f"sudo mount -o remount,exec {_TMP}")
    elif place not in (None, _TMP):
        found, expected = f"{place} is mounted noexec", f"programs that can start below {prefix}"
        action = f"run `mount -o remount,exec {place}` and take noexec out of /etc/fstab, or"
        yield stop(id_, found, expected, f"{action} choose another `prefix`")
    if place := if_known(record.storage.readonly, None):
        expected = f"file systems that can be written, below {prefix} too"
        action = "see with `dmesg | grep -iE 'remount|I/O error'` whether the kernel did that after"
        action += f" an error of the disk; if not, run `mount -o remount,rw {place}` and look at"
        yield stop(id_, f"{place} is mounted read-only", expected, f"{action} /etc/fstab")


def installing(spec: HostSpec, record: Record) -> list[Finding]:
    """Return what is found in the stages that install packages."""
    parts = (driver, packages, cuda, libcuda)
    return [each for part in parts for each in part.judge(spec, record)]


def _room(spec: HostSpec, record: Record) -> Iterator[Finding]:
    """Compare the free space with what is to come: torch, driver and toolkit, an initramfs.

    The package manager checks none of it beforehand: a full /usr leaves packages half installed, a
    full /boot a kernel that may not boot.
    """
    judged = installing(spec, record)
    due = {each.id for each in judged} & set(_TAKES_GIB)
    usr, var = (sum(_TAKES_GIB[each][column] for each in due) * 1024 for column in (0, 1))
    var = max(var, _VAR_MIB * any(each.acts for each in judged))
    storage, least = record.storage, spec.preflight.min_disk_gib
    fresh, largest = record.torch.version is None, if_known(storage.initrd_mib, None)
    built = min(least, catalogue().build_disk_gib) if not fresh and builds(spec, record) else 0
    boot = largest + _SPARE_MIB if largest and of_driver.makes_initramfs(spec, record) else 0
    ours = "free some space there, choose another `prefix`, or lower `preflight_min_disk_gib`"
    elsewhere = f"{ours}, or let another host build, by `pytorch_builder`"
    system = "free some space there; `journalctl --vacuum-size=100M` and `apt-get clean` help"
    toolkit = ", or without a toolkit declare `cuda_toolkit = False`"
    system += toolkit * (Id.CUDA_NOT_INSTALLED in due)
    kernels = "remove old kernels' packages, as by `apt-get autoremove --purge`"
    for place, free_mib, need, what, action in (
        (spec.paths.prefix, storage.free_mib, least * 1024 * fresh, "", ours),
        (spec.paths.build, storage.free_mib, built * 1024, " for a build of torch", elsewhere),
        ("/usr", storage.usr_mib, usr, " for what is to be installed", system),
        ("/var", storage.var_mib, var, " for what is to be installed", system),
        ("/boot", storage.boot_mib, boot, ", for another initramfs", kernels),
    ):
        free = known(free_mib, f"the free disk space at {place}") if need else None
        if free is not None and free < need:
            found, expected = f"{_size(free)} free at {place}", f"{_size(need)}{what}"
            yield stop(Id.PREFLIGHT_DISK_TOO_SMALL, found, expected, action)


def _size(mib: float) -> str:
    return f"{mib / 1024:.1f} GiB".replace(".0 ", " ") if mib >= 1024 else f"{mib:.0f} MiB"


def builds(spec: HostSpec, record: Record) -> bool:
    """Tell whether this host may be the one that begins to build torch now."""
    building = spec.pytorch.building
    if building is None or spec.rehearsal or building.builder not in (None, spec.host):
        return False
    # What a build takes, one that has begun has taken in part.
    missing = any(each.acts for each in pytorch_build.judge(spec, record))
    return missing and not pytorch_build.has_begun(spec, record)


def _memory(spec: HostSpec, record: Record) -> Iterator[Finding]:
    ram, need = known(record.system.ram_mib, "the amount of memory"), spec.preflight.min_ram_gib
    # The kernel keeps some of what is installed for itself, so a "32 GiB" host shows about 31.
    if ram < need * 1024 * 0.9:
        found, action = f"has {ram / 1024:.1f} GiB of memory", "or lower `preflight_min_ram_gib`"
        yield stop(Id.PREFLIGHT_MEMORY_TOO_SMALL, found, f"{need:g} GiB", f"add memory, {action}")


def _shared_memory(spec: HostSpec, record: Record) -> Iterator[Finding]:
    """Judge where ranks and data loaders hand each other data: as the smoke test and `train` do."""
    smoke = shm_trial_mib(spec.smoke.mode) if spec.smoke.run != "skip" else 0
    need = max(smoke, _RANK_SHM_MIB * spec.smoke.ranks if spec.training else 0)
    size, gib = if_known(record.storage.shm_mib, None), max(1, -(-need // 1024))
    if size is not None and size < need:
        yield stop(
            Id.PREFLIGHT_SHARED_MEMORY_UNFIT,
            f"{SHARED_MEMORY} has {size} MiB",
            f"{need} MiB, for {spec.smoke.ranks} ranks and their data loaders",
            f"run `mount -o remount,size={gib}G {SHARED_MEMORY}`, and for good put"
            f" `tmpfs {SHARED_MEMORY} tmpfs size={gib}G 0 0` into /etc/fstab; a container gets it"
            f" by --shm-size={gib}g",
        )


def _interpreter(spec: HostSpec, record: Record) -> Iterator[Finding]:
    """Judge whether the Python is there that an environment is to be made from."""
    path, own = spec.pytorch.interpreter, if_known(record.system.python3, None)
    name = path.rpartition("/")[2]
    brought = any(each.startswith(name) for each in spec.packages.extra)  # python3.12-venv, too
    if not path or brought or spec.pytorch.downloads_python:
        return
    made = not pytorch.environment_problem(spec, record)
    if not made and known(record.torch.declared, "which Python is declared") is None:
        mirror = ", give a mirror as `pytorch_python_url`" * spec.pytorch.python[0].isdigit()
        yield stop(
            Id.PREFLIGHT_INCOMPATIBLE,
            f"there is no {path}",
            f"the interpreter of pytorch_python = {spec.pytorch.python!r}",
            f"install it{mirror}, or declare `pytorch_python = 'python3'`, which is {own} there",
        )


def _incompatible(spec: HostSpec, record: Record) -> Iterator[Finding]:
    for each in check_host(spec, host_facts(spec, record)):
        packages = ("gcc",) if each.found.startswith("host_compiler") else ()
        id_ = Id.PREFLIGHT_INCOMPATIBLE
        yield stop(id_, each.found, each.allowed, each.remedy, packages=packages)


def host_facts(spec: HostSpec, record: Record) -> HostFacts:
    """Return what the compatibility rules need; what could not be read is not judged there.

    The driver that is loaded says nothing while the driver stage is still to bring another.
    """
    found = driver.judge(spec, record)
    moves = any(each.effect == "restart" or each.id in of_driver.BUILDS for each in found)
    stays = not (driver_is_ours(spec) and moves)
    ids = {each.id for each in (*found, *cuda.judge(spec, record))}
    open_modules = if_known(record.driver.open_modules, None)
    gcc = if_known(record.cuda.gcc, None) if spec.cuda.toolkit else None
    return HostFacts(
        python=_numbers(record.torch.python) or _numbers(record.system.python3),
        gcc=int(gcc.partition(".")[0]) if gcc else None,
        architecture=if_known(record.system.architecture, "x86_64"),
        driver_loaded=_numbers(record.driver.loaded) if stays else None,
        compute_capabilities=of_driver.capabilities(spec, record),
        open_modules=open_modules if stays else None,
        distribution=f"{record.system.os_id} {record.system.os_version}",
        due=frozenset(name for name, repaired in _BRINGS.items() if repaired & ids),
    )


def _numbers(value: str | Unknown | None) -> str | None:
    found = _NUMBERS.match(value) if isinstance(value, str) else None
    return found[0] if found else None


judge = Rules(
    *where(_rooted, _operating_system),
    _ignored,
    *where(_rooted, _prefix, _owner),
    *(_mounts, _room, _memory, _shared_memory),
    *of_driver.RULES,
    *(_interpreter, _incompatible),
)
