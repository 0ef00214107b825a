"""The host: what was declared for it, its GPUs, memory and disks, and whether it is proven."""

from __future__ import annotations

import contextlib
import getpass
import json
import os
import platform
import pwd
import runpy
import shlex
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

from ..fingerprint import part, parts
from ..smoke import nvidia_smi
from ..smoke.nvidia_smi import integer, number, reasons

CPU = "cpu"
"""The device of a host without GPUs."""
AGAIN = "run `pyinfra INVENTORY deploy.py` for this host"
_UTC = timezone.utc  # noqa: UP017 - datetime.UTC is of Python 3.11


class TrainError(Exception):
    """Something is in the way; its text says what, and what helps."""


class NoRunError(TrainError):
    """There is no run such as is meant."""


@dataclass(frozen=True, kw_only=True)
class Site:
    """What the deploy declared, which writes it."""

    prefix: str
    python: str
    checkout: str
    env_file: str
    env_names: list[str]
    state: str
    stamp: str
    owner: str | None
    accelerator: str
    ranks: int
    torch: str
    presets: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    stop_grace_s: int = 30
    log_mib: int = 64
    keep_runs: int = 50
    retry_wait_s: int = 30
    notify: list[str] = field(default_factory=list)

    @property
    def runs(self) -> Path:
        return Path(self.state) / "runs"


def call(*words: str, seconds: float = 20.0, **given: Any) -> subprocess.CompletedProcess[str]:
    """Run a command to its end; where it does not come to one, `stderr` says why.

    + given: to subprocess.run, beside or over what is usual

    Never raises; the exit code is then 127.
    """
    usual = {"text": True, "errors": "replace", "timeout": seconds}
    usual |= dict.fromkeys(("stdout", "stderr"), subprocess.PIPE)
    usual |= {} if "input" in given else {"stdin": subprocess.DEVNULL}
    try:
        return subprocess.run(words, check=False, **{**usual, **given})
    except subprocess.TimeoutExpired:
        why = f"did not end within {seconds:g} s"
    except (OSError, ValueError) as error:
        why = f"cannot be run ({error})"
    return subprocess.CompletedProcess(words, 127, "", f"{words[0]} {why}")


def load() -> Site:
    """Return what is declared, for the owner of the runs; raise TrainError for anybody else."""
    path = Path(sys.argv[0]).absolute().parents[1] / "train/site.json"
    try:
        site = Site(**json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError) as error:
        raise TrainError(f"{path} cannot be read ({error}): {AGAIN}") from None
    state = Path(site.state)
    if state.exists() and state.stat().st_uid != os.getuid():
        owner = site.owner or state.owner()
        words = shlex.join([f"{site.prefix}/bin/train", *sys.argv[1:2]])
        raise TrainError(f"runs are {owner}'s here: run `sudo -u {owner} {words} ...`")
    return site


def from_controller() -> str:
    """Return who calls from the controller; "" where somebody calls on this host."""
    return os.environ.get("PYINFRA_GPU_TRAIN_BY", "")[:80]


def asked_by() -> str:
    """Return who calls, and from where."""
    here = os.environ.get("SUDO_USER") or getpass.getuser()
    there = from_controller()
    return f"{there}, from the controller" if there else f"{here}, on this host"


# -- time and boots


def now(later: float = 0) -> str:
    """Return the time in UTC, as it stands in files and logs, so many seconds from now."""
    when = datetime.now(_UTC) + timedelta(seconds=later)
    return when.strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3] + "Z"


def moment(text: object) -> float | None:
    """Return a time that `now` wrote in seconds since 1970; None for anything else."""
    try:
        # Python 3.10 reads no "Z".
        when = datetime.fromisoformat(str(text)[:40].removesuffix("Z"))
        return when.replace(tzinfo=_UTC).timestamp()
    except (ValueError, OverflowError):
        return None


def boot_id() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()


# -- GPUs, memory, disks


@dataclass(frozen=True)
class Gpu:
    """One GPU as nvidia-smi shows it; + words: what it does, on one line."""

    index: int
    uuid: str
    total_mib: int
    used_mib: int
    words: str


_FIGURES = {"utilization.gpu": "%", "temperature.gpu": "°C", "power.draw": "W"}
_MEMORY, _SLOWED = ("memory.total", "memory.used"), "clocks_event_reasons.active"


