"""A reboot that is known to have happened: by the kernel's boot_id, not by a lost connection."""

from __future__ import annotations

import time

from pyinfra.api.exceptions import ConnectError
from pyinfra.api.host import Host
from pyinfra.api.state import State
from pyinfra.connectors.util import clear_askpass_cache

from pyinfra_gpu import on_host
from pyinfra_gpu.drift.driver import NOT_CURED, SERVICES
from pyinfra_gpu.engine import deadlines, lease
from pyinfra_gpu.engine.ask import Answer, ask
from pyinfra_gpu.engine.deadlines import within
from pyinfra_gpu.engine.look import forget
from pyinfra_gpu.engine.privilege import as_root
from pyinfra_gpu.engine.steps import failed
from pyinfra_gpu.engine.steps import reason as reason_of
from pyinfra_gpu.facts.fields import Unknown
from pyinfra_gpu.facts.parse import Answer as Told
from pyinfra_gpu.facts.probe import BOOTSTRAP
from pyinfra_gpu.spec import HostSpec, system_files

_DONE = "pyinfra_gpu_rebooted"  # in connector_data: what lasts as long as one run of one host
_POLL_S = 2.0
_ANSWER_S = 10
_CONNECT_S = 30
_BOOT_ID = "cat /proc/sys/kernel/random/boot_id"
# sudo writes every command line into the host's log: the program itself comes on standard input.
_RESTART = f": pyinfra-gpu-restart; {BOOTSTRAP}"
# Units that load the driver's module and open the network are not done when sshd first answers.
_BOOTED = "timeout 60 systemctl is-system-running --wait >/dev/null 2>&1 || true"


def restart(state: State, host: Host, stage: str, spec: HostSpec, why: str, reason: str) -> bool:
    """Reboot the host and wait until it is back; at most once in a run, and once for a reason.

    + why: for the log, e.g. "module 580.82.07 is loaded, 580.95.05 is installed"
    + reason: the same in words that are the same every night, on one line; the host keeps it, with
      its boot_id

    Returns False after saying why it failed. Whether the host is idle is judged on the host, by
    the program that begins the reboot. It is back when its boot_id differs and it accepts commands
    again: an sshd that answers a few seconds more before it goes down does not fool it. Waits up
    to ``driver_reboot_wait_s`` seconds.
    """
    if not (obstacle := _rebooted(state, host, spec, why, reason)):
        forget()
    return not obstacle or failed(host, stage, f"{host.name}: {obstacle}")


def _rebooted(state: State, host: Host, spec: HostSpec, why: str, reason: str) -> str | None:
    """Reboot the host; return why it was not, or is not back, a clause with its remedy."""
    required, wait_s = f"a reboot is required ({why}), and", spec.driver.reboot_wait_s
    if host.connector_data.get(_DONE):
        return "was rebooted in this run, and that did not help"
    if host.name.startswith("@local"):
        machine = "this run works on that very machine: run `sudo systemctl reboot`, then run again"
        return f"{required} {machine}"
    text, root = program(spec, reason), as_root(spec)
    answer = ask(state, host, _RESTART, root, seconds=deadlines.PLAIN, _stdin=text)
    told = Told(answer.stdout)
    if obstacle := _obstacle(told, answer):
        return f"{required} {obstacle}"
    host.connector_data[_DONE] = True
    if not _back(state, host, str(told.value(str, "boot")), wait_s, f"reboot ({why})"):
        return (
            f"was rebooted and is not back after {wait_s} s: look at its console; when it is"
            " back, run again (or raise `driver_reboot_wait_s`)"
        )
    try:
        lease.regain(state, host, spec)
    except lease.LeaseError as error:
        return str(error)
    ask(state, host, _BOOTED, root, seconds=90)
    return None


def program(spec: HostSpec, reason: str) -> str:
    """Return the program that judges whether the host is idle, and reboots it if so."""
    asked = {
        "policy": spec.driver.reboot,
        "reason": reason,
        "record": system_files.REBOOTS,
        "lock": spec.paths.lock,
        "services": tuple(SERVICES),
    }
    return on_host.probe_program("restart", asked)


def _obstacle(told: Told, answer: Answer) -> str | None:
    match told.value(str, "done"):
        case "rebooting":
            return None
        case "again":
            return NOT_CURED
        case "busy":
            against = told.value(tuple[str, ...], "against")
            who = against.reason if isinstance(against, Unknown) else ", ".join(against[:4])
            return f"it is in use by {who}: run again when it is idle"
        case "refused":
            return str(told.value(str, "why"))
    return f"it did not answer ({reason_of(answer.lines)}): run again"


def _back(state: State, host: Host, before: str, wait_s: float, what: str) -> bool:
    """Connect again and again until the host answers with another boot_id."""
    started = time.monotonic()
    host.log(f"{what}; waiting up to {wait_s} s")
    while (waited := time.monotonic() - started) < wait_s:
        time.sleep(_POLL_S)
        if not _connected(host):
            continue
        answer = ask(state, host, _BOOT_ID, {"_sudo": False}, seconds=_ANSWER_S)
        if answer.ok and answer.stdout and answer.stdout[-1].strip() not in ("", before):
            host.log(f"is back after {waited:.0f} s")
            return True
    return False


def _connected(host: Host) -> bool:
    """Open a new connection; the old one may look alive for minutes after its peer is gone."""
    if client := getattr(host.connector, "client", None):
        client.close()
    # What pyinfra keeps for a sudo password lay in /tmp, which is empty now.
    clear_askpass_cache(host)
    host.connected = False
    try:
        with within(_CONNECT_S, "no connection came up"):
            host.connector.disconnect()
            host.connector.connect()
            host.connected = True
    except (ConnectError, OSError, EOFError):
        return False
    return True
