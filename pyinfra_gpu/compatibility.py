"""What must hold of a host: rules over its data and, once it was looked at, over the host itself.

`resolve` begins a deploy: it returns a host's spec, or raises one sentence. `check_host` asks the
same rules again with what a look found: a GPU nobody declared is judged like a declared one. A rule
yields what does not hold; where it names no remedy, that is a stack with which no rule refuses.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

from packaging.version import Version

from pyinfra_gpu import spec as declared
from pyinfra_gpu.errors import SpecError, masked, shown
from pyinfra_gpu.spec import KEYS, HostSpec
from pyinfra_gpu.spec.types import times_ten
from pyinfra_gpu.stacks import DriverBranch, catalogue
from pyinfra_gpu.text import one_line

Due = Literal["driver", "toolkit"]
Problem = tuple[str, str, str, str]
"""A key, what is wrong with its value, what is allowed, and what to do."""

TURING, BLACKWELL = Version("7.5"), Version("10.0")
ANOTHER_STACK = ""
"""The remedy of a rule for which another stack is looked up."""
_Bounds = tuple[str | int | None, str | int | None]
_VERSIONS = ("driver_branch", "cuda_release", "pytorch_version", "pytorch_build")
"""Keys that change a version of the stack."""
_KEPT = (
    "gpu_model", "gpu_count", "driver_source", "driver_modules", "driver_repository_url",
    "cuda_toolkit", "privilege", "rehearsal", "pytorch_python",
)  # fmt: skip
"""What is declared of a host whatever its stack."""
_BUILD = "pytorch_build"
_OF_BUILDS = tuple(key.name for key in KEYS.values() if "building" in key.place)


class Refusal(NamedTuple):
    """Why a host cannot be what is declared; `found` begins with the key and its value."""

    found: str
    allowed: str
    remedy: str


@dataclass(frozen=True, kw_only=True, slots=True)
class HostFacts:
    """What a look found on a host; None = not there, or not known, or about to be changed."""

    python: str | None  # of the interpreter the virtual environment is made from, "3.12.3"
    gcc: int | None  # major version of the host's gcc
    architecture: str  # `uname -m`
    driver_loaded: str | None  # version of the loaded module; None while another is to come
    compute_capabilities: tuple[str, ...]  # one per GPU; empty while no driver can be asked
    open_modules: bool | None  # whether the loaded module is the open one
    distribution: str | None = None  # ID and VERSION_ID of its os-release, "debian 13"
    due: frozenset[Due] = frozenset()  # what the next run would install from a repository


class Case:
    """One question: does this spec work, on a GPU of this compute capability, on this host?"""

    def __init__(self, spec: HostSpec, facts: HostFacts | None, capability: str | None) -> None:
        known, torch, cuda = catalogue(), spec.pytorch, spec.cuda
        self.spec, self.facts, self.capability = spec, facts, capability
        self.known, self.data, self.torch = known, spec.declared, torch
        self.stack, self.nvidia = known.stacks[spec.stack], spec.accelerator == "nvidia"
        # Whether the capability was read from the host, not declared.
        self.seen = bool(facts and facts.compute_capabilities)
        self.gpu = known.gpus[spec.gpu.model] if spec.gpu.model else None
        self.gpu_name = f"{spec.gpu.model} (compute capability {capability})"
        if self.seen or self.gpu is None:
            self.gpu_name = f"the host's GPU of compute capability {capability}"
        # The host's, else the one that the GPU model is built into.
        self.machine = facts.architecture if facts else self.gpu and self.gpu.machine
        self.wheel = known.torch.get(torch.version) if torch.source == "wheel" else None
        self.toolkit = known.cuda[cuda.release] if cuda.release and cuda.toolkit else None
        self.loaded = facts.driver_loaded if facts else None
        self.driver, self.another_driver = f"branch {spec.driver.branch}", ANOTHER_STACK
        if self.loaded:  # to declare another one changes nothing on the host
            wanted = f"{self.driver}, {spec.driver.minimum} or newer,"
            wanted = f"install driver {spec.driver.version or wanted} on the host and reboot it"
            self.driver, self.another_driver = f"the loaded driver {self.loaded}", wanted

    def branch(self) -> DriverBranch | None:
        """Return what is known of the driver's branch; of an unknown one, of the next older one."""
        major = int((self.loaded or str(self.spec.driver.branch or 0)).partition(".")[0])
        older = [number for number in self.known.driver_branches if number <= major]
        return self.known.driver_branches[max(older)] if older else None

    def installs(self, what: Due) -> bool:
        """Tell whether the next run installs it; by data alone, it does."""
        return self.facts is None or what in self.facts.due


