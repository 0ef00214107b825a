"""A reboot that is known to have happened: by the kernel's boot_id, not by a lost connection."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from pyinfra.api.exceptions import ConnectError
from pyinfra.connectors.util import clear_askpass_cache

from pyinfra_gpu.engine import deadlines
from pyinfra_gpu.engine.ask import ask
from pyinfra_gpu.engine.look import forget
from pyinfra_gpu.engine.privilege import as_root
from pyinfra_gpu.engine.steps import failed
from pyinfra_gpu.engine.wire import within

if TYPE_CHECKING:
    from pyinfra.api.host import Host
    from pyinfra.api.state import State

    from pyinfra_gpu.spec import HostSpec

_DONE = "pyinfra_gpu_rebooted"  # in connector_data: what lasts as long as one run of one host
_POLL_S = 2.0
_TOLD_S = 15.0
_ANSWER_S = 10
_CONNECT_S = 30
_BOOT_ID = "cat /proc/sys/kernel/random/boot_id"

# Begun after this channel has ended, so that the command that asks for it ends well. `-i`: what
# must not be interrupted was looked at before.
_REBOOT = (
    "systemd-run --quiet --collect --on-active=2 --timer-property=AccuracySec=100ms"
    " systemctl reboot -i >/dev/null 2>&1"
    " || { nohup sh -c 'sleep 2; systemctl reboot -i || reboot' </dev/null >/dev/null 2>&1 & }"
)
# Units that load the driver's module and open the network are not done when sshd first answers.
_BOOTED = "timeout 60 systemctl is-system-running --wait >/dev/null 2>&1 || true"


def restart(state: State, host: Host, stage: str, spec: HostSpec, why: str) -> bool:
    """Reboot the host and wait until it is back; at most once in a run.

    + why: for the log, e.g. "module 580.82.07 is loaded, 580.95.05 is installed"

    Returns False after saying why it failed. The host is back when its boot_id differs and it
    accepts commands again: an sshd that answers a few seconds more before it goes down does not
    fool it. Waits up to ``driver_reboot_wait_s`` seconds.
    """
    if host.connector_data.get(_DONE):
        return failed(host, stage, f"{host.name}: was rebooted in this run, and that did not help")
    if not hasattr(host.connector, "client") and host.name.startswith("@local"):
        sentence = f"{host.name}: a reboot is owed ({why}), and this run works on that very machine"
        return failed(host, stage, f"{sentence}: run `sudo systemctl reboot`, then run again")
    before = _boot_id(state, host)
    if before is None:
        return failed(host, stage, f"{host.name}: does not tell its boot_id, so it is not rebooted")
    host.connector_data[_DONE] = True
    host.log(f"reboot ({why}); waiting up to {spec.driver.reboot_wait_s} s")
    if not ask(state, host, _REBOOT, as_root(spec), seconds=deadlines.PLAIN).ok:
        return failed(host, stage, f"{host.name}: `systemctl reboot` was refused")
    if not _back(state, host, before, spec.driver.reboot_wait_s):
        return failed(
            host,
            stage,
            f"{host.name}: was told to reboot and is not back after {spec.driver.reboot_wait_s} s:"
            " look at its console; when it is back, run again (or raise `driver_reboot_wait_s`)",
        )
    ask(state, host, _BOOTED, as_root(spec), seconds=90)
    forget()
    return True


def _back(state: State, host: Host, before: str, wait_s: float) -> bool:
    """Connect again and again until the host answers with another boot_id."""
    started = told = time.monotonic()
    while time.monotonic() - started < wait_s:
        time.sleep(_POLL_S)
        now = time.monotonic()
        if now - told >= _TOLD_S:
            told = now
            host.log(f"waiting for it to come back: {now - started:.0f} s")
        if not _connected(host):
            continue
        current = _boot_id(state, host)
        if current is not None and current != before:
            host.log(f"is back after {time.monotonic() - started:.0f} s")
            return True
    return False


def _connected(host: Host) -> bool:
    """Open a new connection; the old one may look alive for minutes after its peer is gone."""
    client = getattr(host.connector, "client", None)
    if client is not None:
        client.close()
    # What pyinfra keeps for a sudo password lay in /tmp, which is empty now.
    clear_askpass_cache(host)
    try:
        with within(_CONNECT_S, "no connection came up"):
            host.connector.disconnect()
            host.connector.connect()
    except (ConnectError, OSError, EOFError):
        host.connected = False
        return False
    host.connected = True
    return True


def _boot_id(state: State, host: Host) -> str | None:
    answer = ask(state, host, _BOOT_ID, {"_sudo": False}, seconds=_ANSWER_S)
    text = answer.stdout[-1].strip() if answer.ok and answer.stdout else ""
    return text or None
