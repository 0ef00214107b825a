"""Everything that one host should be: one frozen model per concern, together a HostSpec.

A data key is one field that `key` declares; its name is the section's prefix and the field's name.
Fields without a key are derived, in `resolving.py`. Pydantic checks each, by types of
`types.py` where Python has none.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import reduce
from typing import Annotated, Any, ClassVar, Literal, Self, get_args, get_origin

from pydantic import BaseModel, ConfigDict, Field
from pydantic.fields import FieldInfo

from pyinfra_gpu.on_host.smoke.options import LARGEST_MIB
from pyinfra_gpu.spec import types as t
from pyinfra_gpu.spec.lock import Lock
from pyinfra_gpu.spec.paths import Paths
from pyinfra_gpu.spec.presets import Command, Presets
from pyinfra_gpu.stacks import catalogue

Accelerator = Literal["nvidia", "cpu"]
Modules = Literal["open", "proprietary"]
SmokeMode = Literal["gpu", "rehearsal-1gpu", "rehearsal-cpu"]


# A table: two or three lines a key.
# fmt: off
_GIT_URL = "a git URL (https, http, ssh, git, file:///PATH, user@host:path, alias:path), or None"
_URL = "an http or https URL, or file:///PATH"
_STACKS = "the stack's"


def key(default: Any, help: str, **about: Any) -> Any:  # noqa: A002
    """Declare a field as a data key.

    + default: None where it is derived
    + help: its meaning in one clause, for docs/keys.md
    + example: a valid value that is not the default; of words, another of them
    + name: the data key; default: the section's prefix and the field's name
    + allowed: the allowed values in words, where they do not follow from the type
    + derived: the default in words, where it depends on the stack or on other keys

    Other arguments are Field's: ge, le, repr.
    """
    names = ("name", "allowed", "derived", "example")
    ours = {name: about.pop(name) for name in names if name in about}
    return Field(default, description=help, json_schema_extra=ours, **about)


class Section(BaseModel):
    """What all parts of a spec have in common."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, hide_input_in_errors=True)
    stage: ClassVar[str] = ""  # where it is not called as the section
    prefix_: ClassVar[str] = ""

    def but(self, **changes: object) -> Self:
        """Return the same with other values, which are not checked."""
        return self.model_copy(update=changes)


class GpuSpec(Section):
    """The GPUs the host must have; `compute_capability` ("12.0") follows from the model."""

    stage = "preflight"
    model: t.GpuModel | None = key(
        None, "the model every GPU of the host must be", example="RTX 5090",
        allowed="the name of a GPU in stacks.yaml, or None for no check")
    count: int = key(
        None, "how many GPUs the host must have; 2 on nvidia stacks, 0 on cpu stacks", example=4,
        ge=0, le=16, derived=_STACKS,
        allowed="a whole number from 0 to 16, 0 only with a cpu stack")
    compute_capability: str | None = None


class PreflightSpec(Section):
    """What must be there before anything is written."""

    min_disk_gib: float = key(
        None, "free GiB needed at prefix where torch is not installed yet; more where it is built",
        example=40, ge=0, le=100_000, derived=_STACKS)
    min_ram_gib: float = key(
        None, "GiB of memory the host must have", example=64, ge=0, le=100_000, derived=_STACKS)
    apt_wait_s: int = key(
        120, "seconds to wait while another program uses apt or dpkg", example=600, ge=0, le=3600)