def resolve(data: Mapping[str, object], host: str) -> HostSpec:
    """Return what `host` should be, from its merged data.

    Raises SpecError if a key or value is wrong, if keys do not fit each other, or if the
    combination cannot work: always one sentence that says what to change.
    """
    spec = declared.resolve(data, host)
    for each in refusals(spec):
        fix = masked(each.remedy)
        raise SpecError(one_line(f"host {host}: {each.found}; allowed: {each.allowed}; fix: {fix}"))
    return spec


def check_host(spec: HostSpec, facts: HostFacts) -> list[Refusal]:
    """Return each reason why this host cannot be what `spec` says; [] if it can.

    Leave `driver_loaded`, `open_modules` and `compute_capabilities` empty in `facts` while the
    driver stage is still to install another driver: what is loaded now says nothing then. Of
    several reasons with one remedy, the first is returned.
    """
    found: dict[str, Refusal] = {}
    for each in refusals(spec, facts):
        found.setdefault(each.remedy, each)
    return [*found.values()]


def refusals(spec: HostSpec, facts: HostFacts | None = None) -> Iterator[Refusal]:
    """Yield why `spec` or its host is refused."""
    for case, (key, found, allowed, remedy) in _problems(spec, facts):
        value = spec.declared[key] if key in spec.declared else KEYS[key].of(spec)
        value = list(value) if isinstance(value, tuple) else value
        found = one_line(f"{key} = {shown(key, value)} {found}")
        yield Refusal(found, one_line(allowed), one_line(remedy or _another_stack(case)))


def _problems(spec: HostSpec, facts: HostFacts | None) -> Iterator[tuple[Case, Problem]]:
    """Yield what each rule finds, for each kind of GPU that is there, else for the declared."""
    there = dict.fromkeys(facts.compute_capabilities if facts else ())
    cases = [Case(spec, facts, each) for each in there or (spec.gpu.compute_capability,)]
    yield from ((case, problem) for rule in RULES for case in cases for problem in rule(case))


def _another_stack(case: Case) -> str:
    """Return the remedy that is a stack: one that no rule refuses on this host."""
    spec, facts = case.spec, case.facts
    if facts is not None:  # another stack's own driver would be installed in place of this one
        due = frozenset[Due](("driver", "toolkit"))
        facts = replace(facts, driver_loaded=None, open_modules=None, due=due)
    kept, fits = {key: case.data[key] for key in _KEPT if key in case.data}, []
    for name, stack in case.known.stacks.items():
        other = declared.resolve({**kept, "stack": name}, spec.host)
        if stack.accelerator == spec.accelerator and not any(_problems(other, facts)):
            fits.append(name)
    changed = [key for key in _VERSIONS if key in case.data]
    if changed and spec.stack in fits:
        return f"remove {' and '.join(changed)}: the stack's own fits"
    if not fits:
        return "no stack serves this host: leave it out of the inventory"
    named = " or ".join(map(repr, fits[:2]))
    return f"set stack = {named} and remove keys that change its versions"


def _capabilities(archs: Iterable[int]) -> list[str]:
    """Return compute capabilities as text: "12.0" for 120."""
    return [f"{arch // 10}.{arch % 10}" for arch in sorted(archs)]


def _too(there: str, oldest: str | int | None, newest: str | int | None) -> str:
    """Return "too old" or "too new" for a version outside of a range, "" for any other.

    Of the newest, a minor number that it does not name does not count; None is no bound.
    """
    version = Version(there)
    if oldest is not None and version < Version(str(oldest)):
        return "too old"
    last = Version(str(newest)).release if newest is not None else ()
    return "too new" if version.release[: len(last)] > last else ""


def _within(
    key: str, found: str, there: str | None, bounds: _Bounds, what: str, whose: str, remedy: str
) -> Iterator[Problem]:
    """Yield what is wrong with a version, `there`, outside of the bounds that another thing has.

    + found: how the sentence goes on from the key to "too old for"
    + bounds: the oldest and the newest version of `what` that `whose` takes, None = no bound
    """
    oldest, newest = bounds
    if there is not None and (too := _too(there, oldest, newest)):
        allowed = f"{what} {oldest} to {newest}" if oldest and newest else f"{what} up to {newest}"
        allowed = allowed if newest else f"{what} {oldest} or newer"
        yield key, f"{found} {too} for {whose}", f"{allowed} with {whose}", remedy


