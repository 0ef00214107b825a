"""A host as one look saw it: one frozen record, with a part for each concern.

In any field `None` means "it is not there" and `Unknown(reason)` "the host would not tell". A
field is told by the probe under "PART.FIELD" in the type that stands here; what has another type,
or is not told, is `Unknown` in that field alone. A few are made of something else: see `parse`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Field

from pyinfra_gpu.facts.fields import Hidden, Jsonable, Unknown
from pyinfra_gpu.facts.pytorch_build import BuildState, Manifest
from pyinfra_gpu.facts.verdict import Stamp, Verdict
from pyinfra_gpu.packages.model import PackageChange, Source

SHARED_MEMORY = "/dev/shm"  # noqa: S108 - the kernel's own, where nothing of ours is written
Kind = Literal["file", "dir", "link", "other", "absent"]
Version = Annotated[str, Field(pattern=r"^[0-9]{1,9}(\.[0-9]{1,9}){0,5}$")]
Release = Annotated[str, Field(pattern=r"^[0-9]{1,4}\.[0-9]{1,4}$")]
_STATES = {
    "gone": "is gone",
    "changed": "was changed",
    "linked": "is a link to another file",
    "closed": "is not open to everybody",
    "emptied": "is empty or gone",
}
Text = str | Unknown | None
Word = str | Unknown
Rows = tuple[str, ...] | Unknown
Flag = bool | Unknown
MaybeFlag = bool | Unknown | None
Count = int | Unknown
MaybeCount = int | Unknown | None
_STATE = f"^({'|'.join(_STATES)})$"


@dataclass(frozen=True, kw_only=True, slots=True)
class SystemRecord(Jsonable):
    """The machine as a whole."""

    # os_id, os_version, os_name: ID, VERSION_ID and PRETTY_NAME of os-release
    os_id: Text
    os_version: Text
    os_name: Text
    kernel: Word
    architecture: Word
    boot_id: Word
    cpu_count: Count
    ram_mib: Count  # memory that the kernel can use, in MiB
    init: Word  # "systemd" where systemd runs the machine, else the name of process 1
    hostname: Word
    user: Word  # who logged in (before sudo)
    uid: Count  # as whom the probe ran
    python3: Text  # version of the `python3` on PATH
    secure_boot: MaybeFlag  # None where the machine was not booted through EFI
    # rows "STATE NAME" of what the loader loads into every program, by /etc/ld.so.preload; STATE is
    # 1 where it is there, 0 where not, - where only the loader knows
    preload: Rows
    # what the loader says where it cannot load all of that, for root or the owner
    preload_problem: Text


@dataclass(frozen=True, kw_only=True, slots=True)
class PciGpu(Jsonable):
    """One controller."""

    address: str  # e.g. "0000:01:00.0"
    # vendor, device, class_: as the kernel prints them ("0x10de")
    vendor: str
    device: str
    class_: str
    driver: Text  # name of the kernel driver bound to it, None if there is none
    # size of the window onto the GPU's memory, None if the firmware assigned none
    bar1_mib: MaybeCount


@dataclass(frozen=True, kw_only=True, slots=True)
class GpusRecord(Jsonable):
    """All of them, in the order of their addresses."""

    devices: tuple[PciGpu, ...] | Unknown


@dataclass(frozen=True, kw_only=True, slots=True)
class DriverRecord(Jsonable):
    """The driver's parts, which need not agree."""

    loaded: Text  # version of the module in the running kernel, None if it is not loaded
    open_modules: MaybeFlag  # whether the loaded module is the open one
    # version of the module that modprobe would load into the running kernel, None if there is none
    on_disk: Text
    on_disk_open: MaybeFlag  # whether that one is the open one
    # what `modprobe nvidia` really loads where a rule of modprobe.d says so, as "NAME FILE" with
    # the file of the rule ("nvidia-current-open /etc/modprobe.d/nvidia.conf"), None where none does
    module: Text
    # nouveau, nova: whether one of the free drivers, which take the card away, is loaded
    nouveau: Flag
    nova: Flag
    # libcuda, libml: the files behind the linker cache's libcuda.so.1 and libnvidia-ml.so.1 for
    # this machine's architecture
    libcuda: Text
    libml: Text
    # processes that have a GPU's device open, e.g. "pid 812 (python3)"; nvidia-persistenced is left
    # out
    users: Rows
    # state of nvidia-persistenced as systemd says it ("active", "masked"), None if there is no such
    # unit
    persistenced: Text
    persistenced_enabled: MaybeFlag  # whether it starts with the machine
    runfile: Flag  # whether NVIDIA's .run file installed a driver here, past the package manager
    # whether the key that DKMS signs modules with is enrolled in the firmware; None where Secure
    # Boot is off, or there is no such key, or no mokutil to ask
    mok: MaybeFlag
    # what the owner may not open, or run: of the GPUs' devices, the libraries that programs load,
    # and nvidia-smi
    closed: Rows


