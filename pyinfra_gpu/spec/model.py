"""The frozen form of what a host should be: what `spec.resolve` returns and every stage reads."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Accelerator = Literal["nvidia", "cpu"]
Privilege = Literal["sudo", "none"]
Modules = Literal["open", "proprietary"]
Reboot = Literal["never", "if-idle", "always"]
SmokeMode = Literal["gpu", "rehearsal-1gpu", "rehearsal-cpu"]


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
    def across_verdict(self) -> str:
        """What the last step across hosts found."""
        return f"{self.smoke}/across.json"

    @property
    def proofs(self) -> str:
        """Directory of what was proven of the CUDA toolkit and of libcuda, and on which state."""
        return f"{self.prefix}/proofs"

    @property
    def cuda_proof(self) -> str:
        """What nvcc last compiled here, and with which toolkit and compiler."""
        return f"{self.proofs}/cuda.json"

    @property
    def libcuda_proof(self) -> str:
        """Which library programs last loaded here, and the state it was proven on."""
        return f"{self.proofs}/libcuda.json"

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
class RepositorySpec:
    """NVIDIA's package repository, or a mirror of it.

    + url: with the placeholders `{distro}` ("debian12") and `{arch}` ("x86_64"), which are the
      host's own; see `url_for`
    + key_fingerprint: 40 hexadecimal digits of the one key that may sign it; None = the one
      `stacks.yaml` knows for the host's release
    + keyring_sha256: digest of its `cuda-keyring` package; None = the one `stacks.yaml` knows
    """

    url: str
    key_fingerprint: str | None
    keyring_sha256: str | None

    def url_for(self, distro: str, arch: str) -> str:
        """Return the URL for one distribution and machine, without a slash at its end."""
        return self.url.replace("{distro}", distro).replace("{arch}", arch).rstrip("/")


@dataclass(frozen=True, kw_only=True, slots=True)
class DriverSpec:
    """The NVIDIA driver; `branch`, `minimum` and `repository` are None on cpu stacks.

    + source: "nvidia" installs it from NVIDIA's repository; "present" takes the one that is there
      and only judges it, which is also so on cpu stacks and without root
    + version: exactly this one, e.g. "580.95.05"; None = any of the branch from `minimum` on
    + packages: "compute" (no display server parts) or "full"
    + hold: whether it moves only on our word
    + persistence: whether nvidia-persistenced keeps the GPUs initialised
    + reboot: what to do when only a reboot helps
    + reboot_wait_s: how long a host may take to come back
    """

    source: Literal["nvidia", "present"]
    branch: int | None
    version: str | None
    modules: Modules
    packages: Literal["compute", "full"]
    minimum: str | None
    repository: RepositorySpec | None
    hold: bool
    persistence: bool
    reboot: Reboot
    reboot_wait_s: int


@dataclass(frozen=True, kw_only=True, slots=True)
class CudaSpec:
    """The CUDA toolkit; `release` is None on cpu stacks.

    + toolkit: whether it is installed at all; never on cpu stacks and without root
    + version: the exact release of its package, e.g. "13.0.3"; None = any of `release`
    + host_compiler: None = the host's own gcc
    + archs: compute capabilities times ten nvcc must make code for, sorted; () on cpu stacks
    """

    toolkit: bool
    release: str | None
    version: str | None
    host_compiler: str | None
    archs: tuple[int, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class LibcudaSpec:
    """The driver's library, as programs find it.

    + toolkit_link: whether `libcuda.so` is also linked into the toolkit's lib64 (Triton up to 2.x
      and builds with `-L$CUDA_HOME/lib64 -lcuda` need it)
    """

    toolkit_link: bool


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
class AcrossSpec:
    """The step across hosts that follows each host's own test.

    + hosts: the inventory group whose hosts take part; True = all that say True
    + address: where the other hosts reach this one; None = any of its addresses
    + port: at the group's first host, for torchrun; the next one is for the launchers
    + members: the names of those hosts, in the inventory's order; () until the inventory is known
    + impossible: why the group cannot train together, a clause; None where it can
    """

    hosts: str | Literal[True]
    address: str | None
    port: int
    members: tuple[str, ...] = ()
    impossible: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class SmokeSpec:
    """The smoke test.

    + mode: "gpu" on two real GPUs or more, "rehearsal-1gpu" on one, else "rehearsal-cpu"
    + ranks: one for each GPU in mode gpu
    + accept: "proof" = all that the declared hardware can prove, "two-gpus" = nothing less
    """

    run: Literal["auto", "always", "skip"]
    mode: SmokeMode
    ranks: int
    deadline_s: int
    allreduce_mib: int
    accept: Literal["proof", "two-gpus"] = "proof"
    across: AcrossSpec | None = None


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
    libcuda: LibcudaSpec
    pytorch: PytorchSpec
    environment: EnvironmentSpec
    training: TrainingSpec | None
    smoke: SmokeSpec
