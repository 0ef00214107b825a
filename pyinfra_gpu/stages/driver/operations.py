"""NVIDIA's driver: its repository trusted, its packages installed, its module built and loaded."""

from __future__ import annotations

import base64
import re

from packaging.version import Version
from pyinfra.api.command import FunctionCommand
from pyinfra.api.host import Host
from pyinfra.api.state import State

from pyinfra_gpu.engine import deadlines, journal, transaction
from pyinfra_gpu.engine.ask import ask
from pyinfra_gpu.engine.converge import Commands, converging
from pyinfra_gpu.engine.look import forget, look, unanswered
from pyinfra_gpu.engine.privilege import as_root
from pyinfra_gpu.engine.reboot import restart
from pyinfra_gpu.engine.steps import failed, quoted, reason, step
from pyinfra_gpu.engine.transaction import dpkg_is_idle, install, on_offer, update, why
from pyinfra_gpu.engine.write import File, write, written
from pyinfra_gpu.facts.fields import Unknown
from pyinfra_gpu.facts.openpgp import fingerprints
from pyinfra_gpu.facts.record import Record
from pyinfra_gpu.on_host import program
from pyinfra_gpu.packages.names import driver_version, plain
from pyinfra_gpu.spec import HostSpec, system_files
from pyinfra_gpu.stages.cuda import findings as cuda
from pyinfra_gpu.stages.driver import findings
from pyinfra_gpu.stages.driver.findings import SERVICES, UNIT, users
from pyinfra_gpu.stages.driver.inventory import (
    Packages,
    Repository,
    archive,
    of_series,
    packages,
    target,
    will_do,
)
from pyinfra_gpu.stages.files import differs
from pyinfra_gpu.stages.finding import Findings, Id
from pyinfra_gpu.stages.host import judged
from pyinfra_gpu.stages.rules import if_known
from pyinfra_gpu.text import some

STAGE = findings.STAGE
_KEYRING_IN_PACKAGE = "usr/share/keyrings/cuda-archive-keyring.gpg"
_TRIED = 4
"""Versions: an archive has one in each of its pockets, at most."""


@converging(
    findings,
    repairs=(
        Id.DRIVER_KEYRING_REPLACED,
        Id.DRIVER_SOURCE_DIFFERS,
        Id.DRIVER_PINS_DIFFER,
        Id.DRIVER_BLACKLIST_DIFFERS,
    ),
)
def trusted(spec: HostSpec, record: Record, found: Findings) -> Commands:
    """Ensure that NVIDIA's repository is known by its pinned key, and the driver comes from it.

    The keyring package is fetched with its pinned SHA-256 and never installed: its own source list
    would point elsewhere. Another list that names the same repository is set aside, since nothing
    works where their keys differ. With ``driver_source = "distribution"`` the pins keep NVIDIA's
    drivers out, and its repository is there only for the toolkit.

    **Example:**

    .. code:: python

        driver.trusted(name="Add NVIDIA's apt repository", spec=wanted)
    """
    source, root = findings.trusted(spec, record), as_root(spec)
    renewed = found.of(Id.DRIVER_KEYRING_REPLACED, Id.DRIVER_SOURCE_DIFFERS)
    yield FunctionCommand(transaction.wait_for_lock, (STAGE, spec), {})
    if not renewed:  # else there is nobody yet who could be asked
        yield FunctionCommand(_is_on_offer, (spec, record), {})
    if source is not None:
        if found.of(Id.DRIVER_KEYRING_REPLACED):
            yield FunctionCommand(_fetch_keyring, (spec, source), {})
        for file in findings.twice(record, source):
            what, command = f"rename {file}", quoted("mv", "-f", file, f"{file}.disabled")
            yield step(STAGE, what, command, run_as=root, seconds=deadlines.PLAIN)
    for ours in findings.declared(spec, record):
        if differs(record, ours):
            yield write(STAGE, ours, root)
    if renewed:
        yield FunctionCommand(update, (STAGE, spec), {})
        yield FunctionCommand(_is_on_offer, (spec, record), {})


