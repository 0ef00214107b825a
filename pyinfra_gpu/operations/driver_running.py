"""The driver in the running kernel: loaded, reloaded where nobody uses it, or after a reboot."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyinfra.api.command import FunctionCommand

from pyinfra_gpu.drift import driver_running as drift
from pyinfra_gpu.drift.driver_inventory import next_kernel
from pyinfra_gpu.drift.driver_running import SERVICES, users
from pyinfra_gpu.drift.finding import Findings
from pyinfra_gpu.engine import deadlines, journal
from pyinfra_gpu.engine.ask import ask
from pyinfra_gpu.engine.converge import Commands, converging
from pyinfra_gpu.engine.look import forget, look, unanswered
from pyinfra_gpu.engine.privilege import as_root
from pyinfra_gpu.engine.reboot import forget_reboots, restart
from pyinfra_gpu.engine.steps import failed, quoted, reason, step
from pyinfra_gpu.engine.transaction import wait_for_lock
from pyinfra_gpu.facts.fields import Unknown
from pyinfra_gpu.on_host import program
from pyinfra_gpu.packages import apt

if TYPE_CHECKING:
    from pyinfra.api.host import Host
    from pyinfra.api.state import State

    from pyinfra_gpu.facts.record import Record
    from pyinfra_gpu.spec import HostSpec

STAGE = drift.STAGE
_UNIT = "nvidia-persistenced"
_ANY_CODE = tuple(range(256))
"""Of systemctl: whether the service runs is looked at afterwards."""


@converging(
    drift,
    repairs=drift.LOADED,
    hint="see `dkms status` and `dmesg` there for the reason",
)
def running(spec: HostSpec, record: Record, found: Findings) -> Commands:
    """Ensure that the running kernel has the installed module, and the free drivers do not.

    + spec: the host's resolved specification

    Loaded where nothing is in the way; reloaded where nobody uses the GPUs (NVIDIA's own services
    are stopped and started again); otherwise rebooted as ``driver_reboot`` says: ``never`` stops
    this host with a sentence, ``if-idle`` does so while somebody uses it, ``always`` reboots. At
    most one reboot in a run, and never a second one for what the first did not cure. Nobody's
    process is ever ended but by a reboot that data asks for. A run that was cut off behind its
    reboot has left a note of what that was for: it is forgotten where that is gone.

    **Example:**

    .. code:: python

        driver_running.running(name="Load the driver", spec=wanted)
    """
    del record, found
    yield FunctionCommand(_load, (spec,), {})


def _load(state: State, host: Host, spec: HostSpec) -> bool:
    """Load or reload the module; where that is not possible, reboot as declared."""
    record = look(spec)
    if record is None:
        return failed(host, STAGE, f"{host.name}: {unanswered()}")
    why = _owed(spec, record)
    if why is None:
        _forget_cured(state, host, spec)
        return True
    if _is_free(record):
        answer = ask(
            state,
            host,
            program("driver/reload_module.sh", *SERVICES.values()),
            as_root(spec),
            seconds=deadlines.MODULE,
            what="load the driver",
        )
        forget()
        record = look(spec) or record
        if answer.ok and _owed(spec, record) is None:
            _forget_cured(state, host, spec)
            return True
        failure = f"loading it failed ({reason(answer.lines)})"
        return _reboot(state, host, spec, record, why, failure)
    return _reboot(state, host, spec, record, why)


def _forget_cured(state: State, host: Host, spec: HostSpec) -> None:
    """Have the host forget what it was rebooted for, where that is gone; the rest is judged later.

    The reason may come again in half a year, and then one reboot may help.
    """
    record = look(spec)
    if record is not None and record.power.reboots and _owed(spec, record) is None:
        forget_reboots(state, host, spec)


def _owed(spec: HostSpec, record: Record) -> str | None:
    return drift.owed(drift.judge(spec, record))


def _is_free(record: Record) -> bool:
    """Tell whether the module can be exchanged: it is there, and nobody holds the GPUs."""
    return _can_be_exchanged(record) and (record.driver.loaded is None or users(record) == ())


def _can_be_exchanged(record: Record) -> bool:
    """Tell whether the installed module could be loaded if nobody used the GPUs."""
    driver, modules = record.driver, record.kernel.modules
    taken = driver.nouveau is not False or driver.nova is not False
    there = not isinstance(modules, Unknown) and modules.get(str(record.system.kernel)) is not None
    return there and not taken


def _reboot(
    state: State, host: Host, spec: HostSpec, record: Record, owed: str, failure: str = ""
) -> bool:
    why = f"{owed}; {failure}" if failure else owed
    busy = users(record)
    if busy and spec.driver.reboot != "always" and _can_be_exchanged(record):
        who = (
            f"who uses the GPUs cannot be told ({busy.reason})"
            if isinstance(busy, Unknown)
            else f"the GPUs are in use by {', '.join(busy[:4])}"
        )
        sentence = f"{host.name}: the installed module cannot be loaded now ({why}), {who}"
        return failed(host, STAGE, f"{sentence}: run again when they are idle")
    if not declined(spec, record):
        if not _packages_done(state, host, spec, record):
            return False
        record = look(spec) or record
    obstacle = unsafe(record) or declined(spec, record)
    if obstacle:
        return failed(host, STAGE, f"{host.name}: a reboot is owed ({why}), and {obstacle}")
    if not wait_for_lock(state, host, STAGE, spec):
        return False
    ended = _interrupted(record)
    for who in ended:
        host.log(f"the reboot ends {who}")
    if not restart(state, host, STAGE, spec, why, owed):
        return False
    for who in ended:
        sentence = f"the reboot ended {who}, as driver_reboot = 'always' says"
        journal.warn(STAGE, f"{host.name}: {sentence}")
    _forget_cured(state, host, spec)
    return True


def _packages_done(state: State, host: Host, spec: HostSpec, record: Record) -> bool:
    """Finish an interrupted installation, as far as that can be; False where its lock is not free.

    Where ours was cut off behind the driver's packages and before the triggers of others, nothing
    of the driver's is left to install, and who installs next comes behind the reboot.
    """
    half = record.packages.half_configured
    if isinstance(half, Unknown) or not half:
        return True
    if not wait_for_lock(state, host, STAGE, spec):
        return False
    record = look(spec) or record
    if record.packages.half_configured:
        command = apt.finish()
        what = "finish an interrupted installation"
        ask(state, host, command, as_root(spec), seconds=deadlines.INSTALL, what=what)
        forget()
    return True


def unsafe(record: Record) -> str | None:
    """Return why a reboot would leave the host worse than it is, a clause with its remedy."""
    half = record.packages.half_configured
    if isinstance(half, Unknown) or half:
        names = half.reason if isinstance(half, Unknown) else ", ".join(half[:3])
        finish = "sudo dpkg --configure -a"
        return f"an installation is not done ({names}): run `{finish}` there, then run again"
    following, modules = next_kernel(record), record.kernel.modules
    if following is None or isinstance(modules, Unknown):
        return "which kernel boots next cannot be told: look at /boot there"
    if modules.get(following) is None:
        return (
            f"kernel {following}, which boots next, has no NVIDIA module: see `dkms status` there"
        )
    return None


def declined(spec: HostSpec, record: Record) -> str | None:
    """Return why data does not let the host reboot now, a clause with its remedy, or None."""
    policy = spec.driver.reboot
    if policy == "always":
        return None
    if policy == "never":
        return (
            "driver_reboot = 'never' is declared: run `sudo systemctl reboot` there when it suits,"
            " then run again"
        )
    lists = (users(record), record.power.sessions, record.power.inhibitors)
    for one in lists:
        if isinstance(one, Unknown):
            return (
                f"whether the host is idle cannot be told ({one.reason}): reboot it yourself, or"
                " declare `driver_reboot = 'always'`"
            )
    busy = _interrupted(record)
    if not busy:
        return None
    return f"it is in use by {', '.join(busy[:4])}: run again when it is idle"


def _interrupted(record: Record) -> list[str]:
    """Return whom a reboot would interrupt, as far as that is known."""
    lists = (users(record), record.power.sessions, record.power.inhibitors)
    return [text for one in lists if not isinstance(one, Unknown) for text in one]


@converging(
    drift,
    repairs=drift.SERVICE,
    hint=f"see `journalctl -u {_UNIT}` there; the other stages go on without it",
    stops=False,
)
def persistent(spec: HostSpec, record: Record, found: Findings) -> Commands:
    """Ensure that nvidia-persistenced runs now and at every boot, or does not, as declared.

    + spec: the host's resolved specification

    An upgrade of the driver stops it, and nothing starts it again. Comes after the module is
    loaded: without one it cannot start. GPUs work without it, only that the first program to use
    them waits for them: where it cannot be started, that is said, the other stages do their work,
    and the run fails for this host at its end.

    **Example:**

    .. code:: python

        driver_running.persistent(name="Keep the GPUs initialised", spec=wanted)
    """
    del record, found
    verb = "enable" if spec.driver.persistence else "disable"
    # A unit that failed too often in a row has to be forgiven first.
    command = (
        f"systemctl reset-failed {_UNIT} 2>/dev/null; {quoted('systemctl', verb, '--now', _UNIT)}"
    )
    yield step(
        STAGE,
        f"{verb} {_UNIT}",
        command,
        run_as=as_root(spec),
        seconds=deadlines.SERVICE,
        success=_ANY_CODE,
    )
