"""What fits together: rules over a host's data and, once it was looked at, over the host itself.

`resolve` begins a deploy: it returns a host's spec, or raises one sentence. `check_host` asks the
same rules again with what a look found: a GPU nobody declared is judged like a declared one. A rule
yields what does not fit; where it names no remedy, that is a stack with which no rule refuses.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

from packaging.version import Version

from pyinfra_gpu import spec as declared
from pyinfra_gpu import stacks
from pyinfra_gpu.errors import Problem, SpecError, shown
from pyinfra_gpu.spec import KEYS, HostSpec
from pyinfra_gpu.stacks import Catalogue, Stack, catalogue
from pyinfra_gpu.text import one_line

Due = Literal["driver", "toolkit"]

MACHINES = {"amd64": "x86_64", "arm64": "aarch64"}  # other names of the same machine
TURING, BLACKWELL = Version("7.5"), Version("10.0")
ANOTHER_STACK = ""
"""The remedy of a rule for which another stack is looked up."""
_VERSIONS = (
    "driver_branch", "cuda_release", "pytorch_version", "pytorch_build", "pytorch_index_url",
)  # fmt: skip
"""Keys that change a version of the stack."""
_KEPT = (
    "gpu_model", "gpu_count", "driver_source", "driver_modules", "driver_repository_url",
    "cuda_toolkit", "privilege", "rehearsal", "pytorch_python",
)  # fmt: skip
"""What is declared of a host whatever its stack."""


class Refusal(NamedTuple):
    """Why a host cannot be what is declared: the rule, its sentence, and the parts of that."""

    rule: str
    sentence: str
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
    + distribution: ID and VERSION_ID of its os-release, as stacks.yaml names releases
    + due: what the next run would install from the driver's repository
    """

    python: str | None
    gcc: int | None
    architecture: str
    driver_loaded: str | None
    compute_capabilities: tuple[str, ...]
    open_modules: bool | None
    distribution: str | None = None
    due: frozenset[Due] = frozenset()


@dataclass(frozen=True, slots=True)
class Case:
    """One question: does this spec work, on a GPU of this compute capability, on this host?"""

    spec: HostSpec
    known: Catalogue
    facts: HostFacts | None
    capability: str | None
    on_host: bool  # the capability was read from the host, not declared

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
    def gpu(self) -> stacks.Gpu | None:
        """The declared GPU model."""
        return None if self.spec.gpu.model is None else self.known.gpus[self.spec.gpu.model]

    @property
    def gpu_name(self) -> str:
        """How a sentence calls the GPU."""
        if self.on_host or self.spec.gpu.model is None:
            return f"the host's GPU of compute capability {self.capability}"
        return f"{self.spec.gpu.model} (compute capability {self.capability})"

    @property
    def wheel(self) -> stacks.TorchRelease | None:
        """The published torch; None where it is a nightly, built, or not known."""
        torch = self.spec.pytorch
        return self.known.torch.get(torch.version) if torch.source == "wheel" else None

    @property
    def toolkit(self) -> stacks.CudaRelease | None:
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
    def driver_name(self) -> str:
        """How a sentence calls the driver: the loaded one, else the declared branch."""
        loaded = self.loaded
        return f"the loaded driver {loaded}" if loaded else f"branch {self.spec.driver.branch}"

    @property
    def branch(self) -> stacks.DriverBranch | None:
        """What is known about the driver's branch; of an unknown one, about the next older one."""
        if not self.nvidia:
            return None
        major = int((self.loaded or str(self.spec.driver.branch)).partition(".")[0])
        older = [number for number in self.known.driver_branches if number <= major]
        return self.known.driver_branches[max(older)] if older else None

    def driver_is_below(self, minimum: str) -> bool:
        """Tell whether the driver is too old; a declared branch counts as its newest release."""
        if self.loaded is None:
            return (self.spec.driver.branch or 0) < Version(minimum).major
        return Version(self.loaded) < Version(minimum)

    @property
    def install_driver(self) -> str:
        """The remedy for a loaded driver; to declare another changes nothing on the host."""
        ours = self.spec.driver
        if self.loaded is None:
            return ANOTHER_STACK
        wanted = ours.version or f"branch {ours.branch}, {ours.minimum} or newer,"
        return f"install driver {wanted} on the host and reboot it"

    @property
    def repository(self) -> stacks.Repository | None:
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

    @property
    def wheel_archs(self) -> list[int]:
        """The GPU code in the published wheel, for the machine or for all of them."""
        machines = self.known.wheel_archs.get(self.spec.pytorch.build, {}) if self.wheel else {}
        codes = [code for name, code in machines.items() if self.machine in (None, name)]
        return sorted({arch for code in codes for arch in code})


