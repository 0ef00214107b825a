"""`pyinfra-gpu rehearsal run`: bare throwaway hosts to a checked training step, twice, to watch."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import click

from pyinfra_gpu.report.run import REPORT_VARIABLE
from pyinfra_gpu_rehearsal import Lab, available, gpus_available
from pyinfra_gpu_rehearsal.git_repository import publish
from pyinfra_gpu_rehearsal.state import cache_folder
from pyinfra_gpu_rehearsal.wheelhouse import ensure_index

HOSTS = 2
MACHINE = "2x RTX 5090"
"""What each of them simulates, by its name in the catalogue of machines."""

_RULE = "=" * 80


def run(lab: Lab) -> int:
    """Rehearse the whole way; return 0 only if the second run changed nothing on any host.

    Where no hosts can be made, this machine is provisioned instead. Raises LabError.
    """
    if reason := available():
        return _on_this_machine(cache_folder() / "local", reason)
    started = time.monotonic()
    used = [host.name for host in lab.all_hosts()]
    without = gpus_available()
    if without is not None:
        _say(f"{without}: these hosts have none, and the stages for GPUs have nothing to do")
    hosts = lab.up(HOSTS, machine=None if without else MACHINE, say=_say)
    for name in used:
        lab.fresh(name)
    if used:
        _say(f"made bare again: {', '.join(used)}")
    names = ", ".join(f"{host.name} ({host.address})" for host in hosts)
    _say(f"{len(hosts)} throwaway hosts are up after {time.monotonic() - started:.1f} s: {names}")
    # Where the inventory finds the hosts.
    os.environ["PYINFRA_GPU_REHEARSAL"] = str(lab.directory)
    status = _twice("inventories/rehearsal.py")
    _say(
        f"\nLook around on a host:    ssh -F {lab.shown_ssh_config} gpu1\n"
        "Deploy again yourself:    .venv/bin/pyinfra inventories/rehearsal.py deploy.py\n"
        "Make a host bare again:   .venv/bin/pyinfra-gpu rehearsal fresh gpu1\n"
        "Remove everything:        make clean"
    )
    return status


def _say(text: str) -> None:
    click.echo(text)
    sys.stdout.flush()


def _on_this_machine(folder: Path, reason: str) -> int:
    """Provision this machine without root."""
    _say(f"{reason[:1].upper()}{reason[1:]}")
    _say("So this machine is provisioned instead (inventories/local.py), without root.")
    python = f"{sys.version_info.major}.{sys.version_info.minor}"
    index = ensure_index(python, _say)
    commit = publish(Path("examples/tiny-gpt"), folder / "tiny-gpt.git")
    data = {
        "prefix": str(folder / "prefix"),
        "rehearsal": "true",
        "stack": "cpu-torch2.13",
        "gpu_count": "0",
        "smoke": "auto",
        "pytorch_python": sys.executable,
        "pytorch_index_url": f"{index.as_uri()}/",
        "pytorch_extra_index_url": "null",
        "pytorch_lock": "ignore",
        "training_repo": (folder / "tiny-gpt.git").as_uri(),
        "training_commit": commit,
        "training_requirements": "pyproject.toml",
    }
    status = _twice("inventories/local.py", *(f"{key}={value}" for key, value in data.items()))
    _say(f"What was made is in {folder}; `make clean` removes it.")
    return status


def _twice(inventory: str, *data: str) -> int:
    """Deploy twice; return 0 only if both runs succeed and the second changes nothing."""
    verdict = _deploy("First run: from bare machines to a checked training step", inventory, data)
    if verdict is not None:
        verdict = _deploy("Second run: the same command must change nothing", inventory, data)
    if verdict is None:
        return 1
    still = ("as declared", "left alone")  # the latter: something that a deploy does not repair
    changed = [name for name, host in verdict["hosts"].items() if host["status"] not in still]
    if changed:
        _say(f"\nNOT CONVERGED: the second run still changed {', '.join(changed)}")
        return 1
    _say(f"\nThe second run changed nothing on {len(verdict['hosts'])} host(s).")
    return 0


def _deploy(title: str, inventory: str, data: tuple[str, ...]) -> dict[str, Any] | None:
    """Run pyinfra's own command line; return the run's verdict, or None when it failed."""
    words = ["-y", inventory, "deploy.py", *(word for each in data for word in ("--data", each))]
    _say(f"\n{_RULE}\n{title}\n$ pyinfra {' '.join(words)}\n{_RULE}")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "report.json")
        program = str(Path(sys.executable).with_name("pyinfra"))
        started = time.monotonic()
        environment = {**os.environ, REPORT_VARIABLE: str(path)}
        code = subprocess.run([program, *words], env=environment, check=False).returncode
        _say(f"pyinfra ended with exit code {code} after {time.monotonic() - started:.1f} s")
        return json.loads(path.read_text()) if code == 0 else None
