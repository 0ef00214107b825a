"""A host as one look saw it: one frozen record, with a part for each concern.

In any field `None` means "it is not there" and `Unknown(reason)` "the host would not tell". The
probe tells a field under "PART.FIELD" (its tables in `on_host/probe` say how it is found out) in
the type that stands here; what has another type, or is not told, is `Unknown` in that field alone.
A default is what is known of a host where no NVIDIA driver is wanted, and so nobody looked.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, PlainValidator

from pyinfra_gpu.facts.fields import TEXT_LIMIT, Unknown, as_json
from pyinfra_gpu.facts.openpgp import fingerprints
from pyinfra_gpu.facts.pytorch_build import BuildState, Built, Wheel
from pyinfra_gpu.facts.verdict import Stamp, Verdict
from pyinfra_gpu.packages.model import PackageChange, Source
from pyinfra_gpu.text import visible

SHARED_MEMORY = "/dev/shm"  # noqa: S108 - the kernel's own, where nothing of ours is written


def _keys(digits: str) -> tuple[str, ...] | Unknown:
    return fingerprints(bytes.fromhex(digits))


def _made(make: Callable[[str], Any]) -> PlainValidator:
    """Return what makes a field of a text that was told; None stays."""

    def read(reported: object) -> Any:
        if reported is not None and not (
            isinstance(reported, str) and len(reported) <= 2 * TEXT_LIMIT
        ):
            raise ValueError("it is no text, or too long")
        return reported if reported is None else make(reported)

    return PlainValidator(read)


Str = Annotated[str, AfterValidator(visible)]
"""A text without anything that would move a cursor."""
Whole = Annotated[str, Field(max_length=TEXT_LIMIT)]
"""The text of a file, as it is."""
Kind = Literal["file", "dir", "link", "other", "absent"]
Version = Annotated[str, Field(pattern=r"^[0-9]{1,9}(\.[0-9]{1,9}){0,5}$")]
Release = Annotated[str, Field(pattern=r"^[0-9]{1,4}\.[0-9]{1,4}$")]
Commit = Annotated[str, Field(pattern=r"^([0-9a-f]{40}|[0-9a-f]{64})$")]
Digest = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
Distribution = Annotated[str, Field(pattern=r"^[a-z0-9]([a-z0-9-]*[a-z0-9])?$")]
RunName = Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]{1,80}$")]
Text = Str | Unknown | None
Word = Str | Unknown
Rows = tuple[Str, ...] | Unknown
Flag = bool | Unknown
MaybeFlag = bool | Unknown | None
Count = int | Unknown
MaybeCount = int | Unknown | None


@dataclass(frozen=True, kw_only=True, slots=True)
class SystemRecord:
    """The machine as a whole."""

    # os_id, os_version, os_name: ID, VERSION_ID and PRETTY_NAME of os-release
    os_id: Text
    os_version: Text
    os_name: Text
    kernel: Word
    architecture: Word
    boot_id: Word
    hostname: Word
    cpu_count: Count
    ram_mib: Count  # memory that the kernel can use
    init: Word  # "systemd" where systemd runs the machine, else the name of process 1
    user: Word  # who logged in (before sudo)
    python3: Text  # version of the `python3` on PATH
    secure_boot: MaybeFlag  # None where the machine was not booted through EFI

    @property
    def libdir(self) -> str:
        """Where packages put libraries; "" where that is not known."""
        known = isinstance(self.architecture, str)
        return f"/usr/lib/{self.architecture}-linux-gnu" if known else ""


@dataclass(frozen=True, kw_only=True, slots=True)
class PciGpu:
    """One controller."""

    address: Str  # e.g. "0000:01:00.0"
    pci_id: Str  # e.g. "10de:2b85"
    driver: Text  # name of the kernel driver bound to it
    bar1: Flag  # whether the firmware gave it a window onto the GPU's memory


@dataclass(frozen=True, kw_only=True, slots=True)
class GpusRecord:
    """All of them, in the order of their addresses."""

    devices: tuple[PciGpu, ...] | Unknown


@dataclass(frozen=True, kw_only=True, slots=True)
class DriverRecord:
    """The driver's parts, which need not agree."""

    loaded: Text  # version of the module in the running kernel
    open_modules: MaybeFlag  # whether the loaded module is the open one
    on_disk: Text  # version of the module that modprobe would load into the running kernel
    # nouveau, nova: whether one of the free drivers, which take the card away, is loaded
    nouveau: Flag
    nova: Flag
    # libcuda, libml: the files behind the linker cache's libcuda.so.1 and libnvidia-ml.so.1 for
    # this machine's architecture
    libcuda: Text
    libml: Text
    users: Rows = ()  # who has a GPU's device open, e.g. "pid 812 (python3)"
    # state of nvidia-persistenced as systemd says it ("active", "masked"), None if there is none
    persistenced: Text = None
    persistenced_enabled: MaybeFlag = None  # whether it starts with the machine
    runfile: Flag = False  # whether NVIDIA's .run file installed it, past the package manager
    # whether the key that DKMS signs modules with is enrolled in the firmware; None where Secure
    # Boot is off, or there is no such key, or no mokutil to ask
    mok: MaybeFlag = None
    closed: Rows = ()  # what the owner may not open, or run: devices, libraries, nvidia-smi


