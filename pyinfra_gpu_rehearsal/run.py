"""`pyinfra-gpu rehearsal run`: bare throwaway hosts to a checked training step, twice, to watch."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from pyinfra_gpu.report.run import REPORT_VARIABLE
from pyinfra_gpu_rehearsal import Lab, available, gpus_available
from pyinfra_gpu_rehearsal.commands import cache_folder
from pyinfra_gpu_rehearsal.git_repository import publish
from pyinfra_gpu_rehearsal.wheelhouse import INDEX, ensure_wheels

HOSTS = 2
MACHINE = "2x RTX 5090"
"""What each of them simulates."""

_say = partial(print, flush=True)


def run(lab: Lab) -> int:
    """Rehearse the whole way; return 0 only if the second run changed nothing on any host.

    Where no hosts can be made, this machine is provisioned instead. Raises LabError.
    """
    if reason := available():
        _say(f"{reason}; so this machine is provisioned instead, without root")
        return _twice("inventories/local.py", _of_this_machine(cache_folder() / "local"))
    used = [host.name for host in lab.all_hosts()]
    without = gpus_available()
    if without is not None:
        _say(f"{without}: these hosts have none, and the stages for GPUs have nothing to do")
    lab.up(HOSTS, machine="" if without else MACHINE, say=_say)
    for name in used:
        _say(f"making {name} bare again")
        lab.fresh(name)
    # Where the inventory finds the hosts.
    os.environ["PYINFRA_GPU_REHEARSAL"] = str(lab.directory)
    status = _twice("inventories/rehearsal.py", {})
    _say(
        f"\nLook around on a host:    ssh -F {lab.shown_ssh_config} gpu1\n"
        "Deploy again yourself:    .venv/bin/pyinfra inventories/rehearsal.py deploy.py\n"
        "Make a host bare again:   .venv/bin/pyinfra-gpu rehearsal fresh gpu1\n"
        "Remove everything:        make clean"
    )
    return status


def _of_this_machine(folder: Path) -> dict[str, str]:
    """Return what is declared where this machine stands in for throwaway hosts."""
    wheels = ensure_wheels(f"{sys.version_info.major}.{sys.version_info.minor}", _say)
    return {
        "prefix": str(folder / "prefix"),
        "rehearsal": "true",
        "stack": "cpu-torch2.13",
        "gpu_count": "0",
        "smoke": "auto",
        "pytorch_python": sys.executable,
        "pytorch_index_url": f"{(wheels / INDEX).as_uri()}/",
        "pytorch_extra_index_url": "null",
        "pytorch_lock": "ignore",
        "training_commit": publish(Path("examples/tiny-gpt"), folder / "tiny-gpt.git"),
        "training_repo": (folder / "tiny-gpt.git").as_uri(),
        "training_requirements": "pyproject.toml",
    }


def _twice(inventory: str, data: Mapping[str, str]) -> int:
    """Deploy twice; return 0 only if both runs succeed and the second changes nothing."""
    first = _deploy("First run: from bare machines to a checked training step", inventory, data)
    second = first and _deploy("Second run: the same command must change nothing", inventory, data)
    if not second:
        return 1
    still = ("as declared", "left alone")  # the latter: something that a deploy does not repair
    changed = [name for name, host in second["hosts"].items() if host["status"] not in still]
    if changed:
        _say(f"\nNOT CONVERGED: the second run still changed {', '.join(changed)}")
        return 1
    _say(f"\nThe second run changed nothing on {len(second['hosts'])} host(s).")
    return 0


def _deploy(title: str, inventory: str, data: Mapping[str, str]) -> dict[str, Any] | None:
    """Run pyinfra's own command line; return the run's verdict, or None when it failed."""
    given = [word for key, value in data.items() for word in ("--data", f"{key}={value}")]
    words = ["-y", inventory, "deploy.py", *given]
    _say(f"\n{'=' * 80}\n{title}\n$ pyinfra {' '.join(words)}\n{'=' * 80}")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "report.json")
        program = str(Path(sys.executable).with_name("pyinfra"))
        started = time.monotonic()
        environment = {**os.environ, REPORT_VARIABLE: str(path)}
        code = subprocess.run([program, *words], env=environment, check=False).returncode
        _say(f"pyinfra ended with exit code {code} after {time.monotonic() - started:.1f} s")
        return json.loads(path.read_text()) if code == 0 else None
