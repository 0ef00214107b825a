"""What stacks.yaml consists of: every field is written there, and read by the product.

Versions are text. Compute capabilities as numbers are times ten: 120 for "12.0".
"""

# Without `from __future__ import annotations`: pydantic would evaluate the text of each annotation,
# which takes 10 ms of every run.

import re
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

from pydantic import AfterValidator, BeforeValidator, Field, PlainValidator, Strict

from pyinfra_gpu.stacks.reading import (
    FileEntry,
    Flag,
    Table,
    Text,
    Version,
    Whole,
    expected,
    matching,
)

_PACKAGE = r"[a-z0-9][a-z0-9+.-]*"


def _template(placeholder: str) -> object:
    pattern = rf"{_PACKAGE}{re.escape('{' + placeholder + '}')}"
    return matching(pattern, f"a package name that ends in {{{placeholder}}}")


def _range(value: object) -> tuple[int, int | None]:
    """Accept [lowest, highest]; null as the highest is None, no end."""
    if not isinstance(value, list):
        raise expected("a list")
    whole = [item for item in value if isinstance(item, int) and not isinstance(item, bool)]
    if len(value) == 2 and whole == value and whole[0] <= whole[1]:
        return whole[0], whole[1]
    if len(value) == 2 and len(whole) == 1 and value[1] is None:
        return whole[0], None
    raise expected("[lowest, highest]")


def _closed_range(value: object) -> tuple[int, int]:
    lowest, highest = _range(value)
    if highest is None:
        raise expected("[lowest, highest]")
    return lowest, highest


def _expression(text: str) -> str:
    try:
        re.compile(text)
    except re.error as error:
        raise expected(f"a regular expression ({error})") from None
    return text


def _two(value: object) -> object:
    if isinstance(value, list) and len(value) != 2:
        raise expected("a list of 2 versions")
    return value


def _within(branches: tuple[int, int | None], branch: int) -> bool:
    oldest, newest = branches
    return oldest <= branch and (newest is None or branch <= newest)


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split("."))


Expression = Annotated[Text, AfterValidator(_expression)]
OpenRange = Annotated[tuple[int, int | None], PlainValidator(_range)]
Range = Annotated[tuple[int, int], PlainValidator(_closed_range)]
Size = Annotated[float, Strict(), Field(ge=0)]
PackageName = Annotated[
    Text,
    matching(
        rf"{_PACKAGE}(\{{branch\}}(-{_PACKAGE})?)?",
        "a package name, in which only {branch} is replaced",
    ),
]


@dataclass(frozen=True, kw_only=True, slots=True)
class StackDriver(FileEntry):
    """The driver a stack installs: branch, and oldest version that will do."""

    branch: Whole
    minimum: Version


@dataclass(frozen=True, kw_only=True, slots=True)
class StackTorch(FileEntry):
    """The torch a stack installs and the indexes to ask; None as `index_url` is the package
    index.
    """

    version: Version
    build: Text
    index_url: Text | None
    extra_index_url: Text | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Stack(FileEntry):
    """One coherent set of versions; `driver` and `cuda` are None where there is no GPU."""

    KEYED_BY: ClassVar[str] = "name"

    name: str
    summary: Text
    accelerator: Literal["nvidia", "cpu"]
    driver: StackDriver | None
    cuda: Text | None
    torch: StackTorch
    uv: Version
    minimum_disk_gib: Size
    minimum_ram_gib: Size