def _is_on_offer(state: State, host: Host, spec: HostSpec, record: Record) -> bool:
    """Refuse a version, or a toolkit for later, that nobody offers, while the driver is as it was.

    What apt cannot tell, the transaction will.
    """
    version = spec.driver.version
    toolkit = cuda.package(spec) if cuda.declared(spec) else ""
    lacks = toolkit and record.nvidia.package(toolkit) is None
    if not (version or lacks):
        return True
    if not update(state, host, STAGE, spec):
        return False
    if lacks and on_offer(state, host, spec, [toolkit]) == {}:
        said = f"no package source has {toolkit}, for cuda_release = {spec.cuda.release!r}"
        fix = "choose another `stack`, or declare `cuda_toolkit = False`"
        return failed(host, STAGE, f"{host.name}: {said}: {fix}; the driver is as it was")
    there = _on_offer(state, host, spec, packages(spec, record)) if version else []
    if version in there or not there:
        return True
    said = f"driver_version = {version!r} is not on offer; of branch {spec.driver.branch} there is"
    return failed(host, STAGE, f"{host.name}: {said} {', '.join(there)}; the driver is as it was")


def _fetch_keyring(state: State, host: Host, spec: HostSpec, source: Repository) -> bool:
    """Fetch the keyring, believe it only if it holds the pinned key alone, and put it in place."""
    url = f"{source.url}/cuda-keyring_1.1-1_all.deb"  # never installed: its list points elsewhere
    words = (url, f"SHA256:{source.keyring_sha256}", _KEYRING_IN_PACKAGE)
    command = program("packages/apt/keyring.sh", *words)
    answer = ask(state, host, command, as_root(spec), seconds=deadlines.SIMULATION)
    if not answer.ok:
        said = f"the keyring {url} cannot be used: {why(answer)}"
        return failed(host, STAGE, f"{host.name}: {said}")
    keyring = base64.b64decode("".join(answer.stdout[-1:]))
    keys = fingerprints(keyring)
    if keys != (source.key_fingerprint,):
        held = keys.reason if isinstance(keys, Unknown) else ", ".join(keys) or "no key"
        said = f"{url} does not hold the key {source.key_fingerprint} alone, but {held}: find out"
        said += " who changed it before you trust it (`driver_key_fingerprint`)"
        return failed(host, STAGE, f"{host.name}: {said}")
    file = File(path=system_files.KEYRING, content=keyring, mode=findings.KEYRING_MODE)
    return written(state, host, STAGE, file, as_root(spec))


@converging(
    findings,
    repairs=(
        Id.DRIVER_NOT_INSTALLED,
        Id.DRIVER_VERSION_DIFFERS,
        Id.DRIVER_FILES_DAMAGED,
        Id.DRIVER_HEADERS_MISSING,
        Id.DRIVER_MODULE_NOT_BUILT,
        Id.DRIVER_INITRAMFS_STALE,
        Id.DRIVER_HOLD_DIFFERS,
    ),
)
def installed(spec: HostSpec, record: Record, found: Findings) -> Commands:
    """Ensure that the declared driver is installed, all of one version, and ready for each boot.

    The headers come first, for without them DKMS builds nothing and says nothing. A driver of
    another branch is brought back; within the branch nothing is ever downgraded unless
    ``driver_version`` says so or the rest of the driver is at the older version. The module is
    there for the running and for the next kernel: a DKMS build that failed leaves packages that
    count as installed. The packages are on hold as ``driver_hold`` says.
    """
    del found  # what one repair brings, or leaves, is the next one's
    for ids, act in _REPAIRS:
        record = look(spec) or record
        if due := judged(findings, spec, record, ()).of(*ids).acting:
            yield from act(spec, record, due)


def _install_headers(spec: HostSpec, record: Record, due: Findings) -> Commands:
    for each in due:
        hint = f"{each.found}; boot a kernel whose headers are on offer (the newest here is"
        hint += f" {record.kernel.newest})"
        # A file that somebody deleted comes back only by installing the package again.
        how = {"reinstall": True, "hint": hint}
        yield FunctionCommand(install, (STAGE, spec, each.packages), how)


def _install_driver(spec: HostSpec, record: Record, due: Findings) -> Commands:
    del due
    if archive(spec, record) is None:
        yield FunctionCommand(_is_on_offer, (spec, record), {})
        yield FunctionCommand(install, (STAGE, spec, requests(spec, record)), {})
    else:
        yield FunctionCommand(_from_archive, (spec, record), {})


def _finish(spec: HostSpec, record: Record, due: Findings) -> Commands:
    """Set up what is unpacked; a module that cannot be built leaves its package half configured."""
    del due
    if record.packages.half_configured:
        yield transaction.finish_interrupted(STAGE, spec)


