"""The driver in the running kernel: loaded, reloaded where nobody uses it, or after a reboot."""

from __future__ import annotations

from pyinfra.api.command import FunctionCommand
from pyinfra.api.host import Host
from pyinfra.api.state import State

from pyinfra_gpu.drift import driver as drift
from pyinfra_gpu.drift import driver_running as judged
from pyinfra_gpu.drift.driver_inventory import next_kernel
from pyinfra_gpu.drift.driver_running import SERVICES, users
from pyinfra_gpu.drift.finding import CannotTell, Findings
from pyinfra_gpu.drift.rules import if_known, known
from pyinfra_gpu.engine import deadlines, journal
from pyinfra_gpu.engine.ask import ask
from pyinfra_gpu.engine.converge import Commands, converging
from pyinfra_gpu.engine.look import forget, look, unanswered
from pyinfra_gpu.engine.privilege import as_root
from pyinfra_gpu.engine.reboot import forget_reboots, restart
from pyinfra_gpu.engine.steps import failed, quoted, reason, step
from pyinfra_gpu.engine.transaction import dpkg_is_idle
from pyinfra_gpu.facts.fields import Unknown
from pyinfra_gpu.facts.record import Record
from pyinfra_gpu.on_host import program
from pyinfra_gpu.spec import HostSpec

STAGE = drift.STAGE
_UNIT = "nvidia-persistenced"
_ANY_CODE = tuple(range(256))
"""Of systemctl: whether the service runs is looked at afterwards."""


@converging(
    drift,
    repairs=judged.LOADED,
    hint="see `dkms status` and `dmesg` there for the reason",
)
def running(spec: HostSpec, record: Record, found: Findings) -> Commands:
    """Ensure that the running kernel has the installed module, and the free drivers do not.

    Loaded where nothing is in the way; reloaded where nobody uses the GPUs (NVIDIA's own services
    are stopped and started again); otherwise rebooted as ``driver_reboot`` says: ``never`` stops
    this host with a sentence, ``if-idle`` does so while somebody uses it, ``always`` reboots. At
    most one reboot in a run, and never a second one for what the first did not cure. Nobody's
    process is ever ended but by a reboot that data asks for. A run that was cut off behind its
    reboot has left a note of what that was for: it is forgotten where that is gone.
    """
    del record, found
    yield FunctionCommand(_load, (spec,), {})


def _load(state: State, host: Host, spec: HostSpec) -> bool:
    """Load or reload the module; where that is not possible, reboot as declared."""
    record = look(spec)
    if record is None:
        return failed(host, STAGE, f"{host.name}: {unanswered()}")
    if (owed := _owed(state, host, spec, record)) is None:
        return True
    busy, why = users(record), owed
    if _can_be_exchanged(record) and (record.driver.loaded is None or busy == ()):
        what, command = "load the driver", program("driver/reload_module.sh", *SERVICES.values())
        answer = ask(state, host, command, as_root(spec), seconds=deadlines.MODULE, what=what)
        forget()
        record = look(spec) or record
        if answer.ok and _owed(state, host, spec, record) is None:
            return True
        busy, why = users(record), f"{owed}; loading it failed ({reason(answer.lines)})"
    if busy and spec.driver.reboot != "always" and _can_be_exchanged(record):
        who = (
            f"who uses the GPUs cannot be told ({busy.reason})"
            if isinstance(busy, Unknown)
            else f"the GPUs are in use by {', '.join(busy[:4])}"
        )
        sentence = f"{host.name}: the installed module cannot be loaded now ({why}), {who}"
        return failed(host, STAGE, f"{sentence}: run again when they are idle")
    return _reboot(state, host, spec, record, owed, why)


def _owed(state: State, host: Host, spec: HostSpec, record: Record) -> str | None:
    """Return what a reload or reboot is owed for; with nothing owed, have old reboots forgotten.

    The reason may come again in half a year, and then one reboot may help.
    """
    owed = judged.owed(drift.judge(spec, record))
    if owed is None and record.power.reboots:
        forget_reboots(state, host, spec)
    return owed