class RepositorySpec(Section):
    """NVIDIA's package repository, or a mirror of it; None = what `stacks.yaml` knows."""

    url: t.RepositoryUrl = key(
        None, "NVIDIA's package repository or a mirror of it, for driver and CUDA toolkit",
        name="driver_repository_url", derived=_STACKS,
        allowed=f"{_URL}, in which {{distro}} and {{arch}} become the host's",
        example="https://mirror.example.org/cuda/repos/{distro}/{arch}")
    key_fingerprint: t.Fingerprint | None = key(
        None, "the key that signs the repository; None = NVIDIA's, which a mirror keeps",
        allowed="40 hexadecimal digits, or None",
        example="0123456789ABCDEF0123456789ABCDEF01234567")
    keyring_sha256: t.Digest | None = key(
        None, "digest of the repository's cuda-keyring package; None = NVIDIA's",
        allowed="64 hexadecimal digits, or None", example="0123456789abcdef" * 4)

    def url_for(self, distro: str, arch: str) -> str:
        """Return the URL for one distribution and machine, without a slash at its end."""
        return self.url.replace("{distro}", distro).replace("{arch}", arch).rstrip("/")


class DriverSpec(Section):
    """The NVIDIA driver; `branch`, `minimum` and `repository` are None on cpu stacks."""

    source: Literal["nvidia", "distribution", "present"] = key(
        "nvidia", "'nvidia' installs the driver from NVIDIA's repository, 'distribution' from"
        " Ubuntu's own archive, with signed modules, 'present' only judges the one that is there;"
        " always 'present' with privilege = 'none'")
    branch: t.Branch | None = key(
        None, "the NVIDIA driver branch", example=595, derived=_STACKS,
        allowed="a driver branch in stacks.yaml, e.g. 580")
    version: Annotated[str, t.like(r"\d{3}\.\d{2,3}(\.\d{2})?")] | None = key(
        None, "exactly this driver; None = the newest of the branch on offer when it is"
        " installed; one of the branch that is there stays", example="580.95.05",
        allowed="a whole version of the branch, e.g. '580.95.05', or None")
    minimum: str | None = None
    modules: Modules = key(
        "open", "the flavour of the NVIDIA kernel modules; Blackwell works with 'open' only")
    packages: Literal["compute", "full"] = key("compute", "'full' adds what a display server needs")
    repository: RepositorySpec | None = RepositorySpec()
    hold: bool = key(True, "keep apt upgrade from moving the driver's packages")
    persistence: bool = key(True, "keep the GPUs initialised by nvidia-persistenced")
    reboot: Literal["never", "if-idle", "always"] = key(
        "if-idle", "what to do when only a reboot helps; 'if-idle' waits for a host without GPU"
        " work and without people, 'never' only reports it, 'always' does not look who is there")
    reboot_wait_s: int = key(
        900, "seconds a host may take to come back from a reboot", example=1800, ge=30, le=7200)


class PackagesSpec(Section):
    """Packages of the distribution; `extra` are the user's own, sorted."""

    extra: t.Packages = key(
        (), "further packages of the distribution to install; taken off here, they stay installed",
        example=["nvtop", "tmux"],
        allowed="a list of package names of a-z, 0-9, +, - and ., or None")


class CudaSpec(Section):
    """The CUDA toolkit; `release` is None on cpu stacks, `archs` are ten times the capabilities."""

    toolkit: bool = key(
        True, "install the CUDA toolkit, which torch itself does not need; never with privilege ="
        " 'none'")
    release: t.CudaRelease | None = key(
        None, "the CUDA toolkit", example="13.2", derived=_STACKS,
        allowed="a CUDA release in stacks.yaml, e.g. '13.0'")
    version: Annotated[str, t.like(r"\d{1,2}\.\d{1,2}\.\d{1,3}")] | None = key(
        None, "exactly this toolkit; None = any of the release", example="13.0.3",
        allowed="a version of the toolkit package of that release, e.g. '13.0.3', or None")
    archs: t.Archs = key(
        (), "what nvcc is proven to make code for; None = the gpu_model's, without a model those"
        " of torch's wheel", example=["12.0"],
        allowed="a list of compute capabilities as text, or None")
    host_compiler: t.Compiler | None = key(
        None, "the C++ compiler nvcc uses", name="host_compiler", example="gcc-13",
        allowed="'gcc-N', 'clang-N' with its major number, or None for the host's gcc")


