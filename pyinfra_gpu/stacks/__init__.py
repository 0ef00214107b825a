"""The compatibility data of stacks.yaml, typed: every field is written there, and read here.

`catalogue()` reads the file once. Versions are text. Compute capabilities as numbers are times ten:
120 for "12.0". A range has both of its ends included; None is no end, or none that is known.
"""

# Without `from __future__ import annotations`: pydantic would evaluate the text of each annotation.

import functools
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal

import yaml
from packaging.version import Version as Number
from pydantic import BaseModel, ConfigDict, Field, Strict, ValidationError

from pyinfra_gpu.errors import SpecError
from pyinfra_gpu.text import one_line

STACKS_FILE = Path(__file__).with_name("stacks.yaml")
_NAMED = {
    "stacks": "name", "cuda": "release", "torch": "version", "gpus": "name",
    "driver_branches": "branch",
}  # fmt: skip
"""Table -> the field in which its entries know their own name, which is not written in the file."""

Flavour = Literal["open", "proprietary"]
Extent = Literal["compute", "full"]
Text = Annotated[str, Field(min_length=1)]
Whole = Annotated[int, Strict()]
Version = Annotated[Text, Field(pattern=r"^\d+(\.\d+)*$")]
Range = tuple[Whole, Whole]
OpenRange = tuple[Whole, Whole | None]
Size = Annotated[float, Field(ge=0)]
PackageName = Annotated[Text, Field(pattern=r"^[a-z0-9+.-]+(\{branch\}[a-z0-9+.-]*)?$")]
KernelPackage = Annotated[Text, Field(pattern=r"\{branch\}-[a-z-]+\{(kernel|series)\}$")]
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
    """The torch a stack installs."""

    version: Version
    build: Text


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
    """One CUDA release; of its compilers the majors."""

    release: str
    minimum_driver: Version
    toolkit_drivers: Mapping[str, Version]
    gcc: Range | None
    clang: Range | None
    archs: tuple[Whole, ...]


class TorchRelease(Entry):
    """One torch release; `python` is the range with wheels, `pypi` machine -> build."""

    version: str
    python: tuple[Version, Version]
    glibc: Version | None
    pypi: Mapping[str, Text]
    builds: tuple[Text, ...]


class SpeedBounds(Entry):
    """Fractions of a vendor's figure: below `warn` a GPU is slow, below `fail` it is broken."""

    warn: Size
    fail: Size


class Figures(Entry):
    """What a sound GPU of one kind shows in the smoke test.

    + pattern: for what the driver calls it; + bounds: one of `Catalogue.speed_bounds`
    """

    pattern: Text
    bf16_tflops: Size
    memory_gb_s: Size
    bounds: Text
    source: Text


class Gpu(Entry):
    """One GPU model; of its `figures`, the first that fits the driver's name is meant."""

    name: str
    compute_capability: Version
    pci_ids: tuple[Text, ...]
    memory_mib: Whole | None
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
    + key_fingerprint: of the one key that signs it
    + keyring_sha256: digest of its cuda-keyring package
    + branches: of the driver; + oldest_toolkit: the oldest CUDA release; None = all we know
    """

    distro: Annotated[Text, Field(pattern=r"^[a-z]+\d+$")]
    branches: OpenRange
    oldest_toolkit: Version | None
    key_fingerprint: Annotated[Text, Field(pattern="^[0-9A-F]{40}$")]
    keyring_sha256: Annotated[Text, Field(pattern="^[0-9a-f]{64}$")]

    def carries(self, branch: int) -> bool:
        """Return whether it has packages of a driver branch."""
        return _within(self.branches, branch)


class Repositories(Entry):
    """All of NVIDIA's repositories; `arch` maps a machine to its name in the URL."""

    url: Annotated[Text, Field(pattern=r"^https://\S*\{distro\}\S*\{arch\}\S*$")]
    arch: Mapping[str, Text]
    releases: Mapping[Annotated[str, Field(pattern=r"^\w+ [\d.]+$")], Repository]


class PackageRule(Entry):
    """The packages of a range of branches, as templates with `{branch}`; None = no such flavour."""

    branches: OpenRange
    open: Mapping[Extent, tuple[PackageName, ...]] | None
    proprietary: Mapping[Extent, tuple[PackageName, ...]] | None


class DriverPackages(Entry):
    """What one distribution calls a driver's packages."""

    rules: tuple[PackageRule, ...]

    def driver(self, branch: int, modules: Flavour, packages: Extent) -> tuple[str, ...] | None:
        """Return the packages to install for a branch, or None where none are known."""
        for rule in self.rules:
            flavour = rule.open if modules == "open" else rule.proprietary
            if _within(rule.branches, branch) and flavour is not None:
                return tuple(name.format(branch=branch) for name in flavour[packages])
        return None


