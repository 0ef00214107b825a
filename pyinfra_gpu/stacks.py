"""The compatibility data of stacks.yaml, typed and checked.

`catalogue()` reads the file once. A file that is malformed raises StacksError with one sentence
that names the file, the place in it and what belongs there.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from packaging.version import Version

from pyinfra_gpu.stacks_reader import Node, StacksError, read_yaml

__all__ = ["Catalogue", "StacksError", "catalogue", "parse"]

STACKS_FILE = Path(__file__).with_name("stacks.yaml")


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


@dataclass(frozen=True, kw_only=True, slots=True)
class Catalogue:
    """All of stacks.yaml."""

    default_stack: str
    torch_index: str
    stacks: Mapping[str, Stack]
    cuda: Mapping[str, CudaRelease]
    torch: Mapping[str, TorchRelease]
    wheel_archs: Mapping[str, Mapping[str, WheelArchs]]
    strict_cuda: str
    nccl_minimum: Mapping[str, str]
    gpus: Mapping[str, Gpu]
    driver_branches: Mapping[int, DriverBranch]

    def index_of(self, build: str) -> str:
        """Return the URL of PyTorch's own index of one build."""
        return self.torch_index.replace("{build}", build)

    def serves(self, version: str, build: str, machine: str = "x86_64") -> bool:
        """Return whether the package index's wheel of a release is this build, on `machine`."""
        release = self.torch.get(version)
        return release is not None and release.pypi.get(machine) == build

    def indexes(self, stack: Stack, version: str, build: str) -> tuple[str | None, str | None]:
        """Return (index, extra index) for a torch that may differ from the stack's own.

        The package index has one build per release; every other build comes from PyTorch's own.
        """
        if (version, build) == (stack.torch.version, stack.torch.build):
            return stack.torch.index_url, stack.torch.extra_index_url
        return None, None if self.serves(version, build) else self.index_of(build)

    def minimum_driver(self, stack: Stack, branch: int, cuda: str) -> str:
        """Return the oldest driver that will do for a branch and CUDA release on a stack.

        A branch older than every driver the toolkit was made for relies on minor-version
        compatibility.
        """
        if stack.driver is not None and (branch, cuda) == (stack.driver.branch, stack.cuda):
            return stack.driver.minimum
        release = self.cuda[cuda]
        made_for = [
            driver for driver in release.toolkit_drivers.values() if Version(driver).major <= branch
        ]
        return min(made_for, key=Version) if made_for else release.minimum_driver


@functools.cache
def catalogue() -> Catalogue:
    """Return the project's own compatibility data, read once.

    Raises StacksError if the file is missing, unreadable or malformed.
    """
    try:
        text = STACKS_FILE.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise StacksError(
            f"{STACKS_FILE}: cannot be read ({error}); reinstall pyinfra-gpu"
        ) from None
    return parse(text, str(STACKS_FILE))


def parse(text: str, source: str) -> Catalogue:
    """Return the catalogue in `text`; `source` names the file in errors.

    Raises StacksError on YAML errors, unknown or missing fields, wrong types, and names that point
    nowhere.
    """
    root = Node(read_yaml(text, source), source, ())
    data = Catalogue(
        default_stack=root.text("default_stack"),
        torch_index=root.text("torch_index"),
        stacks=root.table("stacks", _stack),
        cuda=root.table("cuda", _cuda),
        torch=root.table("torch", _torch),
        wheel_archs=root.table("wheel_archs", lambda _, node: node.entries(_wheel_archs)),
        strict_cuda=root.version("strict_cuda"),
        nccl_minimum=root.table("nccl_minimum", lambda _, node: node.version_here()),
        gpus=root.table("gpus", _gpu),
        driver_branches=root.numbered("driver_branches", _branch),
    )
    root.done()
    _check_references(data, root)
    return data


