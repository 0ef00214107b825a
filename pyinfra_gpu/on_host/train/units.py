"""The units of systemd's user manager that runs are: it ends all that a run has started."""

from __future__ import annotations

import contextlib
import getpass
import os
import re
import socket
import subprocess
from pathlib import Path

from .host import OVERDUE, Site, TrainError, call

_STARTED_S = 320.0  # the unit's own limit is 300
_ON = "--state=active,activating,deactivating,reloading"


def unit(run: str) -> str:
    return f"pyinfra-gpu-train@{run}.service"


def problem() -> tuple[str, str] | None:
    """Return why no run would outlive this login, and the remedy."""
    user = getpass.getuser()
    if not Path("/run/systemd/system").is_dir():
        text = "systemd does not run this machine, and a run is a unit of systemd's"
        return text, "use `torchrun` beside this program"
    linger = Path("/var/lib/systemd/linger") / user
    if not linger.exists():
        call("loginctl", "enable-linger")
    remedy = f"run `sudo loginctl enable-linger {user}`"
    if not linger.exists():
        return f"a run would end with the last login of {user}", remedy
    if not Path(f"/run/user/{os.getuid()}/systemd").is_dir():
        return f"no user manager of systemd's runs for {user}", remedy
    return None


def ensure(site: Site, after_reboot: bool) -> None:
    """Have the user manager know the units; enable the one of a boot where a run asks for it."""
    folder = Path(site.prefix) / "train"
    of_a_run, of_a_boot = folder / unit(""), folder / "pyinfra-gpu-train-again.service"
    known = _systemctl("show", "--property=FragmentPath", "--value", unit("look"))
    if known.stdout.strip() != str(of_a_run):
        _done(_systemctl("link", "--force", str(of_a_run)), f"{of_a_run} cannot be linked")
    if after_reboot and _systemctl("is-enabled", "--quiet", of_a_boot.name).returncode != 0:
        _done(_systemctl("enable", "--force", str(of_a_boot)), f"{of_a_boot} cannot be enabled")


def on() -> set[str]:
    """Return the runs whose unit is on, or on its way there or away."""
    said = _systemctl("list-units", "--plain", "--no-legend", _ON, unit("*"))
    return {*re.findall(r"^pyinfra-gpu-train@(\S+)\.service\b", said.stdout, re.MULTILINE)}


def start(run: str) -> str | None:
    """Start a run; return why it did not start."""
    said = _systemctl("start", unit(run), seconds=_STARTED_S)
    return _reason(said) if said.returncode != 0 else None


def stop(run: str, seconds: float) -> None:
    """End a run and wait for it."""
    _done(_systemctl("stop", unit(run), seconds=seconds), f"run {run} cannot be stopped")


def notify(text: str) -> None:
    """Tell systemd how the supervisor gets on."""
    address = os.environ.get("NOTIFY_SOCKET")
    if not address:
        return
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as channel:
        channel.connect(f"\0{address[1:]}" if address[0] == "@" else address)
        channel.sendall(text.encode())


def _systemctl(*words: str, seconds: float = 20.0) -> subprocess.CompletedProcess[str]:
    given = {**os.environ, "XDG_RUNTIME_DIR": f"/run/user/{os.getuid()}"}
    given.pop("DBUS_SESSION_BUS_ADDRESS", None)
    said = call("systemctl", "--user", "--no-pager", *words, env=given, seconds=seconds)
    if said.returncode == OVERDUE:
        raise TrainError(f"{said.stderr}: see `systemctl --user status`")
    return said


def _done(said: subprocess.CompletedProcess[str], what: str) -> None:
    """Raise TrainError where that was not done."""
    if said.returncode != 0:
        raise TrainError(f"{what}: {_reason(said)}")


def _reason(said: subprocess.CompletedProcess[str]) -> str:
    return next(iter((said.stderr or said.stdout).split("\n")), "") or "systemctl failed"
