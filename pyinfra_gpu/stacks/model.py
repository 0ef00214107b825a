"""What one entry of stacks.yaml is: a stack, a CUDA or torch release, a GPU, a driver branch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, kw_only=True, slots=True)
class StackDriver:
    """The driver a stack installs: branch, oldest version that will do, version to aim for."""

    branch: int
    minimum: str
    recommended: str


@dataclass(frozen=True, kw_only=True, slots=True)
class StackTorch:
    """The torch a stack installs and the indexes to ask; None as `index_url` is the package
    index.
    """

    version: str
    build: str
    index_url: str | None
    extra_index_url: str | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Stack:
    """One coherent set of versions; `driver` and `cuda` are None where there is no GPU."""

    name: str
    summary: str
    accelerator: Literal["nvidia", "cpu"]
    driver: StackDriver | None
    cuda: str | None
    torch: StackTorch
    uv: str
    minimum_disk_gib: float
    minimum_ram_gib: float


@dataclass(frozen=True, kw_only=True, slots=True)
class CudaRelease:
    """One CUDA release; compiler ranges are majors with both ends included, None = no bound
    known.
    """

    release: str
    minimum_driver: str
    toolkit_drivers: Mapping[str, str]
    gcc: tuple[int, int] | None
    clang: tuple[int, int] | None
    archs: tuple[int, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class TorchBuild:
    """What one build of a torch release brings along; None = not noted."""

    nccl: str | None
    cudnn: str | None


@dataclass(frozen=True, kw_only=True, slots=True)
class TorchRelease:
    """One torch release; `python` is (oldest, newest) minor with wheels, `pypi` machine ->
    build.
    """

    version: str
    python: tuple[str, str]
    glibc: str | None
    pypi: Mapping[str, str]
    triton: str | None
    builds: Mapping[str, TorchBuild]


@dataclass(frozen=True, kw_only=True, slots=True)
class WheelArchs:
    """GPU code in a wheel: compute capabilities times ten, and the newest PTX or None."""

    archs: tuple[int, ...]
    ptx: int | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Gpu:
    """One GPU model."""

    name: str
    compute_capability: str
    pci_ids: tuple[str, ...]
    memory_mib: int | None
    bar1_mib: int | None
    open_modules: Literal["required", "supported", "unsupported"]
    machine: str | None


@dataclass(frozen=True, kw_only=True, slots=True)
class DriverBranch:
    """One driver branch; `oldest` and `newest` are the compute capabilities it serves."""

    branch: int
    cuda: str | None
    oldest: str
    newest: str | None
    modules: tuple[str, ...]
    support: str