@dataclass(frozen=True, kw_only=True, slots=True)
class KernelRecord:
    """The kernels; "newest" is the one that the next boot takes unless somebody chose another."""

    installed: Rows = ()  # kernels with a /boot/vmlinuz-KERNEL, oldest first by version
    # of the running and the newest kernel, the version of the module that modprobe would load
    modules: Mapping[Str, Str | None] | Unknown = field(default_factory=dict)
    # of the same two, whether /lib/modules/KERNEL/build leads to a Makefile
    headers: Mapping[Str, bool] | Unknown = field(default_factory=dict)
    # of the newest kernel (of the running one where /boot shows none): "stale" where our
    # rules against nouveau and nova are newer
    initramfs: Literal["", "fresh", "stale", "absent"] | Unknown = ""

    @property
    def newest(self) -> str | None:
        """The newest installed kernel; None where none is known."""
        return None if isinstance(self.installed, Unknown) else next(reversed(self.installed), None)


@dataclass(frozen=True, kw_only=True, slots=True)
class PackagesRecord:
    """What the package manager says."""

    installed: Mapping[Str, Str] | Unknown  # name -> version of those asked for, if complete
    half_configured: Rows  # all packages that it is not done with
    lock_holder: Text  # the other process that holds its lock, e.g. "pid 123 (unattended-upgr)"


@dataclass(frozen=True, kw_only=True, slots=True)
class NvidiaPackage:
    """One package that is installed, wholly or in part."""

    name: Str  # with ":ARCHITECTURE" where that is not the machine's own
    version: Str
    held: bool  # whether the package manager was told to leave it alone
    complete: bool  # whether the package manager is done with it


@dataclass(frozen=True, kw_only=True, slots=True)
class LostFile:
    """What became of a file that a package brought."""

    package: Str  # with ":ARCHITECTURE" where that is not the machine's own
    path: Str
    state: Literal["gone", "changed"]

    def __str__(self) -> str:
        was = "is gone" if self.state == "gone" else "was changed"
        return f"{self.path} of {self.package} {was}"


@dataclass(frozen=True, kw_only=True, slots=True)
class NvidiaRecord:
    """The packages of driver, toolkit and their libraries."""

    packages: tuple[NvidiaPackage, ...] | Unknown = ()  # those that are installed, by name
    sources: tuple[Source, ...] | Unknown = ()  # all that are enabled
    # fingerprints (40 upper-case hexadecimal digits) of the primary keys in the keyring file of
    # ours, None if there is no such file
    keyring: Annotated[tuple[str, ...] | Unknown | None, _made(_keys)] = None
    # what the package manager did to them, to compilers and to kernels, newest last, the last 200
    # changes of the last two months or so; a password in a command line's address shows as ***
    history: tuple[PackageChange, ...] | Unknown = ()
    # what packages of the driver and the declared toolkit brought and is no longer so, at most
    # three files of each; configuration and documentation are not looked at
    lost: tuple[LostFile, ...] | Unknown = ()

    def package(self, name: str) -> NvidiaPackage | None:
        """The package of that name; None where it is not installed or not told."""
        if isinstance(self.packages, Unknown):
            return None
        return next((package for package in self.packages if package.name == name), None)


