"""The frozen form of what a host should be: what `spec.resolve` returns and every stage reads."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Accelerator = Literal["nvidia", "cpu"]
Privilege = Literal["sudo", "none"]
Modules = Literal["open", "proprietary"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Paths:
    """Every path on the host that is ours, as absolute POSIX text, from `prefix` and the
    environment's name.
    """

    prefix: str
    name: str

    @property
    def venv(self) -> str:
        """The virtual environment that holds torch."""
        return f"{self.prefix}/venv"

    @property
    def python(self) -> str:
        """The virtual environment's interpreter."""
        return f"{self.venv}/bin/python"

    @property
    def tools(self) -> str:
        """Directory of the programs we bring along."""
        return f"{self.prefix}/tools"

    @property
    def uv(self) -> str:
        """The installer."""
        return f"{self.tools}/bin/uv"

    @property
    def cache(self) -> str:
        """The installer's cache."""
        return f"{self.prefix}/cache"

    @property
    def env_dir(self) -> str:
        """Directory of the env files."""
        return f"{self.prefix}/env"

    @property
    def env_file(self) -> str:
        """KEY=VALUE lines for systemd's EnvironmentFile and for the torchrun wrapper."""
        return f"{self.env_dir}/{self.name}.env"

    @property
    def bin(self) -> str:
        """Directory of the commands meant for people."""
        return f"{self.prefix}/bin"

    @property
    def torchrun(self) -> str:
        """The torchrun wrapper."""
        return f"{self.bin}/torchrun"

    @property
    def training_parent(self) -> str:
        """Directory of the training checkouts."""
        return f"{self.prefix}/training"

    @property
    def training(self) -> str:
        """This environment's training checkout."""
        return f"{self.training_parent}/{self.name}"

    @property
    def smoke(self) -> str:
        """Directory of the smoke test."""
        return f"{self.prefix}/smoke"

    @property
    def smoke_bundle(self) -> str:
        """The smoke test program, one zip file."""
        return f"{self.smoke}/smoke_test.pyz"

    @property
    def stamp(self) -> str:
        """What the last smoke test that passed was run on."""
        return f"{self.smoke}/stamp.json"

    @property
    def verdict(self) -> str:
        """What the last smoke test found."""
        return f"{self.smoke}/verdict.json"

    @property
    def lock(self) -> str:
        """Held while a run writes below the prefix."""
        return f"{self.prefix}/.lock"


@dataclass(frozen=True, kw_only=True, slots=True)
class GpuSpec:
    """The GPUs the host must have; `compute_capability` ("12.0") is None unless the model is
    declared.
    """

    model: str | None
    count: int
    compute_capability: str | None


@dataclass(frozen=True, kw_only=True, slots=True)
class PreflightSpec:
    """What must be there before anything is written."""

    min_disk_gib: float
    min_ram_gib: float
    apt_wait_s: int


@dataclass(frozen=True, kw_only=True, slots=True)
class DriverSpec:
    """The NVIDIA driver; `branch` and `minimum` are None on cpu stacks."""

    branch: int | None
    modules: Modules
    minimum: str | None


@dataclass(frozen=True, kw_only=True, slots=True)
class CudaSpec:
    """The CUDA toolkit; `release` is None on cpu stacks, `host_compiler` None = the host's own
    gcc.
    """

    release: str | None
    host_compiler: str | None


@dataclass(frozen=True, kw_only=True, slots=True)
class PytorchSpec:
    """Which torch, from where, on which Python.

    `local_version` says whether the index names the build in the version ("2.13.0+cpu"). The
    package index does not, so asking it for "2.14.1+cu130" would find nothing.
    """

    source: Literal["wheel"]
    version: str
    build: str
    python: str
    index_url: str | None
    extra_index_url: str | None
    uv_version: str
    local_version: bool = True

    @property
    def full_version(self) -> str:
        """What `torch.__version__` must say, e.g. "2.13.0+cpu"."""
        return f"{self.version}+{self.build}"

    @property
    def requirement(self) -> str:
        """What the installer is asked for."""
        return f"torch=={self.full_version if self.local_version else self.version}"


@dataclass(frozen=True, kw_only=True, slots=True)
class EnvironmentSpec:
    """The env file; `variables` are the user's own, sorted by name."""

    name: str
    variables: tuple[tuple[str, str], ...]
    dynamo: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class TrainingSpec:
    """The training repo at one commit."""

    repo: str
    commit: str
    local_changes: Literal["report", "overwrite"]
    requirements: str | None


@dataclass(frozen=True, kw_only=True, slots=True)
class SmokeSpec:
    """The smoke test."""

    run: Literal["auto", "always", "skip"]
    ranks: int
    deadline_s: int
    allreduce_mib: int


@dataclass(frozen=True, kw_only=True, slots=True)
class HostSpec:
    """Everything one host should be."""

    host: str
    rehearsal: bool
    privilege: Privilege
    owner: str | None
    stack: str
    accelerator: Accelerator
    paths: Paths
    gpu: GpuSpec
    preflight: PreflightSpec
    driver: DriverSpec
    cuda: CudaSpec
    pytorch: PytorchSpec
    environment: EnvironmentSpec
    training: TrainingSpec | None
    smoke: SmokeSpec