class LibcudaSpec(Section):
    """The driver's library, as programs find it."""

    toolkit_link: bool = key(
        False, "link libcuda.so into the toolkit's lib64 too, for Triton 2 and programs linked"
        " with -L$CUDA_HOME/lib64 -lcuda")


class BuildSpec(Section):
    """torch built from source. `cuda` is whether it is for GPUs."""

    git_url: t.GitUrl | None = key(
        None, "the repository torch is built from, a mirror of it, or a bundle", allowed=_GIT_URL,
        example="https://github.com/pytorch/pytorch")
    commit: t.Commit | None = key(
        None, "the commit of pytorch_git_url to build", allowed="40 hexadecimal digits",
        example="5c48869085840e9cbb80e2a4d2b5e5d7c3a1f602")
    archs: t.Capabilities = key(
        (), "what torch is compiled for; None = the gpu_model's", example=["12.0"],
        allowed="a list of compute capabilities as text, or None")
    flags: t.Flags = key(
        {}, "options of the build beside those that this project sets",
        allowed="a dict of CMake options of PyTorch's and their values",
        example={"USE_MKLDNN": "0"})
    builder: t.Text | None = key(
        None, "the host that builds; None = the first of its kind", example="ws1",
        allowed="the name of a host of the inventory, or None")
    memory_gib: float | None = key(
        None, "memory that a build may use; None = four fifths of the host's", ge=1, le=4096,
        name="pytorch_build_memory_gib", example=32)
    cuda: bool = True

    @property
    def settings(self) -> dict[str, str]:
        """Every option by name: what would be found by chance, and what data declares over it."""
        cuda = dict.fromkeys(("USE_CUDA", "USE_CUDNN", "USE_NCCL"), "1" if self.cuda else "0")
        return {**_BY_CHANCE, **cuda, "USE_SYSTEM_NCCL": "0", **self.flags}


_BY_CHANCE = {
    **dict.fromkeys(("USE_DISTRIBUTED", "USE_TENSORPIPE", "USE_GLOO"), "1"),
    **dict.fromkeys(("BUILD_TEST", "USE_MPI", "USE_UCC", "USE_NUMA", "USE_ROCM", "USE_XPU"), "0"),
    **dict.fromkeys(("USE_CUSPARSELT", "USE_CUDSS", "USE_CUFILE"), "0"),
    "USE_CCACHE": "0",  # it is given as the compilers' launcher, where it is there
}
"""What CMake would decide by what it finds on a host; `pytorch_flags` changes each of them."""


