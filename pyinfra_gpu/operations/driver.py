"""NVIDIA's driver: its repository trusted, its packages pinned and installed, its module built."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Mapping
from posixpath import dirname
from typing import TYPE_CHECKING

from packaging.version import Version
from pyinfra.api.command import FunctionCommand

from pyinfra_gpu.drift import driver as drift
from pyinfra_gpu.drift import driver_modules, driver_packages, driver_repository
from pyinfra_gpu.drift.driver_inventory import (
    Packages,
    archive,
    of_series,
    packages,
    without_headers,
)
from pyinfra_gpu.drift.driver_packages import target
from pyinfra_gpu.drift.driver_repository import MODE, Repository
from pyinfra_gpu.drift.files import differs
from pyinfra_gpu.drift.finding import Findings, Id
from pyinfra_gpu.drift.lost_files import lost_files, packages_of
from pyinfra_gpu.engine import deadlines, transaction
from pyinfra_gpu.engine.ask import ask
from pyinfra_gpu.engine.converge import Commands, converging, fresh
from pyinfra_gpu.engine.look import forget, look, unanswered
from pyinfra_gpu.engine.privilege import as_root
from pyinfra_gpu.engine.steps import failed, reason, step
from pyinfra_gpu.engine.transaction import (
    Request,
    finish_interrupted,
    install,
    possible,
    run,
    update,
    wait_for_lock,
    why,
)
from pyinfra_gpu.engine.write import File, write, written
from pyinfra_gpu.facts.fields import Unknown
from pyinfra_gpu.facts.openpgp import fingerprints
from pyinfra_gpu.on_host import program
from pyinfra_gpu.packages import apt
from pyinfra_gpu.packages.names import (
    LIBRARIES,
    branch_of,
    driver_version,
    matching,
    plain,
)
from pyinfra_gpu.spec import system_files
from pyinfra_gpu.stacks import catalogue

if TYPE_CHECKING:
    from pyinfra.api.host import Host
    from pyinfra.api.state import State

    from pyinfra_gpu.facts.record import Record
    from pyinfra_gpu.spec import HostSpec

STAGE = drift.STAGE
_TRIED = 4
"""Versions: an archive has one in each of its pockets, at most."""


@converging(drift, repairs=driver_repository.IDS)
def trusted(spec: HostSpec, record: Record, found: Findings) -> Commands:
    """Ensure that NVIDIA's repository is known by its pinned key, and the driver comes from it.

    + spec: the host's resolved specification

    The keyring package is fetched with its pinned SHA-256 and never installed: its own source list
    would point elsewhere. What it holds must be the pinned key and no other. Then come the pins,
    what keeps unattended-upgrades off, the blacklist of the free drivers, the source list, and a
    list of this repository alone. Another list that names the same repository is set aside, since
    nothing works where their keys differ.

    With ``driver_source = "distribution"`` the pins keep NVIDIA's drivers out, and NVIDIA's
    repository is there only for the toolkit.

    **Example:**

    .. code:: python

        driver.trusted(name="Add NVIDIA's apt repository", spec=wanted)
    """
    source, root = driver_repository.trusted(spec, record), as_root(spec)
    yield FunctionCommand(wait_for_lock, (STAGE, spec), {})
    if source is not None:
        if found.of(Id.DRIVER_KEYRING_REPLACED):
            yield FunctionCommand(_fetch_keyring, (spec, source), {})
        for file in driver_repository.twice(record, source):
            what = f"set {file} aside as {file}.disabled"
            command = apt.set_aside(file, source.url)
            yield step(STAGE, what, command, run_as=root, seconds=deadlines.PLAIN)
    for each in driver_repository.declared(spec, record):
        if differs(record, each.file):
            yield write(STAGE, each.file, root)
    if found.of(Id.DRIVER_KEYRING_REPLACED, Id.DRIVER_SOURCE_DIFFERS):
        yield FunctionCommand(update, (STAGE, spec), {})


def _fetch_keyring(state: State, host: Host, spec: HostSpec, source: Repository) -> bool:
    """Fetch the keyring, believe it only if it holds the pinned key alone, and put it in place."""
    url, command = apt.keyring_url(source.url), apt.keyring(source.url, source.keyring_sha256)
    answer = ask(state, host, command, as_root(spec), seconds=deadlines.SIMULATION)
    if not answer.ok:
        said = f"the keyring {url} cannot be used: {why(answer)}"
        return failed(host, STAGE, f"{host.name}: {said}")
    try:
        keyring = base64.b64decode("".join(answer.stdout[-1:]), validate=True)
    except (ValueError, binascii.Error):
        said = f"the keyring {url} came back unreadable: run again"
        return failed(host, STAGE, f"{host.name}: {said}")
    keys = fingerprints(keyring)
    if keys != (source.key_fingerprint,):
        held = keys.reason if isinstance(keys, Unknown) else ", ".join(keys) or "no key"
        return failed(
            host,
            STAGE,
            f"{host.name}: {url} does not hold the key {source.key_fingerprint} alone, but {held}:"
            " find out who changed it before you trust it (`driver_key_fingerprint`)",
        )
    file = File(path=system_files.KEYRING, content=keyring, mode=MODE)
    return written(state, host, STAGE, file, as_root(spec))


@converging(drift, repairs=driver_packages.INSTALL)
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
    if found.of(Id.DRIVER_HEADERS_MISSING):
        yield from _headers(spec, record)
    if found.of(*driver_packages.MOVES):
        if archive(spec, record) is None:
            yield from install(STAGE, spec, requests(spec, record))
        else:
            yield FunctionCommand(_from_archive, (spec, record), {})
    if _broken(spec, fresh(spec, record)):
        yield FunctionCommand(_complete, (spec,), {})


def requests(spec: HostSpec, record: Record) -> tuple[str, ...]:
    """Return what is asked for: every package of the driver by name, with its version.

    All of them, for a package on hold that nobody names stays where it is, and a companion that
    no dependency holds stays behind. What is of the other flavour or of another branch's name is
    named as well, to be removed: a conflict alone does not move a package on hold.
    """
    return _requested(spec, record, target(spec, packages(spec, record)))


def _requested(
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


def _stays(name: str, spec: HostSpec, found: Packages) -> bool:
    """Tell whether an installed package belongs to the declared flavour and branch."""
    branch = re.search(r"-(\d{3})(?=-|:|$)", name)
    return name not in found.foreign and (not branch or int(branch[1]) == spec.driver.branch)


def _from_archive(state: State, host: Host, spec: HostSpec, record: Record) -> bool:
    """Install the newest driver of the distribution's archive of which all parts are there.

    By itself the newest of each would be taken, and a kernel's own modules are for one version.
    What brings modules together with newer kernels comes too, unless it would bring a kernel now.
    """
    if not update(state, host, STAGE, spec):
        return False
    found, own = packages(spec, record), archive(spec, record)
    companions = own.beside(spec.driver.branch or 0, spec.driver.modules) if own else ()
    asked = [name for name in found.wanted if name not in found.apart]
    answer = ask(state, host, apt.on_offer(asked), as_root(spec), seconds=deadlines.SERVICE)
    chosen = target(spec, found)
    versions = [chosen] if chosen else _common(spec, asked, apt.on_offer_in(answer.stdout))
    requests_ = [
        Request(stage=STAGE, spec=spec, packages=_requested(spec, record, version, more))
        for version in versions[:_TRIED]
        for more in ((*companions, *of_series(spec, record)), companions, ())
    ]
    otherwise = Request(stage=STAGE, spec=spec, packages=requests(spec, record))
    likely = (each for each in requests_ if possible(state, host, each))
    return run(state, host, next(likely, requests_[0] if requests_ else otherwise))


def _common(
    spec: HostSpec, names: list[str], offer: Mapping[str, tuple[str, ...]]
) -> list[str | None]:
    """Return the versions of the declared branch that all these have, newest first."""
    each = [{driver_version(version) for version in offer.get(name, ())} for name in names]
    good = [
        version
        for version in (set.intersection(*each) if each else ())
        if version and branch_of(version) == spec.driver.branch
        if not driver_packages.too_old(spec, version)
    ]
    return [*sorted(good, key=Version, reverse=True)]


def _headers(spec: HostSpec, record: Record) -> Commands:
    """Install the headers of the running kernel, and of the next where there are any."""
    running, newest = record.system.kernel, record.kernel.newest
    for kernel in without_headers(record):
        hint = f"no headers for kernel {kernel}"
        if kernel == running:
            newer = f"reboot into {newest} first" if newest not in (None, running) else ""
            hint = f"no headers for the running kernel {running}; "
            hint += newer or "install a newer kernel and reboot"
        name = catalogue().headers_package(kernel)
        # A file that somebody deleted comes back only by installing the package again.
        yield from install(STAGE, spec, (name,), reinstall=True, hint=hint)


def _broken(spec: HostSpec, record: Record) -> list[str]:
    """Return what is to be installed again: what is incomplete, or has other files."""
    found = packages(spec, record)
    broken = {package.name for package in found.installed if not package.complete}
    if driver_packages.foreign_libraries(record, found):
        broken |= set(matching(found.names, LIBRARIES))
    broken |= set(packages_of(lost_files(record, found.names.__contains__)))
    return sorted(broken)


def _complete(state: State, host: Host, spec: HostSpec) -> bool:
    """Set up what is unpacked, and install again what is not; say why a package's program failed.

    A module that cannot be built leaves its package half configured: to install it again would
    fail the same way, where it is possible at all.
    """
    what, seconds = "complete the driver's packages", deadlines.INSTALL
    finish = ask(state, host, apt.finish(), as_root(spec), seconds=seconds, what=what)
    forget()
    if not finish.ok and apt.says_script_failed(finish.lines):
        said = f"a package cannot set itself up: {why(finish)}"
        return failed(host, STAGE, f"{host.name}: {said}")
    record = look(spec)
    if record is None:
        return failed(host, STAGE, f"{host.name}: {unanswered()}")
    return _strangers_aside(state, host, spec, record) and transaction.again(
        state, host, STAGE, spec, _broken(spec, record)
    )


def _strangers_aside(state: State, host: Host, spec: HostSpec, record: Record) -> bool:
    """Rename libraries of another version that no package brought: they would come first again."""
    foreign = driver_packages.foreign_libraries(record, packages(spec, record))
    strangers = [each for each in foreign if not transaction.owners(state, host, spec, [each])]
    if not strangers:
        return True
    command = program("libcuda/set_aside.sh", *strangers)
    what = f"keep {', '.join(strangers)} under another name"
    answer = ask(state, host, command, as_root(spec), seconds=deadlines.SERVICE, what=what)
    forget()
    return answer.ok or failed(host, STAGE, f"{host.name}: {what} failed: {reason(answer.lines)}")


@converging(drift, repairs=driver_modules.IDS)
def ready_for_boot(spec: HostSpec, record: Record, found: Findings) -> Commands:
    """Ensure that every boot finds this driver, and no other, ready.

    + spec: the host's resolved specification

    The module is there, in the packages' version, for the running and for the next kernel: a DKMS
    build that failed leaves packages that count as installed. The initramfs knows that nouveau and
    nova are blacklisted. The packages are on hold as ``driver_hold`` says.

    **Example:**

    .. code:: python

        driver.ready_for_boot(name="Build modules and update the initramfs", spec=wanted)
    """
    del found
    # A kernel's own package stays half configured where its hook could not build our module.
    unfinished, root = bool(driver_modules.unbuilt(spec, record)), as_root(spec)
    yield from _built(spec, record)
    record = fresh(spec, record)
    if unfinished and record.packages.half_configured:
        yield finish_interrupted(STAGE, spec)
    if record.kernel.initramfs == "stale":
        command = program("driver/initramfs.sh", dirname(system_files.MODPROBE))
        yield step(STAGE, "update the initramfs", command, run_as=root, seconds=deadlines.MODULE)
    if names := driver_modules.wrongly_held(spec, record):
        command = apt.hold(names, on=spec.driver.hold)
        what = "put the driver on hold" if spec.driver.hold else "take the driver off hold"
        yield step(STAGE, what, command, run_as=root, seconds=deadlines.SERVICE)


def _built(spec: HostSpec, record: Record) -> Commands:
    versions, own = packages(spec, record).versions, archive(spec, record)
    for kernel in driver_modules.owed(spec, record):
        if own is not None:
            # A file that somebody deleted comes back only by installing the package again.
            name = own.kernel_package(spec.driver.branch or 0, spec.driver.modules, kernel)
            yield from install(STAGE, spec, (name,), reinstall=True)
            continue
        what = f"build module {versions[0]} for kernel {kernel}"
        command = program("driver/build_module.sh", versions[0], kernel)
        yield step(STAGE, what, command, run_as=as_root(spec), seconds=deadlines.MODULE)
