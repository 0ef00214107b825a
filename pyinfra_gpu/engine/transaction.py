"""Packages on a host: simulated, judged, fetched, and only then installed, under guard."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from pyinfra.api.command import FunctionCommand, PyinfraCommand
from pyinfra.api.host import Host
from pyinfra.api.state import State

from pyinfra_gpu.drift import driver_inventory as inventory
from pyinfra_gpu.drift.driver_inventory import Repository, from_nvidia
from pyinfra_gpu.drift.finding import Stage
from pyinfra_gpu.drift.rules import if_known
from pyinfra_gpu.engine import deadlines
from pyinfra_gpu.engine.ask import Answer, ask
from pyinfra_gpu.engine.look import forget, look, unanswered
from pyinfra_gpu.engine.privilege import as_root
from pyinfra_gpu.engine.steps import failed, quoted, reason, step
from pyinfra_gpu.facts.record import Record
from pyinfra_gpu.packages import apt
from pyinfra_gpu.packages.names import is_nvidia, plain
from pyinfra_gpu.packages.simulation import Limits, Simulation, judge
from pyinfra_gpu.spec import HostSpec
from pyinfra_gpu.text import shortened, some

PYTHON = "python3-minimal"
_FRESH = "pyinfra_gpu_list"  # in connector_data, pyinfra's scratch space of this host and run
_LONGEST_SAID = 400  # characters of apt's own words, in the sentence
_KEYS = {"driver": "driver_version", "cuda": "cuda_version"}
"""Stage -> the key that asks for another version."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Request:
    """What apt is asked to install.

    + packages, reinstall: as in `apt.transaction`
    + hint: what it means, and what a person may do, where no such packages are found
    """

    stage: str
    spec: HostSpec
    packages: tuple[str, ...]
    reinstall: bool = False
    hint: str = ""

    @property
    def words(self) -> tuple[str, ...]:
        """The command line of apt-get."""
        wait_s = self.spec.preflight.apt_wait_s
        return apt.transaction(self.packages, reinstall=self.reinstall, wait_s=wait_s)


def why(answer: Answer) -> str:
    """Return why a command of apt's or dpkg's failed, in one clause."""
    return answer.lines[-1] if answer.lost else reason(apt.errors_in(answer.lines), said_by="apt")


def finish_interrupted(stage: str, spec: HostSpec) -> PyinfraCommand:
    """Return the command that finishes what an interrupted installation left."""
    what = "finish an interrupted installation"
    return step(stage, what, apt.finish(), run_as=as_root(spec), seconds=deadlines.INSTALL)


def first_package(stage: str, spec: HostSpec) -> PyinfraCommand:
    """Return the command that installs the Python by which a host is looked at."""
    wait_s = spec.preflight.apt_wait_s
    command = f"{apt.update(wait_s)} && {apt.install((PYTHON,), wait_s)}"
    what = f"install {PYTHON}"
    return step(stage, what, command, run_as=as_root(spec), seconds=deadlines.INSTALL)


def wait_for_lock(state: State, host: Host, stage: str, spec: HostSpec) -> bool:
    """Wait until nobody else holds apt's lock; fail this host after ``preflight_apt_wait_s``.

    + stage: the one whose problem it is then

    Who takes it from here on is waited for by apt-get itself.
    """
    wait_s = spec.preflight.apt_wait_s
    for seconds in (0, wait_s):
        limit = deadlines.SERVICE + seconds
        answer = ask(state, host, apt.unlocked(seconds), as_root(spec), seconds=limit)
        holder = None if answer.ok else apt.locked_by(answer.lines)
        if holder is None:
            return True
        if not seconds:
            host.log(f"waiting up to {wait_s} s for {holder}, which installs packages")
            forget()
    sentence = (
        f"{spec.host}: apt is in use by {holder} for more than {wait_s} s; let it finish and run"
        " again, or raise `preflight_apt_wait_s`"
    )
    return failed(host, stage, sentence)


def dpkg_is_idle(state: State, host: Host, stage: str, spec: HostSpec) -> bool:
    """Wait for apt's lock, and finish what an interrupted installation left, if that can be."""
    if not wait_for_lock(state, host, stage, spec):
        return False
    record = look(spec)
    if record and if_known(record.packages.half_configured, ()):  # apt refuses all else until then
        what = "finish an interrupted installation"
        ask(state, host, apt.finish(), as_root(spec), seconds=deadlines.INSTALL, what=what)
        forget()
    return True