def _set_aside(spec: HostSpec, record: Record, due: Findings) -> Commands:
    """Rename libraries of another version, which would come first again."""
    del due
    if aside := findings.foreign_libraries(record, packages(spec, record)):
        what, command = f"rename {', '.join(aside)}", program("libcuda/set_aside.sh", *aside)
        yield step(STAGE, what, command, run_as=as_root(spec), seconds=deadlines.SERVICE)


def _reinstall(spec: HostSpec, record: Record, due: Findings) -> Commands:
    del record
    names = sorted({name for each in due for name in each.packages})
    yield FunctionCommand(transaction.again, (STAGE, spec, names), {})


def _build_modules(spec: HostSpec, record: Record, due: Findings) -> Commands:
    del due
    root, own, driver = as_root(spec), archive(spec, record), spec.driver
    for kernel in findings.unbuilt(spec, record):
        if own is not None:
            name = own.kernel_package(driver.branch or 0, driver.modules, kernel)
            yield FunctionCommand(install, (STAGE, spec, (name,)), {"reinstall": True})
            continue
        version = str(packages(spec, record).version)
        what = f"build module {version} for kernel {kernel}"
        command = program("driver/build_module.sh", version, kernel)
        yield step(STAGE, what, command, run_as=root, seconds=deadlines.MODULE)
    # A kernel's own package stays half configured where its hook could not build our module.
    if record.packages.half_configured:
        yield transaction.finish_interrupted(STAGE, spec)


def _update_initramfs(spec: HostSpec, record: Record, due: Findings) -> Commands:
    del record, due
    command, root = quoted("update-initramfs", "-u", "-k", "all"), as_root(spec)
    yield step(STAGE, "update the initramfs", command, run_as=root, seconds=deadlines.MODULE)


def _hold(spec: HostSpec, record: Record, due: Findings) -> Commands:
    del record
    names = (name for each in due for name in each.packages)
    command = quoted("apt-mark", "hold" if spec.driver.hold else "unhold", *names)
    what = "put the driver on hold" if spec.driver.hold else "take the driver off hold"
    yield step(STAGE, what, command, run_as=as_root(spec), seconds=deadlines.SERVICE)


_REPAIRS = (
    ({Id.DRIVER_HEADERS_MISSING}, _install_headers),
    ({Id.DRIVER_NOT_INSTALLED, Id.DRIVER_VERSION_DIFFERS}, _install_driver),
    ({Id.DRIVER_FILES_DAMAGED}, _finish),
    ({Id.DRIVER_FILES_DAMAGED}, _set_aside),
    ({Id.DRIVER_FILES_DAMAGED}, _reinstall),
    ({Id.DRIVER_MODULE_NOT_BUILT}, _build_modules),
    ({Id.DRIVER_INITRAMFS_STALE}, _update_initramfs),
    ({Id.DRIVER_HOLD_DIFFERS}, _hold),
)
"""What is found and what is done about it, in this order: each is judged when its turn comes."""


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
    anothers = re.compile(rf"-(?!{spec.driver.branch})\d{{3}}(?=-|:|$)")
    going = [name for name in found.names if name in found.other or anothers.search(name)]
    staying = [name for name in found.names if name not in going]
    names = dict.fromkeys((*found.wanted, *more, *staying))
    exact = {name: version and plain(name) not in found.apart for name in names}
    asked = (f"{name}={version}-*" if exact[name] else name for name in names)
    return (*asked, *(f"{name}-" for name in going))


def _from_archive(state: State, host: Host, spec: HostSpec, record: Record) -> bool:
    """Install the newest driver of the distribution's archive of which all parts are there.

    By itself the newest of each would be taken, and a kernel's own modules are for one version.
    What brings modules together with newer kernels comes too, unless it would bring a kernel now.
    """
    if not update(state, host, STAGE, spec):
        return False
    found, own = packages(spec, record), archive(spec, record)
    companions = own.beside(spec.driver.branch or 0, spec.driver.modules) if own else ()
    chosen = target(spec, found)
    versions = [chosen] if chosen else _on_offer(state, host, spec, found)[:_TRIED]
    more = ((*companions, *of_series(spec, record)), companions, ())
    asked = [requests(spec, record, version, each) for version in versions for each in more]
    first, *others = asked or [requests(spec, record)]
    return install(state, host, STAGE, spec, first, others=others)


