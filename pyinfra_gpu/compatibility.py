"""What fits together: rules over a host's data and, once it was looked at, over the host itself.

`resolve` begins a deploy: it returns a host's spec, or raises one sentence. `check_host` asks the
same rules again with what a look found: a GPU nobody declared is judged like a declared one.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from packaging.version import Version

from pyinfra_gpu import spec as declared
from pyinfra_gpu.errors import SpecError, sentence, shown
from pyinfra_gpu.spec import HostSpec
from pyinfra_gpu.stacks import (
    Catalogue,
    CudaRelease,
    DriverBranch,
    Gpu,
    Repository,
    Stack,
    TorchRelease,
    WheelArchs,
    catalogue,
)
from pyinfra_gpu.text import one_line

Due = Literal["driver", "toolkit"]

MACHINES = {"amd64": "x86_64", "arm64": "aarch64"}  # other names of the same machine
TURING, BLACKWELL = Version("7.5"), Version("10.0")


class Refusal(str):
    """The sentence of a refusal, and its parts: what was found, what is allowed, the remedy."""

    found: str
    allowed: str
    remedy: str


@dataclass(frozen=True, kw_only=True, slots=True)
class HostFacts:
    """What a look found on a host; None = not there, or not known, or about to be changed.

    + python: version of the interpreter the virtual environment will be made from, e.g. "3.12.3"
    + gcc: major version of the host's gcc
    + architecture: `uname -m`, e.g. "x86_64"
    + driver_loaded: version of the loaded NVIDIA module; None while another is to come
    + compute_capabilities: one per GPU, e.g. ("12.0", "12.0"); empty while no driver can be asked
    + open_modules: whether the loaded module is the open one; None while another is to come
    + glibc: version of the C library, e.g. "2.39"
    + distribution: ID and VERSION_ID of its os-release, as stacks.yaml names releases
    + due: what the next run would install from the driver's repository
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


@dataclass(frozen=True, slots=True)
class Problem:
    """What a rule found: the key to blame, what is wrong with its value, and what is allowed.

    `fix` is what to set; `advice` is what can be done on the host instead.
    """

    key: str
    found: str
    allowed: str
    fix: str = ""
    advice: str = ""


@dataclass(frozen=True, slots=True)
class Case:
    """One question: does this spec work, on a GPU of this compute capability, on this host?"""

    spec: HostSpec
    known: Catalogue
    facts: HostFacts | None
    capability: str | None
    on_host: bool  # the capability was read from the host, not declared

    def value(self, key: str) -> object:
        """Return what a sentence shows as the value of a key."""
        spec, building = self.spec, self.spec.pytorch.building
        if key == "cuda_archs":
            return capabilities(spec.cuda.archs)
        if key == "pytorch_archs":
            return list(building.archs) if building else []
        if key == "host_compiler":
            return spec.cuda.host_compiler
        section, _, field = key.partition("_")
        return getattr(getattr(spec, section), field)

    @property
    def stack(self) -> Stack:
        """The chosen stack."""
        return self.known.stacks[self.spec.stack]

    @property
    def nvidia(self) -> bool:
        """Whether the host has GPUs to serve."""
        return self.stack.accelerator == "nvidia"

    @property
    def simulated(self) -> bool:
        """Whether a throwaway host with a simulated GPU runs the CPU build."""
        return self.nvidia and self.spec.rehearsal and self.spec.pytorch.build == "cpu"

    @property
    def major(self) -> int:
        """The major number of the GPU's compute capability; 0 where it is not known."""
        return Version(self.capability).major if self.capability else 0

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
        """The CUDA release whose toolkit is installed; None where none is."""
        return self.cuda if self.spec.cuda.toolkit else None

    @property
    def machine(self) -> str | None:
        """The machine architecture: the host's, else the one the GPU model is built into."""
        if self.facts is not None:
            return MACHINES.get(self.facts.architecture, self.facts.architecture)
        return None if self.gpu is None else self.gpu.machine

    @property
    def python(self) -> str | None:
        """The interpreter's version: the host's, else the one that the data names."""
        if self.facts is not None and self.facts.python is not None:
            return self.facts.python
        named = re.search(r"(?:^|python)(3\.\d+)(?:\.\d+)?$", self.spec.pytorch.python)
        return named[1] if named else None

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
        """Tell whether the driver is too old; a declared branch counts as its newest release."""
        if self.loaded is None:
            return Version(self.driver) < Version(str(Version(minimum).major))
        return Version(self.loaded) < Version(minimum)

    @property
    def repository(self) -> Repository | None:
        """The repository of NVIDIA's that driver and toolkit come from, if it is one we know.

        A declared URL may name one; else it is that of the host's own distribution.
        """
        mirror, releases = self.spec.driver.repository, self.known.repositories.releases
        if mirror is None or not self.nvidia:
            return None
        if "{distro}" in mirror.url:
            return releases.get((self.facts.distribution if self.facts else None) or "")
        named = mirror.url.split("/")
        return next((each for each in releases.values() if each.distro in named), None)

    @property
    def archive(self) -> tuple[int, ...] | None:
        """The branches of the distribution's archive, where the driver is to come from it."""
        if self.spec.driver.source != "distribution" or self.facts is None or not self.nvidia:
            return None
        return self.known.archive_branches(self.facts.distribution or "")

    def installs(self, what: Due) -> bool:
        """Tell whether the next run installs it; by data alone, it does."""
        return self.facts is None or what in self.facts.due

    def wheels(self) -> list[WheelArchs]:
        """Return the GPU code in this build's wheels: for the machine, or for all of them."""
        machines = self.known.wheel_archs.get(self.spec.pytorch.build, {})
        if self.machine is None:
            return list(machines.values())
        return [machines[self.machine]] if self.machine in machines else []