class PytorchSpec(Section):
    """Which torch, from where, on which Python; `locks` are those of this torch, one a platform."""

    source: Literal["wheel", "nightly", "source"] = key(
        "wheel", "where torch comes from; 'nightly' keeps its files, 'source' builds it once per"
        " kind of host", example="source")
    version: Annotated[str, t.like(r"\d+\.\d+\.\d+(\.dev20\d{6})?")] = key(
        None, "the torch release", example="2.14.0", derived=_STACKS,
        allowed="a final torch release with three numbers, or a nightly's with its date")
    build: Annotated[str, t.like(r"cpu|cu\d{3}")] = key(
        None, "the torch build", example="cu126", derived=_STACKS,
        allowed="'cpu' or 'cu' and three digits")
    python: t.Interpreter = key(
        "python3", "the host's Python that the virtual environment is made from; of a version that"
        " the host does not have, uv downloads one", example="3.12",
        allowed="a command, an absolute path or a version such as '3.12'")
    python_url: t.IndexUrl | None = key(
        None, "a mirror of the Pythons that uv downloads", allowed=f"{_URL}, or None",
        example="https://mirror.example.org/python-build-standalone")
    index_url: t.IndexUrl | None = key(
        None, "the index torch is installed from", example="https://mirror.example.org/simple",
        derived=_STACKS, allowed=f"{_URL}, or None for the package index")
    extra_index_url: t.IndexUrl | None = key(
        None, "a second index, asked first for what it has", derived=_STACKS,
        example="https://mirror.example.org/extra", allowed=f"{_URL}, or None")
    wheels: t.WheelsFolder | None = key(
        None, "a folder of wheels, as `pyinfra-gpu lock` fills it; no index is asked then",
        allowed="an absolute path on the host, an http or https URL, or None",
        example="/srv/wheels")
    lock: Literal["if-there", "required", "ignore"] = key(
        "if-there", "whether only what a lock of `pyinfra-gpu lock` names is installed, by its"
        " digest; 'required' stops a host for which there is none")
    fallback: Annotated[str, t.like(r"\d+\.\d+\.\d+")] | None = key(
        None, "the release installed as a wheel where a build or a nightly cannot be had; said in"
        " every run and check until that is cured; None = such a host fails", example="2.14.1",
        allowed="a final torch release with three numbers, or None")
    building: BuildSpec | None = BuildSpec()
    uv_version: str = ""
    locks: tuple[Lock, ...] = ()

    @property
    def full_fallback(self) -> str | None:
        """What `torch.__version__` says where the fallback is installed; None without one."""
        return None if self.fallback is None else f"{self.fallback}+{self.build}"

    @property
    def fallback_from(self) -> tuple[str, ...]:
        """What the fallback is asked for by, as words for the installer.

        Where data declares no index of its own, that is PyTorch's, which names the build.
        """
        known = catalogue()
        pytorchs = {None, known.index_of(self.build), known.index_of(self.build, nightly=True)}
        if self.wheels or {self.index_url, self.extra_index_url} - pytorchs:
            plain = known.serves(self.fallback or "", self.build)
            return (f"torch=={self.fallback if plain else self.full_fallback}",)
        return (f"torch=={self.full_fallback}", "--extra-index-url", known.index_of(self.build))

    @property
    def interpreter(self) -> str:
        """Where the declared Python has to be; "" where data names none of a version."""
        named = re.fullmatch(r"(?:python)?(3\.\d+)(?:\.\d+)?", self.python)
        return f"/usr/bin/python{named[1]}" if named else self.python * self.python.startswith("/")

    @property
    def downloads_python(self) -> bool:
        """Whether uv may download the declared Python, where the host has none of that version."""
        return self.python[0].isdigit() and (self.wheels is None or self.python_url is not None)

    @property
    def nightly(self) -> bool:
        """Whether torch is a nightly, whose files the controller keeps."""
        return self.source == "nightly"

    @property
    def full_version(self) -> str:
        """What `torch.__version__` must say, e.g. "2.13.0+cpu"."""
        return f"{self.version}+{self.build}"

    @property
    def requirement(self) -> str:
        """What the installer is asked for: the package index does not name the build."""
        plain = catalogue().serves(self.version, self.build)
        return f"torch=={self.version if plain else self.full_version}"


class EnvironmentSpec(Section):
    """The env file; `variables` are the user's own, sorted by name."""

    name: t.Name = key(
        "training", "names the env file and the training checkout", example="nanochat",
        allowed="at most 40 of a-z, 0-9 and -, not starting with -")
    variables: t.Variables = key(
        {}, "added to the env file", allowed="a dict of names and texts",
        example={"NCCL_DEBUG": "WARN"})
    dynamo: bool = key(True, "False switches torch.compile off for programs of this environment")


