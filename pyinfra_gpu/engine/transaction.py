"""Packages on a host: simulated, judged, and only then installed, under guard."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from pyinfra.api.command import FunctionCommand, PyinfraCommand
from pyinfra.api.host import Host
from pyinfra.api.state import State

from pyinfra_gpu.engine import deadlines
from pyinfra_gpu.engine.ask import Answer, ask
from pyinfra_gpu.engine.look import forget, look, unanswered
from pyinfra_gpu.engine.privilege import as_root
from pyinfra_gpu.engine.steps import failed, quoted, reason, step
from pyinfra_gpu.on_host import program, text
from pyinfra_gpu.packages import files
from pyinfra_gpu.packages.model import MARK
from pyinfra_gpu.packages.names import is_nvidia, plain
from pyinfra_gpu.packages.simulation import Limits, Simulation, judge, parse
from pyinfra_gpu.spec import HostSpec
from pyinfra_gpu.stages.driver import inventory
from pyinfra_gpu.stages.driver.inventory import from_nvidia, trusts_nvidia
from pyinfra_gpu.stages.finding import Stage
from pyinfra_gpu.stages.rules import if_known
from pyinfra_gpu.text import shortened, some

PYTHON = "python3-minimal"
_FRESH = "pyinfra_gpu_list"  # in connector_data, pyinfra's scratch space of this host and run
_LONGEST_SAID = 400  # characters of apt's own words, in the sentence
_COMPLETE = "Done"  # the last line of a simulation
NOT_FETCHED = "E: Unable to fetch some archives"
"""What apt ends with where it could not fetch a package, before it began with any."""
_FETCHED_TO = "/var/lib"  # where there is space: packages that are unpacked again
_MODULES = "/var/lib/dkms"
_APT_GET = (
    # needrestart would restart services of the user's, without a question without a terminal.
    *("env", "LC_ALL=C", "DEBIAN_FRONTEND=noninteractive", "NEEDRESTART_SUSPEND=1"),
    *("apt-get", "-y", "-q", "--no-install-recommends", "-o", "APT::Get::AutomaticRemove=false"),
    # A configuration file that somebody changed stays as it is, without a question.
    *("-o", "Dpkg::Options::=--force-confdef", "-o", "Dpkg::Options::=--force-confold"),
)
# A name that is not on offer fails; as a pattern, "python3.9" could match others.
_EXACTLY = ("-o", "APT::Cmd::Pattern-Only=true")
_OURS_ONLY = (
    *("-o", f"Dir::Etc::sourcelist={files.SOURCES}", "-o", "Dir::Etc::sourceparts=-"),
    # The lists of all other sources stay; and without this, apt ends with 0 where a server is down.
    *("-o", "APT::Get::List-Cleanup=0", "-o", "APT::Update::Error-Mode=any"),
)


def words(packages: Sequence[str], *, reinstall: bool, wait_s: int) -> tuple[str, ...]:
    """Return the words of apt-get that install packages, without a question.

    + packages: as apt-get takes them: "NAME", "NAME=VERSION", "NAME-" to remove it
    + reinstall: also where a package is installed already
    + wait_s: seconds to wait where somebody else takes the lock

    Simulation and real run must not differ in more than an option.
    """
    return (
        *(*_APT_GET, "-o", f"{MARK}=1", "-o", f"DPkg::Lock::Timeout={max(wait_s, 1)}"),
        *("--allow-downgrades", "--allow-change-held-packages", *_EXACTLY),
        # What is installed again to bring back lost files brings its configuration files, too.
        *(("-o", "Dpkg::Options::=--force-confmiss") if reinstall else ()),
        *("install", *(("--reinstall",) if reinstall else ()), *packages),
    )


def guarded(transaction: Sequence[str], judged: Simulation) -> str:
    """Return the command that runs a transaction, and stops it where it is another one.

    + judged: what was judged; before anything else changes, the command fails. What of it is on
      hold and stays is on hold again when the command ends
    """
    allowed = "".join(f"{plain(each.name)} {each.new or '-'}\n" for each in judged.changes)
    # What was removed would go on hold, too, and could not come back.
    held = " ".join(each.name for each in judged.changes if each.new and each.held)
    guard = text("packages/apt/guard.sh")
    return program("packages/apt/transaction.sh", guard, allowed, held, *transaction)


def _update(spec: HostSpec, more: Sequence[str] = ()) -> str:
    wait_s = str(spec.preflight.apt_wait_s)
    return program("packages/apt/update.sh", wait_s, "apt-get", "update", "-q", *more)


def _apt(
    state: State, host: Host, spec: HostSpec, command: str, seconds: float, what: str | None = None
) -> Answer:
    """Run a command as root that may wait for apt's lock first."""
    seconds += spec.preflight.apt_wait_s
    return ask(state, host, command, as_root(spec), seconds=seconds, what=what)