# --- keys that need each other, or that nothing would read ---


def incomplete(case: Case) -> Iterator[Problem]:
    """A key says nothing without another one."""
    data, (repo, commit) = case.data, ("training_repo", "training_commit")
    needs = [(repo, commit), (commit, repo)]
    needs += [("training_requirements", repo), ("training_presets", repo)]
    if case.torch.source == "source":
        repo, commit = "pytorch_git_url", "pytorch_commit"
        needs += [(repo, commit), (commit, repo), ("pytorch_source", repo)]
    for key, other in needs:
        if key in data and other not in data:
            remedy = f"set {other}, or remove {key}"
            if key == "training_repo":
                remedy = f"set {other} to what `git ls-remote {data[key]} main` prints"
            yield key, f"comes without {other}", f"only together with {other}", remedy


def not_read(case: Case) -> Iterator[Problem]:
    """With some value of another key nothing would read this one."""
    spec, source, of_wheels = case.spec, case.torch.source, ("pytorch_wheels",)
    of_toolkits = ("cuda_version", "cuda_archs", "libcuda_toolkit_link")
    of_root = ("owner", "libcuda_toolkit_link", "packages_extra")
    without_toolkit = case.nvidia and case.data.get("cuda_toolkit") is False
    for applies, keys, other, instead in (
        (source == "wheel", ("pytorch_fallback",), "pytorch_source", "source"),
        (source == "nightly", of_wheels, "pytorch_source", "wheel"),
        (source != "source", _OF_BUILDS, "pytorch_source", "source"),
        (not case.nvidia, ("gpu_model", "pytorch_archs"), "stack", case.known.default_stack),
        (without_toolkit, of_toolkits, "cuda_toolkit", True),
        (spec.privilege == "none", of_root, "privilege", "sudo"),
    ):
        for key in keys if applies else ():
            if case.data.get(key) and key not in spec.ignored:
                found = f"is not read with {other} = {KEYS[other].of(spec)!r}"
                remedy = f"remove {key}, or set {other} = {instead!r}"
                yield key, found, "no such key then", remedy
    if spec.owner not in (None, "root") and spec.prefix.startswith("/root/"):
        found = f"cannot enter /root, where prefix = {spec.prefix!r} is"
        yield "owner", found, "None or 'root'", "set prefix = '/opt/pyinfra-gpu'"


# --- torch ---


def source(case: Case) -> Iterator[Problem]:
    """A nightly is named by its date; what takes its place, or a build's, is another release's
    wheel, without a lock. A build for GPUs takes nvcc, and has to know for which.
    """
    torch, building, key = case.torch, case.torch.building, "pytorch_version"
    final, dated, _ = torch.version.partition(".dev")
    if torch.nightly and not dated:
        fix = f"set pytorch_version = '{final}.dev20261120', with its release and date"
        yield key, "names no nightly", "a release and a date", fix
    elif dated and not torch.nightly:
        yield key, "is a nightly", "a final release", "set pytorch_source = 'nightly'"
    key, known = "pytorch_fallback", case.known.torch.items()
    there = [name for name, each in known if torch.build in each.builds and name != torch.version]
    if torch.fallback is not None and torch.fallback not in there:
        found = f"is no other release of which there is a wheel with the build {torch.build}"
        yield key, found, ", ".join(there) or "None", "remove it, or set another release"
    elif torch.fallback is not None and torch.lock == "required":
        found = "would be installed without a lock, and pytorch_lock = 'required'"
        yield key, found, "None with a required lock", "remove it"
    if building is not None and torch.lock == "required":
        found = "cannot be met: a built torch is in no lock"
        yield "pytorch_lock", found, "'if-there' with a build", "remove pytorch_lock"
    if building is not None and building.cuda and not case.spec.cuda.toolkit:
        key = "privilege" if case.data.get("cuda_toolkit", True) else "cuda_toolkit"
        fix = "set cuda_toolkit = True and privilege = 'sudo', or pytorch_source = 'wheel'"
        yield key, "needs nvcc, and no toolkit is installed here", "a toolkit", fix
    if building is not None and building.cuda and not building.archs:
        fix, allowed = "set pytorch_archs = ['12.0'], or gpu_model", "pytorch_archs, or a gpu_model"
        yield "pytorch_source", "does not say for which GPUs", allowed, fix