def install(
    stage: str, spec: HostSpec, packages: Sequence[str], *, reinstall: bool = False, hint: str = ""
) -> Iterator[PyinfraCommand]:
    """Ensure that packages are installed, by a transaction that stays within its limits.

    + stage: the stage that asks
    + packages, reinstall, hint: see `Request`

    First simulated; refused with a sentence where it would remove what is not the driver's, leave
    the declared branch, take NVIDIA's packages from elsewhere, change the kernel, downgrade, or
    touch what somebody put on hold. Then everything is fetched, and only then it runs, under
    a guard that stops it where it is not what was simulated.
    """
    request = Request(
        stage=stage, spec=spec, packages=tuple(packages), reinstall=reinstall, hint=hint
    )
    yield FunctionCommand(run, (request,), {})


def run(state: State, host: Host, request: Request) -> bool:
    """Simulate, judge, fetch and run; say why and fail the host where any of it is not possible."""
    stage, spec = request.stage, request.spec
    if not dpkg_is_idle(state, host, stage, spec):
        return False
    if not update(state, host, stage, spec):
        return False
    ready = _fetched(state, host, request)
    if isinstance(ready, str):
        return failed(host, stage, f"{host.name}: {ready}; no package was changed")
    request, simulation = ready
    if not simulation.changes:
        return True
    what = f"install {some([change.name for change in simulation.changes], 4)}"
    command, seconds = apt.run(request.words, simulation), _waiting(spec, deadlines.INSTALL)
    answer = ask(state, host, command, as_root(spec), seconds=seconds, what=what)
    forget()
    return answer.ok or failed(host, stage, f"{host.name}: {what} failed: {why(answer)}")


def _waiting(spec: HostSpec, seconds: float) -> float:
    return seconds + spec.preflight.apt_wait_s


def _fetched(state: State, host: Host, request: Request) -> tuple[Request, Simulation] | str:
    """Return a transaction that may run and whose files are fetched, or why there is none.

    Stale lists of the distribution are a reason to update them once, and to try again. What
    somebody removed by force of a set, and apt then misses at every step, comes back with it.
    """
    spec, reason = request.spec, ""
    for attempt in ("first", "second"):
        if attempt == "second":
            command, seconds = apt.update(spec.preflight.apt_wait_s), deadlines.SIMULATION
            what, seconds = "update the lists of apt", _waiting(spec, seconds)
            ask(state, host, command, as_root(spec), seconds=seconds, what=what)
        simulation = _simulated(state, host, request)
        gone = tuple(name for name in simulation.unmet if is_nvidia(name.partition("=")[0]))
        if gone and not set(gone) <= set(request.packages):
            request = replace(request, packages=(*request.packages, *gone))
            simulation = _simulated(state, host, request)
        if simulation.problems:
            reason = _unsolved(request, simulation)
            continue
        if judged := _beyond_limits(request, simulation):
            return f"refused: {judged}"
        command = quoted(*request.words, "--download-only")
        fetch = ask(state, host, command, as_root(spec), seconds=deadlines.INSTALL)
        if fetch.ok:
            return request, simulation
        reason = f"the packages cannot be fetched: {why(fetch)}"
    return reason


def _simulated(state: State, host: Host, request: Request) -> Simulation:
    """Return what would be done, and which packages are on hold."""
    command, root = apt.simulate(request.words), as_root(request.spec)
    answer = ask(state, host, command, root, seconds=deadlines.SIMULATION)
    silent = Simulation(problems=answer.lines[-1:] or ("apt printed nothing",))
    return apt.simulated(answer.stdout) or silent


def _unsolved(request: Request, simulation: Simulation) -> str:
    """Return why there is no such transaction, in one clause."""
    said = f"(apt: {shortened('; '.join(simulation.problems), _LONGEST_SAID)})"
    names = " ".join(request.packages[:3])
    if request.hint:
        return f"apt finds no way to install {names}: {request.hint} {said}"
    driver = request.spec.driver
    wanted = f"version {driver.version}" if driver.version else "one version"
    origin = "NVIDIA's repository" if from_nvidia(request.spec) else "the distribution's archive"
    return (
        f"apt finds no way to install {names} with the driver at {wanted}"
        f" of branch {driver.branch} from {origin} {said}"
    )


def _beyond_limits(request: Request, simulation: Simulation) -> str | None:
    spec = request.spec
    record = look(spec)
    source = _repository(spec, record)
    if record is None or isinstance(source, str):
        return str(source)
    found, own = inventory.packages(spec, record), inventory.archive(spec, record)
    limits = Limits(
        branch=spec.driver.branch,
        # Also where none is declared: a single package that went ahead goes back to the rest.
        version=inventory.target(spec, found),
        url=source.url if source else "",
        installed=found.names,
        labels=own.labels if own else (),
        apart=found.apart,
    )
    return "; ".join(judge(simulation, limits)[:4]) or None


