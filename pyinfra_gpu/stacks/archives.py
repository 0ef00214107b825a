"""The distributions' own archives: which driver each release offers, and its names there."""

# Without `from __future__ import annotations`, as in model.py.

import re
from dataclasses import dataclass
from typing import Annotated, Literal

from pyinfra_gpu.stacks.model import PackageName, PackageRule
from pyinfra_gpu.stacks.reading import FileEntry, Table, Text, Whole, matching

ModuleFlavour = Literal["open", "proprietary"]

_KERNEL = re.compile(r"(?P<series>\d+\.\d+)\.\d+-\d+-(?P<flavour>[a-z0-9-]+)")

KernelPackage = Annotated[
    Text,
    matching(
        r"[a-z0-9-]+-\{branch\}-[a-z-]+\{(kernel|series)\}",
        "a package name that ends in {kernel} or {series}",
    ),
]


@dataclass(frozen=True, kw_only=True, slots=True)
class ArchiveRelease(FileEntry):
    """One release's archive: its code name, and the driver branches it offers."""

    codename: Annotated[Text, matching(r"[a-z]+", "a code name")]
    branches: tuple[Whole, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class OfFlavour(FileEntry):
    """A text for each flavour of kernel modules."""

    open: Text
    proprietary: Text


@dataclass(frozen=True, kw_only=True, slots=True)
class KernelPackages(FileEntry):
    """Packages with modules, as templates: for one kernel, and for the newest of its series."""

    kernel: KernelPackage
    series: KernelPackage


@dataclass(frozen=True, kw_only=True, slots=True)
class Prebuilt(FileEntry):
    """Modules that the distribution built, by flavour, as templates with `{branch}`."""

    open: KernelPackages
    proprietary: KernelPackages

    def of(self, modules: ModuleFlavour, branch: int) -> KernelPackages:
        """Return a flavour's packages for a branch; only kernel and series are left to fill in."""
        found = self.open if modules == "open" else self.proprietary
        kernel, series = (
            each.replace("{branch}", str(branch)) for each in (found.kernel, found.series)
        )
        return KernelPackages(kernel=kernel, series=series)


@dataclass(frozen=True, kw_only=True, slots=True)
class Companions(FileEntry):
    """What each flavour needs in its own version, as templates with `{branch}`."""

    open: tuple[PackageName, ...]
    proprietary: tuple[PackageName, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Alternatives(FileEntry):
    """Groups of alternatives and where each has to lead."""

    open: Table[str, Text]
    proprietary: Table[str, Text]


@dataclass(frozen=True, kw_only=True, slots=True)
class Archive(FileEntry):
    """What one distribution's own archive has of the driver; see stacks.yaml for each field."""

    labels: tuple[Text, ...]
    components: tuple[Text, ...]
    releases: Table[str, ArchiveRelease]
    rules: tuple[PackageRule, ...]
    companions: Companions
    apart: tuple[Text, ...]
    series: str
    prebuilt: Prebuilt | None
    modules: OfFlavour
    alternatives: Alternatives

    def driver(
        self, branch: int, modules: ModuleFlavour, packages: Literal["compute", "full"]
    ) -> tuple[str, ...] | None:
        """Return the packages to install for a branch, or None where none are known."""
        for rule in self.rules:
            if rule.covers(branch):
                return rule.packages(branch, modules, packages)
        return None

    def beside(self, branch: int, modules: ModuleFlavour) -> tuple[str, ...]:
        """Return the packages that have to be asked for in the driver's version, too."""
        names = self.companions.open if modules == "open" else self.companions.proprietary
        return tuple(name.replace("{branch}", str(branch)) for name in names)

    def kernel_package(self, branch: int, modules: ModuleFlavour, kernel: str) -> str | None:
        """Return the package with the modules for a kernel (`uname -r`); None where DKMS builds."""
        if self.prebuilt is None:
            return None
        return self.prebuilt.of(modules, branch).kernel.replace("{kernel}", kernel)

    def series_package(self, branch: int, modules: ModuleFlavour, kernel: str) -> str | None:
        """Return the package that leads to the modules for the newest kernel of the same series.

        "generic-6.8" is the series of "6.8.0-151-generic"; a kernel named otherwise has none.
        """
        match = _KERNEL.fullmatch(kernel)
        if self.prebuilt is None or match is None:
            return None
        series = f"{match['flavour']}-{match['series']}"
        return self.prebuilt.of(modules, branch).series.replace("{series}", series)

    def module(self, modules: ModuleFlavour) -> str:
        """Return the module that `modprobe nvidia` loads."""
        return self.modules.open if modules == "open" else self.modules.proprietary

    def leads(self, modules: ModuleFlavour) -> dict[str, str]:
        """Return where the alternatives have to lead: group -> path."""
        return dict(self.alternatives.open if modules == "open" else self.alternatives.proprietary)
