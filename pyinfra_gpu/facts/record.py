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
_STATE = f"^({'|'.join(_STATES)})$"


@dataclass(frozen=True, kw_only=True, slots=True)
class SystemRecord(Jsonable):
    """The machine as a whole.

    + os_id, os_version, os_name: ID, VERSION_ID and PRETTY_NAME of os-release
    + ram_mib: memory that the kernel can use, in MiB
    + init: "systemd" where systemd runs the machine, else the name of process 1
    + user: who logged in (before sudo); uid: as whom the probe ran
    + python3: version of the `python3` on PATH
    + preload: rows "STATE NAME" of what the loader loads into every program, by
      /etc/ld.so.preload; STATE is 1 where it is there, 0 where not, - where only the loader knows
    + preload_problem: what the loader says where it cannot load all of that, for root or the owner
    + secure_boot: None where the machine was not booted through EFI
    """

    os_id: str | Unknown | None
    os_version: str | Unknown | None
    os_name: str | Unknown | None
    kernel: str | Unknown
    architecture: str | Unknown
    boot_id: str | Unknown
    cpu_count: int | Unknown
    ram_mib: int | Unknown
    init: str | Unknown
    hostname: str | Unknown
    user: str | Unknown
    uid: int | Unknown
    python3: str | Unknown | None
    secure_boot: bool | Unknown | None
    preload: tuple[str, ...] | Unknown
    preload_problem: str | Unknown | None


@dataclass(frozen=True, kw_only=True, slots=True)
class PciGpu(Jsonable):
    """One controller.

    + address: e.g. "0000:01:00.0"; vendor, device, class_: as the kernel prints them ("0x10de")
    + driver: name of the kernel driver bound to it, None if there is none
    + bar1_mib: size of the window onto the GPU's memory, None if the firmware assigned none
    """

    address: str
    vendor: str
    device: str
    class_: str
    driver: str | Unknown | None
    bar1_mib: int | Unknown | None


@dataclass(frozen=True, kw_only=True, slots=True)
class GpusRecord(Jsonable):
    """All of them, in the order of their addresses."""

    devices: tuple[PciGpu, ...] | Unknown


@dataclass(frozen=True, kw_only=True, slots=True)
class DriverRecord(Jsonable):
    """The driver's parts, which need not agree.

    + loaded: version of the module in the running kernel, None if it is not loaded
    + open_modules: whether the loaded module is the open one
    + on_disk: version of the module that modprobe would load into the running kernel, None if
      there is none; on_disk_open: whether that one is the open one
    + module: what `modprobe nvidia` really loads where a rule of modprobe.d says so, as "NAME FILE"
      with the file of the rule ("nvidia-current-open /etc/modprobe.d/nvidia.conf"), None where none
      does
    + nouveau, nova: whether one of the free drivers, which take the card away, is loaded
    + libcuda, libml: the files behind the linker cache's libcuda.so.1 and libnvidia-ml.so.1 for
      this machine's architecture
    + users: processes that have a GPU's device open, e.g. "pid 812 (python3)"; nvidia-persistenced
      is left out
    + persistenced: state of nvidia-persistenced as systemd says it ("active", "masked"), None if
      there is no such unit; persistenced_enabled: whether it starts with the machine
    + runfile: whether NVIDIA's .run file installed a driver here, past the package manager
    + closed: what the owner may not open, or run: of the GPUs' devices, the libraries that programs
      load, and nvidia-smi
    + mok: whether the key that DKMS signs modules with is enrolled in the firmware; None where
      Secure Boot is off, or there is no such key, or no mokutil to ask
    """

    loaded: str | Unknown | None
    open_modules: bool | Unknown | None
    on_disk: str | Unknown | None
    on_disk_open: bool | Unknown | None
    module: str | Unknown | None
    nouveau: bool | Unknown
    nova: bool | Unknown
    libcuda: str | Unknown | None
    libml: str | Unknown | None
    users: tuple[str, ...] | Unknown
    persistenced: str | Unknown | None
    persistenced_enabled: bool | Unknown | None
    runfile: bool | Unknown
    mok: bool | Unknown | None
    closed: tuple[str, ...] | Unknown


