"""What stacks.yaml consists of: every field is written there, and read by the product.

Versions are text. Compute capabilities as numbers are times ten: 120 for "12.0".
"""

# Without `from __future__ import annotations`: pydantic would evaluate the text of each annotation.

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Annotated, Literal, TypeVar

from packaging.version import Version as Number
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, Strict

T = TypeVar("T")
K = TypeVar("K")
Flavour = Literal["open", "proprietary"]
Extent = Literal["compute", "full"]

Text = Annotated[str, Strict(), Field(min_length=1)]
Whole = Annotated[int, Strict()]
Version = Annotated[Text, Field(pattern=r"^\d+(\.\d+)*$")]
Table = Annotated[Mapping[K, T], AfterValidator(MappingProxyType)]
Range = tuple[Whole, Whole]
OpenRange = tuple[Whole, Whole | None]
"""Lowest and highest, both included; None = no end."""
Size = Annotated[float, Strict(), Field(ge=0)]
PackageName = Annotated[Text, Field(pattern=r"^[a-z0-9+.-]+(\{branch\}[a-z0-9+.-]*)?$")]
_KERNEL = re.compile(r"(?P<series>\d+\.\d+)\.\d+-\d+-(?P<flavour>[a-z0-9-]+)")


class Entry(BaseModel):
    """An entry of the file, with exactly these fields; nobody can change it."""

    model_config = ConfigDict(frozen=True, extra="forbid")


def _within(branches: OpenRange, branch: int) -> bool:
    oldest, newest = branches
    return oldest <= branch and (newest is None or branch <= newest)


class StackDriver(Entry):
    """The driver a stack installs: branch, and oldest version that will do."""

    branch: Whole
    minimum: Version


class StackTorch(Entry):
    """The torch a stack installs and the indexes to ask; None as `index_url` is the package
    index.
    """

    version: Version
    build: Text
    index_url: Text | None
    extra_index_url: Text | None


class Stack(Entry):
    """One coherent set of versions; `driver` and `cuda` are None where there is no GPU."""

    name: str
    summary: Text
    accelerator: Literal["nvidia", "cpu"]
    driver: StackDriver | None
    cuda: Text | None
    torch: StackTorch
    uv: Version
    minimum_disk_gib: Size
    minimum_ram_gib: Size


class CudaRelease(Entry):
    """One CUDA release; compiler ranges are majors with both ends included, None = no bound
    known.
    """

    release: str
    minimum_driver: Version
    toolkit_drivers: Table[str, Version]
    gcc: Range | None
    clang: Range | None
    archs: tuple[Whole, ...]


class TorchBuild(Entry):
    """What one build of a torch release brings along; None = not noted."""

    nccl: Version | None


class TorchRelease(Entry):
    """One torch release; `python` is (oldest, newest) minor with wheels, `pypi` machine ->
    build.
    """

    version: str
    python: tuple[Version, Version]
    glibc: Version | None
    pypi: Table[str, Text]
    builds: Table[str, TorchBuild]


class WheelArchs(Entry):
    """GPU code in a wheel: compute capabilities times ten."""

    archs: tuple[Whole, ...]


class SpeedBounds(Entry):
    """Fractions of a vendor's figure: below `warn` a GPU is slow, below `fail` it is broken."""

    warn: Size
    fail: Size


class Figures(Entry):
    """What a sound GPU of one kind shows in the smoke test.

    + pattern: for what the driver calls it; + bounds: one of `Catalogue.speed_bounds`
    + memory_as_listed: whether the driver shows every one with the model's `memory_mib`
    """

    pattern: Text
    bf16_tflops: Size
    memory_gb_s: Size
    bounds: Text
    source: Text
    memory_as_listed: Annotated[bool, Strict()] = False


class Gpu(Entry):
    """One GPU model; of its `figures`, the first that fits the driver's name is meant."""

    name: str
    compute_capability: Version
    pci_ids: tuple[Text, ...]
    memory_mib: Whole | None
    bar1_mib: Whole | None
    open_modules: Literal["required", "supported", "unsupported"]
    machine: Text | None
    figures: tuple[Figures, ...] = ()


class DriverBranch(Entry):
    """One driver branch; `oldest` and `newest` are the compute capabilities it serves."""

    branch: Whole
    cuda: Version | None
    oldest: Version
    newest: Version | None
    modules: tuple[Text, ...]
    support: Text