class TrainingSpec(Section):
    """The training repo at one commit, and how it is run; `presets` with what they extend."""

    repo: t.GitUrl = key(
        None, "the training repo; None = no training stage", allowed=_GIT_URL,
        example="https://github.com/karpathy/nanochat")
    commit: t.Commit = key(
        None, "the commit to check out", allowed="40 hexadecimal digits",
        example="92d63d4a1f0e5b7c8d9e0f1a2b3c4d5e6f708192")
    local_changes: Literal["report", "overwrite"] = key(
        "report", "what to do about changes in the checkout; 'overwrite' keeps a backup")
    submodules: bool = key(
        True, "check the repo's submodules out too, each at the commit recorded for it")
    lfs: bool = key(True, "fetch the repo's files of git LFS, where git-lfs is on the host")
    requirements: t.RequirementsFile | None = key(
        None, "what to install for training, torch excepted", example="requirements.txt",
        allowed="a path in the repo to a requirements .txt or pyproject.toml, or None")
    presets: Presets = key(
        {}, "what `train start PRESET` runs, and with which arguments", repr=False,
        allowed="a dict of presets, as docs/train.md describes them",
        example={"tiny": {"file": "train.py", "arguments": {"steps": 200}}})
    stop_grace_s: int = key(
        30, "seconds that a run has to end by itself when it is stopped", example=120, ge=1,
        le=3600)
    log_mib: int = key(
        64, "MiB of one rank's log before it is rotated; two older files are kept", example=256,
        ge=1, le=4096)
    keep_runs: int = key(
        50, "ended runs whose logs are kept; 0 = all. Checkpoints are never deleted", example=200,
        ge=0, le=100_000)
    retry_wait_s: int = key(
        30, "seconds before a run begins again by `--retries`",
        example=120, ge=1, le=3600)
    notify: Command = key(
        (), "a command that gets JSON on its standard input when a run ends, fails, stalls or is"
        " resumed; the owner runs it", example=["/usr/local/bin/tell-me"], repr=False,
        allowed="a list of texts, the first one an absolute path")


class AcrossSpec(Section):
    """The step across hosts that follows each host's own test.

    + members: the names of those hosts, in the inventory's order; () until the inventory is known
    """

    prefix_ = "smoke_across_"
    hosts: t.Group = key(
        False, "then one step on all hosts of that group; True = all that say True", example="gpu",
        allowed="True, False or the name of an inventory group")
    address: t.IpAddress | None = key(
        None, "where the other hosts reach this one", example="10.1.2.3",
        allowed="an IP address, or None for its first that no other has")
    port: int = key(
        29400, "TCP port at the group's first host, for torchrun's store in that step",
        example=29500, ge=1024, le=65_534)
    members: tuple[str, ...] = ()


class SmokeSpec(Section):
    """The smoke test: `mode` is "gpu" on two real GPUs or more, "rehearsal-1gpu" on one."""

    run: Literal["auto", "always", "skip"] = key(
        "auto", "run the smoke test when something it depends on changed, always, or never",
        name="smoke")
    mode: SmokeMode = "gpu"
    ranks: int = key(
        2, "processes of the smoke test where it uses no real GPU; else one per GPU", example=4,
        ge=2, le=16)
    deadline_s: int = key(
        180, "seconds after which a smoke test counts as hung and is ended", example=600, ge=10,
        le=3600)
    allreduce_mib: t.PowerOfTwo = key(
        None, "MiB of the largest all-reduce", example=128, ge=1, le=1024,
        allowed="a power of two from 1 to 1024",
        derived=f"{LARGEST_MIB['gpu']} on GPUs, {LARGEST_MIB['rehearsal-cpu']} on the CPU")
    accept: Literal["proof", "two-gpus"] = key(
        "proof", "what a pass must prove: all the declared hardware can, or two real GPUs")
    limit_network: bool = key(
        True, "while a smoke test runs, keep all but its own hosts from connecting to it")
    across: AcrossSpec | None = AcrossSpec()