Rule = Callable[[Case], Iterator[Problem]]
RULES: dict[str, Rule] = {}
"""Rules by name, in the order in which a person should learn of problems."""


def rule(check: Rule) -> Rule:
    """Register a rule, of which the first problem counts."""
    RULES[check.__name__] = check
    return check


def resolve(data: Mapping[str, object], host: str) -> HostSpec:
    """Return what `host` should be, from its merged data.

    Raises SpecError if a key or value is wrong, if keys do not fit each other, or if the
    combination cannot work: always one sentence that says what to change.
    """
    spec = declared.resolve(data, host)
    for refusal in refusals(spec):
        raise SpecError(refusal.sentence)
    return spec


def check_host(spec: HostSpec, facts: HostFacts) -> list[Refusal]:
    """Return each reason why this host cannot be what `spec` says; [] if it can.

    Leave `driver_loaded`, `open_modules` and `compute_capabilities` empty in `facts` while the
    driver stage is still to install another driver: what is loaded now says nothing then.
    """
    return list(dict.fromkeys(refusals(spec, facts)))


def refusals(spec: HostSpec, facts: HostFacts | None = None) -> Iterator[Refusal]:
    """Yield the refusal of each rule that refuses `spec` or its host."""
    for name, case, problem in _problems(spec, facts):
        remedy = problem.remedy or _another_stack(case)
        value: object = KEYS[problem.key].of(spec)
        if isinstance(value, tuple):
            value = capabilities(value) if problem.key == "cuda_archs" else list(value)
        yield Refusal(
            name,
            problem._replace(remedy=remedy).sentence(spec.host, value),
            one_line(f"{problem.key} = {shown(problem.key, value)} {problem.found}"),
            one_line(problem.allowed),
            one_line(remedy),
        )


def _problems(spec: HostSpec, facts: HostFacts | None) -> Iterator[tuple[str, Case, Problem]]:
    """Yield (rule, case, problem), for each kind of GPU that is there, else for the declared."""
    there = dict.fromkeys(facts.compute_capabilities if facts else ())
    for name, check in RULES.items():
        for capability in there or (spec.gpu.compute_capability,):
            case = Case(spec, catalogue(), facts, capability, bool(there))
            for problem in check(case):
                yield name, case, problem
                break


def _another_stack(case: Case) -> str:
    """Return the remedy that is a stack: one that no rule refuses on this host."""
    spec, facts = case.spec, case.facts
    fits: dict[str, HostSpec] = {}
    if facts is not None:  # another stack's own driver would be installed in place of this one
        due = frozenset[Due](("driver", "toolkit"))
        facts = replace(facts, driver_loaded=None, open_modules=None, due=due)
    data = {key: KEYS[key].of(spec) for key in _KEPT if spec.accelerator == "nvidia"}
    for name, stack in case.known.stacks.items():
        if stack.accelerator == spec.accelerator:
            other = declared.resolve({**data, "stack": name}, spec.host)
            fits |= {} if any(_problems(other, facts)) else {name: other}
    own = fits.get(spec.stack)
    changed = [key for key in _VERSIONS if own and KEYS[key].of(spec) != KEYS[key].of(own)]
    if changed:
        return f"remove {' and '.join(changed)}: the stack's own fits"
    if not fits:
        return "no stack serves this host: leave it out of the inventory"
    named = " or ".join(map(repr, [*fits][:2]))
    return f"set stack = {named} and remove keys that change its versions"


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


