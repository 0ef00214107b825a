"""What the compatibility rules look at: a spec, what is known about versions, and maybe a real
host.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Literal

from packaging.version import Version

from pyinfra_gpu.spec import HostSpec
from pyinfra_gpu.stacks import (
    ArchiveRelease,
    Catalogue,
    CudaRelease,
    DriverBranch,
    Gpu,
    Repository,
    Stack,
    TorchRelease,
    WheelArchs,
)

Change = tuple[tuple[str, object], ...]
Due = Literal["driver", "toolkit"]

MACHINES = {"amd64": "x86_64", "arm64": "aarch64"}  # other names of the same machine
TURING, BLACKWELL = Version("7.5"), Version("10.0")


@dataclass(frozen=True, kw_only=True, slots=True)
class HostFacts:
    """What a look found on a host; None = not there, or not known, or about to be changed.

    + python: version of the interpreter the virtual environment will be made from, e.g. "3.12.3"
    + gcc: major version of the host's gcc
    + architecture: `uname -m`, e.g. "x86_64"
    + driver_loaded: version of the loaded NVIDIA module; None while the driver stage is still to
      act
    + compute_capabilities: one per GPU, e.g. ("12.0", "12.0"); empty while there is no driver to
      ask
    + open_modules: whether the loaded module is the open flavour; None while the driver stage is
      to act
    + glibc: version of the C library, e.g. "2.39"
    + distribution: ID and VERSION_ID of its os-release, as stacks.yaml names releases
    + due: what the next run would install from NVIDIA's repository
    """

    python: str | None
    gcc: int | None
    architecture: str
    driver_loaded: str | None
    compute_capabilities: tuple[str, ...]
    open_modules: bool | None
    glibc: str | None = None
    distribution: str | None = None
    due: frozenset[Due] = frozenset()


@dataclass(frozen=True, kw_only=True, slots=True)
class Problem:
    """What a rule found: the key to blame, what is wrong, what is allowed, and what to change.

    `changes` are ways out as (key, value) pairs, the least invasive first; `advice` stands where
    no key can help, or beside the change where the host can be changed instead.
    """

    key: str
    value: object
    found: str
    allowed: str
    changes: tuple[Change, ...] = ()
    advice: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Case:
    """One question: can this spec work, on a GPU of this compute capability, on this host?"""

    spec: HostSpec
    known: Catalogue
    facts: HostFacts | None = None
    capability: str | None = None
    on_host: bool = field(default=False)  # the capability was read from the host, not declared

    @property
    def nvidia(self) -> bool:
        """Whether the host has GPUs to serve."""
        return self.spec.accelerator == "nvidia"

    @property
    def simulated(self) -> bool:
        """Whether a throwaway host stands for one with GPUs, and runs the CPU build in their place.

        There is no CUDA wheel that a simulated GPU could run, so what is proven there is all but
        torch's own GPU code.
        """
        return self.nvidia and self.spec.rehearsal and self.spec.pytorch.build == "cpu"

    @property
    def stack(self) -> Stack:
        """The chosen stack."""
        return self.known.stacks[self.spec.stack]

    @property
    def gpu(self) -> Gpu | None:
        """The declared GPU model."""
        return None if self.spec.gpu.model is None else self.known.gpus[self.spec.gpu.model]

    @property
    def gpu_name(self) -> str:
        """How a sentence calls the GPU."""
        if self.on_host or self.spec.gpu.model is None:
            return f"the host's GPU of compute capability {self.capability}"
        return f"{self.spec.gpu.model} (compute capability {self.capability})"

    @property
    def release(self) -> TorchRelease | None:
        """The torch release, if known."""
        return self.known.torch.get(self.spec.pytorch.version)

    @property
    def cuda(self) -> CudaRelease | None:
        """The CUDA release; None on cpu stacks."""
        return None if self.spec.cuda.release is None else self.known.cuda[self.spec.cuda.release]

    @property
    def toolkit(self) -> CudaRelease | None:
        """The CUDA release whose toolkit is installed; None where none is, and none can fail."""
        return self.cuda if self.spec.cuda.toolkit else None

    @property
    def machine(self) -> str | None:
        """The machine architecture: the host's, else the one the GPU model is built into."""
        if self.facts is not None:
            return MACHINES.get(self.facts.architecture, self.facts.architecture)
        return None if self.gpu is None else self.gpu.machine

    @property
    def python(self) -> str | None:
        """The interpreter's version: the host's, else what the data names ("3.12",
        "python3.12").
        """
        if self.facts is not None and self.facts.python is not None:
            return self.facts.python
        named = re.search(r"(?:^|python)(3\.\d+)(?:\.\d+)?$", self.spec.pytorch.python)
        return named[1] if named else None

    @property
    def compiler(self) -> tuple[str, int] | None:
        """The C++ compiler as (name, major): the declared one, else the host's gcc."""
        if self.spec.cuda.host_compiler is not None:
            name, _, major = self.spec.cuda.host_compiler.partition("-")
            return name, int(major)
        if self.facts is not None and self.facts.gcc is not None:
            return "gcc", self.facts.gcc
        return None

    @property
    def loaded(self) -> str | None:
        """The loaded driver, if the host has one."""
        return None if self.facts is None else self.facts.driver_loaded

    @property
    def driver(self) -> str:
        """The driver to judge by: the loaded one, else the declared branch."""
        return self.loaded or str(self.spec.driver.branch)

    @property
    def driver_name(self) -> str:
        """How a sentence calls the driver."""
        return f"the loaded driver {self.loaded}" if self.loaded else f"branch {self.driver}"

    @property
    def branch(self) -> DriverBranch | None:
        """What is known about the driver's branch; of an unknown one, about the next older one."""
        if self.loaded is None and self.spec.driver.branch is None:
            return None
        major = Version(self.driver).major
        older = [number for number in self.known.driver_branches if number <= major]
        return self.known.driver_branches[max(older)] if older else None

    def driver_is_below(self, minimum: str) -> bool:
        """Whether the driver is older than `minimum`; a declared branch counts as its newest
        release.
        """
        if self.loaded is None:
            return Version(self.driver) < Version(str(Version(minimum).major))
        return Version(self.loaded) < Version(minimum)

    @property
    def repository(self) -> Repository | None:
        """The repository of NVIDIA's that driver and toolkit come from, if it is one we know.

        A declared URL may name one; else it is that of the host's own distribution.
        """
        declared, releases = self.spec.driver.repository, self.known.repositories.releases
        if declared is None or not self.nvidia:
            return None
        if "{distro}" in declared.url:
            own = None if self.facts is None else self.facts.distribution
            return releases.get(own or "")
        named = declared.url.split("/")
        return next((each for each in releases.values() if each.distro in named), None)

    @property
    def archive(self) -> ArchiveRelease | None:
        """The distribution's own archive, where the driver is to come from it, if we know it."""
        if self.spec.driver.source != "distribution" or self.facts is None or not self.nvidia:
            return None
        return self.known.archive_release(self.facts.distribution or "")

    @property
    def moves_driver(self) -> bool:
        """Whether a driver is to be installed; by data alone, it is."""
        return self.facts is None or "driver" in self.facts.due

    def installs(self, what: Due) -> bool:
        """Whether something is to come from that repository; by data alone, it all is."""
        if what == "driver" and self.spec.driver.source != "nvidia":
            return False
        return self.facts is None or what in self.facts.due

    @property
    def takes_its_stack(self) -> bool:
        """Whether the data takes every version from its stack, so that another settles them."""
        stack, spec = self.stack, self.spec
        return (
            spec.driver.version is None
            and spec.cuda.version is None
            and spec.driver.branch == (stack.driver.branch if stack.driver else None)
            and spec.cuda.release == stack.cuda
            and (spec.pytorch.version, spec.pytorch.build)
            == (stack.torch.version, stack.torch.build)
        )

    def wheels(self) -> list[WheelArchs]:
        """Return the GPU code in this build's wheels, for the machine, or for all where it is not
        known.
        """
        machines = self.known.wheel_archs.get(self.spec.pytorch.build, {})
        if self.machine is None:
            return list(machines.values())
        return [machines[self.machine]] if self.machine in machines else []


def cuda_of(build: str) -> str | None:
    """Return the CUDA release of a build: "13.0" of "cu130", None of "cpu"."""
    return f"{build[2:-1]}.{build[-1]}" if build.startswith("cu") else None


def has_binary(wheel: WheelArchs, capability: str) -> bool:
    """Return whether a wheel holds code this GPU runs as it is: same major, not a newer minor."""
    major, minor = _parts(capability)
    return any(arch // 10 == major and arch % 10 <= minor for arch in wheel.archs)


def has_ptx(wheel: WheelArchs, capability: str) -> bool:
    """Return whether the driver could compile the wheel's code for this GPU."""
    major, minor = _parts(capability)
    return wheel.ptx is not None and wheel.ptx <= major * 10 + minor


def _parts(capability: str) -> tuple[int, int]:
    version = Version(capability)
    return version.major, version.minor
