"""What fits together: rules over a host's data and, once it was looked at, over the host itself.

`resolve` begins a deploy: it returns a host's spec, or raises one sentence. `check_host` asks the
same rules again with what a look found: a GPU nobody declared is judged like a declared one. A rule
yields what does not fit: the key to blame, what is wrong with it, what is allowed, what to do.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple

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
_NOBODY = "no stack serves this host: leave it out of the inventory"


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


class Problem(NamedTuple):
    """What a rule found: the key to blame, what is wrong with it, what is allowed, what to do."""

    key: str
    found: str
    allowed: str
    fix: str


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
    def toolkit(self) -> CudaRelease | None:
        """The CUDA release whose toolkit is installed; None where none is."""
        cuda = self.spec.cuda
        return self.known.cuda[cuda.release] if cuda.release and cuda.toolkit else None

    @property
    def machine(self) -> str | None:
        """The machine architecture: the host's, else the one the GPU model is built into."""
        if self.facts is not None:
            return MACHINES.get(self.facts.architecture, self.facts.architecture)
        return None if self.gpu is None else self.gpu.machine

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
        if not self.nvidia or (self.loaded is None and self.spec.driver.branch is None):
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

    def installs(self, what: Due) -> bool:
        """Tell whether the next run installs it; by data alone, it does."""
        return self.facts is None or what in self.facts.due

    def wheels(self, build: str | None = None) -> list[WheelArchs]:
        """Return the GPU code in a build's wheels: for the machine, or for all of them."""
        machines = self.known.wheel_archs.get(build or self.spec.pytorch.build, {})
        return [each for name, each in machines.items() if self.machine in (None, name)]

    def take(self, key: str, good: Callable[[Stack], bool]) -> str:
        """Return the remedy for a value that does not fit: a stack that does, or the stack's own.

        + good: whether a stack that has a GPU fits
        """
        if good(self.stack):
            return f"remove {key}: the stack's own fits"
        names = [s.name for s in self.known.stacks.values() if s.driver and s.cuda and good(s)]
        more = "and remove keys that change its versions"
        return f"set stack = {' or '.join(map(repr, names[:2]))} {more}" if names else ""

    def take_driver(self, good: Callable[[Stack], bool]) -> str:
        """Return the remedy for a driver: to declare another does not change what is loaded."""
        if self.loaded is None:
            return self.take("driver_branch", good)
        ours = self.spec.driver
        wanted = ours.version or f"branch {ours.branch}, {ours.minimum} or newer,"
        return f"install driver {wanted} on the host and reboot it"


Check = Callable[[Case], Iterator[Problem]]
RULES: dict[str, Check] = {}
"""Rules by id, in the order in which a person should learn of problems."""
OF_WHEELS: set[str] = set()
"""Those about published wheels: none is installed where torch is a nightly, or built."""


def rule(check: Check) -> Check:
    """Register a rule, of which the first problem counts; its id is the function's name."""
    RULES[check.__name__.replace("_", "-")] = check
    return check


def rule_of_wheels(check: Check) -> Check:
    """Register a rule about published wheels."""
    OF_WHEELS.add(check.__name__.replace("_", "-"))
    return rule(check)


def resolve(data: Mapping[str, object], host: str) -> HostSpec:
    """Return what `host` should be, from its merged data.

    Raises SpecError if a key or value is wrong, if keys do not fit each other, or if the
    combination cannot work: always one sentence that says what to change.
    """
    spec = declared.resolve(data, host)
    for _, refusal in refusals(spec):
        raise SpecError(refusal)
    return spec


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
            for problem in check(case):
                yield name, _refusal(case, problem)
                break


def _refusal(case: Case, problem: Problem) -> Refusal:
    key, found, allowed, fix = problem
    where, value, remedy = f"host {case.spec.host}", case.value(key), fix or _NOBODY
    refusal = Refusal(sentence(where, key, value, found, allowed=allowed, remedy=remedy))
    refusal.found = one_line(f"{key} = {shown(key, value)} {found}")
    refusal.allowed, refusal.remedy = one_line(allowed), one_line(remedy)
    return refusal


def cuda_of(build: str) -> str | None:
    """Return the CUDA release of a torch build: "13.0" of "cu130", None of "cpu"."""
    return f"{build[2:-1]}.{build[-1]}" if build.startswith("cu") else None