@dataclass(frozen=True, kw_only=True, slots=True)
class CudaRelease(FileEntry):
    """One CUDA release; compiler ranges are majors with both ends included, None = no bound
    known.
    """

    KEYED_BY: ClassVar[str] = "release"

    release: str
    minimum_driver: Version
    toolkit_drivers: Table[str, Version]
    gcc: Range | None
    clang: Range | None
    archs: tuple[Whole, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class TorchBuild(FileEntry):
    """What one build of a torch release brings along; None = not noted."""

    nccl: Version | None


@dataclass(frozen=True, kw_only=True, slots=True)
class TorchRelease(FileEntry):
    """One torch release; `python` is (oldest, newest) minor with wheels, `pypi` machine ->
    build.
    """

    KEYED_BY: ClassVar[str] = "version"

    version: str
    python: Annotated[tuple[Version, Version], BeforeValidator(_two)]
    glibc: Version | None
    pypi: Table[str, Text]
    builds: Table[str, TorchBuild]


@dataclass(frozen=True, kw_only=True, slots=True)
class WheelArchs(FileEntry):
    """GPU code in a wheel: compute capabilities times ten, and the newest PTX or None."""

    archs: tuple[Whole, ...]
    ptx: Whole | None


@dataclass(frozen=True, kw_only=True, slots=True)
class SpeedBounds(FileEntry):
    """Fractions of a vendor's figure: below `warn` a GPU is slow, below `fail` it is broken."""

    warn: Size
    fail: Size


@dataclass(frozen=True, kw_only=True, slots=True)
class Figures(FileEntry):
    """What a sound GPU of one kind shows in the smoke test.

    + pattern: for what the driver calls it; + bounds: one of `Catalogue.speed_bounds`
    + memory_as_listed: whether the driver shows every one with the model's `memory_mib`
    """

    pattern: Expression
    bf16_tflops: Size
    memory_gb_s: Size
    bounds: Text
    source: Text
    memory_as_listed: Flag = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Gpu(FileEntry):
    """One GPU model; of its `figures`, the first that fits the driver's name is meant."""

    KEYED_BY: ClassVar[str] = "name"

    name: str
    compute_capability: Version
    pci_ids: tuple[Text, ...]
    memory_mib: Whole | None
    bar1_mib: Whole | None
    open_modules: Literal["required", "supported", "unsupported"]
    machine: Text | None
    figures: tuple[Figures, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class DriverBranch(FileEntry):
    """One driver branch; `oldest` and `newest` are the compute capabilities it serves."""

    KEYED_BY: ClassVar[str] = "branch"

    branch: Whole
    cuda: Version | None
    oldest: Version
    newest: Version | None
    modules: tuple[Text, ...]
    support: Text


@dataclass(frozen=True, kw_only=True, slots=True)
class Repository(FileEntry):
    """NVIDIA's repository of one distribution release.

    + distro: its name in the URL, e.g. "ubuntu2404"
    + key_fingerprint: 40 upper-case hexadecimal digits of the one key that signs it
    + keyring_sha256: digest of its cuda-keyring package
    + branches: the oldest and the newest driver branch it carries; None = no end
    + oldest_toolkit: the oldest CUDA release it carries; None = all we know
    """

    distro: Annotated[Text, matching(r"[a-z]+\d+", "a distribution and its digits")]
    branches: OpenRange
    oldest_toolkit: Version | None
    key_fingerprint: Annotated[Text, matching(r"[0-9A-F]{40}", "40 upper-case hexadecimal digits")]
    keyring_sha256: Annotated[Text, matching(r"[0-9a-f]{64}", "64 lower-case hexadecimal digits")]

    def carries(self, branch: int) -> bool:
        """Return whether it has packages of a driver branch."""
        return _within(self.branches, branch)

    def carries_toolkit(self, release: str) -> bool:
        """Return whether it has the toolkit of a CUDA release, "13.0"."""
        oldest = self.oldest_toolkit
        return oldest is None or _numbers(release) >= _numbers(oldest)


@dataclass(frozen=True, kw_only=True, slots=True)
class Repositories(FileEntry):
    """All of NVIDIA's repositories; `arch` maps a machine to its name in the URL."""

    url: Annotated[
        Text,
        matching(r"https://\S*\{distro\}\S*\{arch\}\S*", "a URL with {distro} and {arch}"),
    ]
    arch: Table[str, Text]
    releases: Table[
        Annotated[str, matching(r"\w+ [\d.]+", "a distribution and its release, 'debian 12'")],
        Repository,
    ]


@dataclass(frozen=True, kw_only=True, slots=True)
class Flavour(FileEntry):
    """What to install for one flavour of kernel modules, as templates with `{branch}`."""

    compute: tuple[PackageName, ...]
    full: tuple[PackageName, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class PackageRule(FileEntry):
    """The packages of a range of branches; a flavour is None where they no longer have it."""

    branches: OpenRange
    open: Flavour | None
    proprietary: Flavour | None

    def covers(self, branch: int) -> bool:
        """Return whether the rule is the one of `branch`."""
        return _within(self.branches, branch)

    def packages(
        self,
        branch: int,
        modules: Literal["open", "proprietary"],
        packages: Literal["compute", "full"],
    ) -> tuple[str, ...] | None:
        """Return the names of a flavour's packages; None where there is no such flavour."""
        flavour = self.open if modules == "open" else self.proprietary
        if flavour is None:
            return None
        names = flavour.compute if packages == "compute" else flavour.full
        return tuple(name.replace("{branch}", str(branch)) for name in names)


@dataclass(frozen=True, kw_only=True, slots=True)
class PackageNames(FileEntry):
    """Packages whose names hold a kernel, a branch or a version."""

    headers: Annotated[Text, _template("kernel")]
    pin_branch: Annotated[Text, _template("branch")]
    pin_version: Annotated[Text, _template("version")]


@dataclass(frozen=True, kw_only=True, slots=True)
class DistributionPackages(FileEntry):
    """What one distribution calls a driver's packages."""

    names: PackageNames
    rules: tuple[PackageRule, ...]

    def driver(
        self,
        branch: int,
        modules: Literal["open", "proprietary"],
        packages: Literal["compute", "full"],
    ) -> tuple[str, ...] | None:
        """Return the packages to install for a branch, or None where none are known."""
        for rule in self.rules:
            if rule.covers(branch) and (names := rule.packages(branch, modules, packages)):
                return names
        return None


ToolkitTemplate = Annotated[Text, _template("release")]