def _on_offer(state: State, host: Host, spec: HostSpec, found: Packages) -> list[str]:
    """Return the versions that all of the declared packages have and that will do, newest first."""
    names = [name for name in found.wanted if name not in found.apart]
    offer = on_offer(state, host, spec, names) or {}
    each = [{driver_version(version) or "" for version in offer.get(name, ())} for name in names]
    common = set.intersection(*each) - {""} if each else set()
    return sorted((each for each in common if will_do(spec, each)), key=Version, reverse=True)


@converging(
    findings,
    repairs=(Id.DRIVER_MODULE_DIFFERS, Id.DRIVER_CLOSED),
    hint="see `dkms status` and `dmesg` there for the reason",
)
def running(spec: HostSpec, record: Record, found: Findings) -> Commands:
    """Ensure that the running kernel has the installed module, and the free drivers do not.

    Loaded where nothing is in the way; reloaded where nobody uses the GPUs (NVIDIA's own services
    are stopped and started again); otherwise rebooted as ``driver_reboot`` says, at most once in a
    run, and never a second time for what the first did not cure. Nobody's process is ever ended but
    by a reboot that data asks for.
    """
    del record, found
    yield FunctionCommand(_load, (spec,), {})


def _load(state: State, host: Host, spec: HostSpec) -> bool:
    """Load or reload the module; where that is not possible, reboot as declared."""
    if (record := look(spec)) is None:
        return failed(host, STAGE, f"{host.name}: {unanswered()}")
    root, nothing_loaded, busy = as_root(spec), record.driver.loaded is None, users(record)
    due = said = findings.reboot_reason(spec, record)
    built = if_known(record.kernel.modules, {}).get(str(record.system.kernel))
    loadable = built and record.driver.nouveau is False and record.driver.nova is False
    if due and loadable and (nothing_loaded or busy == ()):
        what, command = "load the driver", program("driver/reload_module.sh", *SERVICES.values())
        answer = ask(state, host, command, root, seconds=deadlines.MODULE, what=what)
        forget()
        said = f"{due}; loading it failed ({reason(answer.lines)})"
        record = look(spec) or record
        due = findings.reboot_reason(spec, record) if answer.ok else due
        if due and nothing_loaded:
            return failed(host, STAGE, f"{host.name}: {said}: run again when the cause is gone")
    elif due and loadable and spec.driver.reboot != "always":
        who = f"the GPUs are in use by {some(if_known(busy, ()), 4)}"
        if isinstance(busy, Unknown):
            who = f"who uses the GPUs is not known ({busy.reason})"
        sentence = f"{host.name}: the installed module cannot be loaded now ({said}), {who}"
        return failed(host, STAGE, f"{sentence}: run again when they are idle")
    # An installation that was cut off behind the driver's packages is finished here.
    idle = not due or spec.driver.reboot == "never" or dpkg_is_idle(state, host, STAGE, spec)
    if not idle:
        return False
    if due and (obstacle := restart(state, host, spec, str(said), due)):
        return failed(host, STAGE, f"{host.name}: {obstacle}")
    ended = findings.people(record) if due and spec.driver.reboot == "always" else ()
    for who in (who for each in ended for who in if_known(each, ())):
        sentence = f"the reboot ended {who}, as driver_reboot = 'always' says"
        journal.warn(STAGE, f"{host.name}: {sentence}")
    # The same may come again in half a year, and then one reboot may help.
    record = look(spec) or record
    if record.power.reboots and findings.reboot_reason(spec, record) is None:
        ask(state, host, quoted("rm", "-f", system_files.REBOOTS), root, seconds=deadlines.PLAIN)
    return True


@converging(
    findings,
    repairs=(Id.DRIVER_PERSISTENCED_DIFFERS,),
    hint=f"see `journalctl -u {UNIT}` there, or declare driver_persistence = False",
)
def persistent(spec: HostSpec, record: Record, found: Findings) -> Commands:
    """Ensure that nvidia-persistenced runs now and at every boot, or does not, as declared.

    An upgrade of the driver stops it, and without a loaded module it cannot start. GPUs work
    without it, only that the first program to use them waits.
    """
    del record, found
    verb = "enable" if spec.driver.persistence else "disable"
    # A unit that failed too often in a row has to be forgiven first. Whether it runs is looked at.
    command = f"systemctl reset-failed {UNIT} 2>/dev/null; systemctl {verb} --now {UNIT}; true"
    root, seconds = as_root(spec), deadlines.SERVICE
    yield step(STAGE, f"{verb} {UNIT}", command, run_as=root, seconds=seconds)