Check = Callable[[Case], Problem | None]
RULES: dict[str, Check] = {}
"""Rules by id, in the order in which a person should learn of problems."""
OF_WHEELS: set[str] = set()
"""Those about published wheels: none is installed where torch is a nightly, or built."""


def rule(name: str, *, of_wheels: bool = False) -> Callable[[Check], Check]:
    """Register a rule."""

    def register(check: Check) -> Check:
        RULES[name] = check
        if of_wheels:
            OF_WHEELS.add(name)
        return check

    return register


def resolve(data: Mapping[str, object], host: str) -> HostSpec:
    """Return what `host` should be, from its merged data.

    Raises SpecError if a key or value is wrong, if keys do not fit each other, or if the
    combination cannot work: always one sentence that says what to change.
    """
    spec = declared.resolve(data, host)
    check_spec(spec)
    return spec


def check_spec(spec: HostSpec) -> None:
    """Raise SpecError with the first reason why the data alone shows that this cannot work."""
    for _, refusal in refusals(spec):
        raise SpecError(refusal)


def check_host(spec: HostSpec, facts: HostFacts) -> list[Refusal]:
    """Return one sentence per reason why this host cannot be what `spec` says; [] if it can.

    Leave `driver_loaded`, `open_modules` and `compute_capabilities` empty in `facts` while the
    driver stage is still to install another driver: what is loaded now says nothing then.
    """
    return list(dict.fromkeys(refusal for _, refusal in refusals(spec, facts)))


def refusals(spec: HostSpec, facts: HostFacts | None = None) -> Iterator[tuple[str, Refusal]]:
    """Yield (rule id, sentence) for each rule that refuses `spec` or its host."""
    there = dict.fromkeys(facts.compute_capabilities if facts else ())
    gpus: list[tuple[str | None, bool]] = [(each, True) for each in there]
    gpus = gpus or [(spec.gpu.compute_capability, False)]
    for name, check in RULES.items():
        if spec.pytorch.source != "wheel" and name in OF_WHEELS:
            continue
        for capability, on_host in gpus:
            case = Case(spec, catalogue(), facts, capability, on_host)
            if problem := check(case):
                yield name, _refusal(case, problem)


def _refusal(case: Case, problem: Problem) -> Refusal:
    remedy = ", or ".join(filter(None, (problem.fix, problem.advice)))
    remedy = remedy or "no stack serves this host: leave it out of the inventory"
    where, value = f"host {case.spec.host}", case.value(problem.key)
    refusal = Refusal(
        sentence(where, problem.key, value, problem.found, allowed=problem.allowed, remedy=remedy)
    )
    refusal.found = one_line(f"{problem.key} = {shown(problem.key, value)} {problem.found}")
    refusal.allowed, refusal.remedy = one_line(problem.allowed), one_line(remedy)
    return refusal


def own_or_other(
    case: Case, key: str, value: Callable[[Stack], object], good: Callable[[Stack], bool]
) -> str:
    """Return the remedy "set ...": the stack's own value where that is good, else a good stack."""
    if good(case.stack):
        return f"set {key} = {value(case.stack)!r}"
    others = (s for s in case.known.stacks.values() if s.accelerator == "nvidia" and good(s))
    return next((_take(case, each) for each in others), "")