def build(case: Case) -> Iterator[Problem]:
    """The CPU build cannot use a GPU, a CUDA build without one is gigabytes for nothing, and a
    build from source is of the toolkit that builds it. A simulated GPU runs the CPU build.
    """
    torch, release, key = case.torch, case.spec.cuda.release, "pytorch_build"
    fix, stack = f"set pytorch_build = {case.stack.torch.build!r}", case.stack.name
    right = f"cu{(release or '').replace('.', '')}"
    if torch.build == "cpu" and case.nvidia and not case.spec.rehearsal:
        found = f"cannot use the GPUs of the NVIDIA stack {stack}"
        yield key, found, "a cuNNN build with an NVIDIA stack", fix
    elif torch.build != "cpu" and not case.nvidia:
        found = f"needs a GPU, and the stack {stack} is for hosts without one"
        yield key, found, "'cpu' with a cpu stack", fix
    elif torch.building and release and torch.build not in ("cpu", right):
        found, fix = f"would be built with CUDA {release}", f"set pytorch_build = {right!r}"
        yield key, found, f"{right} with that toolkit", fix


def published(case: Case) -> Iterator[Problem]:
    """torch is published for few builds, each for few machines.

    PyTorch's indexes hold one build each, the package index one for each kind of machine: another
    one would win over the declared build.
    """
    torch, release, machine, key = case.torch, case.wheel, case.machine, "pytorch_build"
    if torch.source != "wheel":
        return
    if release is None:
        fix = f"set pytorch_version = {case.stack.torch.version!r}, or another of these"
        found = "is not a torch release this project knows"
        yield "pytorch_version", found, ", ".join(sorted(case.known.torch, key=Version)), fix
        return
    machines, own = case.known.wheel_archs.get(torch.build, {}), case.known.index_of(torch.build)
    if torch.build not in release.builds:
        found = f"is not published for torch {release.version}"
        allowed = f"{', '.join(release.builds)} with torch {release.version}"
        yield key, found, allowed, "set pytorch_build to one of these"
    if machine not in (None, *machines):
        found, others = f"has no wheel for the machine {machine}", " or ".join(machines)
        yield key, found, f"{others} with {torch.build}", f"use a host whose machine is {others}"
    urls = {"pytorch_index_url": torch.index_url, "pytorch_extra_index_url": torch.extra_index_url}
    for each, url in urls.items():
        named = re.search(r"/whl/(?:nightly/|test/)?(cpu|cu\d{3})/?$", url or "")
        if named and named[1] != torch.build:
            found = f"holds the build {named[1]}, and pytorch_build is {torch.build!r}"
            yield each, found, f"an index of {torch.build}", f"set {each} = {own!r}"
    served = release.pypi.get(machine or "")
    if machine is not None and not any(urls.values()) and served != torch.build:
        found = "is not what the package index serves for"
        found += f" torch {torch.version} on {machine}{f': that is {served}' if served else ''}"
        allowed = f"an index of {torch.build} for {machine}"
        yield key, found, allowed, f"set pytorch_index_url = {own!r}"


def python(case: Case) -> Iterator[Problem]:
    """Each torch release has wheels for a range of Pythons."""
    release = case.known.torch.get(case.torch.version)
    named = re.search(r"(?:^|python)(3\.\d+)(?:\.\d+)?$", case.torch.python)
    there = named[1] if named else (case.facts.python if case.facts else None)
    if release is not None:
        found, whose = f"is Python {there},", f"torch {release.version}"
        fix = f"set pytorch_python = {release.python[1]!r}"
        yield from _within("pytorch_python", found, there, release.python, "Python", whose, fix)


# --- GPU, driver and toolkit ---