def _too(there: str, oldest: str | int | None, newest: str | int | None) -> str:
    """Return "too old" or "too new" for a version outside of a range, "" for any other.

    Of the newest, a minor number that it does not name does not count; None is no bound.
    """
    version = Version(there)
    if oldest is not None and version < Version(str(oldest)):
        return "too old"
    last = Version(str(newest)).release if newest is not None else ()
    return "too new" if version.release[: len(last)] > last else ""


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
    gpu, there = case.gpu, case.capability
    if gpu is not None and case.on_host and there != gpu.compute_capability:
        same = [m.name for m in case.known.gpus.values() if m.compute_capability == there]
        own = f"is declared, which has compute capability {gpu.compute_capability}"
        allowed = ", ".join(same) or "a model with that compute capability, or None"
        fix = "set gpu_model to what is in the host; with GPUs of several kinds set it to None, or"
        fix += " take the others out"
        yield Problem("gpu_model", f"{own}, but the host has a GPU of {there}", allowed, fix)


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


@rule
def published(case: Case) -> Iterator[Problem]:
    """torch is published for few builds, each for few machines; an unknown one is not judged."""
    torch, release, known = case.spec.pytorch, case.wheel, case.known
    machines = known.wheel_archs.get(torch.build, {})
    if torch.source != "wheel":
        return
    if release is None:
        found, allowed = (
            "is not a torch release this project knows",
            sorted(known.torch, key=Version),
        )
        fix = f"set pytorch_version = {case.stack.torch.version!r}, or another of these"
        yield Problem("pytorch_version", found, ", ".join(allowed), fix)
    elif torch.build not in release.builds:
        found = f"is not published for torch {release.version}"
        there = f"{', '.join(release.builds)} with torch {release.version}"
        yield Problem("pytorch_build", found, there, "set pytorch_build to one of these")
    elif case.machine not in (None, *machines):
        found, named = f"has no wheel for the machine {case.machine}", " or ".join(machines)
        fix = f"use a host whose machine is {named}"
        yield Problem("pytorch_build", found, f"{named} with {torch.build}", fix)


@rule
def index(case: Case) -> Iterator[Problem]:
    """PyTorch's indexes hold one build each, the package index one for each kind of machine.

    Another one would win over the declared build.
    """
    torch, release, machine = case.spec.pytorch, case.wheel, case.machine
    if release is None:
        return
    own = case.known.index_of(torch.build)
    urls = {"pytorch_index_url": torch.index_url, "pytorch_extra_index_url": torch.extra_index_url}
    for key, url in urls.items():
        named = re.search(r"/whl/(?:nightly/|test/)?(cpu|cu\d{3})/?$", url or "")
        if named and named[1] != torch.build:
            found = f"holds the build {named[1]}, and pytorch_build is {torch.build!r}"
            yield Problem(key, found, f"an index of {torch.build}", f"set {key} = {own!r}")
    if machine is not None and not any(urls.values()):
        served = release.pypi.get(machine)
        if served != torch.build:
            found = "is not what the package index serves for"
            found += f" torch {torch.version} on {machine}{f': that is {served}' if served else ''}"
            allowed = f"an index of {torch.build} for {machine}"
            yield Problem("pytorch_build", found, allowed, f"set pytorch_index_url = {own!r}")


@rule
def python(case: Case) -> Iterator[Problem]:
    """Each torch release has wheels for a range of Pythons."""
    release = case.known.torch.get(case.spec.pytorch.version)
    named = re.search(r"(?:^|python)(3\.\d+)(?:\.\d+)?$", case.spec.pytorch.python)
    there = named[1] if named else (case.facts.python if case.facts else None)
    if release is None or there is None:
        return
    oldest, newest = release.python
    if too := _too(there, oldest, newest):
        fix = f"install Python {oldest} or newer on the host and set pytorch_python to it"
        fix = f"set pytorch_python = {newest!r}" if too == "too new" else fix
        found, torch = f"is Python {there}, {too} for", f"torch {release.version}"
        allowed = f"Python {oldest} to {newest} with {torch}"
        yield Problem("pytorch_python", f"{found} {torch}", allowed, fix)


@rule
def versions(case: Case) -> Iterator[Problem]:
    """A version that is not of its branch, or its release, contradicts it; neither is a guess."""
    driver, cuda = case.spec.driver, case.spec.cuda
    branch = str(driver.version).partition(".")[0]
    release = str(cuda.version).rpartition(".")[0]
    for key, version, of, named, instead in (
        ("driver_version", driver.version, driver.branch, "branch", f"driver_branch = {branch}"),
        ("cuda_version", cuda.version, cuda.release, "CUDA", f"cuda_release = {release!r}"),
    ):
        if version and of and not version.startswith(f"{of}."):
            found, allowed = f"is not a version of {named} {of}", f"one that begins with {of}."
            yield Problem(key, found, f"{allowed}, or None", f"set {instead}, or {key} = None")
    if driver.version and driver.minimum and _too(driver.version, driver.minimum, None):
        found, allowed = f"is too old for CUDA {cuda.release}", f"{driver.minimum} or newer"
        yield Problem("driver_version", found, allowed, "set driver_version = None")