def _take(case: Case, stack: Stack) -> str:
    """Return the remedy to choose another stack; keys that override it would stay in its way."""
    own, spec = case.stack, case.spec
    given = {
        "driver_branch": (spec.driver.branch, own.driver and own.driver.branch),
        "driver_version": (spec.driver.version, None),
        "cuda_release": (spec.cuda.release, own.cuda),
        "cuda_version": (spec.cuda.version, None),
        "pytorch_version": (spec.pytorch.version, own.torch.version),
        "pytorch_build": (spec.pytorch.build, own.torch.build),
    }
    keys = [key for key, (value, default) in given.items() if value != default]
    return f"set stack = {stack.name!r}" + (f" and remove {' and '.join(keys)}" if keys else "")


def _serves_gpu(case: Case, stack: Stack) -> bool:
    """Tell whether driver, toolkit and torch of a stack know the GPU."""
    if stack.driver is None or stack.cuda is None or case.capability is None:
        return False
    branch = case.known.driver_branches[stack.driver.branch]
    toolkit = WheelArchs(archs=case.known.cuda[stack.cuda].archs, ptx=None)
    machines = case.known.wheel_archs[stack.torch.build]
    wheels = [each for name, each in machines.items() if case.machine in (None, name)]
    return (
        _knows(branch, case.capability)
        and _serves(branch, case.capability)
        and _has_code(toolkit, case.capability)
        and any(_has_code(each, case.capability) for each in wheels)
    )


def _knows(branch: DriverBranch, capability: str) -> bool:
    newest = branch.newest
    return newest is None or Version(newest).major >= Version(capability).major


def _serves(branch: DriverBranch, capability: str) -> bool:
    return Version(branch.oldest) <= Version(capability)


def _other_driver(case: Case, good: Callable[[Stack], bool]) -> tuple[str, str]:
    """Return (what to set, what to do on the host) where the driver will not do.

    To declare another branch does not change what is loaded.
    """
    if case.loaded is None:
        return own_or_other(case, "driver_branch", lambda s: s.driver and s.driver.branch, good), ""
    declared = case.spec.driver
    wanted = declared.version or f"branch {declared.branch}, {declared.minimum} or newer,"
    return "", f"install driver {wanted} on the host and reboot it"


def _from_branch(minimum: str) -> Callable[[Stack], bool]:
    first = Version(minimum).major
    return lambda stack: stack.driver is not None and stack.driver.branch >= first


def _of_driver(case: Case, finding: str) -> str:
    """Return what is wrong with driver_branch, or with the loaded driver in its place."""
    if case.loaded is None:
        return finding
    return f"is declared, but the loaded driver {case.loaded} {finding}"


def cuda_of(build: str) -> str | None:
    """Return the CUDA release of a torch build: "13.0" of "cu130", None of "cpu"."""
    return f"{build[2:-1]}.{build[-1]}" if build.startswith("cu") else None


def capabilities(archs: tuple[int, ...] | list[int]) -> list[str]:
    """Return compute capabilities as text: "12.0" for 120."""
    return [f"{arch // 10}.{arch % 10}" for arch in archs]