@dataclass(frozen=True, kw_only=True, slots=True)
class KernelRecord(Jsonable):
    """The kernels; "newest" is the one that the next boot takes unless somebody chose another."""

    installed: Rows  # kernels with a /boot/vmlinuz-KERNEL, oldest first by version
    # of the running and the newest kernel, the version of the module nvidia that modprobe would
    # load, None where there is none
    modules: Mapping[str, str | None] | Unknown
    # of the same two, whether /lib/modules/KERNEL/build leads to a Makefile
    headers: Mapping[str, bool] | Unknown
    sources: Rows  # versions of the driver whose module DKMS can build for a kernel to come
    # of the newest kernel (of the running one where /boot shows none): "absent"; "stale" where a
    # file in /etc/modprobe.d that blacklists nouveau or nova, or is ours, is newer; else "fresh".
    # Empty where no NVIDIA driver is wanted
    initramfs: Annotated[str, Field(pattern="^(fresh|stale|absent)?$")] | Unknown

    @property
    def newest(self) -> str | None:
        """The newest installed kernel; None where none is known."""
        return None if isinstance(self.installed, Unknown) else next(reversed(self.installed), None)


@dataclass(frozen=True, kw_only=True, slots=True)
class PackagesRecord(Jsonable):
    """What the package manager says."""

    # name -> version of those asked names that are completely installed
    installed: Mapping[str, str] | Unknown
    half_configured: Rows  # all packages that it is not done with
    lock_holder: Text  # the other process that holds its lock, e.g. "pid 123 (unattended-upgr)"
    settings: Text  # what it says of settings of its own that it cannot read, None where it can


@dataclass(frozen=True, kw_only=True, slots=True)
class NvidiaPackage(Jsonable):
    """One package that is installed, wholly or in part."""

    name: str  # with ":ARCHITECTURE" where that is not the machine's own
    version: str
    held: bool  # whether the package manager was told to leave it alone
    complete: bool  # whether the package manager is done with it


@dataclass(frozen=True, kw_only=True, slots=True)
class LostFile(Jsonable):
    """What became of a file that a package brought, or of the package manager's list of them."""

    package: str  # with ":ARCHITECTURE" where that is not the machine's own
    path: str
    # "gone"; "changed": it has another content; "linked": a link to another file stands in its
    # place; "closed": not everybody may read it, or run it; "emptied", of such a list
    state: Annotated[str, Field(pattern=_STATE)]

    def __str__(self) -> str:
        return f"{self.path} of {self.package} {_STATES[self.state]}"


