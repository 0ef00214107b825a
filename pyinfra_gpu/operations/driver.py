"""NVIDIA's driver: its repository trusted, its packages pinned and installed, its module built."""

from __future__ import annotations

import base64
import binascii
import re
from posixpath import dirname

from packaging.version import Version
from pyinfra.api.command import FunctionCommand
from pyinfra.api.host import Host
from pyinfra.api.state import State

from pyinfra_gpu.drift import driver as drift
from pyinfra_gpu.drift.driver_inventory import (
    Packages,
    Repository,
    archive,
    of_series,
    packages,
    target,
    too_old,
    without_headers,
)
from pyinfra_gpu.drift.files import differs, lost_files, packages_of
from pyinfra_gpu.drift.finding import Findings, Id
from pyinfra_gpu.engine import deadlines, transaction
from pyinfra_gpu.engine.ask import ask
from pyinfra_gpu.engine.converge import Commands, converging, fresh
from pyinfra_gpu.engine.look import forget, look, unanswered
from pyinfra_gpu.engine.privilege import as_root
from pyinfra_gpu.engine.steps import failed, reason, step
from pyinfra_gpu.engine.transaction import Request, install, possible, run, update, why
from pyinfra_gpu.engine.write import File, write, written
from pyinfra_gpu.facts.fields import Unknown
from pyinfra_gpu.facts.openpgp import fingerprints
from pyinfra_gpu.facts.record import Record
from pyinfra_gpu.on_host import program
from pyinfra_gpu.packages import apt
from pyinfra_gpu.packages.names import LIBRARIES, branch_of, driver_version, matching, plain
from pyinfra_gpu.spec import HostSpec, system_files
from pyinfra_gpu.stacks import catalogue

STAGE = drift.STAGE
_TRIED = 4
"""Versions: an archive has one in each of its pockets, at most."""