@dataclass(frozen=True, kw_only=True, slots=True)
class CudaRecord:
    """The toolkits; "declared" is the release that the probe was asked for."""

    toolkits: tuple[Release, ...] | Unknown = ()  # those with a folder /usr/local/cuda-RELEASE
    # files of the declared toolkit that should be there and are not, as paths in its folder
    missing: Rows = ()
    nvcc: Release | Unknown | None = None  # release that the declared toolkit's nvcc names
    # what /usr/local/cuda finally leads to; the text of the link where that is not there
    link: Text = None
    alternative: Text = None  # what /etc/alternatives/cuda points at
    nvcc_on_path: Text = None  # the file behind the first nvcc where a login shell looks
    gcc: Version | Unknown | None = None
    compiler: Version | Unknown | None = None  # version of the declared host compiler
    proof: Whole | Unknown | None = None  # what the last proof of the toolkit left


@dataclass(frozen=True, kw_only=True, slots=True)
class CacheEntry:
    """A line of `ldconfig -p` for this machine's architecture."""

    name: Str  # e.g. "libcuda.so.1"
    path: Str  # where the cache says it is
    real: Str | None  # the file behind it


@dataclass(frozen=True, kw_only=True, slots=True)
class Link:
    """What stands at a path."""

    kind: Kind
    target: Str | None  # the text of a link
    real: Str | None  # the file it finally leads to, None where it dangles


@dataclass(frozen=True, kw_only=True, slots=True)
class LibcudaRecord:
    """The library."""

    # entries of libcuda.so.1, libcuda.so and libnvidia-ml.so.1 in the cache's order
    cache: tuple[CacheEntry, ...] | Unknown = ()
    # what stands at libdir's libcuda.so, libcuda.so.1 and libnvidia-ml.so.1, and at the declared
    # toolkit's lib64/libcuda.so
    links: Mapping[Str, Link] | Unknown = field(default_factory=dict)
    # folders that the loader is told to search and that hold a toolkit's stubs or compat libraries,
    # as "FILE: FOLDER"
    loader_paths: Rows = ()
    proof: Whole | Unknown | None = None  # what the last proof of the library left


@dataclass(frozen=True, kw_only=True, slots=True)
class Reboot:
    """A reboot that we asked for: when, in seconds since 1970, in which boot, and what for."""

    at: int
    boot_id: Str
    reason: Str


@dataclass(frozen=True, kw_only=True, slots=True)
class PowerRecord:
    """What stands against a restart, beside processes on the GPUs."""

    sessions: Rows = ()  # people at a terminal or a display, e.g. "alice on pts/0"
    inhibitors: Rows = ()  # locks that block a shutdown, e.g. "backup.service: nightly dump"
    # those that were asked for, and whose cause is not known to be gone
    reboots: tuple[Reboot, ...] | Unknown = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class StorageRecord:
    """All in MiB."""

    free_mib: Count  # what an ordinary user may still write where the prefix is, or will be
    usr_mib: MaybeCount = None
    var_mib: MaybeCount = None
    boot_mib: MaybeCount = None
    initrd_mib: MaybeCount = None  # size of the largest initramfs there; 0 where there is none
    readonly: Text  # where a file system is mounted read-only that has to be written
    # shm_mib, shm_free_mib: size and room of the file system that holds /dev/shm
    shm_mib: MaybeCount
    shm_free_mib: MaybeCount
    noexec: Text  # where a file system is mounted from which nothing of ours can be started


@dataclass(frozen=True, kw_only=True, slots=True)
class Entry:
    """What stands at one path; links are not followed."""

    kind: Kind
    mode: Str | None = None  # four octal digits, e.g. "0755"
    owner: Str | None = None  # name, or number where the user has no name
    sha256: Text = None  # of files up to 4 MiB
    size: int | None = None  # in bytes, of files
    target: Text = None  # where a link points