@dataclass(frozen=True, kw_only=True, slots=True)
class KernelRecord(Jsonable):
    """The kernels; "newest" is the one that the next boot takes unless somebody chose another.

    + installed: kernels with a /boot/vmlinuz-KERNEL, oldest first by version
    + modules: of the running and the newest kernel, the version of the module nvidia that
      modprobe would load, None where there is none
    + headers: of the same two, whether /lib/modules/KERNEL/build leads to a Makefile
    + sources: versions of the driver whose module DKMS can build for a kernel to come
    + initramfs: of the newest kernel (of the running one where /boot shows none): "absent";
      "stale" where a file in /etc/modprobe.d that blacklists nouveau or nova, or is ours, is
      newer; else "fresh". Empty where no NVIDIA driver is wanted
    """

    installed: tuple[str, ...] | Unknown
    modules: Mapping[str, str | None] | Unknown
    headers: Mapping[str, bool] | Unknown
    sources: tuple[str, ...] | Unknown
    initramfs: Annotated[str, Field(pattern="^(fresh|stale|absent)?$")] | Unknown

    @property
    def newest(self) -> str | None:
        """The newest installed kernel; None where none is known."""
        return None if isinstance(self.installed, Unknown) else next(reversed(self.installed), None)


@dataclass(frozen=True, kw_only=True, slots=True)
class PackagesRecord(Jsonable):
    """What the package manager says.

    + installed: name -> version of those asked names that are completely installed
    + half_configured: all packages that it is not done with
    + settings: what it says of settings of its own that it cannot read, None where it can
    + lock_holder: the other process that holds its lock, e.g. "pid 123 (unattended-upgr)"
    """

    installed: Mapping[str, str] | Unknown
    half_configured: tuple[str, ...] | Unknown
    lock_holder: str | Unknown | None
    settings: str | Unknown | None


@dataclass(frozen=True, kw_only=True, slots=True)
class NvidiaPackage(Jsonable):
    """One package that is installed, wholly or in part.

    + name: with ":ARCHITECTURE" where that is not the machine's own
    + held: whether the package manager was told to leave it alone
    + complete: whether the package manager is done with it
    """

    name: str
    version: str
    held: bool
    complete: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class LostFile(Jsonable):
    """A file that a package brought, or the package manager's list of them, and what became of it.

    + package: with ":ARCHITECTURE" where that is not the machine's own
    + state: "gone"; "changed": it has another content; "linked": a link to another file stands in
      its place; "closed": not everybody may read it, or run it; "emptied", of such a list
    """

    package: str
    path: str
    state: Annotated[str, Field(pattern=_STATE)]

    def __str__(self) -> str:
        return f"{self.path} of {self.package} {_STATES[self.state]}"


@dataclass(frozen=True, kw_only=True, slots=True)
class NvidiaRecord(Jsonable):
    """The packages of driver, toolkit and their libraries.

    + packages: those that are installed, by name
    + sources: the enabled ones that name NVIDIA's repository, or the declared one
    + keyring: fingerprints (40 upper-case hexadecimal digits) of the primary keys in the keyring
      file of ours, None if there is no such file
    + history: what the package manager did to them, to compilers and to kernels, newest last, the
      last 200 changes of the last two months or so (its log and the one before it); a password in
      an address of a command line shows as ***
    + lost: what packages of the driver and the declared toolkit brought and is no longer so, at
      most 50 files; configuration and documentation are not looked at
    """

    packages: tuple[NvidiaPackage, ...] | Unknown
    sources: tuple[Source, ...] | Unknown
    keyring: tuple[str, ...] | Unknown | None
    history: tuple[PackageChange, ...] | Unknown
    lost: tuple[LostFile, ...] | Unknown

    def package(self, name: str) -> NvidiaPackage | None:
        """The package of that name; None where it is not installed or not told."""
        if isinstance(self.packages, Unknown):
            return None
        return next((package for package in self.packages if package.name == name), None)