@dataclass(frozen=True, kw_only=True, slots=True)
class NvidiaRecord(Jsonable):
    """The packages of driver, toolkit and their libraries."""

    packages: tuple[NvidiaPackage, ...] | Unknown  # those that are installed, by name
    # the enabled ones that name NVIDIA's repository, or the declared one
    sources: tuple[Source, ...] | Unknown
    # fingerprints (40 upper-case hexadecimal digits) of the primary keys in the keyring file of
    # ours, None if there is no such file
    keyring: tuple[str, ...] | Unknown | None
    # what the package manager did to them, to compilers and to kernels, newest last, the last 200
    # changes of the last two months or so (its log and the one before it); a password in an address
    # of a command line shows as ***
    history: tuple[PackageChange, ...] | Unknown
    # what packages of the driver and the declared toolkit brought and is no longer so, at most 50
    # files; configuration and documentation are not looked at
    lost: tuple[LostFile, ...] | Unknown

    def package(self, name: str) -> NvidiaPackage | None:
        """The package of that name; None where it is not installed or not told."""
        if isinstance(self.packages, Unknown):
            return None
        return next((package for package in self.packages if package.name == name), None)


@dataclass(frozen=True, kw_only=True, slots=True)
class CudaRecord(Jsonable):
    """The toolkits; "declared" is the release that the probe was asked for."""

    # releases with a folder /usr/local/cuda-RELEASE, e.g. ("13.0", "13.1")
    toolkits: tuple[Release, ...] | Unknown
    # files of the declared toolkit that should be there and are not, as paths in its folder; all of
    # them where there is no such folder, none where no release is declared
    missing: Rows
    nvcc: Release | Unknown | None  # release that the declared toolkit's nvcc names, e.g. "13.0"
    # what /usr/local/cuda finally leads to, e.g. "/usr/local/cuda-13.0"; the text of the link where
    # that is not there
    link: Text
    alternative: Text  # what /etc/alternatives/cuda points at; None if there is no such link
    nvcc_on_path: Text  # the file behind the first nvcc in the folders where a login shell looks
    # rows "FILE:LINE" of what login shells read that name a folder of CUDA's in a path, at most 9
    # of a file; comments are not among them
    shell_lines: Rows
    gcc: Version | Unknown | None  # version of gcc
    # version of the declared host compiler, None if none is declared or it is not there
    compiler: Version | Unknown | None
    gxx: Flag  # whether g++ is there, which nvcc links C++ with
    glibc: Version | Unknown | None  # version of the C library, e.g. "2.36"
    proof: Text  # raw text of what the last proof of the toolkit left


@dataclass(frozen=True, kw_only=True, slots=True)
class CacheEntry(Jsonable):
    """A line of `ldconfig -p` for this machine's architecture."""

    name: str  # e.g. "libcuda.so.1"
    path: str  # where the cache says it is
    real: str | None  # the file behind it, None where there is none


@dataclass(frozen=True, kw_only=True, slots=True)
class Link(Jsonable):
    """What stands at a path."""

    kind: Kind
    target: str | None  # the text of a link
    real: str | None  # the file it finally leads to, None where it dangles


@dataclass(frozen=True, kw_only=True, slots=True)
class LibcudaRecord(Jsonable):
    """The library."""

    # where this machine's packages put libraries, e.g. "/usr/lib/x86_64-linux-gnu"; empty where the
    # architecture is not known, and then all else about it is `Unknown`
    libdir: str
    # entries of libcuda.so.1, libcuda.so and libnvidia-ml.so.1 in the cache's order
    cache: tuple[CacheEntry, ...] | Unknown
    # what stands at libdir's libcuda.so, libcuda.so.1 and libnvidia-ml.so.1, and at the declared
    # toolkit's lib64/libcuda.so
    links: Mapping[str, Link] | Unknown
    files: Rows  # the regular files libdir/libcuda.so.*
    # folders that the loader is told to search and that hold a toolkit's stubs or compat libraries,
    # as "FILE: FOLDER"
    loader_paths: Rows
    proof: Text  # raw text of what the last proof of the library left


@dataclass(frozen=True, kw_only=True, slots=True)
class Reboot(Jsonable):
    """A reboot that we asked for: when, in seconds since 1970, in which boot, and what for."""

    at: int
    boot_id: str
    reason: str