@dataclass(frozen=True, kw_only=True, slots=True)
class LayoutRecord:
    """The paths that were asked for."""

    # path -> what stands there; of what the owner can write, as the owner says
    entries: Mapping[Str, Entry | Unknown] | Unknown
    # the first place on the way to the prefix that somebody else than root can change; None where
    # there is none, or where nothing is done as root
    open: Text = None
    owner_problem: Text = None  # why nothing can be looked at as the owner

    def entry(self, path: str) -> Entry | Unknown:
        """What stands at `path`; unknown if it was not asked for."""
        if isinstance(self.entries, Unknown):
            return self.entries
        return self.entries.get(path, Unknown(f"{path} was not looked at"))


@dataclass(frozen=True, kw_only=True, slots=True)
class TorchRecord:
    """The environment's Python, and torch by its files."""

    python: Text  # version that the environment's python prints; None if there is no environment
    python_problem: Text  # why that python does not run
    base: Text  # the interpreter that the environment was made from, links followed
    declared: Text  # the same of the declared interpreter, where that is declared by a path
    uv: Text  # version of the installer
    version: Text  # by torch/version.py, as is
    git_version: Text
    # the first 5 of torch's files that are missing or have another size than recorded, or were
    # touched since the smoke test passed and have another digest than recorded
    damaged: Rows
    foreign: Rows  # the first 5 libraries in torch's folders that no wheel of its brought there
    # name of another distribution -> the first of its files of which that is true; at most 100
    damaged_others: Mapping[Distribution, Str] | Unknown
    needs: Rows  # where any is damaged, what torch needs to run, by its own metadata, and it
    # where `import torch` finds another one, as "NAME ORIGIN" with the file beside the packages
    # that leads there ("my.pth /tmp/torch/__init__.py")
    elsewhere: Text
    touched: Count  # how many files were touched since then whose digests a look has no time for
    installing: Flag  # whether an installation was begun and not finished
    # normalised name -> version of everything installed, or both versions of what is there twice
    distributions: Mapping[Str, Str] | Unknown


@dataclass(frozen=True, kw_only=True, slots=True)
class BuildRecord:
    """What there is of builds on a host."""

    # stamp: of the torch that is installed; wheel: the one that was built there
    stamp: Annotated[Built | Unknown | None, _made(Built.read)]
    wheel: Annotated[Wheel | Unknown | None, _made(Wheel.read)]
    state: BuildState | Unknown | None  # of the last build


@dataclass(frozen=True, kw_only=True, slots=True)
class EnvironmentRecord:
    """The environment."""

    # rows "FILE NAME" of variables that logins get by files of the system's; never a value
    for_all: Rows


@dataclass(frozen=True, kw_only=True, slots=True)
class TrainingRecord:
    """The checkout as it is."""

    commit: Commit | Unknown | None  # HEAD; None where there is no checkout, or no commit in it
    dirty: Rows  # local changes in the form of `git status --porcelain`, at most 20 of them
    dirty_count: Count  # how many there are
    # those that are not there (lines that begin with "-") or at another commit than recorded ("+",
    # "U"), as `git submodule status` tells them, at most 20
    submodules: Rows
    damaged: Text  # what git says of a repository that it cannot read
    # how many files of git LFS are still pointers; "-" where git-lfs is not on the host, None where
    # the repository has none
    lfs: Text
    requirements_sha256: Digest | Unknown | None  # of the file that was asked for
    stamp_text: Whole | Unknown | None  # what the dependencies' installation leaves


@dataclass(frozen=True, kw_only=True, slots=True)
class LauncherRecord:
    """What systemd has of it."""

    linger: Flag  # whether the owner's user manager runs without a login
    manager: MaybeFlag  # whether it is on now, None without control groups of version 2
    runs: tuple[RunName, ...] | Unknown  # those that are on or wait for their GPUs


@dataclass(frozen=True, kw_only=True, slots=True)
class SmokeRecord:
    """What the host wrote, read once; half a file, or a foreign one, is unknown."""

    stamp: Annotated[Stamp | Unknown | None, _made(Stamp.read)]  # of the last pass
    verdict: Annotated[Verdict | Unknown | None, _made(Verdict.read)]  # of the last run
    verdict_sha256: Text  # digest of the verdict's text


@dataclass(frozen=True, kw_only=True, slots=True)
class Record:
    """A host as one look saw it, one part per concern."""

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

    def to_json(self) -> object:
        """The form in which pyinfra prints a fact: an unknown field is `{"unknown": reason}`."""
        return as_json(self)