def possible(state: State, host: Host, request: Request) -> bool:
    """Tell whether a transaction could run, with the lists as they are; says nothing of it."""
    record = look(request.spec)
    if record is None or not update(state, host, request.stage, request.spec):
        return False
    simulation = _simulated(state, host, request)
    return not simulation.problems and _beyond_limits(request, simulation) is None


def update(state: State, host: Host, stage: str, spec: HostSpec) -> bool:
    """Fetch the lists that a stage needs, once in a run; say why and fail where it cannot be.

    For driver and toolkit that of NVIDIA's repository alone: another source that is down must not
    stop them. What else a host lacks comes from its own sources, which need no NVIDIA.
    """
    nvidias = stage != Stage.PACKAGES
    source = _repository(spec, look(spec)) if nvidias else None
    done: set[bool] = host.connector_data.setdefault(_FRESH, set())
    if nvidias in done:
        return True
    if isinstance(source, str):
        return failed(host, stage, f"{host.name}: {source}")
    all_too, seconds = source is None or not from_nvidia(spec), _waiting(spec, deadlines.SIMULATION)
    for ours in (True,) * (source is not None) + (False,) * all_too:
        command = apt.update(spec.preflight.apt_wait_s, ours=ours)
        answer = ask(state, host, command, as_root(spec), seconds=seconds)
        if not answer.ok and (ours or source is None):
            which = f"the repository {source.url}" if source else "a package source"
            return failed(host, stage, f"{host.name}: {which} cannot be used: {why(answer)}")
    done.add(nvidias)
    return True


def _repository(spec: HostSpec, record: Record | None) -> Repository | str | None:
    """Return NVIDIA's repository, why there is none, or None where none is needed."""
    if record is None:
        return unanswered()
    return inventory.repository(spec, record) if inventory.trusts_nvidia(spec) else None


def again(state: State, host: Host, stage: str, spec: HostSpec, packages: Sequence[str]) -> bool:
    """Install packages again that lost files; say why and fail the host where it cannot be.

    + packages: names of installed packages; with none there is nothing to do

    Each at the version it has: without one the newest on offer is taken, and one package of the
    driver cannot move alone.
    """
    names = tuple(dict.fromkeys(packages))
    if not names:
        return True
    record = look(spec)
    rows = if_known(record.nvidia.packages, ()) if record else ()
    versions = {each.name: each.version for each in rows}
    there = {name: versions.get(name) or versions.get(plain(name)) for name in names}
    if not update(state, host, stage, spec):
        return False
    told = ask(state, host, apt.on_offer(names), as_root(spec), seconds=deadlines.SERVICE)
    offer = apt.on_offer_in(told.stdout)
    reason = "" if told.ok else f"what its package sources offer is not known: {why(told)}"
    for name in names:
        offered = dict.fromkeys((*offer.get(name, ()), *offer.get(plain(name), ())))
        # apt itself passes such a one over, and ends well
        if not reason and there[name] and there[name] not in offered:
            reason = _gone(stage, spec, f"{name} {there[name]}", tuple(offered))
    if reason:
        return failed(host, stage, f"{host.name}: {reason}; no package was changed")
    exact = tuple(f"{name}={there[name]}" if there[name] else name for name in names)
    return run(state, host, Request(stage=stage, spec=spec, packages=exact, reinstall=True))


def _gone(stage: str, spec: HostSpec, package: str, offered: Sequence[str]) -> str:
    """Say that a package cannot be had again, and what is left to do."""
    known = f"on offer: {', '.join(offered[:3])}" if offered else "no version of it is on offer"
    key = _KEYS.get(stage)
    url = " (`driver_repository_url`)" if from_nvidia(spec) else ""
    choices = (
        f"declare `{key}` as one that is" if key and offered else "",
        f"name a source that has it{url}",
        f"or bring its file back by hand (`apt-cache policy {package.partition(' ')[0]}`)",
    )
    return (
        f"{package} has lost files and cannot be installed again, since no source offers"
        f" that version any more ({known}): {', '.join(each for each in choices if each)}"
    )


def owners(state: State, host: Host, spec: HostSpec, paths: Sequence[str]) -> list[str]:
    """Return the packages to which paths belong; none for those of nobody."""
    command = f"{quoted('dpkg-query', '-S', *paths)} 2>/dev/null"
    # It says "a, b:amd64: /usr/lib/libcuda.so"; "diversion by ..." names none.
    lines = ask(state, host, command, as_root(spec), seconds=deadlines.SERVICE).stdout
    named = [line.partition(": /") for line in lines if not line.startswith("diversion ")]
    names = [each.strip() for names, path, _ in named if path for each in names.split(",")]
    return list(dict.fromkeys(names))
