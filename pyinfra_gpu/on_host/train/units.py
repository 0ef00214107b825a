"""The units of systemd's user manager that runs are: it ends all that a run has started."""

from __future__ import annotations

import getpass
import os
import re
from pathlib import Path

from .host import Site, TrainError, call

_STARTS_S = 320  # a worktree may be large, so the unit has 300
_ON = "--state=active,activating,deactivating,reloading"


def unit(run: str) -> str:
    return f"pyinfra-gpu-train@{run}.service"


def problem() -> tuple[str, str] | None:
    """Return why no run would outlive this login, and the remedy."""
    user = getpass.getuser()
    linger = Path("/var/lib/systemd/linger") / user
    if not linger.exists():
        call("loginctl", "enable-linger")
    remedy = f"run `sudo loginctl enable-linger {user}`"
    if not linger.exists():
        return f"a run would end with the last login of {user}", remedy
    if not _has_manager():
        return f"no user manager of systemd's runs for {user}", remedy
    return None


def _has_manager() -> bool:
    return Path(f"/run/user/{os.getuid()}/systemd").is_dir()


def ensure(site: Site, after_reboot: bool) -> None:
    """Have the user manager know the units; enable the one of a boot where a run asks for it."""
    folder = Path(site.prefix) / "train"
    _systemctl("link", "--force", str(folder / unit("")))
    if after_reboot:
        _systemctl("enable", "--force", str(folder / "pyinfra-gpu-train-again.service"))


def on() -> set[str]:
    """Return the runs whose unit is on, or on its way there or away."""
    if not _has_manager():
        return set()
    said = _systemctl("list-units", "--plain", "--no-legend", _ON, unit("*"))
    return {*re.findall(r"^pyinfra-gpu-train@(\S+)\.service\b", said, re.MULTILINE)}


def start(run: str) -> None:
    """Start a run; return when its program is on, or waits for its turn."""
    _systemctl("start", unit(run), seconds=_STARTS_S)


def ready() -> None:
    """Tell systemd so, as the main process of a unit."""
    call("systemd-notify", "--ready")


def stop(run: str, seconds: float) -> None:
    """End a run and wait for it."""
    _systemctl("stop", unit(run), seconds=seconds)


def _systemctl(*words: str, seconds: float = 20.0) -> str:
    """Return what the user manager says; raise TrainError where it does not do it."""
    given = {**os.environ, "XDG_RUNTIME_DIR": f"/run/user/{os.getuid()}"}
    given.pop("DBUS_SESSION_BUS_ADDRESS", None)
    said = call("systemctl", "--user", "--no-pager", *words, env=given, seconds=seconds)
    if said.returncode != 0:
        why = (said.stderr or said.stdout or f"it ended with {said.returncode}").splitlines()[0]
        raise TrainError(f"`systemctl --user {words[0]}` failed: {why}")
    return said.stdout