@dataclass(frozen=True, kw_only=True, slots=True)
class PowerRecord(Jsonable):
    """What stands against a restart, beside processes on the GPUs."""

    # people at a terminal or a display, e.g. "alice on pts/0"; an SSH connection without a
    # terminal, as ours, is none
    sessions: Rows
    inhibitors: Rows  # locks that block a shutdown, e.g. "backup.service: nightly dump"
    # those that were asked for, and whose cause is not known to be gone
    reboots: tuple[Reboot, ...] | Unknown


@dataclass(frozen=True, kw_only=True, slots=True)
class StorageRecord(Jsonable):
    """All in MiB."""

    free_mib: Count  # what an ordinary user may still write where the prefix is, or will be
    # usr_mib, var_mib: the same for /usr and /var, None where no NVIDIA driver is wanted
    usr_mib: MaybeCount
    var_mib: MaybeCount
    boot_mib: MaybeCount  # the same for /boot, None where there is none, too
    initrd_mib: MaybeCount  # size of the largest initramfs there; 0 where there is none
    readonly: Text  # where a file system is mounted read-only that has to be written, None if none
    # where a file system in memory is mounted that a reboot must not empty, None if none
    volatile: Text
    # shm_mib, shm_free_mib: size and room of the file system that holds /dev/shm, None if there is
    # no /dev/shm
    shm_mib: MaybeCount
    shm_free_mib: MaybeCount
    shm_closed: Flag  # whether the owner may not write there
    # where a file system is mounted from which nothing of ours can be started, None if none
    noexec: Text
    # how many are free where the prefix is, or will be, by `prefix`, and at /usr and /var; without
    # file systems that have no fixed number
    inodes: Mapping[str, int] | Unknown


@dataclass(frozen=True, kw_only=True, slots=True)
class Entry(Jsonable):
    """What stands at one path; links are not followed."""

    kind: Kind
    mode: str | None = None  # four octal digits, e.g. "0755"
    owner: str | None = None  # name, or number where the user has no name
    sha256: Text = None  # of files up to 4 MiB
    size: int | None = None  # in bytes, of files
    target: Text = None  # where a link points


@dataclass(frozen=True, kw_only=True, slots=True)
class LayoutRecord(Jsonable):
    """The paths that were asked for."""

    # path -> what stands there; of what the owner can write, as the owner says
    entries: Mapping[str, Entry | Unknown] | Unknown
    # the first place on the way to the prefix that somebody else than root can change; None where
    # there is none, or where nothing is done as root
    open: Text = None
    # why nothing can be looked at as the owner; None where it can, or need not
    owner_problem: Text = None

    def entry(self, path: str) -> Entry | Unknown:
        """What stands at `path`; unknown if it was not asked for."""
        if isinstance(self.entries, Unknown):
            return self.entries
        return self.entries.get(path, Unknown(f"{path} was not looked at"))


@dataclass(frozen=True, kw_only=True, slots=True)
class TorchRecord(Jsonable):
    """The environment's Python, and torch by its files."""

    python: Text  # version that the environment's python prints; None if there is no environment
    # why that python does not run, None where it does (or where there is none)
    python_problem: Text
    base: Text  # the interpreter that the environment was made from, links followed
    # the same of the declared interpreter; None where it is not there, or is not declared by a path
    declared: Text
    uv: Text  # version of the installer
    # version, git_version, cuda: from torch/version.py; cuda is None for a build without CUDA
    version: Text
    git_version: Text
    cuda: Text
    # the first 5 of torch's files that are missing or have another size than recorded, or were
    # touched since the smoke test passed and have another digest than recorded
    damaged: Rows
    foreign: Rows  # the first 5 libraries in torch's folders that no wheel of its brought there
    # normalised name of another distribution -> the first of its files of which that is true; at
    # most 100 of them
    damaged_others: Mapping[str, str] | Unknown
    # where any of those is damaged, what torch needs to run, by its own metadata, and it
    needs: Rows
    # where `import torch` finds another one, as "NAME ORIGIN" with the file beside the packages
    # that leads there ("my.pth /tmp/torch/__init__.py"); None where it does not
    elsewhere: Text
    touched: Count  # how many files were touched since then whose digests a look has no time for
    installing: Flag  # whether an installation was begun and not finished
    # normalised name -> version of everything installed; a name that is there twice has both
    # versions in its value
    distributions: Mapping[str, str] | Unknown