def gpu(case: Case) -> Iterator[Problem]:
    """A host without GPUs is declared by its stack: a missing GPU is never taken for a choice."""
    count, stack, gpu = case.spec.gpu.count, case.stack.name, case.gpu
    if case.nvidia and count == 0:
        stacks = case.known.stacks.values()
        cpu = next(each.name for each in stacks if each.accelerator == "cpu")
        found = f"leaves the NVIDIA stack {stack} without a GPU"
        fix = f"set gpu_count to the number of GPUs, or stack = {cpu!r}"
        yield "gpu_count", found, "1 to 16 with this stack", fix
    elif not case.nvidia and count > 0:
        found = f"counts GPUs that the cpu stack {stack} would not use"
        yield "gpu_count", found, "0 with this stack", "set gpu_count = 0"
    if gpu is not None and case.seen and case.capability != gpu.compute_capability:
        there, known = case.capability, case.known.gpus.values()
        same = ", ".join(each.name for each in known if each.compute_capability == there)
        found = f"is declared, which has compute capability {gpu.compute_capability}, but the host"
        allowed = same or "a model with that compute capability, or None"
        fix = "set gpu_model to what is in the host; with GPUs of several kinds set it to None, or"
        yield "gpu_model", f"{found} has a GPU of {there}", allowed, f"{fix} take the others out"


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
            yield key, found, f"{allowed}, or None", f"set {instead}, or {key} = None"
    key, bounds, fix = "driver_version", (driver.minimum, None), "set driver_version = None"
    yield from _within(key, "is", driver.version, bounds, "driver", f"CUDA {cuda.release}", fix)


def driver(case: Case) -> Iterator[Problem]:
    """A driver does not know GPUs that came after it, and newer branches drop old ones. Below its
    minimum a CUDA release, the toolkit's or torch's own, does not start.

    Within one CUDA major an older driver runs a newer toolkit's finished code, and no PTX of it:
    from `strict_cuda` on a newer build is refused, see stacks.yaml. What torch.compile makes is no
    matter: Triton writes finished code.
    """
    known, ours, loaded, fix = case.known, case.spec.driver, case.loaded, case.another_driver
    if not case.nvidia:
        return
    key, found = "driver_branch", f"is declared, but {case.driver} is" if loaded else "is"
    if capability := case.capability:
        serving = [
            each.branch
            for each in known.driver_branches.values()
            if not _too(capability, each.oldest, each.newest and each.newest.partition(".")[0])
        ]
        newest = serving[-1] if serving[-1] < max(known.driver_branches) else None
        there, served = loaded or str(ours.branch), (serving[0], newest)
        yield from _within(key, found, there, served, "branch", case.gpu_name, fix)
    cuda = f"{case.torch.build[2:-1]}.{case.torch.build[-1]}"  # "13.0" of "cu130"
    like = [each.minimum_driver for each in known.cuda.values() if each.release[:3] == cuda[:3]]
    there = loaded or f"{ours.branch}.999"  # a branch's newest release
    needs = {f"CUDA {case.spec.cuda.release}": ours.minimum}
    needs |= {f"torch's build {case.torch.build}": each for each in like[:1] if case.wheel}
    for whose, minimum in needs.items():
        yield from _within(key, found, there, (minimum, None), "driver", whose, fix)
    newest_cuda = ((branch := case.branch()) and branch.cuda) or ""
    strict = bool(like) and Version(cuda) >= Version(known.strict_cuda)
    if strict and newest_cuda[:3] == cuda[:3]:
        key, bounds = "pytorch_build", (None, newest_cuda)
        yield from _within(key, "is", cuda, bounds, "CUDA", case.driver, fix)


def offered(case: Case) -> Iterator[Problem]:
    """NVIDIA's repository of a newer distribution begins with a newer branch and toolkit; a
    distribution's own archive has the branches of its day.
    """
    driver, toolkit, facts = case.spec.driver, case.toolkit, case.facts
    if not case.nvidia or facts is None or (where := facts.distribution) is None:
        return
    carried = case.known.repositories.releases.get(where)
    if carried is not None and driver.repository and "{distro}" in driver.repository.url:
        whose, fix = f"NVIDIA's repository for {where}", ANOTHER_STACK
        if driver.source == "nvidia" and case.installs("driver"):
            key, there, bounds = "driver_branch", str(driver.branch), carried.branches
            yield from _within(key, "is", there, bounds, "branch", whose, fix)
        if toolkit and case.installs("toolkit"):
            key, there, oldest = "cuda_release", toolkit.release, carried.oldest_toolkit
            yield from _within(key, "is", there, (oldest, None), "CUDA", whose, fix)
    (os_id, _, os_version), own = where.partition(" "), None
    if (archive := case.known.archives.get(os_id)) and driver.source == "distribution":
        own = archive.releases.get(os_version)
    if own is not None and case.installs("driver") and driver.branch not in own:
        found = f"offers branch {' and '.join(map(str, own))} in the archive of {where}, and"
        fix = f"set driver_branch = {own[-1]}, or driver_source = 'nvidia'"
        allowed = f"a driver_branch that the archive of {where} carries"
        yield "driver_source", f"{found} driver_branch = {driver.branch} is declared", allowed, fix