@converging(drift, repairs=drift.TRUST)
def trusted(spec: HostSpec, record: Record, found: Findings) -> Commands:
    """Ensure that NVIDIA's repository is known by its pinned key, and the driver comes from it.

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
    source, root = drift.trusted(spec, record), as_root(spec)
    yield FunctionCommand(transaction.wait_for_lock, (STAGE, spec), {})
    if source is not None:
        if found.of(Id.DRIVER_KEYRING_REPLACED):
            yield FunctionCommand(_fetch_keyring, (spec, source), {})
        for file in drift.twice(record, source):
            what, command = f"set {file} aside as {file}.disabled", apt.set_aside(file, source.url)
            yield step(STAGE, what, command, run_as=root, seconds=deadlines.PLAIN)
    pins, *others = (ours for ours in drift.declared(spec, record))
    # Pins come first, but where they name a version: it has to be on offer before they are written.
    files = [pins, *others] if spec.driver.version is None else others
    for ours in files:
        if differs(record, ours):
            yield write(STAGE, ours, root)
    if found.of(Id.DRIVER_KEYRING_REPLACED, Id.DRIVER_SOURCE_DIFFERS):
        yield FunctionCommand(update, (STAGE, spec), {})
    if pins not in files and differs(record, pins):
        yield FunctionCommand(_on_offer, (spec, record), {})
        yield write(STAGE, pins, root)


def _on_offer(state: State, host: Host, spec: HostSpec, record: Record) -> bool:
    """Refuse a version that nobody offers; what apt cannot tell, the transaction will."""
    found, version = packages(spec, record), spec.driver.version
    names = [name for name in found.wanted if name not in found.apart]
    offered: set[str] = set()
    for stale in (True, False):
        answer = ask(state, host, apt.on_offer(names), as_root(spec), seconds=deadlines.SERVICE)
        offer = (each for versions in apt.on_offer_in(answer.stdout).values() for each in versions)
        offered = {driver_version(each) or "" for each in offer}
        if version in offered or (stale and not update(state, host, STAGE, spec)):
            return version in offered
    there = sorted(filter(lambda each: branch_of(each) == spec.driver.branch, offered), key=Version)
    if not there:
        return True
    said = f"driver_version = {version!r} is not on offer; of branch {spec.driver.branch} there is"
    said += f" {', '.join(there)}; the pins and the driver are as they were"
    return failed(host, STAGE, f"{host.name}: {said}")


def _fetch_keyring(state: State, host: Host, spec: HostSpec, source: Repository) -> bool:
    """Fetch the keyring, believe it only if it holds the pinned key alone, and put it in place."""
    url, command = apt.keyring_url(source.url), apt.keyring(source.url, source.keyring_sha256)
    answer = ask(state, host, command, as_root(spec), seconds=deadlines.SIMULATION)
    keyring: bytes | None
    try:
        keyring = base64.b64decode("".join(answer.stdout[-1:]), validate=True)
    except (ValueError, binascii.Error):
        keyring = None
    keys = fingerprints(keyring or b"")
    if not answer.ok:
        said = f"the keyring {url} cannot be used: {why(answer)}"
    elif keyring is None:
        said = f"the keyring {url} came back unreadable: run again"
    elif keys != (source.key_fingerprint,):
        held = keys.reason if isinstance(keys, Unknown) else ", ".join(keys) or "no key"
        said = (
            f"{url} does not hold the key {source.key_fingerprint} alone, but {held}: find out who"
            " changed it before you trust it (`driver_key_fingerprint`)"
        )
    else:
        file = File(path=system_files.KEYRING, content=keyring, mode=drift.KEYRING_MODE)
        return written(state, host, STAGE, file, as_root(spec))
    return failed(host, STAGE, f"{host.name}: {said}")


@converging(drift, repairs=drift.INSTALL)
def installed(spec: HostSpec, record: Record, found: Findings) -> Commands:
    """Ensure that the declared driver is installed: its branch, flavour, all of one version.

    The headers of the running kernel come first, for without them DKMS builds nothing and says
    nothing. A driver of another branch is brought back, which is a downgrade where it is a newer
    one: the declared branch is what asks for it. Within the branch nothing is ever downgraded
    unless ``driver_version`` says so or the rest of the driver is at the older version.
    """
    if found.of(Id.DRIVER_HEADERS_MISSING):
        yield from _headers(spec, record)
    if found.of(*drift.MOVES):
        if spec.driver.version is not None:
            yield FunctionCommand(_on_offer, (spec, record), {})
        if archive(spec, record) is None:
            yield from install(STAGE, spec, requests(spec, record))
        else:
            yield FunctionCommand(_from_archive, (spec, record), {})
    if _broken(spec, fresh(spec, record)):
        yield FunctionCommand(_complete, (spec,), {})


def requests(
    spec: HostSpec, record: Record, version: str | None = None, more: tuple[str, ...] = ()
) -> tuple[str, ...]:
    """Return what is asked for: every package of the driver by name, with its version.

    All of them, for a package on hold that nobody names stays where it is, and a companion that
    no dependency holds stays behind. What is of the other flavour or of another branch's name is
    named as well, to be removed: a conflict alone does not move a package on hold.

    + version: of the driver; None = that of what is there or declared, else the newest
    + more: packages to ask for beside those that are wanted
    """
    found = packages(spec, record)
    version = version or target(spec, found)
    staying = [name for name in found.names if _stays(name, spec, found)]
    names = dict.fromkeys((*found.wanted, *more, *staying))
    going = [f"{name}-" for name in found.names if name not in staying]
    exact = {name: version and plain(name) not in found.apart for name in names}
    return (*(f"{name}={version}-*" if exact[name] else name for name in names), *going)


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
    offer, chosen = apt.on_offer_in(answer.stdout), target(spec, found)
    each = [{driver_version(version) for version in offer.get(name, ())} for name in asked]
    common = {
        version
        for version in (set.intersection(*each) if each else ())
        if version and branch_of(version) == spec.driver.branch and not too_old(spec, version)
    }
    versions = [chosen] if chosen else sorted(common, key=Version, reverse=True)[:_TRIED]
    requests_ = [
        Request(stage=STAGE, spec=spec, packages=requests(spec, record, version, more))
        for version in versions
        for more in ((*companions, *of_series(spec, record)), companions, ())
    ] or [Request(stage=STAGE, spec=spec, packages=requests(spec, record))]
    likely = (each for each in requests_ if possible(state, host, each))
    return run(state, host, next(likely, requests_[0]))


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
    if drift.foreign_libraries(record, found):
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
    foreign = drift.foreign_libraries(record, packages(spec, record))
    strangers = [each for each in foreign if not transaction.owners(state, host, spec, [each])]
    if not strangers:
        return True
    what = f"keep {', '.join(strangers)} under another name"
    command = program("libcuda/set_aside.sh", *strangers)
    answer = ask(state, host, command, as_root(spec), seconds=deadlines.SERVICE, what=what)
    forget()
    return answer.ok or failed(host, STAGE, f"{host.name}: {what} failed: {reason(answer.lines)}")


@converging(drift, repairs=drift.BOOT)
def ready_for_boot(spec: HostSpec, record: Record, found: Findings) -> Commands:
    """Ensure that every boot finds this driver, and no other, ready.

    The module is there, in the packages' version, for the running and for the next kernel: a DKMS
    build that failed leaves packages that count as installed. The initramfs knows that nouveau and
    nova are blacklisted. The packages are on hold as ``driver_hold`` says.
    """
    del found
    # A kernel's own package stays half configured where its hook could not build our module.
    unfinished, root = bool(drift.unbuilt(spec, record)), as_root(spec)
    versions, own = packages(spec, record).versions, archive(spec, record)
    for kernel in drift.owed(spec, record):
        if own is not None:
            # A file that somebody deleted comes back only by installing the package again.
            name = own.kernel_package(spec.driver.branch or 0, spec.driver.modules, kernel)
            yield from install(STAGE, spec, (name,), reinstall=True)
            continue
        what = f"build module {versions[0]} for kernel {kernel}"
        command = program("driver/build_module.sh", versions[0], kernel)
        yield step(STAGE, what, command, run_as=root, seconds=deadlines.MODULE)
    record = fresh(spec, record)
    if unfinished and record.packages.half_configured:
        yield transaction.finish_interrupted(STAGE, spec)
    if record.kernel.initramfs == "stale":
        command = program("driver/initramfs.sh", dirname(system_files.MODPROBE))
        yield step(STAGE, "update the initramfs", command, run_as=root, seconds=deadlines.MODULE)
    if names := drift.wrongly_held(spec, record):
        command = apt.hold(names, on=spec.driver.hold)
        what = "put the driver on hold" if spec.driver.hold else "take the driver off hold"
        yield step(STAGE, what, command, run_as=root, seconds=deadlines.SERVICE)
