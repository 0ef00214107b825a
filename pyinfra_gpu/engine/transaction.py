"""Packages on a host: simulated, judged, fetched, and only then installed, under guard."""

from __future__ import annotations

from collections.abc import Sequence

from pyinfra.api.command import FunctionCommand, PyinfraCommand
from pyinfra.api.host import Host
from pyinfra.api.state import State

from pyinfra_gpu.drift import driver_inventory as inventory
from pyinfra_gpu.drift.driver_inventory import from_nvidia, trusts_nvidia
from pyinfra_gpu.drift.finding import Stage
from pyinfra_gpu.drift.rules import if_known
from pyinfra_gpu.engine import deadlines
from pyinfra_gpu.engine.ask import Answer, ask
from pyinfra_gpu.engine.look import forget, look, unanswered
from pyinfra_gpu.engine.privilege import as_root
from pyinfra_gpu.engine.steps import failed, quoted, reason, step
from pyinfra_gpu.on_host import program
from pyinfra_gpu.packages import apt
from pyinfra_gpu.packages.names import is_nvidia, plain
from pyinfra_gpu.packages.simulation import Limits, Simulation, judge, parse
from pyinfra_gpu.spec import HostSpec
from pyinfra_gpu.text import shortened, some

PYTHON = "python3-minimal"
_FRESH = "pyinfra_gpu_list"  # in connector_data, pyinfra's scratch space of this host and run
_LONGEST_SAID = 400  # characters of apt's own words, in the sentence
_KEYS = {"driver": "driver_version", "cuda": "cuda_version"}
"""Stage -> the key that asks for another version."""
_COMPLETE = "Done"  # the last line of a simulation
_FINISH = "finish an interrupted installation"


def why(answer: Answer) -> str:
    """Return why a command of apt's or dpkg's failed, in one clause."""
    return answer.lines[-1] if answer.lost else reason(apt.errors_in(answer.lines), said_by="apt")


def _apt(
    state: State, host: Host, spec: HostSpec, command: str, seconds: float, what: str | None = None
) -> Answer:
    """Run a command that may wait for apt's lock first."""
    seconds += spec.preflight.apt_wait_s
    return ask(state, host, command, as_root(spec), seconds=seconds, what=what)


def finish_interrupted(stage: str, spec: HostSpec) -> PyinfraCommand:
    """Return the command that finishes what an interrupted installation left."""

    def finish(state: State, host: Host) -> bool:
        answer = _apt(state, host, spec, apt.finish(), deadlines.INSTALL, _FINISH)
        return answer.ok or failed(host, stage, f"{host.name}: {_FINISH}: {why(answer)}")

    return FunctionCommand(finish, (), {})


def first_package(stage: str, spec: HostSpec) -> PyinfraCommand:
    """Return the command that installs the Python by which a host is looked at."""
    wait_s = spec.preflight.apt_wait_s
    words = apt.transaction((PYTHON,), reinstall=False, wait_s=wait_s)
    command = f"{apt.update(wait_s)} && {quoted(*words)}"
    what = f"install {PYTHON}"
    return step(stage, what, command, run_as=as_root(spec), seconds=deadlines.INSTALL)


def wait_for_lock(state: State, host: Host, stage: str, spec: HostSpec) -> bool:
    """Wait until nobody else holds apt's lock; fail this host after ``preflight_apt_wait_s``.

    + stage: the one whose problem it is then

    Who takes it from here on is waited for by apt-get itself.
    """
    record, wait_s = look(spec), spec.preflight.apt_wait_s
    holder = record and if_known(record.packages.lock_holder, None)
    if not holder:
        return True
    host.log(f"waiting up to {wait_s} s for {holder}, which installs packages")
    answer = _apt(state, host, spec, apt.unlocked(wait_s), deadlines.SERVICE)
    forget()
    if answer.ok or not any("Could not get lock" in line for line in answer.lines):
        return True
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
        _apt(state, host, spec, apt.finish(), deadlines.INSTALL, _FINISH)
        forget()
    return True


def install(
    state: State,
    host: Host,
    stage: str,
    spec: HostSpec,
    packages: Sequence[str],
    *,
    others: Sequence[Sequence[str]] = (),
    reinstall: bool = False,
    hint: str = "",
) -> bool:
    """Install packages by a transaction that stays within its limits; else fail the host.

    + stage: the stage that asks
    + packages, reinstall: as in `apt.transaction`
    + others: further lists of packages, each asked for where those before it cannot be installed
    + hint: what it means, and what a person may do, where no such packages are found

    First simulated; refused with a sentence where it would remove what is not the driver's, leave
    the declared branch, take NVIDIA's packages from elsewhere, change the kernel, downgrade, or
    touch what somebody put on hold. Then everything is fetched, and only then it runs, under
    a guard that stops it where it is not what was simulated. Stale lists of the distribution are
    a reason to update them once, and to try again.
    """
    if not dpkg_is_idle(state, host, stage, spec) or not update(state, host, stage, spec):
        return False
    refusals: list[str] = []
    for attempt in (1, 2):
        if attempt == 2:
            command, what = apt.update(spec.preflight.apt_wait_s), "update the lists of apt"
            _apt(state, host, spec, command, deadlines.SIMULATION, what)
        refusals.clear()
        for wanted in (packages, *others):
            words, simulation = _simulated(state, host, spec, wanted, reinstall)
            problem = _problem(spec, wanted, simulation, hint)
            if problem is None:
                command = quoted(*words, "--download-only")
                fetch = _apt(state, host, spec, command, deadlines.INSTALL)
                if fetch.ok:
                    return _run(state, host, stage, spec, apt.run(words, simulation), simulation)
                problem = f"the packages cannot be fetched: {why(fetch)}"
            refusals.append(problem)
    return failed(host, stage, f"{host.name}: {refusals[0]}; no package was changed")