def modules(case: Case) -> Iterator[Problem]:
    """From branch 615 on there are open modules only; Blackwell and Grace need them, and GPUs older
    than Turing cannot use them, for want of a GPU System Processor.
    """
    branch, flavour, gpu, key = case.branch(), case.spec.driver.modules, case.gpu, "driver_modules"
    if branch is None or not case.nvidia:
        return
    capability = Version(case.capability or "8.0")  # that works with both
    grace = gpu and gpu.open_modules == "required" and gpu.compute_capability == case.capability
    needed, which = None, ""
    if grace or capability >= BLACKWELL:
        needed, which = "open", "for Blackwell and Grace"
    elif capability < TURING:
        needed, which = "proprietary", "for GPUs older than Turing"
    if flavour not in branch.modules:
        allowed = f"{' or '.join(map(repr, branch.modules))} from branch {branch.branch} on"
        found = f"does not exist with {case.driver}"
        yield key, found, allowed, "set driver_modules = 'open'"
    elif needed not in (None, flavour):
        found, fix = f"does not bring up {case.gpu_name}", f"set driver_modules = {needed!r}"
        yield key, found, f"{needed!r} {which}", fix
    elif needed == "open" and case.facts is not None and case.facts.open_modules is False:
        found = "is declared, but the proprietary modules are loaded, and these do not bring up"
        fix = f"install the open modules of branch {case.spec.driver.branch} and reboot the host"
        yield key, f"{found} {case.gpu_name}", f"'open' {which}", fix


def code(case: Case) -> Iterator[Problem]:
    """Without code for the GPU every kernel launch fails: "no kernel image is available".

    A GPU runs code of its own major with no newer minor. nvcc stops at an architecture it does not
    know, and at one it no longer knows.
    """
    building, release, there = case.torch.building, case.spec.cuda.release, case.capability
    built = building.archs if building else ()
    machines = case.known.wheel_archs.get(case.torch.build, {}) if case.wheel else {}
    wheel = {arch for name in machines if case.machine in (None, name) for arch in machines[name]}
    own = set(case.toolkit.archs if case.toolkit else ())
    for key, archs, place, fix in (
        ("cuda_release", own, "", ANOTHER_STACK),
        (_BUILD, wheel, f" on {case.machine}" if case.machine else "", ANOTHER_STACK),
        ("pytorch_archs", set(map(times_ten, built)), "", f"set pytorch_archs = {[there]!r}"),
    ):
        gpu = times_ten(there) if there and case.nvidia else 0
        if gpu and archs and not any(gpu // 10 * 10 <= arch <= gpu for arch in archs):
            allowed = f"compute capabilities {', '.join(_capabilities(archs))} with it"
            yield key, f"has no code for {case.gpu_name}{place}", allowed, fix
    known = _capabilities(case.known.cuda[release].archs) if release else []
    asked = _capabilities(case.spec.cuda.archs) if case.toolkit else ()
    for key, names in (("cuda_archs", asked), ("pytorch_archs", built)):
        if missing := [name for name in names if name not in known]:
            found = f"holds {', '.join(missing)}, for which CUDA {release} makes no code"
            fix = f"set {key} = {[name for name in names if name in known] or None!r}"
            yield key, found, f"{', '.join(known)} with CUDA {release}", fix


def compiler(case: Case) -> Iterator[Problem]:
    """nvcc stops at a host compiler newer than it knows, and needs the language of newer ones."""
    toolkit, asked = case.toolkit, case.spec.cuda.host_compiler
    there = asked or (f"gcc-{case.facts.gcc}" if case.facts and case.facts.gcc else None)
    if toolkit is not None and there is not None:
        name, _, number = there.partition("-")
        bounds = (toolkit.clang if name == "clang" else toolkit.gcc) or (None, None)
        found = "is" if asked else f"leaves the host its own {name} {number}, which is"
        whose, fix = f"CUDA {toolkit.release}", f"set host_compiler = '{name}-{bounds[1]}'"
        yield from _within("host_compiler", found, number, bounds, name, whose, fix)


RULES: tuple[Callable[[Case], Iterator[Problem]], ...] = (
    incomplete, not_read, source, gpu, build, published, python, versions, driver, offered,
    modules, code, compiler,
)  # fmt: skip
"""In the order in which a person should learn of problems."""
