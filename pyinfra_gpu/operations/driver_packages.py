"""NVIDIA's driver packages: pinned first, then installed, complete and of one version."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING

from packaging.version import Version
from pyinfra.api.command import FunctionCommand

from pyinfra_gpu.drift import driver_packages as drift
from pyinfra_gpu.drift.driver_inventory import (
    Packages,
    archive,
    of_series,
    packages,
    without_headers,
)
from pyinfra_gpu.drift.driver_packages import target
from pyinfra_gpu.drift.driver_repository import pin_package, pins
from pyinfra_gpu.drift.finding import Findings, Id
from pyinfra_gpu.drift.lost_files import lost_files, packages_of
from pyinfra_gpu.engine import deadlines, transaction
from pyinfra_gpu.engine.ask import ask
from pyinfra_gpu.engine.converge import Commands, converging, fresh
from pyinfra_gpu.engine.look import forget, look, unanswered
from pyinfra_gpu.engine.privilege import as_root
from pyinfra_gpu.engine.steps import failed, reason
from pyinfra_gpu.engine.transaction import (
    Request,
    finish_interrupted,
    install,
    possible,
    prepared,
    run,
    update,
    wait_for_lock,
    why,
)
from pyinfra_gpu.engine.write import written
from pyinfra_gpu.facts.fields import Unknown
from pyinfra_gpu.on_host import program
from pyinfra_gpu.packages import apt
from pyinfra_gpu.packages.names import (
    LIBRARIES,
    branch_of,
    driver_version,
    is_pin,
    matching,
    plain,
)
from pyinfra_gpu.stacks import catalogue

if TYPE_CHECKING:
    from pyinfra.api.host import Host
    from pyinfra.api.state import State

    from pyinfra_gpu.facts.record import Record
    from pyinfra_gpu.spec import HostSpec

STAGE = drift.STAGE


@converging(drift, repairs=drift.PIN)
def pinned(spec: HostSpec, record: Record, found: Findings) -> Commands:
    """Ensure that NVIDIA's own pin package is there before the driver is.

    + spec: the host's resolved specification

    In one transaction with the driver it would come too late: versions are chosen before anything
    is unpacked.
    The driver's transaction is judged and fetched first, so that a repository that is not to be
    trusted with the driver does not change even the pin. Where the repository has no such package
    our own pins, which say the same, stand alone and say so.

    **Example:**

    .. code:: python

        driver.pinned(name="Pin the driver", spec=wanted)
    """
    del found
    yield from _finished(spec, record)
    yield FunctionCommand(_pin, (spec, str(pin_package(spec, record))), {})


def _finished(spec: HostSpec, record: Record) -> Commands:
    """Finish what was interrupted, as far as that can be: a transaction does the rest."""
    if record.packages.half_configured:
        yield FunctionCommand(wait_for_lock, (STAGE, spec), {})
        yield finish_interrupted(STAGE, spec, entirely=False)


def _pin(state: State, host: Host, spec: HostSpec, name: str) -> bool:
    record = look(spec)
    if record is None:
        return failed(host, STAGE, f"{host.name}: {unanswered()}")
    driver = Request(stage=STAGE, spec=spec, packages=requests(spec, record))
    if prepared(state, host, driver) is None:
        return False
    known = ask(state, host, apt.on_offer([name]), as_root(spec), seconds=deadlines.SERVICE)
    if known.ok and apt.on_offer_in(known.stdout).get(name):
        beside = _to_be_moved_with_it(spec, record, name)
        return run(state, host, Request(stage=STAGE, spec=spec, packages=(name, *beside)))
    host.log(f"the repository has no {name}: our own pins stand alone")
    return _pins_alone(state, host, spec, record)


def _to_be_moved_with_it(spec: HostSpec, record: Record, pin: str) -> tuple[str, ...]:
    """Return what must be asked for with the pin's package; nothing where the driver is whole.

    An update that was cut off leaves packages of two versions. The package manager then moves all
    of them or nothing, and replaces no other pin unless it is told to.
    """
    if all(package.complete for package in packages(spec, record).installed):
        return ()
    rows = record.nvidia.packages
    names = () if isinstance(rows, Unknown) else tuple(each.name for each in rows)
    others = [f"{name}-" for name in names if is_pin(name) and name != pin]
    return (*others, *requests(spec, record))


def _pins_alone(state: State, host: Host, spec: HostSpec, record: Record) -> bool:
    return written(state, host, STAGE, pins(spec, record)[1], as_root(spec))


@converging(
    drift,
    repairs=drift.INSTALL,
)
def installed(spec: HostSpec, record: Record, found: Findings) -> Commands:
    """Ensure that the declared driver is installed: its branch, flavour, all of one version.

    + spec: the host's resolved specification

    The headers of the running kernel come first, for without them DKMS builds nothing and says
    nothing. A driver of another branch is brought back, which is a downgrade where it is a newer
    one: the declared branch is what asks for it. Within the branch nothing is ever downgraded
    unless ``driver_version`` says so or the rest of the driver is at the older version.

    **Example:**

    .. code:: python

        driver.installed(name="Install the driver", spec=wanted)
    """
    yield from _finished(spec, record)
    if found.of(Id.DRIVER_HEADERS_MISSING):
        yield FunctionCommand(_headers, (spec,), {})
    if found.of(*drift.MOVES):
        if archive(spec, record) is None:
            yield from install(STAGE, spec, requests(spec, record))
        else:
            yield FunctionCommand(_from_archive, (spec,), {})
    yield from _again(spec, fresh(spec, record))


def requests(spec: HostSpec, record: Record) -> tuple[str, ...]:
    """Return what is asked for: every package of the driver by name, with its version.

    All of them, for a package on hold that nobody names stays where it is, and a companion that
    no dependency holds stays behind. What is of the other flavour or of another branch's name is
    named as well, to be removed: a conflict alone does not move a package on hold.
    """
    return requested(spec, record, target(spec, packages(spec, record)))


def requested(
    spec: HostSpec, record: Record, version: str | None, more: tuple[str, ...] = ()
) -> tuple[str, ...]:
    """Return the same for one version of the driver, None = the newest.

    + more: packages to ask for beside those that are wanted
    """
    found = packages(spec, record)
    staying = [name for name in found.names if _stays(name, spec, found)]
    names = dict.fromkeys((*found.wanted, *more, *staying))
    going = [f"{name}-" for name in found.names if name not in staying]
    return (
        *(
            f"{name}={version}-*" if version and plain(name) not in found.apart else name
            for name in names
        ),
        *going,
    )


_TRIED = 4
"""Versions: an archive has one in each of its pockets, at most."""


def _from_archive(state: State, host: Host, spec: HostSpec) -> bool:
    """Install the newest driver of the distribution's archive of which all parts are there.

    By itself the newest of each would be taken, and that is no driver where they differ: security
    updates may have left the open modules behind, and a kernel's own modules are for one version.
    What brings modules together with newer kernels comes too, unless it would bring a kernel now.
    """
    record = look(spec)
    if record is None or not update(state, host, STAGE, spec):
        return failed(host, STAGE, f"{host.name}: {unanswered()}") if record is None else False
    found, own = packages(spec, record), archive(spec, record)
    driver = spec.driver
    companions = own.beside(driver.branch or 0, driver.modules) if own else ()
    asked = [name for name in (*found.wanted, *companions) if name not in found.apart]
    answer = ask(state, host, apt.on_offer(asked), as_root(spec), seconds=deadlines.SERVICE)
    offer = apt.on_offer_in(answer.stdout)
    chosen = target(spec, found)
    versions = [chosen] if chosen else _common(spec, offer, found)
    series = of_series(spec, record)
    requests_ = [
        Request(stage=STAGE, spec=spec, packages=requested(spec, record, version, more))
        for version in versions[:_TRIED]
        for more in dict.fromkeys(((*_with(offer, companions, version), *series), ()))
    ]
    plain_ones = Request(stage=STAGE, spec=spec, packages=requests(spec, record))
    likely = (each for each in requests_ if possible(state, host, each))
    return run(state, host, next(likely, requests_[0] if requests_ else plain_ones))


def _common(
    spec: HostSpec, offer: Mapping[str, tuple[str, ...]], found: Packages
) -> list[str | None]:
    """Return the versions that every wanted package has, newest first."""
    each = [
        {driver_version(version) for version in offer.get(name, ())}
        for name in found.wanted
        if name not in found.apart
    ]
    versions = set.intersection(*each) if each else set()
    good = [
        version
        for version in versions
        if version and branch_of(version) == spec.driver.branch and not drift.too_old(spec, version)
    ]
    return [*sorted(good, key=Version, reverse=True)]


def _with(
    offer: Mapping[str, tuple[str, ...]], companions: tuple[str, ...], version: str | None
) -> tuple[str, ...]:
    """Return the companions that there are in a version of the driver."""
    return tuple(
        name
        for name in companions
        if version in {driver_version(each) for each in offer.get(name, ())}
    )


def _stays(name: str, spec: HostSpec, found: Packages) -> bool:
    """Tell whether an installed package belongs to the declared flavour and branch."""
    branch = re.search(r"-(\d{3})(?=-|:|$)", name)
    return name not in found.foreign and (not branch or int(branch[1]) == spec.driver.branch)


def _headers(state: State, host: Host, spec: HostSpec) -> bool:
    """Install the headers of the running kernel, and of the next where there are any."""
    record = look(spec)
    if record is None:
        return failed(host, STAGE, f"{host.name}: {unanswered()}")
    os_id, running = str(record.system.os_id), str(record.system.kernel)
    lacking = without_headers(record)
    for kernel in lacking:
        name = catalogue().headers_package(os_id, kernel)
        newest = record.kernel.newest
        hint = f"no headers for kernel {kernel}"
        if kernel == running and newest and newest != running:
            hint = f"no headers for the running kernel {running}; reboot into {newest} first"
        elif kernel == running:
            hint = f"no headers for the running kernel {running}; install a newer kernel and reboot"
        # A file that somebody deleted comes back only by installing the package again.
        request = Request(stage=STAGE, spec=spec, packages=(name,), reinstall=True, hint=hint)
        if not run(state, host, request):
            return False
    forget()
    return True


def _again(spec: HostSpec, record: Record) -> Commands:
    """Complete what is still incomplete, and install again what has other files."""
    if _broken(spec, record):
        yield FunctionCommand(_complete, (spec,), {})


def _broken(spec: HostSpec, record: Record) -> list[str]:
    """Return what is to be installed again."""
    found = packages(spec, record)
    broken = {package.name for package in found.installed if not package.complete}
    if drift.foreign_libraries(record, found):
        broken |= set(matching(found.names, LIBRARIES))
    broken |= set(packages_of(lost_files(record, found.names.__contains__)))
    return sorted(broken)


def _complete(state: State, host: Host, spec: HostSpec) -> bool:
    """Set up what is unpacked, and install again what is not; say why a package's program failed.

    A module that cannot be built leaves its package half configured: to install it again would
    fail the same way, where it is possible at all.
    """
    record = look(spec)
    finish = ask(
        state,
        host,
        apt.finish(),
        as_root(spec),
        seconds=deadlines.INSTALL,
        what="complete the driver's packages",
    )
    forget()
    if not finish.ok and apt.says_script_failed(finish.lines):
        reason = why(finish)
        return failed(host, STAGE, f"{host.name}: a package cannot set itself up: {reason}")
    record = look(spec)
    if record is None:
        return failed(host, STAGE, f"{host.name}: {unanswered()}")
    return _strangers_aside(state, host, spec, record) and transaction.again(
        state, host, STAGE, spec, _broken(spec, record)
    )


def _strangers_aside(state: State, host: Host, spec: HostSpec, record: Record) -> bool:
    """Rename libraries of another version that no package brought: they would come first again."""
    foreign = drift.foreign_libraries(record, packages(spec, record))
    strangers = [each for each in foreign if not transaction.owners(state, host, spec, [each])]
    if not strangers:
        return True
    command = program("libcuda/set_aside.sh", *strangers)
    what = f"keep {', '.join(strangers)} under another name"
    answer = ask(state, host, command, as_root(spec), seconds=deadlines.SERVICE, what=what)
    forget()
    return answer.ok or failed(host, STAGE, f"{host.name}: {what} failed: {reason(answer.lines)}")
