"""The compatibility data of stacks.yaml, typed and checked.

`catalogue()` reads the file once. A file that is malformed raises StacksError with one sentence
that names the file, the place in it and what is wrong there.
"""

from __future__ import annotations

import functools
from collections.abc import Collection, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Self

import yaml
from packaging.version import Version
from pydantic import Field, ValidationError, model_validator

from pyinfra_gpu.errors import SpecError
from pyinfra_gpu.stacks import model
from pyinfra_gpu.stacks.model import (
    Archive,
    CudaRelease,
    DriverBranch,
    Extent,
    Flavour,
    Gpu,
    Repository,
    Stack,
    StackDriver,
    StackTorch,
    Table,
    Text,
    TorchBuild,
    TorchRelease,
    WheelArchs,
    Whole,
)
from pyinfra_gpu.text import one_line

if TYPE_CHECKING:
    from yaml import SafeLoader as _SafeLoader
else:  # the C parser is several times faster and differs in nothing we use
    _SafeLoader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

__all__ = [
    "Archive",
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
_NAMED = {
    "stacks": "name", "cuda": "release", "torch": "version", "gpus": "name",
    "driver_branches": "branch",
}  # fmt: skip
"""Table -> the field in which its entries know their own name, which is not written in the file."""


class StacksError(SpecError):
    """The data file of the project is malformed; the message is one sentence."""


class Catalogue(model.Entry):
    """All of stacks.yaml."""

    default_stack: Text
    torch_index: Text
    torch_nightly_index: Text
    build_disk_gib: int
    build_tools: tuple[Text, ...]
    stacks: Table[str, Stack]
    cuda: Table[str, CudaRelease]
    torch: Table[str, TorchRelease]
    wheel_archs: Table[str, Table[str, WheelArchs]]
    strict_cuda: model.Version
    nccl_minimum: Table[str, model.Version]
    gpus: Table[str, Gpu]
    speed_bounds: Table[str, model.SpeedBounds]
    driver_branches: Table[Whole, DriverBranch]
    repositories: model.Repositories
    distributions: Table[str, model.DistributionPackages]
    archives: Table[str, Archive]
    toolkit_template: Annotated[Text, Field(pattern=r"\{release\}$")]

    @model_validator(mode="after")
    def _every_name_is_known(self) -> Self:
        """Refuse a name that points at nothing: a typo here would silently switch a check off."""
        named: list[tuple[str, object, Collection[object]]] = []
        named.append(("default_stack", self.default_stack, self.stacks))
        for stack in self.stacks.values():
            place = f"stacks.{stack.name}"
            if {stack.driver is None, stack.cuda is None} != {stack.accelerator == "cpu"}:
                raise ValueError(f"{place}: driver and cuda belong to an nvidia stack alone")
            if stack.driver is not None:
                named.append((f"{place}.driver.branch", stack.driver.branch, self.driver_branches))
                named.append((f"{place}.cuda", stack.cuda, self.cuda))
            named.append((f"{place}.torch.version", stack.torch.version, self.torch))
            release = self.torch.get(stack.torch.version)
            builds = release.builds if release else ()
            named.append((f"{place}.torch.build", stack.torch.build, builds))
        for torch in self.torch.values():
            place = f"torch.{torch.version}"
            named += [(f"{place}.builds", build, self.wheel_archs) for build in torch.builds]
            named += [(f"{place}.pypi", build, torch.builds) for build in torch.pypi.values()]
        for gpu in self.gpus.values():
            place = f"gpus.{gpu.name}.figures"
            named += [(place, figures.bounds, self.speed_bounds) for figures in gpu.figures]
        for place, name, names in named:
            if name not in names:
                raise ValueError(f"{place} = {name!r} is none of {', '.join(map(str, names))}")
        return self

    def index_of(self, build: str) -> str:
        """Return the URL of PyTorch's own index of one build."""
        return self.torch_index.replace("{build}", build)

    def nightly_index_of(self, build: str) -> str:
        """Return the URL of PyTorch's own index of one build's nightlies."""
        return self.torch_nightly_index.replace("{build}", build)

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

    def supported_releases(self) -> Mapping[str, tuple[str, ...]]:
        """Return the distributions we install on: name -> their releases, both as os-release says.

        Those that NVIDIA has a repository for, {"debian": ("12", "13"), "ubuntu": (...)}; sorted.
        """
        found: dict[str, tuple[str, ...]] = {}
        for name in sorted(self.repositories.releases):
            os_id, os_version = name.split(" ")
            found[os_id] = (*found.get(os_id, ()), os_version)
        return MappingProxyType(found)

    def repository_arch(self, machine: str) -> str | None:
        """Return what NVIDIA's URLs call a machine (`uname -m`); None = no repository for it."""
        return self.repositories.arch.get(machine)

    def driver_packages(
        self, os_id: str, branch: int, modules: Flavour, packages: Extent
    ) -> tuple[str, ...] | None:
        """Return the packages that are a driver on a distribution; None = none known."""
        known = self.distributions.get(os_id)
        return None if known is None else known.driver(branch, modules, packages)

    def archive_branches(self, distribution: str) -> tuple[int, ...] | None:
        """Return the branches of a release's own archive ("ubuntu 24.04"); None = not known."""
        os_id, _, os_version = distribution.partition(" ")
        archive = self.archives.get(os_id)
        return None if archive is None else archive.releases.get(os_version)

    def headers_package(self, os_id: str, kernel: str) -> str:
        """Return the package with the headers of `kernel` (`uname -r`); KeyError: not known."""
        return self.distributions[os_id].names.headers.replace("{kernel}", kernel)

    def toolkit_package(self, release: str) -> str:
        """Return the package of a CUDA toolkit, "cuda-toolkit-13-0" for "13.0": no driver in it."""
        return self.toolkit_template.replace("{release}", release.replace(".", "-"))


@functools.cache
def catalogue() -> Catalogue:
    """Return the project's own compatibility data, read once.

    Raises StacksError if the file is missing, unreadable or malformed.
    """
    try:
        return parse(STACKS_FILE.read_text(encoding="utf-8"))
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        wrong = f"{'.'.join(map(str, first['loc']))}: {first['msg']}"
    except (OSError, ValueError, TypeError, yaml.YAMLError) as error:
        wrong = str(error)
    raise StacksError(one_line(f"{STACKS_FILE}: {wrong}; correct the file"))


def parse(text: str) -> Catalogue:
    """Return the catalogue in a text; ValueError, or an error of YAML's, where it is malformed."""
    data = yaml.load(text, Loader=_SafeLoader)  # noqa: S506 (it is a SafeLoader)
    for table, field in _NAMED.items():
        for name, body in data[table].items() if isinstance(data, dict) and table in data else ():
            body[field] = name
    return Catalogue.model_validate(data)