def first_package(stage: str, spec: HostSpec) -> PyinfraCommand:
    """Return the command that installs the Python by which a host is looked at."""
    install = words((PYTHON,), reinstall=False, wait_s=spec.preflight.apt_wait_s)
    command, what = f"{_update(spec)} && {quoted(*install)}", f"install {PYTHON}"
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
    wait = ("-o", f"DPkg::Lock::Timeout={max(wait_s, 1)}")
    command = quoted("env", "LC_ALL=C", "apt-get", "check", "-q", *wait)
    answer = _apt(state, host, spec, command, deadlines.SERVICE)
    forget()
    if answer.ok or not any("Could not get lock" in line for line in answer.lines):
        return True
    sentence = (
        f"{spec.host}: apt is in use by {holder} for more than {wait_s} s; let it finish and run"
        " again, or raise `preflight_apt_wait_s`"
    )
    return failed(host, stage, sentence)


def finish(state: State, host: Host, spec: HostSpec) -> Answer:
    """Finish what an interrupted installation left."""
    command = program("packages/apt/finish.sh", _FETCHED_TO, _MODULES)
    what = "finish an interrupted installation"
    answer = _apt(state, host, spec, command, deadlines.INSTALL, what)
    forget()
    return answer


def finish_interrupted(stage: str, spec: HostSpec) -> PyinfraCommand:
    """Return the command that finishes what an interrupted installation left, or fails the host."""

    def finished(state: State, host: Host) -> bool:
        said = "an interrupted installation cannot be finished"
        answer = finish(state, host, spec)
        return answer.ok or failed(host, stage, f"{host.name}: {said}: {why(answer)}")

    return FunctionCommand(finished, (), {})