def _can_be_exchanged(record: Record) -> bool:
    """Tell whether the installed module could be loaded if nobody used the GPUs."""
    modules = if_known(record.kernel.modules, {})
    taken = record.driver.nouveau is not False or record.driver.nova is not False
    return modules.get(str(record.system.kernel)) is not None and not taken


def _reboot(state: State, host: Host, spec: HostSpec, record: Record, owed: str, why: str) -> bool:
    """Reboot where data and the host's state allow it, behind whoever installs packages.

    An installation that was cut off behind the driver's packages leaves none of them to install,
    so it is finished here; who installs next comes behind the reboot.
    """
    if not declined(spec, record):
        if not dpkg_is_idle(state, host, STAGE, spec):
            return False
        record = look(spec) or record
    if obstacle := unsafe(record) or declined(spec, record):
        return failed(host, STAGE, f"{host.name}: a reboot is owed ({why}), and {obstacle}")
    # With `driver_reboot = "always"` somebody may be at work; who that was is told.
    ended = [text for one in _uses(record) for text in if_known(one, ())]
    for who in ended:
        host.log(f"the reboot ends {who}")
    if not restart(state, host, STAGE, spec, why, owed):
        return False
    for who in ended:
        sentence = f"the reboot ended {who}, as driver_reboot = 'always' says"
        journal.warn(STAGE, f"{host.name}: {sentence}")
    if after := look(spec):
        _owed(state, host, spec, after)
    return True


def unsafe(record: Record) -> str | None:
    """Return why a reboot would leave the host worse than it is, a clause with its remedy."""
    try:
        half = known(record.packages.half_configured, "whether an installation is done")
        modules = known(record.kernel.modules, "which kernels have an NVIDIA module")
    except CannotTell as unknown:
        return f"{unknown}: look there, with `sudo dpkg --audit`, then run again"
    if half:
        names, finish = ", ".join(half[:3]), "sudo dpkg --configure -a"
        return f"an installation is not done ({names}): run `{finish}` there, then run again"
    following = next_kernel(record)
    if following is None:
        return "which kernel boots next cannot be told: look at /boot there"
    if modules.get(following) is None:
        return (
            f"kernel {following}, which boots next, has no NVIDIA module: see `dkms status` there"
        )
    return None


def declined(spec: HostSpec, record: Record) -> str | None:
    """Return why data does not let the host reboot now, a clause with its remedy, or None."""
    if spec.driver.reboot == "always":
        return None
    if spec.driver.reboot == "never":
        return (
            "driver_reboot = 'never' is declared: run `sudo systemctl reboot` there when it suits,"
            " then run again"
        )
    try:
        busy = [text for one in _uses(record) for text in known(one, "whether the host is idle")]
    except CannotTell as unknown:
        return f"{unknown}: reboot it yourself, or declare `driver_reboot = 'always'`"
    return f"it is in use by {', '.join(busy[:4])}: run again when it is idle" if busy else None


def _uses(record: Record) -> tuple[tuple[str, ...] | Unknown, ...]:
    return users(record), record.power.sessions, record.power.inhibitors


@converging(
    drift,
    repairs=judged.SERVICE,
    hint=f"see `journalctl -u {_UNIT}` there; the other stages go on without it",
    stops=False,
)
def persistent(spec: HostSpec, record: Record, found: Findings) -> Commands:
    """Ensure that nvidia-persistenced runs now and at every boot, or does not, as declared.

    An upgrade of the driver stops it, and nothing starts it again. Comes after the module is
    loaded: without one it cannot start. GPUs work without it, only that the first program to use
    them waits for them: where it cannot be started, that is said, the other stages do their work,
    and the run fails for this host at its end.
    """
    del record, found
    verb = "enable" if spec.driver.persistence else "disable"
    # A unit that failed too often in a row has to be forgiven first.
    forgiven = f"systemctl reset-failed {_UNIT} 2>/dev/null"
    yield step(
        STAGE,
        f"{verb} {_UNIT}",
        f"{forgiven}; {quoted('systemctl', verb, '--now', _UNIT)}",
        run_as=as_root(spec),
        seconds=deadlines.SERVICE,
        success=_ANY_CODE,
    )