@dataclass(frozen=True, kw_only=True, slots=True)
class CudaRecord(Jsonable):
    """The toolkits; "declared" is the release that the probe was asked for.

    + toolkits: releases with a folder /usr/local/cuda-RELEASE, e.g. ("13.0", "13.1")
    + missing: files of the declared toolkit that should be there and are not, as paths in its
      folder; all of them where there is no such folder, none where no release is declared
    + nvcc: release that the declared toolkit's nvcc names, e.g. "13.0"
    + link: what /usr/local/cuda finally leads to, e.g. "/usr/local/cuda-13.0"; the text of the
      link where that is not there
    + alternative: what /etc/alternatives/cuda points at; None if there is no such link
    + nvcc_on_path: the file behind the first nvcc in the folders where a login shell looks
    + shell_lines: rows "FILE:LINE" of what login shells read that name a folder of CUDA's in a
      path, at most 9 of a file; comments are not among them
    + gcc: version of gcc; compiler: version of the declared host compiler, None if none is
      declared or it is not there; gxx: whether g++ is there, which nvcc links C++ with
    + glibc: version of the C library, e.g. "2.36"
    + proof: raw text of what the last proof of the toolkit left
    """

    toolkits: tuple[Release, ...] | Unknown
    missing: tuple[str, ...] | Unknown
    nvcc: Release | Unknown | None
    link: str | Unknown | None
    alternative: str | Unknown | None
    nvcc_on_path: str | Unknown | None
    shell_lines: tuple[str, ...] | Unknown
    gcc: Version | Unknown | None
    compiler: Version | Unknown | None
    gxx: bool | Unknown
    glibc: Version | Unknown | None
    proof: str | Unknown | None


@dataclass(frozen=True, kw_only=True, slots=True)
class CacheEntry(Jsonable):
    """A line of `ldconfig -p` for this machine's architecture.

    + name: e.g. "libcuda.so.1"; path: where the cache says it is
    + real: the file behind it, None where there is none
    """

    name: str
    path: str
    real: str | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Link(Jsonable):
    """What stands at a path.

    + target: the text of a link; real: the file it finally leads to, None where it dangles
    """

    kind: Kind
    target: str | None
    real: str | None


@dataclass(frozen=True, kw_only=True, slots=True)
class LibcudaRecord(Jsonable):
    """The library.

    + libdir: where this machine's packages put libraries, e.g. "/usr/lib/x86_64-linux-gnu"; empty
      where the architecture is not known, and then all else about it is `Unknown`
    + cache: entries of libcuda.so.1, libcuda.so and libnvidia-ml.so.1 in the cache's order
    + links: what stands at libdir's libcuda.so, libcuda.so.1 and libnvidia-ml.so.1, and at the
      declared toolkit's lib64/libcuda.so
    + files: the regular files libdir/libcuda.so.*
    + loader_paths: folders that the loader is told to search and that hold a toolkit's stubs or
      compat libraries, as "FILE: FOLDER"
    + proof: raw text of what the last proof of the library left
    """

    libdir: str
    cache: tuple[CacheEntry, ...] | Unknown
    links: Mapping[str, Link] | Unknown
    files: tuple[str, ...] | Unknown
    loader_paths: tuple[str, ...] | Unknown
    proof: str | Unknown | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Reboot(Jsonable):
    """A reboot that we asked for: when, in seconds since 1970, in which boot, and what for."""

    at: int
    boot_id: str
    reason: str


@dataclass(frozen=True, kw_only=True, slots=True)
class PowerRecord(Jsonable):
    """What stands against a restart, beside processes on the GPUs.

    + sessions: people at a terminal or a display, e.g. "alice on pts/0"; an SSH connection
      without a terminal, as ours, is none
    + inhibitors: locks that block a shutdown, e.g. "backup.service: nightly dump"
    + reboots: those that were asked for, and whose cause is not known to be gone
    """

    sessions: tuple[str, ...] | Unknown
    inhibitors: tuple[str, ...] | Unknown
    reboots: tuple[Reboot, ...] | Unknown