class HostSpec(Section):
    """Everything one host should be; `ignored` are keys that a host without GPU does not read.

    `declared` is the data it follows from, as it was given.
    """

    host: str = ""
    declared: Mapping[str, object] = Field({}, repr=False)
    stack: t.StackName = key(
        catalogue().default_stack, "versions that fit together; every other version key overrides"
        " one of them", example="cpu-torch2.13", allowed="the name of a stack")
    accelerator: Accelerator = "nvidia"
    rehearsal: bool = key(False, "the host is thrown away after use: label every result so")
    prefix: t.Prefix = key(
        "/opt/pyinfra-gpu", "the directory that holds everything of ours on the host",
        example="/srv/gpu/lab",
        allowed="an absolute path of letters, digits and . _ + @ -, outside system directories")
    paths: Paths = Paths(prefix="/opt/pyinfra-gpu", name="training")
    owner: t.Owner | None = key(
        None, "the user who runs torch and owns what it needs; the rest below prefix is root's",
        example="trainer", allowed="a user name, or None for the login user")
    privilege: Literal["sudo", "none"] = key(
        "sudo", "'none' writes nothing outside prefix and installs no system package")
    look_timeout_s: int = key(
        60, "seconds a host has to be connected to and looked at; after that it is given up",
        example=180, ge=10, le=3600)
    gpu: GpuSpec = GpuSpec()
    preflight: PreflightSpec = PreflightSpec()
    driver: DriverSpec = DriverSpec()
    packages: PackagesSpec = PackagesSpec()
    cuda: CudaSpec = CudaSpec()
    libcuda: LibcudaSpec = LibcudaSpec()
    pytorch: PytorchSpec = PytorchSpec()
    environment: EnvironmentSpec = EnvironmentSpec()
    training: TrainingSpec | None = TrainingSpec()
    smoke: SmokeSpec = SmokeSpec()
    ignored: tuple[str, ...] = ()


# fmt: on


@dataclass(frozen=True, kw_only=True, slots=True)
class Key:
    """One data key: where it is in a HostSpec, and what documents and errors say of it."""

    name: str
    stage: str
    place: tuple[str, ...]
    default: object
    derived: str | None
    type_text: str
    description: str
    example: object

    @property
    def default_text(self) -> str:
        """The default as a person reads it."""
        return self.derived or ("None" if self.default == () else repr(self.default))

    def of(self, spec: HostSpec) -> Any:
        """Return the key's value in a spec."""
        return reduce(getattr, self.place, spec)


def _words(field: FieldInfo) -> tuple[object, ...]:
    """Return the values of a field that has few."""
    if field.annotation is bool:
        return (True, False)
    return get_args(field.annotation) if get_origin(field.annotation) is Literal else ()


def _allowed(field: FieldInfo) -> str:
    """Return what a field allows in words, from its type and range."""
    if words := [*map(repr, _words(field))]:
        return f"{', '.join(words[:-1])} or {words[-1]}"
    limits = {type(each).__name__: each for each in field.metadata}
    number = "a whole number" if field.annotation is int else "a number"
    return f"{number} from {limits['Ge'].ge} to {limits['Le'].le}"


def _keys(section: type[Section], place: tuple[str, ...] = ()) -> Iterator[Key]:
    prefix = section.prefix_ or "".join(f"{each}_" for each in place[:1])
    stage = section.stage or "".join(place[:1]) or "general"
    for name, field in section.model_fields.items():
        if isinstance(field.default, Section):
            yield from _keys(type(field.default), (*place, name))
        if field.description is None:
            continue
        about: Mapping[str, Any] = field.json_schema_extra  # type: ignore[assignment]
        others = [each for each in _words(field) if each != field.default]
        yield Key(
            name=about.get("name", f"{prefix}{name}"),
            stage=stage,
            place=(*place, name),
            default=field.default,
            derived=about.get("derived"),
            type_text=about.get("allowed") or _allowed(field),
            description=field.description,
            example=about.get("example", *others[:1]),
        )


KEYS: Mapping[str, Key] = {each.name: each for each in _keys(HostSpec)}
"""Every data key by its name, in the order of the documentation."""
