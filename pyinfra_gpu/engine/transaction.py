"""One transaction of packages: simulated, judged, fetched, and only then run, under guard."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyinfra.api.command import FunctionCommand

from pyinfra_gpu.drift.driver_archive import archive, from_nvidia, trusts_nvidia
from pyinfra_gpu.drift.driver_inventory import packages as driver_packages
from pyinfra_gpu.drift.driver_packages import target
from pyinfra_gpu.drift.driver_repository import Repository, repository
from pyinfra_gpu.engine import deadlines
from pyinfra_gpu.engine.ask import ask
from pyinfra_gpu.engine.look import forget, look, unanswered
from pyinfra_gpu.engine.package_manager import manager_of, wait_for_lock, why
from pyinfra_gpu.engine.privilege import as_root
from pyinfra_gpu.engine.steps import failed
from pyinfra_gpu.packages import PackageManager
from pyinfra_gpu.packages.limits import Limits, judge
from pyinfra_gpu.packages.model import Simulation, Transaction
from pyinfra_gpu.text import shortened, some

if TYPE_CHECKING:
    from pyinfra.api.host import Host
    from pyinfra.api.state import State

    from pyinfra_gpu.engine.converge import Commands
    from pyinfra_gpu.facts.record import Record
    from pyinfra_gpu.spec import HostSpec

_FRESH = "pyinfra_gpu_list"  # in connector_data, pyinfra's scratch space of this host and run
_LONGEST_SAID = 400  # characters of the package manager's own words, in the sentence


@dataclass(frozen=True, kw_only=True, slots=True)
class Request:
    """What the package manager is asked to install.

    + packages: names, or what the manager's `exact`, `build_of` and `without` made of them
    + reinstall: also where it is installed already
    + hint: what it means, and what a person may do, where no such packages are found
    """

    stage: str
    spec: HostSpec
    packages: tuple[str, ...]
    reinstall: bool = False
    hint: str = ""

    @property
    def transaction(self) -> Transaction:
        """The same in the package manager's words."""
        wait_s = self.spec.preflight.apt_wait_s
        return Transaction(packages=self.packages, reinstall=self.reinstall, wait_s=wait_s)


def install(
    stage: str,
    spec: HostSpec,
    packages: Sequence[str],
    *,
    reinstall: bool = False,
    hint: str = "",
) -> Commands:
    """Ensure that packages are installed, by a transaction that stays within its limits.

    + stage: the stage that asks
    + spec: the host's resolved specification
    + packages: as in `Request`
    + reinstall: install them again where they are there
    + hint: what a person may do where no such packages are found, a clause

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
    simulation = prepared(state, host, request)
    if simulation is None:
        return False
    if not simulation.changes:
        return True
    what = f"install {some([change.name for change in simulation.changes], 4)}"
    manager = manager_of(look(request.spec))
    command = manager.run(request.transaction, simulation)
    seconds = deadlines.INSTALL + request.transaction.wait_s
    answer = ask(state, host, command, as_root(request.spec), seconds=seconds, what=what)
    forget()
    if answer.ok:
        return True
    return failed(host, request.stage, f"{host.name}: {what} failed: {why(manager, answer)}")


def prepared(state: State, host: Host, request: Request) -> Simulation | None:
    """Return a transaction that may run and whose files are fetched; None after saying why not.

    Stale lists of the distribution are a reason to update them once, and to try again.
    """
    if not wait_for_lock(state, host, request.stage, request.spec):
        return None
    if not update(state, host, request.stage, request.spec):
        return None
    manager, root = manager_of(look(request.spec)), as_root(request.spec)
    for attempt in ("first", "second"):
        simulation = _simulated(state, host, request, manager)
        reason = _unsolved(request, simulation, manager)
        if reason is None:
            judged = _judged(request, simulation, manager)
            if judged:
                failed(host, request.stage, f"{host.name}: refused: {judged}; nothing was changed")
                return None
            fetch = ask(
                state, host, manager.fetch(request.transaction), root, seconds=deadlines.INSTALL
            )
            if fetch.ok:
                return simulation
            reason = f"the packages cannot be fetched: {why(manager, fetch)}"
        if attempt == "first":
            ask(
                state,
                host,
                manager.update(request.transaction.wait_s),
                root,
                seconds=deadlines.SIMULATION + request.transaction.wait_s,
                what=f"update the lists of {manager.name}",
            )
    failed(host, request.stage, f"{host.name}: {reason}; nothing was changed")
    return None


def update(state: State, host: Host, stage: str, spec: HostSpec) -> bool:
    """Fetch the list of NVIDIA's repository, once in a run; say why and fail where it cannot be.

    Only that list: another source that is down must not stop the driver.
    """
    if host.connector_data.get(_FRESH):
        return True
    record = look(spec)
    source = _repository(spec, record)
    if isinstance(source, str):
        return failed(host, stage, f"{host.name}: {source}")
    manager, wait_s = manager_of(record), spec.preflight.apt_wait_s
    command = manager.update_ours(wait_s) if source else manager.update(wait_s)
    seconds = deadlines.SIMULATION + wait_s
    answer = ask(state, host, command, as_root(spec), seconds=seconds)
    if not answer.ok:
        which = f"the repository {source.url}" if source else "the distribution's archive"
        reason = f"{which} cannot be used: {why(manager, answer)}"
        return failed(host, stage, f"{host.name}: {reason}")
    if source and not from_nvidia(spec):
        command = manager.update(wait_s)
        ask(state, host, command, as_root(spec), seconds=seconds, what="update the lists")
    host.connector_data[_FRESH] = True
    return True


def _repository(spec: HostSpec, record: Record | None) -> Repository | str | None:
    """Return NVIDIA's repository, why there is none, or None where none is needed."""
    if record is None:
        return unanswered()
    return repository(spec, record) if trusts_nvidia(spec) else None