def gpus(run: nvidia_smi.Run = nvidia_smi.run) -> list[Gpu]:
    """Return the GPUs by index; raise TrainError with nvidia-smi's words where it fails."""
    found = []
    for row in _query(run, "gpu", "index", "uuid", *_MEMORY, *_FIGURES, _SLOWED):
        index, total, used = (integer(row.get(name)) or 0 for name in ("index", *_MEMORY))
        figures = [(number(row.get(name)), unit) for name, unit in _FIGURES.items()]
        words = [f"GPU {index} {used / 1024:.1f}/{total / 1024:.1f} GiB"]
        words += [f"{value:.0f} {unit}" for value, unit in figures if value is not None]
        slowed = reasons(integer(row.get(_SLOWED)) or 0)
        words += [name.replace("_", " ") for name in slowed if "idle" not in name]
        found.append(Gpu(index, row["uuid"], total, used, " ".join(words)))
    return sorted(found, key=lambda gpu: gpu.index)


def gpu_users(run: nvidia_smi.Run = nvidia_smi.run) -> dict[str, list[str]]:
    """Return the UUID of each GPU in use -> the processes that compute on it."""
    found: dict[str, list[str]] = {}
    for row in _query(run, "compute-apps", "gpu_uuid", "pid", "process_name"):
        name = row["process_name"].rpartition("/")[2][:40]
        found.setdefault(row["gpu_uuid"], []).append(f"pid {row['pid']} ({name})")
    return found


def _query(run: nvidia_smi.Run, what: str, *fields: str) -> list[dict[str, str]]:
    rows, error = nvidia_smi.read(run, fields, what)
    if error and "version mismatch" in error:
        updated = "the driver was updated, and its old kernel module is still loaded"
        raise TrainError(f"{updated} ({error}): {AGAIN}, or reboot it")
    if error:
        raise TrainError(error)
    return [{name: text or "" for name, text in row.items()} for row in rows]


def above(path: Path) -> Path:
    """Return the nearest folder that is there, from a path upwards."""
    return next(each for each in (path, *path.parents) if each.is_dir())


# -- whether the smoke test that passed is of this host as it is now


def unproven(site: Site) -> str:
    """Return why no smoke test vouches for the host as it is now; "" where one does."""
    passed = {}
    with contextlib.suppress(OSError, ValueError, RecursionError):
        passed = json.loads(Path(site.stamp).read_text(encoding="utf-8"))
    if "fingerprint" not in passed:
        return "no smoke test has passed here"
    present = {  # the kernel is the boot's
        "the boot": boot_id(),
        "the driver": [_driver(), str(_libcuda())],
        "torch": [site.torch, str(_torch(site).get("git_version"))],
    }
    known = parts(str(passed["fingerprint"]))
    changed = [name for name, value in present.items() if known.get(name) != part(value)]
    return f"since the smoke test passed, changed: {', '.join(changed)}" if changed else ""


def packages(site: Site) -> str:
    """Return what a run is made with, a line each."""
    folders = Path(site.python).parents[1].glob("lib/python3*/site-packages/*.dist-info")
    names = (path.name.removesuffix(".dist-info").rpartition("-") for path in folders)
    system = f"# kernel {platform.release()}, driver {_driver()}\n"
    return system + "".join(f"{name}=={version}\n" for name, _, version in sorted(names))


def _torch(site: Site) -> dict[str, str]:
    for path in Path(site.python).parents[1].glob("lib/python3*/site-packages/torch/version.py"):
        return {name: str(value) for name, value in runpy.run_path(str(path)).items()}
    return {}


def _driver() -> str:
    module = Path("/sys/module/nvidia/version")
    return module.read_text(encoding="ascii").strip() if module.exists() else "None"


def _libcuda() -> str | None:
    abi = {"x86_64": "x86-64", "aarch64": "AArch64"}.get(platform.machine(), "")
    program = shutil.which("ldconfig", path="/sbin:/usr/sbin:/bin:/usr/bin")
    said = call(program or "ldconfig", "-p", seconds=10)
    for line in said.stdout.splitlines():
        name, arrow, path = line.strip().partition(" => ")
        if arrow and name.startswith("libcuda.so.1 ") and abi in name:
            return str(Path(path).resolve())
    return None


def plain_variables() -> dict[str, str]:
    """Return the environment that a run or a command of the owner's begins with."""
    user = pwd.getpwuid(os.getuid())
    names = dict.fromkeys(("USER", "LOGNAME"), user.pw_name)
    path = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
    own = {"HOME": user.pw_dir, "XDG_RUNTIME_DIR": f"/run/user/{user.pw_uid}", "PATH": path}
    return {**names, **own, "SHELL": "/bin/sh", "LANG": "C.UTF-8", "PYTHONUNBUFFERED": "1"}