@rule
def driver_of_gpu(case: Case) -> Iterator[Problem]:
    """A driver does not know GPUs that came after it, and newer branches drop old ones."""
    branch, capability = case.branch, case.capability
    if branch is None or capability is None:
        return

    def too(of: stacks.DriverBranch) -> str:
        return _too(capability, of.oldest, of.newest and Version(of.newest).major)

    serving = [each.branch for each in case.known.driver_branches.values() if not too(each)]
    if wrong := too(branch):
        found, allowed = "does not know", f"branch {min(serving)} or newer for this GPU"
        if wrong == "too old":
            found, allowed = "no longer serves", f"branch {max(serving)} or older for this GPU"
        if case.loaded:
            found = f"is declared, but {case.driver_name} {found}"
        yield Problem("driver_branch", f"{found} {case.gpu_name}", allowed, case.install_driver)


@rule
def driver_of_cuda(case: Case) -> Iterator[Problem]:
    """Below its minimum a CUDA release, the toolkit's or torch's own, does not start."""
    known, torch, driver = case.known.cuda, case.spec.pytorch, case.spec.driver
    release, wheel = case.spec.cuda.release, cuda_of(torch.build) if case.wheel else None
    major = str(wheel).partition(".")[0]
    minimum = (
        (driver.minimum if case.loaded else known[release].minimum_driver) if release else None
    )
    like = (each.minimum_driver for name, each in known.items() if name.startswith(f"{major}."))
    for key, cuda, needed in (
        ("cuda_release", release, minimum),
        ("pytorch_build", wheel, next(like, None)),
    ):
        if case.nvidia and needed and case.driver_is_below(needed):
            found, allowed = "is too new for", f"driver {needed} or newer with CUDA {cuda}"
            yield Problem(key, f"{found} {case.driver_name}", allowed, case.install_driver)


@rule
def not_carried(case: Case) -> Iterator[Problem]:
    """NVIDIA's repository of a newer distribution begins with a newer branch and toolkit."""
    carried, branch, toolkit = case.repository, case.spec.driver.branch, case.toolkit
    if carried is None:
        return
    found = f"is not in NVIDIA's repository for {carried.distro}"
    ours = case.spec.driver.source == "nvidia" and case.installs("driver")
    if ours and branch is not None and not carried.carries(branch):
        oldest, newest = carried.branches
        allowed = f"branch {oldest} {'or newer' if newest is None else f'to {newest}'}"
        yield Problem("driver_branch", found, f"{allowed} on {carried.distro}", ANOTHER_STACK)
    elif toolkit and case.installs("toolkit") and not carried.carries_toolkit(toolkit.release):
        allowed = f"CUDA {carried.oldest_toolkit} or newer on {carried.distro}"
        yield Problem("cuda_release", found, allowed, ANOTHER_STACK)


@rule
def not_in_archive(case: Case) -> Iterator[Problem]:
    """A distribution's own archive has the branches of its day, and keeps to them."""
    branch, where = case.spec.driver.branch, case.facts.distribution if case.facts else None
    own = case.known.archive_branches(where) if where else None
    ours = case.nvidia and case.spec.driver.source == "distribution" and case.installs("driver")
    if ours and own is not None and branch is not None and branch not in own:
        there = " and ".join(map(str, own))
        found = f"offers branch {there} in the archive of {where}, and driver_branch = {branch} is"
        fix = f"set driver_branch = {own[-1]}, or driver_source = 'nvidia'"
        allowed = f"a driver_branch that the archive of {where} carries"
        yield Problem("driver_source", f"{found} declared", allowed, fix)