class Archive(DriverPackages):
    """What one distribution's own archive has of the driver; see stacks.yaml for each field."""

    labels: tuple[Text, ...]
    releases: Mapping[str, tuple[Whole, ...]]
    companions: Mapping[Flavour, tuple[PackageName, ...]]
    apart: tuple[Text, ...]
    series: str
    prebuilt: Mapping[Flavour, Mapping[Literal["kernel", "series"], KernelPackage]]

    def beside(self, branch: int, modules: Flavour) -> tuple[str, ...]:
        """Return the packages that have to be asked for in the driver's version, too."""
        return tuple(name.format(branch=branch) for name in self.companions[modules])

    def kernel_package(self, branch: int, modules: Flavour, kernel: str) -> str:
        """Return the package with the modules for a kernel (`uname -r`)."""
        return self.prebuilt[modules]["kernel"].format(branch=branch, kernel=kernel)

    def series_package(self, branch: int, modules: Flavour, kernel: str) -> str | None:
        """Return the package that leads to the modules for the newest kernel of the same series.

        None for a kernel whose name tells no series.
        """
        match = _KERNEL.fullmatch(kernel)
        series = match and f"{match['flavour']}-{match['series']}"
        return series and self.prebuilt[modules]["series"].format(branch=branch, series=series)


class Catalogue(Entry):
    """All of stacks.yaml."""

    default_stack: Text
    torch_index: Text
    torch_nightly_index: Text
    build_disk_gib: int
    build_tools: tuple[Text, ...]
    stacks: Mapping[str, Stack]
    cuda: Mapping[str, CudaRelease]
    torch: Mapping[str, TorchRelease]
    wheel_archs: Mapping[str, Mapping[str, tuple[Whole, ...]]]
    strict_cuda: Version
    gpus: Mapping[str, Gpu]
    speed_bounds: Mapping[str, SpeedBounds]
    driver_branches: Mapping[Whole, DriverBranch]
    repositories: Repositories
    headers: Annotated[Text, Field(pattern=r"\{kernel\}$")]
    distributions: Mapping[str, DriverPackages]
    archives: Mapping[str, Archive]
    toolkit_template: Annotated[Text, Field(pattern=r"\{release\}$")]

    def index_of(self, build: str, *, nightly: bool = False) -> str:
        """Return the URL of PyTorch's own index of one build, or of its nightlies."""
        return (self.torch_nightly_index if nightly else self.torch_index).format(build=build)

    def serves(self, version: str, build: str, machine: str = "x86_64") -> bool:
        """Return whether the package index's wheel of a release is this build, on `machine`."""
        release = self.torch.get(version)
        return release is not None and release.pypi.get(machine) == build

    def minimum_driver(self, stack: Stack, branch: int, cuda: str) -> str:
        """Return the oldest driver that will do for a branch and CUDA release on a stack.

        A branch older than every driver the toolkit was made for relies on minor-version
        compatibility.
        """
        if stack.driver is not None and (branch, cuda) == (stack.driver.branch, stack.cuda):
            return stack.driver.minimum
        release = self.cuda[cuda]
        drivers = release.toolkit_drivers.values()
        made_for = [driver for driver in drivers if Number(driver).major <= branch]
        return min(made_for, key=Number) if made_for else release.minimum_driver

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
        wheel = self.wheel_archs.get(gpu_build, {}).get("x86_64", ())
        return tuple(arch for arch in wheel if arch in known)

    def repository(self, os_id: str, os_version: str) -> Repository | None:
        """Return NVIDIA's repository for a release, e.g. ("ubuntu", "24.04"); None = none known."""
        return self.repositories.releases.get(f"{os_id} {os_version}")

    def supported_releases(self) -> Mapping[str, tuple[str, ...]]:
        """Return the distributions we install on: name -> their releases, both as os-release says.

        Those that NVIDIA has a repository for, {"debian": ("12", "13"), "ubuntu": (...)}; sorted.
        """
        found: dict[str, tuple[str, ...]] = {}
        for os_id, os_version in map(str.split, sorted(self.repositories.releases)):
            found[os_id] = (*found.get(os_id, ()), os_version)
        return found

    def repository_arch(self, machine: str) -> str | None:
        """Return what NVIDIA's URLs call a machine (`uname -m`); None = no repository for it."""
        return self.repositories.arch.get(machine)

    def driver_packages(
        self, os_id: str, branch: int, modules: Flavour, packages: Extent
    ) -> tuple[str, ...] | None:
        """Return the packages that are a driver on a distribution; None = none known."""
        known = self.distributions.get(os_id)
        return None if known is None else known.driver(branch, modules, packages)

    def headers_package(self, kernel: str) -> str:
        """Return the package with the headers of `kernel` (`uname -r`)."""
        return self.headers.format(kernel=kernel)

    def toolkit_package(self, release: str) -> str:
        """Return the package of a CUDA toolkit, "cuda-toolkit-13-0" for "13.0": no driver in it."""
        return self.toolkit_template.format(release=release.replace(".", "-"))


@functools.cache
def catalogue() -> Catalogue:
    """Return the project's own compatibility data, read once.

    Raises SpecError with one sentence if the file is missing, unreadable or malformed.
    """
    try:
        # The C parser is several times faster, and there in all builds of PyYAML that pip installs.
        loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
        data = yaml.load(STACKS_FILE.read_text(encoding="utf-8"), Loader=loader)  # noqa: S506
        for table, field in _NAMED.items():
            for name, body in (data or {}).get(table, {}).items():
                body[field] = name
        return Catalogue.model_validate(data)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        wrong = f"{'.'.join(map(str, first['loc']))}: {first['msg']}"
    except (OSError, ValueError, TypeError, AttributeError, yaml.YAMLError) as error:
        wrong = str(error)
    raise SpecError(one_line(f"{STACKS_FILE}: {wrong}; correct the file"))