@dataclass(frozen=True, kw_only=True, slots=True)
class StorageRecord(Jsonable):
    """All in MiB.

    + free_mib: what an ordinary user may still write where the prefix is, or will be
    + usr_mib, var_mib: the same for /usr and /var, None where no NVIDIA driver is wanted
    + boot_mib: the same for /boot, None where there is none, too
    + inodes: how many are free where the prefix is, or will be, by `prefix`, and at /usr and /var;
      without file systems that have no fixed number
    + initrd_mib: size of the largest initramfs there; 0 where there is none
    + readonly: where a file system is mounted read-only that has to be written, None if none
    + volatile: where a file system in memory is mounted that a reboot must not empty, None if none
    + noexec: where a file system is mounted from which nothing of ours can be started, None if none
    + shm_mib, shm_free_mib: size and room of the file system that holds /dev/shm, None if there is
      no /dev/shm
    + shm_closed: whether the owner may not write there
    """

    free_mib: int | Unknown
    usr_mib: int | Unknown | None
    var_mib: int | Unknown | None
    boot_mib: int | Unknown | None
    initrd_mib: int | Unknown | None
    readonly: str | Unknown | None
    volatile: str | Unknown | None
    shm_mib: int | Unknown | None
    shm_free_mib: int | Unknown | None
    shm_closed: bool | Unknown
    noexec: str | Unknown | None
    inodes: Mapping[str, int] | Unknown


@dataclass(frozen=True, kw_only=True, slots=True)
class Entry(Jsonable):
    """What stands at one path; links are not followed.

    + mode: four octal digits, e.g. "0755"; owner: name, or number where the user has no name
    + sha256: of files up to 4 MiB; size: in bytes, of files; target: where a link points
    """

    kind: Kind
    mode: str | None = None
    owner: str | None = None
    sha256: str | Unknown | None = None
    size: int | None = None
    target: str | Unknown | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class LayoutRecord(Jsonable):
    """The paths that were asked for.

    + entries: path -> what stands there; of what the owner can write, as the owner says
    + open: the first place on the way to the prefix that somebody else than root can change; None
      where there is none, or where nothing is done as root
    + owner_problem: why nothing can be looked at as the owner; None where it can, or need not
    """

    entries: Mapping[str, Entry | Unknown] | Unknown
    open: str | Unknown | None = None
    owner_problem: str | Unknown | None = None

    def entry(self, path: str) -> Entry | Unknown:
        """What stands at `path`; unknown if it was not asked for."""
        if isinstance(self.entries, Unknown):
            return self.entries
        return self.entries.get(path, Unknown(f"{path} was not looked at"))


@dataclass(frozen=True, kw_only=True, slots=True)
class TorchRecord(Jsonable):
    """The environment's Python, and torch by its files.

    + python: version that the environment's python prints; None if there is no environment
    + python_problem: why that python does not run, None where it does (or where there is none)
    + base: the interpreter that the environment was made from, links followed
    + declared: the same of the declared interpreter; None where it is not there, or is not declared
      by a path
    + uv: version of the installer
    + version, git_version, cuda: from torch/version.py; cuda is None for a build without CUDA
    + damaged: the first 5 of torch's files that are missing or have another size than recorded, or
      were touched since the smoke test passed and have another digest than recorded
    + foreign: the first 5 libraries in torch's folders that no wheel of its brought there
    + damaged_others: normalised name of another distribution -> the first of its files of which
      that is true; at most 100 of them
    + elsewhere: where `import torch` finds another one, as "NAME ORIGIN" with the file beside the
      packages that leads there ("my.pth /tmp/torch/__init__.py"); None where it does not
    + touched: how many files were touched since then whose digests a look has no time for
    + needs: where any of those is damaged, what torch needs to run, by its own metadata, and it
    + installing: whether an installation was begun and not finished
    + distributions: normalised name -> version of everything installed; a name that is there
      twice has both versions in its value
    """

    python: str | Unknown | None
    python_problem: str | Unknown | None
    base: str | Unknown | None
    declared: str | Unknown | None
    uv: str | Unknown | None
    version: str | Unknown | None
    git_version: str | Unknown | None
    cuda: str | Unknown | None
    damaged: tuple[str, ...] | Unknown
    foreign: tuple[str, ...] | Unknown
    damaged_others: Mapping[str, str] | Unknown
    needs: tuple[str, ...] | Unknown
    elsewhere: str | Unknown | None
    touched: int | Unknown
    installing: bool | Unknown
    distributions: Mapping[str, str] | Unknown