@rule
def modules(case: Case) -> Iterator[Problem]:
    """From branch 615 on there are open modules only; Blackwell and Grace need them, and GPUs older
    than Turing cannot use them, for want of a GPU System Processor.
    """
    branch, flavour, gpu = case.branch, case.spec.driver.modules, case.gpu
    if branch is None:
        return
    capability = Version(case.capability) if case.capability else None
    grace = gpu and gpu.open_modules == "required" and gpu.compute_capability == case.capability
    needed, which = None, "for this GPU"
    if grace or (capability is not None and capability >= BLACKWELL):
        needed, which = "open", "for Blackwell and Grace"
    elif capability is not None and capability < TURING:
        needed, which = "proprietary", "for GPUs older than Turing"
    if flavour not in branch.modules:
        allowed = f"{' or '.join(map(repr, branch.modules))} from branch {branch.branch} on"
        found = f"does not exist with {case.driver_name}"
        yield Problem("driver_modules", found, allowed, "set driver_modules = 'open'")
    elif needed not in (None, flavour):
        found, fix = f"does not bring up {case.gpu_name}", f"set driver_modules = {needed!r}"
        yield Problem("driver_modules", found, f"{needed!r} {which}", fix)
    elif needed == "open" and case.facts is not None and case.facts.open_modules is False:
        found = "is declared, but the proprietary modules are loaded, and these do not bring up"
        fix = f"install the open modules of branch {case.spec.driver.branch} and reboot the host"
        yield Problem("driver_modules", f"{found} {case.gpu_name}", f"'open' {which}", fix)


@rule
def code_for_gpu(case: Case) -> Iterator[Problem]:
    """Without code for the GPU every kernel launch fails: "no kernel image is available".

    A build of torch without it would be hours of compiling for nothing.
    """
    building, capability = case.spec.pytorch.building, case.capability
    built = [int(arch.replace(".", "")) for arch in building.archs] if building else ()
    where = f" on {case.machine}" if case.machine else ""
    for key, archs, place, fix in (
        ("cuda_release", case.toolkit.archs if case.toolkit else (), "", ANOTHER_STACK),
        ("pytorch_build", case.wheel_archs, where, ANOTHER_STACK),
        ("pytorch_archs", built, "", f"set pytorch_archs = {[capability]!r}"),
    ):
        if case.nvidia and capability and archs and not _has_code(archs, capability):
            allowed = f"compute capabilities {', '.join(capabilities(archs))} with it"
            yield Problem(key, f"has no code for {case.gpu_name}{place}", allowed, fix)


@rule
def code_of_compiler(case: Case) -> Iterator[Problem]:
    """nvcc stops at an architecture it does not know, and at one it no longer knows."""
    building, release = case.spec.pytorch.building, case.spec.cuda.release
    known = capabilities(case.known.cuda[release].archs) if release else []
    own = capabilities(case.spec.cuda.archs) if case.toolkit else []
    for key, archs in (("cuda_archs", own), ("pytorch_archs", building.archs if building else ())):
        if missing := [arch for arch in archs if arch not in known]:
            found = f"holds {', '.join(missing)}, for which CUDA {release} makes no code"
            fix = f"set {key} = {[arch for arch in archs if arch in known] or None!r}"
            yield Problem(key, found, f"{', '.join(known)} with CUDA {release}", fix)


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
        found = f"is of CUDA {build}, newer than {case.driver_name} translates code of"
        found += f" (CUDA {branch.cuda}), and NCCL of such a build did not start"
        allowed = f"builds up to CUDA {branch.cuda} with {case.driver_name}"
        yield Problem("pytorch_build", found, allowed, case.install_driver)


@rule
def compiler(case: Case) -> Iterator[Problem]:
    """nvcc stops at a host compiler newer than it knows, and needs the language of newer ones."""
    asked, toolkit, facts = case.spec.cuda.host_compiler, case.toolkit, case.facts
    if toolkit is None or not (asked or (facts and facts.gcc is not None)):
        return
    name, _, number = (asked or f"gcc-{facts.gcc if facts else ''}").partition("-")
    oldest, newest = (toolkit.clang if name == "clang" else toolkit.gcc) or (None, None)
    if too := _too(number, oldest, newest):
        what = "is" if asked else f"leaves the host its own {name} {number}, which is"
        allowed = f"{name} {oldest} to {newest} with CUDA {toolkit.release}"
        found = f"{what} {too} for CUDA {toolkit.release}"
        yield Problem("host_compiler", found, allowed, f"set host_compiler = '{name}-{newest}'")