def capabilities(archs: Iterable[int]) -> list[str]:
    """Return compute capabilities as text: "12.0" for 120."""
    return [f"{arch // 10}.{arch % 10}" for arch in archs]


def _has_code(archs: Iterable[int], capability: str) -> bool:
    """Tell whether a GPU runs some of this code as it is: of the same major, no newer minor."""
    major, minor = map(int, capability.split("."))
    return any(arch // 10 == major and arch % 10 <= minor for arch in archs)


def _knows(branch: DriverBranch, capability: str) -> bool:
    return branch.newest is None or Version(branch.newest).major >= Version(capability).major


def _serves(branch: DriverBranch, capability: str) -> bool:
    return Version(branch.oldest) <= Version(capability)


def _serves_gpu(case: Case) -> Callable[[Stack], bool]:
    """Return what tells whether driver, toolkit and torch of a stack know the GPU."""

    def good(stack: Stack) -> bool:
        if stack.driver is None or stack.cuda is None or case.capability is None:
            return False
        branch = case.known.driver_branches[stack.driver.branch]
        return (
            _knows(branch, case.capability)
            and _serves(branch, case.capability)
            and _has_code(case.known.cuda[stack.cuda].archs, case.capability)
            and any(_has_code(w.archs, case.capability) for w in case.wheels(stack.torch.build))
        )

    return good


def _from_branch(minimum: str) -> Callable[[Stack], bool]:
    first = Version(minimum).major
    return lambda stack: stack.driver is not None and stack.driver.branch >= first


def _of_driver(case: Case, finding: str) -> str:
    """Return what is wrong with driver_branch, or with the loaded driver in its place."""
    return f"is declared, but the loaded driver {case.loaded} {finding}" if case.loaded else finding


# --- The rules ---


@rule
def gpu_count(case: Case) -> Iterator[Problem]:
    """A host without GPUs is declared by its stack: a missing GPU is never taken for a choice."""
    count, stack = case.spec.gpu.count, case.stack.name
    if case.nvidia and count == 0:
        cpu = next(s.name for s in case.known.stacks.values() if s.accelerator == "cpu")
        found = f"leaves the NVIDIA stack {stack} without a GPU"
        fix = f"set gpu_count to the number of GPUs, or stack = {cpu!r}"
        yield Problem("gpu_count", found, "1 to 16 with this stack", fix)
    elif not case.nvidia and count > 0:
        found = f"counts GPUs that the cpu stack {stack} would not use"
        yield Problem("gpu_count", found, "0 with this stack", "set gpu_count = 0")


@rule
def gpu_model(case: Case) -> Iterator[Problem]:
    """The host's GPU is not the declared one."""
    gpu = case.gpu
    if gpu is not None and case.on_host and case.capability != gpu.compute_capability:
        same = [m.name for m in case.known.gpus.values() if m.compute_capability == case.capability]
        yield Problem(
            "gpu_model",
            f"is declared, which has compute capability {gpu.compute_capability}, "
            f"but the host has a GPU of {case.capability}",
            ", ".join(same) or "a model with that compute capability, or None",
            "set gpu_model to what is in the host; with GPUs of several kinds set it to None, or"
            " take the others out",
        )


@rule
def build_of_accelerator(case: Case) -> Iterator[Problem]:
    """The CPU build cannot use a GPU; a CUDA build without one is gigabytes for nothing."""
    cpu, stack = case.spec.pytorch.build == "cpu", case.stack
    fix = f"set pytorch_build = {stack.torch.build!r}"
    if cpu and case.nvidia and not case.simulated:
        found = f"cannot use the GPUs of the NVIDIA stack {stack.name}"
        yield Problem("pytorch_build", found, "a cuNNN build with an NVIDIA stack", fix)
    elif not cpu and not case.nvidia:
        found = f"needs a GPU, and the stack {stack.name} is for hosts without one"
        yield Problem("pytorch_build", found, "'cpu' with a cpu stack", fix)


@rule_of_wheels
def torch_unknown(case: Case) -> Iterator[Problem]:
    """A release we know nothing about cannot be checked."""
    if case.release is None:
        known = ", ".join(sorted(case.known.torch, key=Version))
        found = "is not a torch release this project knows"
        fix = f"set pytorch_version = {case.stack.torch.version!r}, or another of these"
        yield Problem("pytorch_version", found, known, fix)


@rule_of_wheels
def build_not_published(case: Case) -> Iterator[Problem]:
    """Each torch release is built for a few CUDA releases only."""
    release = case.release
    if release is not None and case.spec.pytorch.build not in release.builds:
        allowed = f"{', '.join(release.builds)} with torch {release.version}"
        found, fix = (
            f"is not published for torch {release.version}",
            "set pytorch_build to one of these",
        )
        yield Problem("pytorch_build", found, allowed, fix)


@rule_of_wheels
def machine_without_wheel(case: Case) -> Iterator[Problem]:
    """torch is published for few machines."""
    machines = case.known.wheel_archs.get(case.spec.pytorch.build)
    if case.machine is not None and machines is not None and case.machine not in machines:
        named = " or ".join(machines)
        found = f"has no wheel for the machine {case.machine}"
        allowed = f"{named} with {case.spec.pytorch.build}"
        yield Problem("pytorch_build", found, allowed, f"use a host whose machine is {named}")


@rule_of_wheels
def index_of_other_build(case: Case) -> Iterator[Problem]:
    """PyTorch's indexes hold one build each; a foreign one would win over the declared build."""
    build = case.spec.pytorch.build
    for key in ("pytorch_index_url", "pytorch_extra_index_url"):
        named = re.search(r"/whl/(?:nightly/|test/)?(cpu|cu\d{3})/?$", str(case.value(key) or ""))
        if named and named[1] != build:
            found = f"holds the build {named[1]}, and pytorch_build is {build!r}"
            fix = f"set {key} = {case.known.index_of(build)!r}"
            yield Problem(key, found, f"an index of {build}", fix)


@rule_of_wheels
def package_index_serves_other_build(case: Case) -> Iterator[Problem]:
    """The package index has one build per release and machine; not the same one on each machine."""
    torch, machine, release = case.spec.pytorch, case.machine, case.release
    if torch.index_url or torch.extra_index_url or machine is None or release is None:
        return
    served = release.pypi.get(machine)
    if served != torch.build and case.wheels():
        found = f"is not what the package index serves for torch {torch.version} on {machine}"
        found += f": that is {served}" if served else ""
        fix = f"set pytorch_index_url = {case.known.index_of(torch.build)!r}"
        yield Problem("pytorch_build", found, f"an index of {torch.build} for {machine}", fix)


@rule
def python(case: Case) -> Iterator[Problem]:
    """Each torch release has wheels for a range of Pythons."""
    named = re.search(r"(?:^|python)(3\.\d+)(?:\.\d+)?$", case.spec.pytorch.python)
    text = (case.facts.python if case.facts else None) or (named[1] if named else None)
    if case.release is None or text is None:
        return
    oldest, newest = case.release.python
    there, torch = Version(text), f"torch {case.release.version}"
    allowed = f"Python {oldest} to {newest} with {torch}"
    if there < Version(oldest):
        fix = f"install Python {oldest} or newer on the host and set pytorch_python to it"
        yield Problem("pytorch_python", f"is Python {text}, too old for {torch}", allowed, fix)
    elif there.release[:2] > Version(newest).release[:2]:
        fix = f"set pytorch_python = {newest!r}"
        yield Problem("pytorch_python", f"is Python {text}, too new for {torch}", allowed, fix)


@rule_of_wheels
def c_library(case: Case) -> Iterator[Problem]:
    """A manylinux_2_28 wheel does not load on an older C library."""
    there = case.facts.glibc if case.facts else None
    needed = case.release.glibc if case.release else None
    if there is not None and needed is not None and Version(there) < Version(needed):
        found = f"needs glibc {needed}, and the host has {there}"
        fix = "install a newer distribution on the host, Debian 11 or Ubuntu 22.04 at least"
        yield Problem("pytorch_version", found, f"glibc {needed} or newer", fix)


@rule
def version_of_other(case: Case) -> Iterator[Problem]:
    """A version that is not of its branch, or its release, contradicts it; neither is a guess."""
    driver, cuda = case.spec.driver, case.spec.cuda
    if driver.version and driver.branch and not driver.version.startswith(f"{driver.branch}."):
        found, named = f"is not a version of branch {driver.branch}", driver.version.split(".")[0]
        allowed = f"a version that begins with {driver.branch}., or None"
        fix = f"set driver_branch = {named}, or driver_version = None"
        yield Problem("driver_version", found, allowed, fix)
    if cuda.version and cuda.release and not cuda.version.startswith(f"{cuda.release}."):
        found, named = f"is not a version of CUDA {cuda.release}", cuda.version.rpartition(".")[0]
        allowed = f"a version that begins with {cuda.release}., or None"
        fix = f"set cuda_release = {named!r}, or cuda_version = None"
        yield Problem("cuda_version", found, allowed, fix)


@rule
def driver_of_gpu(case: Case) -> Iterator[Problem]:
    """A driver does not know GPUs that came after it, and newer branches drop old ones."""
    branch, capability = case.branch, case.capability
    if branch is None or capability is None:
        return
    every, fix = case.known.driver_branches.values(), case.take_driver(_serves_gpu(case))
    if not _knows(branch, capability):
        first = min((b.branch for b in every if _knows(b, capability)), default=0)
        found = _of_driver(case, f"does not know {case.gpu_name}")
        yield Problem("driver_branch", found, f"branch {first} or newer for this GPU", fix)
    elif not _serves(branch, capability):
        last = max((b.branch for b in every if _serves(b, capability)), default=0)
        found = _of_driver(case, f"no longer serves {case.gpu_name}")
        yield Problem("driver_branch", found, f"branch {last} or older for this GPU", fix)


@rule
def driver_of_cuda(case: Case) -> Iterator[Problem]:
    """Below its minimum a CUDA release does not start, or cannot compile at run time."""
    driver, release = case.spec.driver, case.spec.cuda.release
    if driver.minimum is None or release is None:
        return
    minimum = driver.minimum if case.loaded else case.known.cuda[release].minimum_driver
    if case.driver_is_below(minimum):
        found = _of_driver(case, f"is too old for CUDA {release}")
        allowed = f"driver {minimum} or newer with CUDA {release}"
        yield Problem("driver_branch", found, allowed, case.take_driver(_from_branch(minimum)))
    elif driver.version is not None and Version(driver.version) < Version(driver.minimum):
        allowed = f"{driver.minimum} or newer with CUDA {release}"
        fix = "set driver_version = None"
        yield Problem("driver_version", f"is too old for CUDA {release}", allowed, fix)


@rule_of_wheels
def driver_of_wheel(case: Case) -> Iterator[Problem]:
    """torch brings its own CUDA libraries, and these have a minimum driver too."""
    build = cuda_of(case.spec.pytorch.build)
    if build is None or not case.nvidia:
        return
    major = build.partition(".")[0]
    same = [each for name, each in case.known.cuda.items() if name.split(".")[0] == major]
    if same and case.driver_is_below(same[0].minimum_driver):
        minimum = same[0].minimum_driver
        found = f"brings CUDA {build}, which does not start on {case.driver_name}"
        allowed = f"driver {minimum} or newer with CUDA {major}.x builds"
        yield Problem("pytorch_build", found, allowed, case.take_driver(_from_branch(minimum)))


@rule
def not_carried(case: Case) -> Iterator[Problem]:
    """NVIDIA's repository of a newer distribution begins with a newer branch and toolkit."""
    carried, branch, toolkit = case.repository, case.spec.driver.branch, case.toolkit
    if carried is None:
        return

    def has_both(stack: Stack) -> bool:
        driver = stack.driver is not None and carried.carries(stack.driver.branch)
        return driver and stack.cuda is not None and carried.carries_toolkit(stack.cuda)

    found = f"is not in NVIDIA's repository for {carried.distro}"
    ours = case.spec.driver.source == "nvidia" and case.installs("driver")
    if ours and branch is not None and not carried.carries(branch):
        oldest, newest = carried.branches
        allowed = f"branch {oldest} {'or newer' if newest is None else f'to {newest}'}"
        fix = case.take("driver_branch", has_both)
        yield Problem("driver_branch", found, f"{allowed} on {carried.distro}", fix)
    elif toolkit and case.installs("toolkit") and not carried.carries_toolkit(toolkit.release):
        allowed = f"CUDA {carried.oldest_toolkit} or newer on {carried.distro}"
        yield Problem("cuda_release", found, allowed, case.take("cuda_release", has_both))


@rule
def not_in_archive(case: Case) -> Iterator[Problem]:
    """A distribution's own archive has the branches of its day, and keeps to them."""
    branch, where = case.spec.driver.branch, case.facts.distribution if case.facts else None
    own = case.known.archive_branches(where) if where else None
    ours = case.nvidia and case.spec.driver.source == "distribution" and case.installs("driver")
    if ours and own is not None and branch is not None and branch not in own:
        offers = f"offers branch {' and '.join(map(str, own))} in the archive of {where}"
        yield Problem(
            "driver_source",
            f"{offers}, and driver_branch = {branch} is declared",
            f"a driver_branch that the archive of {where} carries",
            f"set driver_branch = {own[-1]}, or driver_source = 'nvidia'",
        )


@rule
def modules(case: Case) -> Iterator[Problem]:
    """From branch 615 on there are open modules only; Blackwell and Grace need them, and GPUs older
    than Turing cannot use them, for want of a GPU System Processor.
    """
    branch, flavour = case.branch, case.spec.driver.modules
    if branch is None:
        return
    if flavour not in branch.modules:
        allowed = f"{' or '.join(map(repr, branch.modules))} from branch {branch.branch} on"
        found, fix = f"does not exist with {case.driver_name}", "set driver_modules = 'open'"
        yield Problem("driver_modules", found, allowed, fix)
    gpu, capability = case.gpu, Version(case.capability) if case.capability else None
    grace = gpu is not None and gpu.open_modules == "required" and not any(gpu_model(case))
    closed = case.facts is not None and case.facts.open_modules is False
    if grace or (capability is not None and capability >= BLACKWELL):
        allowed = "'open' for Blackwell and Grace"
        reboot = f"install the open modules of branch {case.spec.driver.branch} and reboot the host"
        if flavour != "open":
            found = f"does not bring up {case.gpu_name}"
            fix = f"set driver_modules = 'open'{f' and {reboot}' if closed else ''}"
            yield Problem("driver_modules", found, allowed, fix)
        elif closed:
            found = "is declared, but the proprietary modules are loaded, and these do not bring up"
            yield Problem("driver_modules", f"{found} {case.gpu_name}", allowed, reboot)
    elif flavour == "open" and capability is not None and capability < TURING:
        found = f"does not bring up {case.gpu_name}, which is older than Turing"
        fix = "set driver_modules = 'proprietary'"
        yield Problem("driver_modules", found, "'proprietary' for GPUs older than Turing", fix)


@rule
def toolkit_of_gpu(case: Case) -> Iterator[Problem]:
    """A toolkit makes no code for GPUs that came after it, and newer ones drop old GPUs."""
    if case.toolkit is None or case.capability is None:
        return
    oldest, newest = capabilities([min(case.toolkit.archs), max(case.toolkit.archs)])
    of, fix = f"with CUDA {case.toolkit.release}", case.take("cuda_release", _serves_gpu(case))
    if Version(case.capability) < Version(oldest):
        found, allowed = f"no longer makes code for {case.gpu_name}", f"{oldest} or newer"
        yield Problem("cuda_release", found, f"compute capability {allowed} {of}", fix)
    elif Version(case.capability).major > Version(newest).major:
        found, allowed = f"does not yet make code for {case.gpu_name}", f"{newest} or older"
        yield Problem("cuda_release", found, f"compute capability {allowed} {of}", fix)


@rule
def code_of_compiler(case: Case) -> Iterator[Problem]:
    """nvcc stops at an architecture it does not know, and at one it no longer knows.

    A build of torch without the GPU's own would be hours of compiling that launch no kernel.
    """
    building, release = case.spec.pytorch.building, case.spec.cuda.release
    if release is None:
        return
    known = capabilities(case.known.cuda[release].archs)
    own = capabilities(case.spec.cuda.archs) if case.toolkit else []
    for key, archs in (("cuda_archs", own), ("pytorch_archs", building.archs if building else ())):
        if missing := [arch for arch in archs if arch not in known]:
            found = f"holds {', '.join(missing)}, for which CUDA {release} makes no code"
            fix = f"set {key} = {[arch for arch in archs if arch in known] or None!r}"
            yield Problem(key, found, f"{', '.join(known)} with CUDA {release}", fix)
    if building is not None and case.nvidia and case.capability is not None:
        made = [int(arch.replace(".", "")) for arch in building.archs]
        if not _has_code(made, case.capability):
            found, allowed = f"makes no code for {case.gpu_name}", f"{case.capability} among them"
            fix = f"set pytorch_archs = {[case.capability]!r}"
            yield Problem("pytorch_archs", found, allowed, fix)


@rule
def build_of_other_cuda(case: Case) -> Iterator[Problem]:
    """A wheel that is built here is of the toolkit that builds it, whatever it is called."""
    release = case.spec.cuda.release
    if case.spec.pytorch.building is None or release is None or case.simulated:
        return
    right = f"cu{release.replace('.', '')}"
    if case.spec.pytorch.build != right:
        found, fix = f"would be built with CUDA {release}", f"set pytorch_build = {right!r}"
        yield Problem("pytorch_build", found, f"{right} with that toolkit", fix)


@rule_of_wheels
def nccl(case: Case) -> Iterator[Problem]:
    """An NCCL older than the GPU fails in the first all-reduce, after everything else worked."""
    if not case.nvidia or case.release is None or case.capability is None:
        return
    build = case.release.builds.get(case.spec.pytorch.build)
    minimum = case.known.nccl_minimum.get(str(Version(case.capability).major))
    if build and build.nccl and minimum and Version(build.nccl) < Version(minimum):
        found = f"brings NCCL {build.nccl}, whose all-reduce fails on {case.gpu_name}"
        allowed = f"a torch with NCCL {minimum} or newer for this GPU"
        fix = case.take("pytorch_version", _serves_gpu(case))
        yield Problem("pytorch_version", found, allowed, fix)


@rule_of_wheels
def code_of_wheel(case: Case) -> Iterator[Problem]:
    """Without code for the GPU every kernel launch fails: "no kernel image is available"."""
    wheels, capability = case.wheels(), case.capability
    if not case.nvidia or capability is None or not wheels or case.spec.pytorch.build == "cpu":
        return
    number, archs = int(capability.replace(".", "")), {a for each in wheels for a in each.archs}
    translated = any(each.ptx is not None and each.ptx <= number for each in wheels)
    if not translated and not _has_code(archs, capability):
        found = f"has no code for {case.gpu_name}{f' on {case.machine}' if case.machine else ''}"
        allowed = f"compute capabilities {', '.join(capabilities(sorted(archs)))} with it"
        fix = case.take("pytorch_build", _serves_gpu(case))
        yield Problem("pytorch_build", found, allowed, fix)


@rule
def build_newer_than_driver(case: Case) -> Iterator[Problem]:
    """Within one CUDA major an older driver runs a newer toolkit's finished code, and no PTX of it.

    From `strict_cuda` on a newer build is refused: see stacks.yaml. What torch.compile makes is no
    matter: Triton's own assembler writes finished code.
    """
    build, branch = cuda_of(case.spec.pytorch.build), case.branch
    if build is None or branch is None or branch.cuda is None:
        return
    ours, theirs, strict = Version(build), Version(branch.cuda), Version(case.known.strict_cuda)
    if ours >= strict and ours > theirs and ours.major == theirs.major:
        newer = f"is of CUDA {build}, newer than {case.driver_name} translates code of"
        fix = case.take("pytorch_build", lambda s: Version(s.cuda or "99") <= theirs)
        host = f", or {case.take_driver(_from_branch('0'))}" if case.loaded else ""
        yield Problem(
            "pytorch_build",
            f"{newer} (CUDA {branch.cuda}), and NCCL of such a build did not start",
            f"builds up to CUDA {branch.cuda} with {case.driver_name}",
            f"{fix}{host}",
        )


@rule
def compiler(case: Case) -> Iterator[Problem]:
    """nvcc stops at a host compiler newer than it knows, and needs the language of newer ones."""
    asked, toolkit, facts = case.spec.cuda.host_compiler, case.toolkit, case.facts
    if toolkit is None or not (asked or (facts and facts.gcc is not None)):
        return
    name, _, number = (asked or f"gcc-{facts.gcc if facts else ''}").partition("-")
    bounds = toolkit.clang if name == "clang" else toolkit.gcc
    if bounds is not None and not bounds[0] <= int(number) <= bounds[1]:
        what = "is" if asked else f"leaves the host its own {name} {number}, which is"
        how = "too new" if int(number) > bounds[1] else "too old"
        allowed = f"{name} {bounds[0]} to {bounds[1]} with CUDA {toolkit.release}"
        fix = f"set host_compiler = '{name}-{bounds[1]}'"
        found = f"{what} {how} for CUDA {toolkit.release}"
        yield Problem("host_compiler", found, allowed, fix)