@dataclass(frozen=True, kw_only=True, slots=True)
class BuildRecord(Jsonable):
    """What there is of builds on a host.

    + stamp: of the torch that is installed; wheel: of the wheel that lies there
    + state: of the last build; pid: of the process that builds now
    """

    stamp: Manifest | Unknown | None
    wheel: Manifest | Unknown | None
    state: BuildState | Unknown | None
    pid: str | Unknown | None


@dataclass(frozen=True, kw_only=True, slots=True)
class EnvironmentRecord(Jsonable):
    """The environment.

    + text: content of its file, which may hold secrets and is shown as names alone; None where
      there is no such file (the layout tells what else may stand at that path, e.g. a folder)
    + for_all: rows "FILE NAME" of the system's files that set variables for every login; not all
      names are told, and no value
    """

    text: Hidden | Unknown | None
    for_all: tuple[str, ...] | Unknown


@dataclass(frozen=True, kw_only=True, slots=True)
class TrainingRecord(Jsonable):
    """The checkout as it is.

    + commit: what HEAD is, 40 hex digits; None where there is no checkout, or no commit in it
    + remote: address of the remote "origin"
    + dirty: local changes in the form of `git status --porcelain`, at most 20 of them
    + dirty_count: how many there are
    + dirty_submodules: the paths of those among `dirty` that are submodules, with changes inside
    + submodules: those that are not there (lines that begin with "-") or at another commit than
      recorded ("+", "U"), as `git submodule status` tells them, at most 20
    + damaged: what git says of a repository that it cannot read, None where it can
    + lfs: how many files of git LFS are still pointers; "-" where git-lfs is not on the host, None
      where the repository has none
    + requirements_sha256: digest of the requirements file that was asked for
    + stamp_text: raw text of the stamp that the dependencies' installation leaves
    """

    commit: Annotated[str, Field(pattern=r"^([0-9a-f]{40}|[0-9a-f]{64})$")] | Unknown | None
    remote: str | Unknown | None
    dirty: tuple[str, ...] | Unknown
    dirty_count: int | Unknown
    dirty_submodules: tuple[str, ...] | Unknown
    submodules: tuple[str, ...] | Unknown
    damaged: str | Unknown | None
    lfs: str | Unknown | None
    requirements_sha256: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")] | Unknown | None
    stamp_text: str | Unknown | None


@dataclass(frozen=True, kw_only=True, slots=True)
class LauncherRecord(Jsonable):
    """What systemd has of it.

    + linger: whether the owner's user manager runs without a login
    + manager: whether it is on now, None where the kernel has no control groups of version 2
    + masked: files of the system's that forbid it, or a run's unit, to start; own_masked: of the
      owner's
    + runs: those that are on or wait for their GPUs, by name; the owner names them
    """

    linger: bool | Unknown
    manager: bool | Unknown | None
    masked: tuple[str, ...] | Unknown
    own_masked: tuple[str, ...] | Unknown
    runs: tuple[str, ...] | Unknown


@dataclass(frozen=True, kw_only=True, slots=True)
class SmokeRecord(Jsonable):
    """What the host wrote, read once; half a file, or a foreign one, is unknown.

    + stamp: of the last pass; verdict: of the last run
    + verdict_sha256: digest of the verdict's text, in hexadecimal; None where there is none
    """

    stamp: Stamp | Unknown | None
    verdict: Verdict | Unknown | None
    verdict_sha256: str | Unknown | None


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
