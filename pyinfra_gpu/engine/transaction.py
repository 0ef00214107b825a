"""One apt transaction: simulated, judged, fetched, and only then run, under guard."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import TYPE_CHECKING

from pyinfra.api.command import FunctionCommand

from pyinfra_gpu.drift.driver_packages import packages as driver_packages
from pyinfra_gpu.drift.driver_packages import target
from pyinfra_gpu.drift.driver_repository import repository
from pyinfra_gpu.drift.history import OUR_MARK
from pyinfra_gpu.engine.ask import Answer, ask
from pyinfra_gpu.engine.look import forget, look
from pyinfra_gpu.engine.package_manager import wait_for_lock
from pyinfra_gpu.engine.privilege import as_root
from pyinfra_gpu.engine.steps import failed, quoted
from pyinfra_gpu.packages.apt.errors import cause, failure, shortened
from pyinfra_gpu.packages.apt.limits import Limits, judge
from pyinfra_gpu.packages.apt.names import plain
from pyinfra_gpu.packages.apt.simulation import Simulation, parse, parse_fetches
from pyinfra_gpu.spec import system_files

if TYPE_CHECKING:
    from pyinfra.api.host import Host
    from pyinfra.api.state import State

    from pyinfra_gpu.engine.converge import Commands
    from pyinfra_gpu.spec import HostSpec

_FRESH = "pyinfra_gpu_apt_lists"  # in connector_data, pyinfra's scratch space of this host and run
_MARK = "== pyinfra-gpu =="
_OURS_ONLY = (
    *("-o", f"Dir::Etc::sourcelist={system_files.SOURCES}", "-o", "Dir::Etc::sourceparts=-"),
    # The lists of all other sources stay; and without this, apt ends with 0 where a server is down.
    *("-o", "APT::Get::List-Cleanup=0", "-o", "APT::Update::Error-Mode=any"),
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Request:
    """What apt is asked to install.

    + packages: names, or NAME=VERSION where VERSION may end in *
    + reinstall: also where it is installed already
    + hint: what it means, and what a person may do, where apt finds no such packages
    """

    stage: str
    spec: HostSpec
    packages: tuple[str, ...]
    reinstall: bool = False
    hint: str = ""

    @property
    def words(self) -> list[str]:
        """The arguments of apt-get behind its options."""
        again = ["--reinstall"] if self.reinstall else []
        return ["install", *again, *self.packages]


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
    + packages: names, or NAME=VERSION where VERSION may end in *
    + reinstall: install them again where they are there
    + hint: what a person may do where apt finds no such packages, a clause

    First simulated; refused with a sentence where it would remove what is not the driver's, leave
    the declared branch, take NVIDIA's packages from elsewhere, change the kernel, downgrade, or
    touch what somebody put on hold. Then everything is fetched, and only then dpkg starts, under
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
    names = ", ".join(change.name for change in simulation.changes[:4])
    more = len(simulation.changes) - 4
    what = f"install {names}{f' and {more} more' if more > 0 else ''}"
    command = guarded(request, simulation)
    answer = ask(state, host, command, as_root(request.spec), what=what)
    forget()
    if answer.ok:
        return True
    return failed(host, request.stage, f"{host.name}: {what} failed: {failure(answer.lines)}")


def prepared(state: State, host: Host, request: Request) -> Simulation | None:
    """Return a transaction that may run and whose files are fetched; None after saying why not.

    Stale lists of the distribution are a reason to update them once, and to try again.
    """
    if not wait_for_lock(state, host, request.stage, request.spec):
        return None
    if not update(state, host, request.stage, request.spec):
        return None
    for attempt in ("first", "second"):
        simulation, held = _simulated(state, host, request)
        reason = _unsolved(request, simulation)
        if reason is None:
            judged = _judged(request, simulation, held)
            if judged:
                failed(host, request.stage, f"{host.name}: refused: {judged}; nothing was changed")
                return None
            fetch = ask(state, host, _apt(request, "--download-only"), as_root(request.spec))
            if fetch.ok:
                return simulation
            reason = f"the packages cannot be fetched: {cause(fetch.lines)}"
        if attempt == "first":
            ask(state, host, "apt-get update -q", as_root(request.spec), what="apt-get update")
    failed(host, request.stage, f"{host.name}: {reason}; nothing was changed")
    return None


def update(state: State, host: Host, stage: str, spec: HostSpec) -> bool:
    """Fetch the list of NVIDIA's repository, once in a run; say why and fail where it cannot be.

    Only that list: another source that is down must not stop the driver.
    """
    if host.connector_data.get(_FRESH):
        return True
    record = look(spec)
    source = repository(spec, record) if record else "it cannot be looked at"
    if isinstance(source, str):
        return failed(host, stage, f"{host.name}: {source}")
    command = quoted("env", "LC_ALL=C", "apt-get", "update", "-q", *_OURS_ONLY)
    answer = ask(state, host, command, as_root(spec))
    if not answer.ok:
        sentence = f"{host.name}: the repository {source.url} cannot be used: {cause(answer.lines)}"
        return failed(host, stage, sentence)
    host.connector_data[_FRESH] = True
    return True


def _apt(request: Request, *options: str) -> str:
    """Return the command line of apt-get; simulation and real run must not differ in more."""
    wait = max(request.spec.preflight.apt_wait_s, 1)
    return quoted(
        *("env", "LC_ALL=C", "DEBIAN_FRONTEND=noninteractive", "NEEDRESTART_SUSPEND=1"),
        *("apt-get", "-o", f"{OUR_MARK}=1", "-y", "-q"),
        *("--no-install-recommends", "--allow-downgrades"),
        *("--allow-change-held-packages", "-o", f"DPkg::Lock::Timeout={wait}"),
        # A configuration file that somebody changed stays as it is, without a question.
        *("-o", "Dpkg::Options::=--force-confdef", "-o", "Dpkg::Options::=--force-confold"),
        *("-o", "APT::Get::AutomaticRemove=false", *options, *request.words),
    )


def _simulated(state: State, host: Host, request: Request) -> tuple[Simulation, frozenset[str]]:
    """Return what apt would do and which packages are on hold, in one round trip."""
    mark = quoted("echo", _MARK)
    command = (
        f"{_apt(request, '--simulate')} 2>&1; {mark}; apt-mark showhold; {mark};"
        f" {_apt(request, '--print-uris')} 2>&1; {mark}"
    )
    answer = ask(state, host, command, as_root(request.spec))
    parts = _parts(answer)
    if len(parts) != 4:
        text = shortened(answer.lines[-1]) if answer.lines else "apt-get printed nothing"
        return Simulation(problems=(text,)), frozenset()
    simulation = parse(parts[0])
    fetches = parse_fetches(parts[2])
    return (
        Simulation(
            changes=simulation.changes,
            problems=simulation.problems,
            odd=simulation.odd,
            fetches=fetches,
        ),
        frozenset(line.strip() for line in parts[1] if line.strip()),
    )


def _parts(answer: Answer) -> list[list[str]]:
    parts: list[list[str]] = [[]]
    for line in answer.stdout:
        if line == _MARK:
            parts.append([])
        else:
            parts[-1].append(line)
    return parts


def _unsolved(request: Request, simulation: Simulation) -> str | None:
    """Return why apt finds no solution, in one clause, or None."""
    if not simulation.problems:
        return None
    said = shortened("; ".join(simulation.problems), 400)
    names = " ".join(request.packages[:3])
    if request.hint:
        return f"apt finds no way to install {names}: {request.hint} (apt: {said})"
    driver = request.spec.driver
    wanted = f"version {driver.version}" if driver.version else "one version"
    return (
        f"apt finds no way to install {names} with the driver at {wanted}"
        f" of branch {driver.branch} from NVIDIA's repository (apt: {said})"
    )


def _judged(request: Request, simulation: Simulation, held: frozenset[str]) -> str | None:
    spec = request.spec
    record = look(spec)
    source = repository(spec, record) if record else "it cannot be looked at"
    if record is None or isinstance(source, str):
        return str(source)
    found = driver_packages(spec, record)
    limits = Limits(
        branch=spec.driver.branch,
        # Also where none is declared: a single package that went ahead goes back to the rest.
        version=target(spec, found),
        url=source.url,
        installed=found.names,
        held=held,
    )
    return "; ".join(judge(simulation, limits)[:4]) or None


def guarded(request: Request, simulation: Simulation) -> str:
    """Return the shell command of the real run: apt-get, with the guard in place while it lasts.

    The guard is named in a configuration file of its own, which only this command is told of.
    """
    allowed = "".join(
        f"{plain(change.name)} {change.new or '-'}\n" for change in simulation.changes
    )
    guard = (files("pyinfra_gpu") / "on_host" / "apt_guard.sh").read_text(encoding="ascii")
    lines = (
        # What a power cut left of an earlier run; it does nothing, but it is ours.
        "find /var/lib -maxdepth 1 -name 'pyinfra-gpu-apt.*' -mmin +1440 -exec rm -rf {} +",
        # /tmp and /run may forbid to run programs; dpkg itself runs scripts below /var/lib.
        "folder=$(mktemp -d /var/lib/pyinfra-gpu-apt.XXXXXX) || exit 1",
        "trap 'rm -rf \"$folder\"' EXIT",
        "trap 'exit 1' HUP INT TERM",
        f'printf %s {quoted(guard)} > "$folder/guard" && chmod 0700 "$folder/guard" || exit 1',
        f'printf %s {quoted(allowed)} > "$folder/allowed" || exit 1',
        'printf \'DPkg::Pre-Install-Pkgs { "%s %s"; };\\nDPkg::Tools::Options::%s::Version "3";'
        '\\n\' "$folder/guard" "$folder/allowed" "$folder/guard" > "$folder/apt.conf" || exit 1',
        f'APT_CONFIG="$folder/apt.conf" {_apt(request)}',
    )
    return "\n".join(lines)