def _has_code(wheel: WheelArchs, capability: str) -> bool:
    """Tell whether a wheel holds code this GPU runs as it is: same major, not a newer minor."""
    major, minor = map(int, capability.split("."))
    return any(arch // 10 == major and arch % 10 <= minor for arch in wheel.archs)


# --- The rules ---


@rule("gpu-count")
def gpu_count(case: Case) -> Problem | None:
    """A host without GPUs is declared by its stack: a missing GPU is never taken for a choice."""
    count, stack = case.spec.gpu.count, case.stack.name
    if case.nvidia and count == 0:
        cpu = next(s.name for s in case.known.stacks.values() if s.accelerator == "cpu")
        found, allowed = f"leaves the NVIDIA stack {stack} without a GPU", "1 to 16"
        fix = f"set gpu_count to the number of GPUs, or stack = {cpu!r}"
    elif not case.nvidia and count > 0:
        found, allowed = f"counts GPUs that the cpu stack {stack} would not use", "0"
        fix = "set gpu_count = 0"
    else:
        return None
    return Problem("gpu_count", found, f"{allowed} with this stack", fix)


@rule("gpu-model")
def gpu_model(case: Case) -> Problem | None:
    """The host's GPU is not the declared one."""
    gpu = case.gpu
    if gpu is None or not case.on_host or case.capability == gpu.compute_capability:
        return None
    mixed = case.facts is not None and len(set(case.facts.compute_capabilities)) > 1
    models = [m.name for m in case.known.gpus.values() if m.compute_capability == case.capability]
    fix = "set gpu_model to the one that is in the host, or to None"
    if mixed or len(models) == 1:
        fix = f"set gpu_model = {None if mixed else models[0]!r}"
    return Problem(
        "gpu_model",
        f"is declared, which has compute capability {gpu.compute_capability}, "
        f"but the host has a GPU of {case.capability}",
        ", ".join(models) or "a model with that compute capability, or None",
        fix,
        "take the other GPUs out" if mixed else "",
    )


@rule("build-of-accelerator")
def build_of_accelerator(case: Case) -> Problem | None:
    """The CPU build cannot use a GPU; a CUDA build without one is gigabytes for nothing."""
    cpu, stack = case.spec.pytorch.build == "cpu", case.stack
    if cpu != case.nvidia or case.simulated:
        return None
    if cpu:
        found = f"cannot use the GPUs of the NVIDIA stack {stack.name}"
        allowed = "a cuNNN build with an NVIDIA stack"
    else:
        found = f"needs a GPU, and the stack {stack.name} is for hosts without one"
        allowed = "'cpu' with a cpu stack"
    return Problem("pytorch_build", found, allowed, f"set pytorch_build = {stack.torch.build!r}")


@rule("torch-unknown", of_wheels=True)
def torch_unknown(case: Case) -> Problem | None:
    """A release we know nothing about cannot be checked."""
    if case.release is not None:
        return None
    known = sorted(case.known.torch, key=Version)
    older = [
        version
        for version in known
        if Version(version) <= Version(case.spec.pytorch.version)
        and case.spec.pytorch.build in case.known.torch[version].builds
    ]
    return Problem(
        "pytorch_version",
        "is not a torch release this project knows",
        ", ".join(known),
        f"set pytorch_version = {(older or [case.stack.torch.version])[-1]!r}",
    )


@rule("build-not-published", of_wheels=True)
def build_not_published(case: Case) -> Problem | None:
    """Each torch release is built for a few CUDA releases only."""
    release, own = case.release, case.spec.cuda.release
    if release is None or case.spec.pytorch.build in release.builds:
        return None
    fitting = [
        build
        for build in release.builds
        if build == "cpu" or (own and Version(cuda_of(build) or "0") <= Version(own))
    ]
    return Problem(
        "pytorch_build",
        f"is not published for torch {release.version}",
        f"{', '.join(release.builds)} with torch {release.version}",
        f"set pytorch_build = {fitting[-1]!r}",
    )


@rule("machine-without-wheel", of_wheels=True)
def machine_without_wheel(case: Case) -> Problem | None:
    """torch is published for few machines."""
    machines = case.known.wheel_archs.get(case.spec.pytorch.build)
    if case.machine is None or machines is None or case.machine in machines:
        return None
    return Problem(
        "pytorch_build",
        f"has no wheel for the machine {case.machine}",
        f"{' or '.join(machines)} with {case.spec.pytorch.build}",
        advice=f"use a host whose machine is {' or '.join(machines)}",
    )


@rule("index-of-other-build", of_wheels=True)
def index_of_other_build(case: Case) -> Problem | None:
    """PyTorch's indexes hold one build each; a foreign one would win over the declared build."""
    for key in ("pytorch_index_url", "pytorch_extra_index_url"):
        url = str(case.value(key) or "")
        named = re.search(r"/whl/(?:nightly/|test/)?(cpu|cu\d{3})/?$", url)
        if named and named[1] != case.spec.pytorch.build:
            return Problem(
                key,
                f"holds the build {named[1]}, and pytorch_build is {case.spec.pytorch.build!r}",
                f"an index of {case.spec.pytorch.build}",
                f"set {key} = {case.known.index_of(case.spec.pytorch.build)!r}",
            )
    return None


@rule("package-index-serves-other-build", of_wheels=True)
def package_index_serves_other_build(case: Case) -> Problem | None:
    """The package index has one build per release and machine; not the same one on each machine."""
    version, build, machine = case.spec.pytorch.version, case.spec.pytorch.build, case.machine
    if machine is None or case.release is None or not case.known.serves(version, build):
        return None
    if case.spec.pytorch.index_url is not None or case.spec.pytorch.extra_index_url is not None:
        return None
    served = case.release.pypi.get(machine)
    if served == build or not case.wheels():
        return None
    return Problem(
        "pytorch_build",
        f"is not what the package index serves for torch {version} on {machine}"
        + (f": that is {served}" if served else ""),
        f"an index of {build} for {machine}",
        f"set pytorch_index_url = {case.known.index_of(build)!r}",
    )


@rule("python")
def python(case: Case) -> Problem | None:
    """Each torch release has wheels for a range of Pythons."""
    if case.release is None or case.python is None:
        return None
    oldest, newest = case.release.python
    there, torch = Version(case.python), f"torch {case.release.version}"
    if there < Version(oldest):
        how, fix = "too old", ""
        advice = f"install Python {oldest} or newer on the host and set pytorch_python to it"
    elif there.release[:2] > Version(newest).release[:2]:
        how, fix, advice = "too new", f"set pytorch_python = {newest!r}", ""
    else:
        return None
    found = f"is Python {case.python}, {how} for {torch}"
    return Problem(
        "pytorch_python", found, f"Python {oldest} to {newest} with {torch}", fix, advice
    )


@rule("c-library", of_wheels=True)
def c_library(case: Case) -> Problem | None:
    """A manylinux_2_28 wheel does not load on an older C library."""
    there = case.facts.glibc if case.facts else None
    needed = case.release.glibc if case.release else None
    if there is None or needed is None or Version(there) >= Version(needed):
        return None
    return Problem(
        "pytorch_version",
        f"needs glibc {needed}, and the host has {there}",
        f"glibc {needed} or newer",
        "install a newer distribution on the host, Debian 11 or Ubuntu 22.04 at least",
    )


@rule("driver-version")
def driver_version(case: Case) -> Problem | None:
    """A branch and a version that is not of it contradict each other; neither is a guess."""
    version, branch = case.spec.driver.version, case.spec.driver.branch
    if version is None or branch is None or Version(version).major == branch:
        return None
    named = Version(version).major
    return Problem(
        "driver_version",
        f"is not a version of branch {branch}",
        f"a version that begins with {branch}, or None",
        f"set driver_branch = {named}" if named in case.known.driver_branches else
        "set driver_version = None",
    )  # fmt: skip


@rule("cuda-version")
def cuda_version(case: Case) -> Problem | None:
    """A toolkit package carries its release in its name, so a version of another is not in it."""
    version, release = case.spec.cuda.version, case.spec.cuda.release
    if version is None or release is None or version.startswith(f"{release}."):
        return None
    named = version.rpartition(".")[0]
    return Problem(
        "cuda_version",
        f"is not a version of CUDA {release}",
        f"a version that begins with {release}., or None",
        f"set cuda_release = {named!r}" if named in case.known.cuda else "set cuda_version = None",
    )


@rule("driver-of-gpu")
def driver_of_gpu(case: Case) -> Problem | None:
    """A driver does not know GPUs that came after it, and newer branches drop old ones."""
    branch, capability = case.branch, case.capability
    if not case.nvidia or capability is None or branch is None:
        return None
    branches = case.known.driver_branches.values()
    if not _knows(branch, capability):
        first = min((b.branch for b in branches if _knows(b, capability)), default=0)
        found, allowed = f"does not know {case.gpu_name}", f"branch {first} or newer"
    elif not _serves(branch, capability):
        last = max((b.branch for b in branches if _serves(b, capability)), default=0)
        found, allowed = f"no longer serves {case.gpu_name}", f"branch {last} or older"
    else:
        return None
    remedy = _other_driver(case, lambda stack: _serves_gpu(case, stack))
    found, allowed = _of_driver(case, found), f"{allowed} for this GPU"
    return Problem("driver_branch", found, allowed, *remedy)


@rule("driver-of-cuda")
def driver_of_cuda(case: Case) -> Problem | None:
    """Below its minimum a CUDA release does not start at all."""
    if case.spec.driver.minimum is None or case.cuda is None:
        return None
    minimum = case.spec.driver.minimum if case.loaded else case.cuda.minimum_driver
    if not case.driver_is_below(minimum):
        return None
    return Problem(
        "driver_branch",
        _of_driver(case, f"is too old for CUDA {case.cuda.release}"),
        f"driver {minimum} or newer with CUDA {case.cuda.release}",
        *_other_driver(case, _from_branch(minimum)),
    )


@rule("driver-version-too-old")
def driver_version_too_old(case: Case) -> Problem | None:
    """Below its minimum a CUDA release does not start, or cannot compile at run time."""
    version, minimum = case.spec.driver.version, case.spec.driver.minimum
    if version is None or minimum is None or Version(version) >= Version(minimum):
        return None
    return Problem(
        "driver_version",
        f"is too old for CUDA {case.spec.cuda.release}",
        f"{minimum} or newer with CUDA {case.spec.cuda.release}",
        "set driver_version = None",
    )


@rule("driver-of-wheel", of_wheels=True)
def driver_of_wheel(case: Case) -> Problem | None:
    """torch brings its own CUDA libraries, and these have a minimum driver too."""
    build = cuda_of(case.spec.pytorch.build)
    if build is None or not case.nvidia:
        return None
    major = build.partition(".")[0]
    same = [each for name, each in case.known.cuda.items() if name.split(".")[0] == major]
    if not same or not case.driver_is_below(same[0].minimum_driver):
        return None
    minimum = same[0].minimum_driver
    return Problem(
        "pytorch_build",
        f"brings CUDA {build}, which does not start on {case.driver_name}",
        f"driver {minimum} or newer with CUDA {major}.x builds",
        *_other_driver(case, _from_branch(minimum)),
    )


@rule("branch-not-carried")
def branch_not_carried(case: Case) -> Problem | None:
    """NVIDIA's repository of a newer distribution begins with a newer branch."""
    carried, branch = case.repository, case.spec.driver.branch
    if case.spec.driver.source != "nvidia" or not case.installs("driver"):
        return None
    if carried is None or branch is None or carried.carries(branch):
        return None
    oldest, newest = carried.branches
    return Problem(
        "driver_branch",
        f"is not in NVIDIA's repository for {carried.distro}",
        f"branch {oldest} {'or newer' if newest is None else f'to {newest}'} on {carried.distro}",
        _carried_stack(case, carried),
        advice=_elsewhere(case, lambda other: other.carries(branch)),
    )


def _carried_stack(case: Case, carried: Repository) -> str:
    """Return "set stack = ..." for the first stack of which a repository has all."""
    fits = (
        stack
        for stack in case.known.stacks.values()
        if stack.driver is not None and carried.carries(stack.driver.branch)
        if stack.cuda is not None and carried.carries_toolkit(stack.cuda)
    )
    return next((_take(case, stack) for stack in fits), "")


def _elsewhere(case: Case, has: Callable[[Repository], bool]) -> str:
    """Return which releases have it, where the host's own was read on the host."""
    others = [name for name, each in case.known.repositories.releases.items() if has(each)]
    if case.facts is None or not others:
        return ""
    return f"install the host anew with one of {', '.join(others)}"


@rule("branch-not-in-archive")
def branch_not_in_archive(case: Case) -> Problem | None:
    """A distribution's own archive has the branches of its day, and keeps to them."""
    own, branch = case.archive, case.spec.driver.branch
    if own is None or branch is None or branch in own or not case.installs("driver"):
        return None
    name = f"the archive of {case.facts.distribution}" if case.facts else "its archive"
    return Problem(
        "driver_source",
        f"offers branch {' and '.join(map(str, own))} in {name}, and driver_branch = "
        f"{branch} is declared",
        f"a driver_branch that {name} carries",
        own_or_other(
            case,
            "driver_branch",
            lambda s: s.driver and s.driver.branch,
            lambda s: s.driver is not None and s.driver.branch in own,
        ),
        "set driver_source = 'nvidia'",
    )


@rule("modules")
def modules(case: Case) -> Problem | None:
    """From branch 615 on there are open modules only; Blackwell and Grace need them, and GPUs older
    than Turing cannot use them, for want of a GPU System Processor.
    """
    branch, flavour = case.branch, case.spec.driver.modules
    if not case.nvidia or branch is None:
        return None
    if flavour not in branch.modules:
        return Problem(
            "driver_modules",
            f"does not exist with {case.driver_name}",
            f"{' or '.join(map(repr, branch.modules))} from branch {branch.branch} on",
            "set driver_modules = 'open'",
        )
    newest = case.capability is not None and Version(case.capability) >= BLACKWELL
    ours = case.gpu is not None and case.gpu.open_modules == "required" and not gpu_model(case)
    closed = case.facts is not None and case.facts.open_modules is False
    if (newest or ours) and (closed or flavour != "open"):
        problem = f"does not bring up {case.gpu_name}"
        if flavour == "open":
            loaded = "is declared, but the proprietary modules are loaded"
            problem = f"{loaded}, and these do not bring up {case.gpu_name}"
        reboot = f"install the open modules of branch {case.spec.driver.branch} and reboot the host"
        right = "" if flavour == "open" else "set driver_modules = 'open'"
        return Problem(
            "driver_modules",
            problem,
            "'open' for Blackwell and Grace",
            " and ".join(filter(None, (right, reboot if closed else ""))),
        )
    if flavour == "open" and case.capability and Version(case.capability) < TURING:
        return Problem(
            "driver_modules",
            f"does not bring up {case.gpu_name}, which is older than Turing",
            "'proprietary' for GPUs older than Turing",
            "set driver_modules = 'proprietary'",
        )
    return None


@rule("toolkit-of-gpu")
def toolkit_of_gpu(case: Case) -> Problem | None:
    """A toolkit makes no code for GPUs that came after it, and newer ones drop old GPUs."""
    if case.toolkit is None or case.capability is None:
        return None
    oldest, newest = capabilities([min(case.toolkit.archs), max(case.toolkit.archs)])
    if Version(case.capability) < Version(oldest):
        found, allowed = f"no longer makes code for {case.gpu_name}", f"{oldest} or newer"
    elif case.major > Version(newest).major:
        found, allowed = f"does not yet make code for {case.gpu_name}", f"{newest} or older"
    else:
        return None
    allowed = f"compute capability {allowed} with CUDA {case.toolkit.release}"

    fix = own_or_other(case, "cuda_release", lambda s: s.cuda, lambda s: _serves_gpu(case, s))
    return Problem("cuda_release", found, allowed, fix)


@rule("code-of-toolkit")
def code_of_toolkit(case: Case) -> Problem | None:
    """nvcc stops at an architecture it does not know, and at one it no longer knows."""
    if case.toolkit is None:
        return None
    missing = [arch for arch in case.spec.cuda.archs if arch not in case.toolkit.archs]
    if not missing:
        return None
    made = capabilities([arch for arch in case.spec.cuda.archs if arch in case.toolkit.archs])
    return Problem(
        "cuda_archs",
        f"holds {', '.join(capabilities(missing))}, for which CUDA {case.toolkit.release} makes no "
        "code",
        f"{', '.join(capabilities(case.toolkit.archs))} with CUDA {case.toolkit.release}",
        f"set cuda_archs = {made or None!r}",
    )


@rule("code-of-build")
def code_of_build(case: Case) -> Problem | None:
    """A build stops at an architecture that its nvcc does not know; without the GPU's own, hours of
    compiling would end in a torch that launches no kernel.
    """
    building, capability = case.spec.pytorch.building, case.capability
    if building is None or case.cuda is None:
        return None
    known, release = capabilities(case.cuda.archs), case.cuda.release
    missing = [arch for arch in building.archs if arch not in known]
    own = WheelArchs(archs=tuple(int(a.replace(".", "")) for a in building.archs), ptx=None)
    fix = f"set pytorch_archs = {[capability] if capability else None!r}"
    if missing:
        found = f"holds {', '.join(missing)}, for which CUDA {release} makes no code"
        return Problem("pytorch_archs", found, f"{', '.join(known)} with CUDA {release}", fix)
    if case.nvidia and capability and not _has_code(own, capability):
        found, allowed = f"makes no code for {case.gpu_name}", f"{capability} among them"
        return Problem("pytorch_archs", found, allowed, fix)
    return None


@rule("build-of-other-cuda")
def build_of_other_cuda(case: Case) -> Problem | None:
    """A wheel that is built here is of the toolkit that builds it, whatever it is called."""
    if case.spec.pytorch.building is None or case.cuda is None or case.simulated:
        return None
    right = f"cu{case.cuda.release.replace('.', '')}"
    if case.spec.pytorch.build == right:
        return None
    found = f"would be built with CUDA {case.cuda.release}"
    fix = f"set pytorch_build = {right!r}"
    return Problem("pytorch_build", found, f"{right} with that toolkit", fix)


@rule("toolkit-not-carried")
def toolkit_not_carried(case: Case) -> Problem | None:
    """As of the branch; where the driver is missing too, that says it all."""
    carried, toolkit = case.repository, case.toolkit
    if carried is None or toolkit is None or not case.installs("toolkit"):
        return None
    if carried.carries_toolkit(toolkit.release) or branch_not_carried(case):
        return None
    return Problem(
        "cuda_release",
        f"is not in NVIDIA's repository for {carried.distro}",
        f"CUDA {carried.oldest_toolkit} or newer on {carried.distro}",
        _carried_stack(case, carried),
        _elsewhere(case, lambda other: other.carries_toolkit(toolkit.release)),
    )


@rule("nccl", of_wheels=True)
def nccl(case: Case) -> Problem | None:
    """An NCCL older than the GPU fails in the first all-reduce, after everything else worked."""
    if not case.nvidia or case.release is None:
        return None
    build = case.release.builds.get(case.spec.pytorch.build)
    minimum = case.known.nccl_minimum.get(str(case.major))
    if build is None or build.nccl is None or minimum is None:
        return None
    if Version(build.nccl) >= Version(minimum):
        return None
    return Problem(
        "pytorch_version",
        f"brings NCCL {build.nccl}, whose all-reduce fails on {case.gpu_name}",
        f"a torch with NCCL {minimum} or newer for this GPU",
        own_or_other(
            case, "pytorch_version", lambda s: s.torch.version, lambda s: _serves_gpu(case, s)
        ),
    )


@rule("code-of-wheel", of_wheels=True)
def code_of_wheel(case: Case) -> Problem | None:
    """Without code for the GPU every kernel launch fails: "no kernel image is available"."""
    wheels, capability = case.wheels(), case.capability
    if not case.nvidia or capability is None or not wheels or case.spec.pytorch.build == "cpu":
        return None
    number = int(capability.replace(".", ""))
    if any(_has_code(each, capability) or (each.ptx or number + 1) <= number for each in wheels):
        return None

    archs = sorted({arch for wheel in wheels for arch in wheel.archs})
    where = f" on {case.machine}" if case.machine else ""
    return Problem(
        "pytorch_build",
        f"has no code for {case.gpu_name}{where}",
        f"compute capabilities {', '.join(capabilities(archs))} with it",
        own_or_other(
            case, "pytorch_build", lambda s: s.torch.build, lambda s: _serves_gpu(case, s)
        ),
    )


@rule("build-newer-than-driver")
def build_newer_than_driver(case: Case) -> Problem | None:
    """Within one CUDA major an older driver runs a newer toolkit's finished code, and no PTX of it.

    It ends with CUDA_ERROR_UNSUPPORTED_PTX_VERSION, so a wheel without finished code for the GPU
    cannot work there. From `strict_cuda` on a newer build is refused at all: see stacks.yaml. What
    torch.compile makes is no matter: Triton's own assembler writes finished code.
    """
    build, branch = cuda_of(case.spec.pytorch.build), case.branch
    if not case.nvidia or build is None or branch is None or branch.cuda is None:
        return None
    ours, theirs = Version(build), Version(branch.cuda)
    if ours <= theirs or ours.major != theirs.major:
        return None
    strict = ours >= Version(case.known.strict_cuda)
    wheels, capability = case.wheels(), case.capability
    known = capability is not None and bool(wheels)
    if not strict and (not known or any(_has_code(each, str(capability)) for each in wheels)):
        return None
    nccl = ", and NCCL of such a build did not start" if strict else ""
    return Problem(
        "pytorch_build",
        f"is of CUDA {build}, newer than {case.driver_name} translates code of "
        f"(CUDA {branch.cuda}){nccl}",
        f"builds up to CUDA {branch.cuda} with {case.driver_name}",
        own_or_other(
            case,
            "pytorch_build",
            lambda stack: stack.torch.build,
            lambda stack: bool(stack.cuda) and Version(str(stack.cuda)) <= theirs,
        ),
        _other_driver(case, _from_branch("0"))[1],
    )


@rule("compiler")
def compiler(case: Case) -> Problem | None:
    """nvcc stops at a host compiler newer than it knows, and needs the language of newer ones."""
    asked, toolkit = case.spec.cuda.host_compiler, case.toolkit
    if asked is not None:
        name, _, number = asked.partition("-")
    elif case.facts is not None and case.facts.gcc is not None:
        name, number = "gcc", str(case.facts.gcc)
    else:
        return None
    bounds = None if toolkit is None else toolkit.clang if name == "clang" else toolkit.gcc
    if toolkit is None or bounds is None or bounds[0] <= int(number) <= bounds[1]:
        return None
    what = "is" if asked else f"leaves the host its own {name} {number}, which is"
    how = "too new" if int(number) > bounds[1] else "too old"
    return Problem(
        "host_compiler",
        f"{what} {how} for CUDA {toolkit.release}",
        f"{name} {bounds[0]} to {bounds[1]} with CUDA {toolkit.release}",
        f"set host_compiler = '{name}-{bounds[1]}'",
    )