def _stack(name: str, node: Node) -> Stack:
    accelerator = node.choice("accelerator", ("nvidia", "cpu"))
    driver, torch = node.optional_child("driver"), node.child("torch")
    stack = Stack(
        name=name,
        summary=node.text("summary"),
        accelerator="cpu" if accelerator == "cpu" else "nvidia",
        driver=None if driver is None else _stack_driver(driver),
        cuda=node.optional_text("cuda"),
        torch=StackTorch(
            version=torch.version("version"),
            build=torch.text("build"),
            index_url=torch.optional_text("index_url"),
            extra_index_url=torch.optional_text("extra_index_url"),
        ),
        uv=node.version("uv"),
        minimum_disk_gib=node.number("minimum_disk_gib"),
        minimum_ram_gib=node.number("minimum_ram_gib"),
    )
    torch.done()
    node.done()
    return stack


def _stack_driver(node: Node) -> StackDriver:
    driver = StackDriver(
        branch=node.integer("branch"),
        minimum=node.version("minimum"),
        recommended=node.version("recommended"),
    )
    node.done()
    return driver


def _cuda(name: str, node: Node) -> CudaRelease:
    release = CudaRelease(
        release=name,
        minimum_driver=node.version("minimum_driver"),
        toolkit_drivers=node.table("toolkit_drivers", lambda _, child: child.version_here()),
        gcc=node.optional_range("gcc"),
        clang=node.optional_range("clang"),
        archs=node.integers("archs"),
    )
    node.done()
    return release


def _torch(name: str, node: Node) -> TorchRelease:
    python = node.versions("python", length=2)
    release = TorchRelease(
        version=name,
        python=(python[0], python[1]),
        glibc=node.optional_version("glibc"),
        pypi=node.table("pypi", lambda _, child: child.text_here()),
        triton=node.optional_version("triton"),
        builds=node.table("builds", _torch_build),
    )
    node.done()
    return release


def _torch_build(_: str, node: Node) -> TorchBuild:
    build = TorchBuild(nccl=node.optional_version("nccl"), cudnn=node.optional_version("cudnn"))
    node.done()
    return build


def _wheel_archs(_: str, node: Node) -> WheelArchs:
    archs = WheelArchs(archs=node.integers("archs"), ptx=node.optional_integer("ptx"))
    node.done()
    return archs


def _gpu(name: str, node: Node) -> Gpu:
    modules = node.choice("open_modules", ("required", "supported", "unsupported"))
    gpu = Gpu(
        name=name,
        compute_capability=node.version("compute_capability"),
        pci_ids=node.texts("pci_ids"),
        memory_mib=node.optional_integer("memory_mib"),
        bar1_mib=node.optional_integer("bar1_mib"),
        open_modules=(
            "required"
            if modules == "required"
            else "supported"
            if modules == "supported"
            else "unsupported"
        ),
        machine=node.optional_text("machine"),
    )
    node.done()
    return gpu


def _branch(branch: int, node: Node) -> DriverBranch:
    result = DriverBranch(
        branch=branch,
        cuda=node.optional_version("cuda"),
        oldest=node.version("oldest"),
        newest=node.optional_version("newest"),
        modules=node.texts("modules"),
        support=node.text("support"),
    )
    node.done()
    return result


def _check_references(data: Catalogue, root: Node) -> None:
    """Refuse a name that points at nothing: a typo here would silently switch a check off."""
    root.known("default_stack", data.default_stack, data.stacks)
    for stack in data.stacks.values():
        place = f"stacks.{stack.name}"
        if {stack.driver is None, stack.cuda is None} != {stack.accelerator == "cpu"}:
            raise root.wrong(place, "has a driver and a cuda release if, and only if, it is nvidia")
        if stack.driver is not None:
            root.known(f"{place}.driver.branch", stack.driver.branch, data.driver_branches)
        if stack.cuda is not None:
            root.known(f"{place}.cuda", stack.cuda, data.cuda)
        root.known(f"{place}.torch.version", stack.torch.version, data.torch)
        builds = data.torch[stack.torch.version].builds
        root.known(f"{place}.torch.build", stack.torch.build, builds)
    for release in data.torch.values():
        for build in release.builds:
            root.known(f"torch.{release.version}.builds", build, data.wheel_archs)
        for build in release.pypi.values():
            root.known(f"torch.{release.version}.pypi", build, release.builds)