def dpkg_is_idle(state: State, host: Host, stage: str, spec: HostSpec) -> bool:
    """Wait for apt's lock, and finish what an interrupted installation left, if that can be."""
    if not wait_for_lock(state, host, stage, spec):
        return False
    record = look(spec)
    if record and if_known(record.packages.half_configured, ()):  # apt refuses all else until then
        finish(state, host, spec)
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
    + packages, reinstall: as in `words`
    + others: further lists of packages, each asked for where those before it cannot be installed
    + hint: what it means, and what a person may do, where no such packages are found

    First simulated; refused with a sentence where it would remove what is not the driver's, leave
    the declared branch, take NVIDIA's packages from elsewhere, change the kernel, downgrade, or
    touch what somebody put on hold. Then it runs: apt fetches everything before it begins, and a
    guard stops it where it is not what was simulated.
    """
    if not dpkg_is_idle(state, host, stage, spec) or not update(state, host, stage, spec):
        return False
    refusals = list[str]()
    for wanted in (packages, *others):
        asked, simulation = _simulated(state, host, spec, wanted, reinstall)
        if problem := _problem(spec, wanted, simulation, hint):
            refusals.append(problem)
            continue
        if not simulation.changes:
            return True
        what = f"install {some([change.name for change in simulation.changes], 4)}"
        answer = _apt(state, host, spec, guarded(asked, simulation), deadlines.INSTALL, what)
        forget()
        if answer.ok:
            return True
        if not any(NOT_FETCHED in line for line in answer.lines):
            return failed(host, stage, f"{host.name}: {what} failed: {why(answer)}")
        refusals.append(f"the packages cannot be fetched: {why(answer)}")
    return failed(host, stage, f"{host.name}: {refusals[0]}; no package was changed")


def _simulated(
    state: State, host: Host, spec: HostSpec, packages: Sequence[str], reinstall: bool
) -> tuple[tuple[str, ...], Simulation]:
    """Return a command line of apt-get, and what it would do.

    What somebody removed by force of a set, and apt then misses at every step, comes back with it.
    """
    wait_s = spec.preflight.apt_wait_s
    for _ in ("as asked", "with what is missing"):
        asked = words(packages, reinstall=reinstall, wait_s=wait_s)
        command = program("packages/apt/simulate.sh", *asked)
        answer = _apt(state, host, spec, command, deadlines.SIMULATION)
        if answer.stdout[-1:] != (_COMPLETE,):
            return asked, Simulation(problems=answer.lines[-1:] or ("apt printed nothing",))
        simulation = parse(answer.stdout)
        gone = [each for each in simulation.unmet if is_nvidia(each.partition("=")[0])]
        if set(gone) <= set(packages):
            break
        packages = (*packages, *gone)
    return asked, simulation


def _problem(
    spec: HostSpec, packages: Sequence[str], simulation: Simulation, hint: str
) -> str | None:
    """Return why a transaction cannot or must not run, in one clause."""
    if simulation.problems:
        said = shortened("; ".join(simulation.problems), _LONGEST_SAID)
        origin = "NVIDIA's repository" if from_nvidia(spec) else "the distribution's archive"
        means = f": {hint}" if hint else f" from {origin}"
        return f"apt finds no way to install {' '.join(packages[:3])}{means} (apt: {said})"
    if (record := look(spec)) is None:
        return f"refused: {unanswered()}"
    source = inventory.repository(spec, record) if trusts_nvidia(spec) else None
    found, own = inventory.packages(spec, record), inventory.archive(spec, record)
    limits = Limits(
        branch=spec.driver.branch,
        # Also where none is declared: a single package that went ahead goes back to the rest.
        version=inventory.target(spec, found),
        url=source.url if isinstance(source, inventory.Repository) else "",
        labels=own.labels if own else (),
        apart=found.apart,
    )
    beyond = "; ".join(judge(simulation, limits)[:4])
    return f"refused: {beyond}" if beyond else None


def update(state: State, host: Host, stage: str, spec: HostSpec) -> bool:
    """Fetch apt's lists, once in a run; say why and fail where they cannot be had.

    For driver and toolkit only that of NVIDIA's repository must be had: another source that is down
    must not stop them. What else a host lacks comes from its own sources, which need no NVIDIA.
    """
    nvidias = stage != Stage.PACKAGES
    done: set[bool] = host.connector_data.setdefault(_FRESH, set())
    if nvidias in done:
        return True
    source: inventory.Repository | str | None = None
    if nvidias and trusts_nvidia(spec):
        record = look(spec)
        source = inventory.repository(spec, record) if record else unanswered()
    if isinstance(source, str):
        return failed(host, stage, f"{host.name}: {source}")
    answer = _apt(state, host, spec, _update(spec), deadlines.SIMULATION)
    if source:
        answer = _apt(state, host, spec, _update(spec, _OURS_ONLY), deadlines.SIMULATION)
    if not answer.ok:
        which = f"the repository {source.url}" if source else "a package source"
        return failed(host, stage, f"{host.name}: {which} cannot be used: {why(answer)}")
    done |= {nvidias, False}
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
    hint = (
        "lost files come back only with the same version; where no source offers that any more"
        f" (`apt-cache policy {plain(next(iter(names)))}`), declare one that is offered"
        " (`driver_version`, `cuda_version`) or name a source that has it"
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


def on_offer(
    state: State, host: Host, spec: HostSpec, names: Sequence[str]
) -> Mapping[str, tuple[str, ...]] | None:
    """Return package -> versions on offer; None where apt does not tell.

    `apt-cache show` would also show what was removed and left a file behind.
    """
    command = quoted("apt-cache", "madison", *names)
    answer = ask(state, host, command, as_root(spec), seconds=deadlines.SERVICE)
    return offered(answer.stdout) if answer.ok else None


def offered(lines: Sequence[str]) -> Mapping[str, tuple[str, ...]]:
    """Read lines "libcuda1 | 535.261.03-1 | http://... Packages": name -> versions."""
    rows = [[word.strip() for word in line.split(" | ")] for line in lines]
    whole = [row for row in rows if len(row) == 3]
    return {name: tuple(v for each, v, _ in whole if each == name) for name, _, _ in whole}


# --- why a command failed

_ERROR = re.compile(r"(?:E|W|Error|Warning): |dpkg(?:-deb)?: error")
# What apt adds where the error itself stands in another line, or where there is none.
_SUMS_UP = re.compile(
    r"\w+: (?:Sub-process /usr/bin/dpkg |Some (?:index )?files failed to download|Download Failed"
    r"|Unable to fetch some archives|Failure while executing|Download is performed unsandboxed)"
)


def why(answer: Answer) -> str:
    """Return why a command of apt's or dpkg's failed, in one clause.

    Of what dpkg says of a package every line counts; else those with which apt tells an error.
    """
    lines = [line for line in answer.lines if line.strip() and not _SUMS_UP.match(line)]
    if not any(line.startswith("dpkg: error") for line in lines):
        lines = [line for line in lines if _ERROR.match(line)] or lines
    return answer.lines[-1] if answer.lost else reason(lines, said_by="apt")
