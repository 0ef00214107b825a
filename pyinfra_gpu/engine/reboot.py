"""A reboot that is known to have happened: by the kernel's boot_id, not by a lost connection."""

from __future__ import annotations

import time

from pyinfra.api.exceptions import ConnectError
from pyinfra.api.host import Host
from pyinfra.api.state import State
from pyinfra.connectors.util import clear_askpass_cache

from pyinfra_gpu.engine import deadlines, lease
from pyinfra_gpu.engine.ask import ask
from pyinfra_gpu.engine.deadlines import within
from pyinfra_gpu.engine.look import forget, look, unanswered
from pyinfra_gpu.engine.privilege import as_root
from pyinfra_gpu.engine.steps import reason as reason_of
from pyinfra_gpu.on_host import program
from pyinfra_gpu.spec import HostSpec, system_files
from pyinfra_gpu.stages.driver.findings import against_reboot
from pyinfra_gpu.text import some

_DONE = "pyinfra_gpu_rebooted"  # in connector_data: what lasts as long as one run of one host
_POLL_S = 2.0
_ANSWER_S = 10
_CONNECT_S = 30
_BOOT_ID = "cat /proc/sys/kernel/random/boot_id"
# Units that load the driver's module and open the network are not done when sshd first answers.
_BOOTED = "timeout 60 systemctl is-system-running --wait >/dev/null 2>&1 || true"


def restart(state: State, host: Host, spec: HostSpec, why: str, reason: str) -> str | None:
    """Reboot the host and wait until it is back; at most once in a run, and never while it is used.

    + why: for the log, e.g. "module 580.82.07 is loaded, 580.95.05 is installed"
    + reason: the same in words that are the same every night, on one line; the host keeps it, with
      its boot_id

    Returns why it was not rebooted, or is not back: a clause with its remedy. Who uses the host is
    looked at right before. It is back when its boot_id differs and it accepts commands again: an
    sshd that answers a few seconds more before it goes down does not fool it. Waits up to
    ``driver_reboot_wait_s`` seconds.
    """
    required, wait_s = f"a reboot is required ({why}), and", spec.driver.reboot_wait_s
    if spec.driver.reboot == "never":
        remedy = "run `sudo systemctl reboot` there when it suits, then run again"
        return f"{required} driver_reboot = 'never' is declared: {remedy}"
    if host.connector_data.get(_DONE):
        return "was rebooted in this run, and that did not help"
    if host.name.startswith("@local"):
        machine = "this run works on that very machine: run `sudo systemctl reboot`, then run again"
        return f"{required} {machine}"
    forget()
    if (record := look(spec)) is None:
        return unanswered()
    if against := against_reboot(spec, record):
        return f"{required} it is in use by {some(against, 4)}: run again when it is idle"
    command, root = program("driver/reboot.sh", system_files.REBOOTS, reason), as_root(spec)
    answer = ask(state, host, command, root, seconds=deadlines.PLAIN)
    if not (answer.ok and answer.stdout):
        return f"{required} it cannot be begun ({reason_of(answer.lines)})"
    host.connector_data[_DONE] = True
    if not _back(state, host, answer.stdout[-1].strip(), wait_s, f"reboot ({why})"):
        return (
            f"was rebooted and is not back after {wait_s} s: look at its console; when it is"
            " back, run again (or raise `driver_reboot_wait_s`)"
        )
    try:
        lease.regain(state, host, spec)
    except lease.LeaseError as error:
        return str(error)
    ask(state, host, _BOOTED, root, seconds=90)
    forget()
    return None


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
