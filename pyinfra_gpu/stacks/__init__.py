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

from pyinfra_gpu.stacks.model import (
    CudaRelease,
    DriverBranch,
    Gpu,
    Stack,
    StackDriver,
    StackTorch,
    TorchBuild,
    TorchRelease,
    WheelArchs,
)
from pyinfra_gpu.stacks.packages import (
    DistributionPackages,
    Repositories,
    Repository,
    parse_distribution,
    parse_repositories,
    template,
)
from pyinfra_gpu.stacks.reader import Node, StacksError, read_yaml

__all__ = [
    "Catalogue",
    "CudaRelease",
    "DriverBranch",
    "Gpu",
    "Repository",
    "Stack",
    "StackDriver",
    "StackTorch",
    "StacksError",
    "TorchBuild",
    "TorchRelease",
    "WheelArchs",
    "catalogue",
    "parse",
]

STACKS_FILE = Path(__file__).with_name("stacks.yaml")


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
    repositories: Repositories
    distributions: Mapping[str, DistributionPackages]
    toolkit_template: str

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

    def default_archs(
        self, cuda: str, capability: str | None, stack: Stack, build: str
    ) -> tuple[int, ...]:
        """Return what nvcc should make code for where the data does not say it.

        That is the GPU's own architecture, or, where the toolkit does not know it yet, the newest
        of the same major, whose code runs on it too. Without a declared GPU: what torch's wheel
        for x86_64 holds (the stack's own where `build` has no GPU code), as far as the toolkit
        makes it. () only where there is no such code at all.
        """
        known = self.cuda[cuda].archs
        if capability is not None:
            arch = int(capability.replace(".", ""))
            return tuple(a for a in known if a // 10 == arch // 10 and a <= arch)[-1:]
        gpu_build = stack.torch.build if build == "cpu" else build
        wheel = self.wheel_archs.get(gpu_build, {}).get("x86_64")
        return () if wheel is None else tuple(a for a in wheel.archs if a in known)

    @property
    def default_repository_url(self) -> str:
        """NVIDIA's own repository, with the placeholders `{distro}` and `{arch}`."""
        return self.repositories.url

    def repository(self, os_id: str, os_version: str) -> Repository | None:
        """Return NVIDIA's repository for a release, e.g. ("ubuntu", "24.04"); None = none known."""
        return self.repositories.releases.get(f"{os_id} {os_version}")

    def repository_arch(self, machine: str) -> str | None:
        """Return what NVIDIA's URLs call a machine (`uname -m`); None = no repository for it."""
        return self.repositories.arch.get(machine)

    def driver_packages(
        self,
        os_id: str,
        branch: int,
        modules: Literal["open", "proprietary"],
        packages: Literal["compute", "full"],
    ) -> tuple[str, ...] | None:
        """Return the packages that are a driver on a distribution; None = none known."""
        known = self.distributions.get(os_id)
        return None if known is None else known.driver(branch, modules, packages)

    def pin_package(self, os_id: str, branch: int, version: str | None) -> str:
        """Return the package that holds the driver to a branch, or to a version where one is given.

        Raises KeyError for a distribution that `driver_packages` knows nothing about.
        """
        known = self.distributions[os_id]
        if version is not None:
            return known.pin_version.replace("{version}", version)
        return known.pin_branch.replace("{branch}", str(branch))

    def headers_package(self, os_id: str, kernel: str) -> str:
        """Return the package with the headers of `kernel` (`uname -r`); KeyError as above."""
        return self.distributions[os_id].headers.replace("{kernel}", kernel)

    def toolkit_package(self, release: str) -> str:
        """Return the package of a CUDA toolkit, "cuda-toolkit-13-0" for "13.0": no driver in it."""
        return self.toolkit_template.replace("{release}", release.replace(".", "-"))


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
        repositories=parse_repositories(root.child("repositories")),
        distributions=root.table("driver_packages", parse_distribution),
        toolkit_template=template(root, "toolkit_package", "release"),
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
