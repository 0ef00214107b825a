"""The owner's user manager: a run is an instance of one template unit in it."""

from __future__ import annotations

import contextlib
import getpass
import os
import subprocess
from pathlib import Path

from .errors import TrainError
from .site import Site

_TEMPLATE = "pyinfra-gpu-train@.service"
_ANSWER_S = 20.0
_LOOK_S = 5.0
_STARTED_S = 320.0  # more than the unit's own TimeoutStartSec


def unit(run: str) -> str:
    """Return the unit's name of a run."""
    return _TEMPLATE.replace("@", f"@{run}")


def problem() -> tuple[str, str] | None:
    """Return why no run can outlive this login, and what to do; None where it can."""
    user = getpass.getuser()
    if not Path("/run/systemd/system").is_dir():
        return (
            "systemd does not run this machine, and a run is a unit of systemd's",
            "use `torchrun` beside this program",
        )
    linger, remedy = Path(f"/var/lib/systemd/linger/{user}"), f"sudo loginctl enable-linger {user}"
    if not linger.exists():
        # Most systems allow everybody to have it for themselves.
        with contextlib.suppress(OSError, subprocess.TimeoutExpired):
            subprocess.run(
                ["loginctl", "enable-linger"], capture_output=True, timeout=_ANSWER_S, check=False
            )
    if not linger.exists():
        return (f"a run would end with the last login of {user}", f"run `{remedy}`")
    if not Path(f"/run/user/{os.getuid()}/systemd").is_dir():
        return (f"no user manager of systemd's runs for {user}", f"run `{remedy}`")
    return None


def _systemctl(*words: str, seconds: float = _ANSWER_S) -> subprocess.CompletedProcess[str]:
    # A shell that sudo or cron made knows nothing of the user manager.
    environment = {**os.environ, "XDG_RUNTIME_DIR": f"/run/user/{os.getuid()}"}
    environment.pop("DBUS_SESSION_BUS_ADDRESS", None)
    try:
        return subprocess.run(
            ["systemctl", "--user", "--no-pager", *words],
            env=environment,
            capture_output=True,
            text=True,
            stdin=subprocess.DEVNULL,
            timeout=seconds,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise TrainError(
            f"`systemctl --user {words[0]}` did not answer within {seconds:.0f} s: see `systemctl"
            " --user status`"
        ) from None


def ensure(site: Site, after_reboot: bool) -> None:
    """Have the user manager know our units: the deploy's own files, by links to them.

    + after_reboot: whether it is to look after each boot which runs are to go on
    """
    _ensure_template(site)
    name = site.unit_again.name
    if after_reboot and _systemctl("is-enabled", "--quiet", name).returncode != 0:
        enabled = _systemctl("enable", "--force", str(site.unit_again))
        if enabled.returncode != 0:
            raise TrainError(f"{site.unit_again} cannot be enabled: {_reason(enabled)}")


def _ensure_template(site: Site) -> None:
    said = _systemctl("show", "--property=FragmentPath", "--value", unit("look"))
    if said.stdout.strip() == str(site.unit):
        return
    linked = _systemctl("link", "--force", str(site.unit))
    if linked.returncode != 0:
        raise TrainError(f"{site.unit} cannot be linked: {_reason(linked)}")


def start(run: str) -> str | None:
    """Start the unit and wait until the run is on, or in the queue; return why it is not."""
    said = _systemctl("start", unit(run), seconds=_STARTED_S)
    return _reason(said) if said.returncode != 0 else None


def active(run: str) -> bool:
    """Tell whether the unit of a run is on, or being ended; never raises.

    Where there is no user manager there is no run either.
    """
    try:
        said = _systemctl("is-active", unit(run), seconds=_LOOK_S)
    except (TrainError, OSError):
        return False
    return said.stdout.strip() in ("active", "activating", "deactivating", "reloading")


def stop(run: str, seconds: float) -> None:
    """Stop the unit and wait until nothing of it is left; raises TrainError."""
    said = _systemctl("stop", unit(run), seconds=seconds)
    if said.returncode != 0:
        raise TrainError(f"run {run} cannot be stopped: {_reason(said)}")


def _reason(said: subprocess.CompletedProcess[str]) -> str:
    lines = [line.strip() for line in (said.stderr or said.stdout).splitlines() if line.strip()]
    return lines[0] if lines else f"systemctl ended with {said.returncode} and said nothing"