def possible(state: State, host: Host, request: Request) -> bool:
    """Tell whether a transaction could run, with the lists as they are; says nothing of it."""
    record = look(request.spec)
    if record is None or not update(state, host, request.stage, request.spec):
        return False
    manager = manager_of(record)
    simulation = _simulated(state, host, request, manager)
    return not simulation.problems and _judged(request, simulation, manager) is None


def _simulated(state: State, host: Host, request: Request, manager: PackageManager) -> Simulation:
    """Return what would be done, and which packages are on hold."""
    answer = ask(
        state,
        host,
        manager.simulate(request.transaction),
        as_root(request.spec),
        seconds=deadlines.SIMULATION,
    )
    simulation = manager.simulated(answer.stdout)
    if simulation is not None:
        return simulation
    silence = f"{manager.name} printed nothing"
    return Simulation(problems=answer.lines[-1:] or (silence,))


def _unsolved(request: Request, simulation: Simulation, manager: PackageManager) -> str | None:
    """Return why there is no such transaction, in one clause, or None."""
    if not simulation.problems:
        return None
    said = f"({manager.name}: {shortened('; '.join(simulation.problems), _LONGEST_SAID)})"
    names = " ".join(request.packages[:3])
    if request.hint:
        return f"{manager.name} finds no way to install {names}: {request.hint} {said}"
    driver = request.spec.driver
    wanted = f"version {driver.version}" if driver.version else "one version"
    origin = "NVIDIA's repository" if from_nvidia(request.spec) else "the distribution's archive"
    return (
        f"{manager.name} finds no way to install {names} with the driver at {wanted}"
        f" of branch {driver.branch} from {origin} {said}"
    )


def _judged(request: Request, simulation: Simulation, manager: PackageManager) -> str | None:
    spec = request.spec
    record = look(spec)
    source = _repository(spec, record)
    if record is None or isinstance(source, str):
        return str(source)
    found, own = driver_packages(spec, record), archive(spec, record)
    limits = Limits(
        branch=spec.driver.branch,
        # Also where none is declared: a single package that went ahead goes back to the rest.
        version=target(spec, found),
        url=source.url if source else "",
        installed=found.names,
        labels=own.labels if own else (),
        apart=found.apart,
    )
    return "; ".join(judge(simulation, limits, manager)[:4]) or None