def _run(
    state: State, host: Host, stage: str, spec: HostSpec, command: str, judged: Simulation
) -> bool:
    if not judged.changes:
        return True
    what = f"install {some([change.name for change in judged.changes], 4)}"
    answer = _apt(state, host, spec, command, deadlines.INSTALL, what)
    forget()
    return answer.ok or failed(host, stage, f"{host.name}: {what} failed: {why(answer)}")


def _simulated(
    state: State, host: Host, spec: HostSpec, packages: Sequence[str], reinstall: bool
) -> tuple[tuple[str, ...], Simulation]:
    """Return a command line of apt-get, and what it would do.

    What somebody removed by force of a set, and apt then misses at every step, comes back with it.
    """
    wait_s = spec.preflight.apt_wait_s
    for _ in ("as asked", "with what is missing"):
        words = apt.transaction(packages, reinstall=reinstall, wait_s=wait_s)
        answer = _apt(
            state, host, spec, program("packages/apt/simulate.sh", *words), deadlines.SIMULATION
        )
        if answer.stdout[-1:] != (_COMPLETE,):
            return words, Simulation(problems=answer.lines[-1:] or ("apt printed nothing",))
        simulation = parse(answer.stdout)
        gone = [each for each in simulation.unmet if is_nvidia(each.partition("=")[0])]
        if set(gone) <= set(packages):
            break
        packages = (*packages, *gone)
    return words, simulation


def _problem(
    spec: HostSpec, packages: Sequence[str], simulation: Simulation, hint: str
) -> str | None:
    """Return why a transaction cannot or must not run, in one clause."""
    if not simulation.problems:
        beyond = _beyond_limits(spec, simulation)
        return f"refused: {beyond}" if beyond else None
    driver = spec.driver
    wanted = f"version {driver.version}" if driver.version else "one version"
    origin = "NVIDIA's repository" if from_nvidia(spec) else "the distribution's archive"
    means = f" with the driver at {wanted} of branch {driver.branch} from {origin}"
    means = f": {hint}" if hint else means
    said = shortened("; ".join(simulation.problems), _LONGEST_SAID)
    return f"apt finds no way to install {' '.join(packages[:3])}{means} (apt: {said})"


def _beyond_limits(spec: HostSpec, simulation: Simulation) -> str:
    if (record := look(spec)) is None:
        return unanswered()
    source = inventory.repository(spec, record) if trusts_nvidia(spec) else None
    if isinstance(source, str):
        return source
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
    return "; ".join(judge(simulation, limits)[:4])


def update(state: State, host: Host, stage: str, spec: HostSpec) -> bool:
    """Fetch the lists that a stage needs, once in a run; say why and fail where it cannot be.

    For driver and toolkit that of NVIDIA's repository alone: another source that is down must not
    stop them. What else a host lacks comes from its own sources, which need no NVIDIA.
    """
    nvidias, record = stage != Stage.PACKAGES, look(spec)
    done: set[bool] = host.connector_data.setdefault(_FRESH, set())
    if nvidias in done:
        return True
    source: inventory.Repository | str | None = None
    if nvidias and trusts_nvidia(spec):
        source = inventory.repository(spec, record) if record else unanswered()
    if isinstance(source, str):
        return failed(host, stage, f"{host.name}: {source}")
    all_too = source is None or not from_nvidia(spec)
    for ours in (True,) * (source is not None) + (False,) * all_too:
        command = apt.update(spec.preflight.apt_wait_s, ours=ours)
        answer = _apt(state, host, spec, command, deadlines.SIMULATION)
        if not answer.ok and (ours or source is None):
            which = f"the repository {source.url}" if source else "a package source"
            return failed(host, stage, f"{host.name}: {which} cannot be used: {why(answer)}")
    done.add(nvidias)
    return True


def again(state: State, host: Host, stage: str, spec: HostSpec, packages: Sequence[str]) -> bool:
    """Install packages again that lost files; say why and fail the host where it cannot be.

    + packages: names of installed packages; with none there is nothing to do

    Each at the version it has: without one the newest on offer is taken, and one package of the
    driver cannot move alone.
    """
    names, record = dict.fromkeys(packages), look(spec)
    if not names:
        return True
    rows = if_known(record.nvidia.packages, ()) if record else ()
    versions = {each.name: each.version for each in rows}
    there = {name: versions.get(name) or versions.get(plain(name)) for name in names}
    exact = tuple(f"{name}={version}" if version else name for name, version in there.items())
    key = _KEYS.get(stage)
    hint = (
        "files are lost, and come back only with the same version; where no source offers that"
        f" any more{f', declare `{key}` as one that is offered' if key else ''}, name a source"
        f" that has it{' (`driver_repository_url`)' if from_nvidia(spec) else ''}, or bring the"
        f" files back by hand (`apt-cache policy {plain(next(iter(names)))}` shows what there is)"
    )
    return install(state, host, stage, spec, exact, reinstall=True, hint=hint)


def owners(state: State, host: Host, spec: HostSpec, paths: Sequence[str]) -> list[str]:
    """Return the packages to which paths belong; none for those of nobody."""
    command = f"{quoted('dpkg-query', '-S', *paths)} 2>/dev/null"
    # It says "a, b:amd64: /usr/lib/libcuda.so"; "diversion by ..." names none.
    lines = ask(state, host, command, as_root(spec), seconds=deadlines.SERVICE).stdout
    named = [line.partition(": /") for line in lines if not line.startswith("diversion ")]
    names = [each.strip() for names, path, _ in named if path for each in names.split(",")]
    return list(dict.fromkeys(names))