class Repository(Entry):
    """NVIDIA's repository of one distribution release.

    + distro: its name in the URL, e.g. "ubuntu2404"
    + key_fingerprint: 40 upper-case hexadecimal digits of the one key that signs it
    + keyring_sha256: digest of its cuda-keyring package
    + branches: the oldest and the newest driver branch it carries; None = no end
    + oldest_toolkit: the oldest CUDA release it carries; None = all we know
    """

    distro: Annotated[Text, Field(pattern=r"^[a-z]+\d+$")]
    branches: OpenRange
    oldest_toolkit: Version | None
    key_fingerprint: Annotated[Text, Field(pattern="^[0-9A-F]{40}$")]
    keyring_sha256: Annotated[Text, Field(pattern="^[0-9a-f]{64}$")]

    def carries(self, branch: int) -> bool:
        """Return whether it has packages of a driver branch."""
        return _within(self.branches, branch)

    def carries_toolkit(self, release: str) -> bool:
        """Return whether it has the toolkit of a CUDA release, "13.0"."""
        oldest = self.oldest_toolkit
        return oldest is None or Number(release) >= Number(oldest)


class Repositories(Entry):
    """All of NVIDIA's repositories; `arch` maps a machine to its name in the URL."""

    url: Annotated[Text, Field(pattern=r"^https://\S*\{distro\}\S*\{arch\}\S*$")]
    arch: Table[str, Text]
    releases: Table[Annotated[str, Field(pattern=r"^\w+ [\d.]+$")], Repository]


class Packages(Entry):
    """What to install for one flavour of kernel modules, as templates with `{branch}`."""

    compute: tuple[PackageName, ...]
    full: tuple[PackageName, ...]


class PackageRule(Entry):
    """The packages of a range of branches; a flavour is None where they no longer have it."""

    branches: OpenRange
    open: Packages | None
    proprietary: Packages | None

    def covers(self, branch: int) -> bool:
        """Return whether the rule is the one of `branch`."""
        return _within(self.branches, branch)

    def packages(self, branch: int, modules: Flavour, packages: Extent) -> tuple[str, ...] | None:
        """Return the names of a flavour's packages; None where there is no such flavour."""
        flavour = self.open if modules == "open" else self.proprietary
        if flavour is None:
            return None
        names = flavour.compute if packages == "compute" else flavour.full
        return tuple(name.replace("{branch}", str(branch)) for name in names)


class PackageNames(Entry):
    """Packages whose names hold a kernel, a branch or a version."""

    headers: Annotated[Text, Field(pattern=r"\{kernel\}$")]


class DistributionPackages(Entry):
    """What one distribution calls a driver's packages."""

    names: PackageNames
    rules: tuple[PackageRule, ...]

    def driver(self, branch: int, modules: Flavour, packages: Extent) -> tuple[str, ...] | None:
        """Return the packages to install for a branch, or None where none are known."""
        for rule in self.rules:
            if rule.covers(branch) and (names := rule.packages(branch, modules, packages)):
                return names
        return None


KernelPackage = Annotated[Text, Field(pattern=r"\{branch\}-[a-z-]+\{(kernel|series)\}$")]


class KernelPackages(Entry):
    """Packages with modules, as templates: for one kernel, and for the newest of its series."""

    kernel: KernelPackage
    series: KernelPackage


class Archive(Entry):
    """What one distribution's own archive has of the driver; see stacks.yaml for each field."""

    labels: tuple[Text, ...]
    releases: Table[str, tuple[Whole, ...]]
    rules: tuple[PackageRule, ...]
    companions: Table[Flavour, tuple[PackageName, ...]]
    apart: tuple[Text, ...]
    series: str
    prebuilt: Table[Flavour, KernelPackages]

    def driver(self, branch: int, modules: Flavour, packages: Extent) -> tuple[str, ...] | None:
        """Return the packages to install for a branch, or None where none are known."""
        for rule in self.rules:
            if rule.covers(branch):
                return rule.packages(branch, modules, packages)
        return None

    def beside(self, branch: int, modules: Flavour) -> tuple[str, ...]:
        """Return the packages that have to be asked for in the driver's version, too."""
        return tuple(name.replace("{branch}", str(branch)) for name in self.companions[modules])

    def kernel_package(self, branch: int, modules: Flavour, kernel: str) -> str:
        """Return the package with the modules for a kernel (`uname -r`)."""
        name = self.prebuilt[modules].kernel
        return name.replace("{branch}", str(branch)).replace("{kernel}", kernel)

    def series_package(self, branch: int, modules: Flavour, kernel: str) -> str | None:
        """Return the package that leads to the modules for the newest kernel of the same series.

        None for a kernel whose name tells no series.
        """
        match = _KERNEL.fullmatch(kernel)
        if match is None:
            return None
        name = self.prebuilt[modules].series.replace("{branch}", str(branch))
        return name.replace("{series}", f"{match['flavour']}-{match['series']}")
