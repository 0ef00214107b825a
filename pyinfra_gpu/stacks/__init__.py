"""The compatibility data of stacks.yaml, typed and checked.

`catalogue()` reads the file once. A file that is malformed raises StacksError with one sentence
that names the file, the place in it and what belongs there.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Collection, Hashable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

import yaml
from packaging.version import Version
from pydantic import ValidationError
from pydantic_core import ErrorDetails

from pyinfra_gpu.errors import SpecError, shown
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
NAMED = {
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
    toolkit_template: model.ToolkitTemplate

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
    data = _load(text, source)
    if isinstance(data, dict):
        for table, field in NAMED.items():
            for name, body in _mapping(data.get(table)).items():
                if field in _mapping(body):
                    it = "is not a field: it is the entry's name"
                    raise _wrong(source, f"{table}.{name}.{field}", it)
                if isinstance(body, dict):
                    body[field] = name
    try:
        found = Catalogue.model_validate(data)
    except ValidationError as error:
        raise _sentence(source, error.errors(include_url=False)[0]) from None
    _check_references(found, source)
    return found


def _mapping(value: object) -> Mapping[object, object]:
    return value if isinstance(value, dict) else {}


class _StrictLoader(_SafeLoader):
    """SafeLoader that refuses a key given twice, which YAML forbids and PyYAML silently accepts."""

    def construct_mapping(
        self, node: yaml.MappingNode, deep: bool = False
    ) -> dict[Hashable, object]:
        seen = set()
        for key_node, _ in node.value:
            key = self.construct_object(key_node, deep=True)
            if key in seen:
                raise yaml.constructor.ConstructorError(
                    None, None, f"the key {key!r} is given twice", key_node.start_mark
                )
            seen.add(key)
        return super().construct_mapping(node, deep)


def _load(text: str, source: str) -> object:
    try:
        return yaml.load(text, Loader=_StrictLoader)  # noqa: S506 (it is a SafeLoader)
    except yaml.MarkedYAMLError as error:
        line = f" line {error.problem_mark.line + 1}" if error.problem_mark else ""
        raise StacksError(
            one_line(f"{source}{line}: is not valid YAML ({error.problem}); correct that line")
        ) from None
    except (yaml.YAMLError, TypeError) as error:
        raise StacksError(one_line(f"{source}: is not valid YAML ({error}); correct it")) from None


_IT = {
    "missing": "is missing",
    "extra_forbidden": "is not a field",
    "string_type": "must be text; versions stay in quotes",
    "string_too_short": "must be text; versions stay in quotes",
    "int_type": "must be a whole number",
    "float_type": "must be a number of at least 0",
    "greater_than_equal": "must be a number of at least 0",
    "tuple_type": "must be a list",
    "mapping_type": "must be a mapping",
    "model_type": "must be a mapping",
}
"""Kind of pydantic's error -> its words in our sentence; of others, pydantic's own."""


def _sentence(source: str, error: ErrorDetails) -> StacksError:
    path = [str(part) for part in error["loc"]]
    it = _IT.get(error["type"], error["msg"])
    if error["type"] == "literal_error":
        it = "must be one of " + ", ".join(re.findall("'([^']*)'", error["ctx"]["expected"]))
    if path[-1:] == ["[key]"]:
        path.pop()
        it = "must be a name in quotes" if error["type"] == "string_type" else it
    place = ".".join(path) or "the file"
    found = "" if error["type"] == "missing" else shown(place, error["input"])
    return _wrong(source, place, it, found)


def _wrong(source: str, place: str, it: str, found: str = "") -> StacksError:
    found = f" = {found}" if found else ""
    return StacksError(one_line(f"{source}: {place}{found} is wrong: it {it}; correct the file"))


def _refuse_unknown(source: str, place: str, name: object, names: Collection[object]) -> None:
    if name not in names:
        listed = ", ".join(str(each) for each in names)
        raise _wrong(source, place, f"must be one of {listed}", shown(place, name))


def _check_references(data: Catalogue, source: str) -> None:
    """Refuse a name that points at nothing: a typo here would silently switch a check off."""
    for gpu in data.gpus.values():
        for number, figures in enumerate(gpu.figures):
            place = f"gpus.{gpu.name}.figures.{number}"
            _refuse_unknown(source, f"{place}.bounds", figures.bounds, data.speed_bounds)
            if figures.memory_as_listed and gpu.memory_mib is None:
                it = "has a memory_mib to be as listed"
                raise _wrong(source, f"{place}.memory_as_listed", it)
    _check_stacks(data, source)


def _check_stacks(data: Catalogue, source: str) -> None:

    def known(place: str, name: object, names: Collection[object]) -> None:
        _refuse_unknown(source, place, name, names)

    known("default_stack", data.default_stack, data.stacks)
    for stack in data.stacks.values():
        place = f"stacks.{stack.name}"
        if {stack.driver is None, stack.cuda is None} != {stack.accelerator == "cpu"}:
            it = "has a driver and a cuda release if, and only if, it is nvidia"
            raise _wrong(source, place, it)
        if stack.driver is not None:
            known(f"{place}.driver.branch", stack.driver.branch, data.driver_branches)
        if stack.cuda is not None:
            known(f"{place}.cuda", stack.cuda, data.cuda)
        known(f"{place}.torch.version", stack.torch.version, data.torch)
        builds = data.torch[stack.torch.version].builds
        known(f"{place}.torch.build", stack.torch.build, builds)
    for release in data.torch.values():
        for build in release.builds:
            known(f"torch.{release.version}.builds", build, data.wheel_archs)
        for build in release.pypi.values():
            known(f"torch.{release.version}.pypi", build, release.builds)