@dataclass(frozen=True, kw_only=True, slots=True)
class BuildRecord(Jsonable):
    """What there is of builds on a host."""

    stamp: Manifest | Unknown | None  # of the torch that is installed
    wheel: Manifest | Unknown | None  # of the wheel that lies there
    state: BuildState | Unknown | None  # of the last build


@dataclass(frozen=True, kw_only=True, slots=True)
class EnvironmentRecord(Jsonable):
    """The environment."""

    # content of its file, which may hold secrets and is shown as names alone; None where there is
    # no such file (the layout tells what else may stand at that path, e.g. a folder)
    text: Hidden | Unknown | None
    # rows "FILE NAME" of the system's files that set variables for every login; not all names are
    # told, and no value
    for_all: Rows


@dataclass(frozen=True, kw_only=True, slots=True)
class TrainingRecord(Jsonable):
    """The checkout as it is."""

    # what HEAD is, 40 hex digits; None where there is no checkout, or no commit in it
    commit: Annotated[str, Field(pattern=r"^([0-9a-f]{40}|[0-9a-f]{64})$")] | Unknown | None
    remote: Text  # address of the remote "origin"
    dirty: Rows  # local changes in the form of `git status --porcelain`, at most 20 of them
    dirty_count: Count  # how many there are
    # the paths of those among `dirty` that are submodules, with changes inside
    dirty_submodules: Rows
    # those that are not there (lines that begin with "-") or at another commit than recorded ("+",
    # "U"), as `git submodule status` tells them, at most 20
    submodules: Rows
    damaged: Text  # what git says of a repository that it cannot read, None where it can
    # how many files of git LFS are still pointers; "-" where git-lfs is not on the host, None where
    # the repository has none
    lfs: Text
    # digest of the requirements file that was asked for
    requirements_sha256: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")] | Unknown | None
    stamp_text: Text  # raw text of the stamp that the dependencies' installation leaves


@dataclass(frozen=True, kw_only=True, slots=True)
class LauncherRecord(Jsonable):
    """What systemd has of it."""

    linger: Flag  # whether the owner's user manager runs without a login
    # whether it is on now, None where the kernel has no control groups of version 2
    manager: MaybeFlag
    masked: Rows  # files of the system's that forbid it, or a run's unit, to start
    own_masked: Rows  # of the owner's
    runs: Rows  # those that are on or wait for their GPUs, by name; the owner names them


@dataclass(frozen=True, kw_only=True, slots=True)
class SmokeRecord(Jsonable):
    """What the host wrote, read once; half a file, or a foreign one, is unknown."""

    stamp: Stamp | Unknown | None  # of the last pass
    verdict: Verdict | Unknown | None  # of the last run
    verdict_sha256: Text  # digest of the verdict's text, in hexadecimal; None where there is none


@dataclass(frozen=True, kw_only=True, slots=True)
class Record(Jsonable):
    """A host as one look saw it, one part per concern.

    In any field `None` means "it is not there" and `Unknown(reason)` "the host would not tell".
    """

    system: SystemRecord
    gpus: GpusRecord
    driver: DriverRecord
    kernel: KernelRecord
    packages: PackagesRecord
    nvidia: NvidiaRecord
    cuda: CudaRecord
    libcuda: LibcudaRecord
    power: PowerRecord
    storage: StorageRecord
    layout: LayoutRecord
    torch: TorchRecord
    build: BuildRecord
    environment: EnvironmentRecord
    training: TrainingRecord
    launcher: LauncherRecord
    smoke: SmokeRecord
