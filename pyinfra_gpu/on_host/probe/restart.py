"""Reboot the machine, unless somebody would mind: judged and begun by one program.

There is no round trip between the two. It comes behind the programs of the look and answers in its
form, with "done": "rebooting" (and "boot"), "busy" (and "against": who and what, in words), "again"
(and "at": the same reason has had its reboot, which did not help) or "refused" (and "why").
"""

from __future__ import annotations

import os
import time

from . import apt, driver, system
from .frame import Any, Host, Mapping, NotTold, attempt, json
from .look import FIRST_LINE, LAST_LINE

_MOST = 50  # reboots that are noted: enough for a host that loses its driver every week


def against(host: Host) -> list[str]:
    """Return who and what stands against a reboot; what is not told is against it, too."""
    asked = [_packages_at_work, _own_lock, _half_configured]
    if host.asked["policy"] != "always":
        asked = [_strangers, system.sessions, system.inhibitors, *asked]
    found: list[str] = []
    for each in asked:
        told = attempt(each, host)
        found += [told["?"]] if isinstance(told, dict) else told or []
    return found


def _packages_at_work(host: Host) -> list[str]:
    holder = apt.lock_holder(host)
    return [holder] if holder else []


def _strangers(host: Host) -> list[str]:
    """Return who uses the GPUs, beside services that may be ended."""
    services = host.asked["services"]
    return [each for each in driver.users(host) if each.partition(" (")[2][:-1] not in services]


def _half_configured(host: Host) -> list[str]:
    found = apt.half_configured(host)
    return [f"an installation that is not done ({', '.join(found[:3])})"] if found else []


def _own_lock(host: Host) -> list[str]:
    """Return a command of an earlier run that goes on."""
    path = host.asked["lock"]
    pid = apt.holder(host, "FLOCK", path)
    return [f"pid {pid}, which works on {path}"] if pid else []


def restart(host: Host) -> dict[str, Any]:
    """Begin the reboot, or return why not."""
    boot = attempt(host.line, "/proc/sys/kernel/random/boot_id")
    if not isinstance(boot, str):
        return {"done": "refused", "why": "it does not tell its boot_id"}
    reason, record = host.asked["reason"], host.asked["record"]
    before = host.rows(record) if host.is_file(record) else []
    tried = [row.split(" ", 2) for row in before]
    again = [words[0] for words in tried if words[2:] == [reason] and words[1] != boot]
    if again and again[-1].isdigit():
        return {"done": "again", "at": int(again[-1])}
    if obstacles := against(host):
        return {"done": "busy", "against": obstacles}
    rows = [*filter(None, before), f"{int(time.time())} {boot} {reason}"]
    try:
        _note(host.at(record), rows[-_MOST:])
    except OSError:
        why = f"{record} cannot be written, and without it one reboot would follow the other"
        return {"done": "refused", "why": why}
    return {"done": "rebooting", "boot": boot}


def _note(path: str, lines: list[str]) -> None:
    os.umask(0o022)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(f"{path}.new", "w", encoding="utf-8", errors="backslashreplace") as file:
        file.write("\n".join(lines) + "\n")
        file.flush()
        os.fsync(file.fileno())
    os.replace(f"{path}.new", path)


def _begin(host: Host) -> None:
    """Reboot after this connection has had its answer; who stands against it was asked above."""
    later = ("--on-active=1", "--timer-property=AccuracySec=100ms", "systemctl", "reboot", "-i")
    try:
        if host.run("systemd-run", "--quiet", "--collect", *later, seconds=10)[0] == 0:
            return
    except NotTold:
        pass
    null = [(os.POSIX_SPAWN_OPEN, each, os.devnull, os.O_RDWR, 0) for each in (0, 1, 2)]
    words = ("sh", "-c", "sleep 1; systemctl reboot -i || reboot")
    os.posix_spawn("/bin/sh", words, host.environment, file_actions=null, setpgroup=0)


def main(asked: Mapping[str, Any]) -> None:
    """Judge, begin, and say what was done."""
    host = Host(asked.get("root", ""), {"packages": (), "nvidia": False, **asked})
    done = restart(host)
    if done["done"] == "rebooting":
        _begin(host)
    print(f"\n{FIRST_LINE}\n{json(done)}\n{LAST_LINE}", flush=True)
