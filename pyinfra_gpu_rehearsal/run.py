"""`pyinfra-gpu rehearsal run`: bare throwaway hosts to a checked training step, twice, to watch."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import Any

from pyinfra_gpu.report.run import REPORT_VARIABLE
from pyinfra_gpu_rehearsal import Lab, gpus_available

HOSTS = 2
MACHINE = "2x RTX 5090"
"""What each of them simulates."""

_say = partial(print, flush=True)


def run(lab: Lab) -> int:
    """Rehearse the whole way; return 0 only if the second run changed nothing on any host.

    Raises LabError where no hosts can be made.
    """
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
    first = _deploy("First run: from bare machines to a checked training step")
    second = first and _deploy("Second run: the same command must change nothing")
    if not second:
        return 1
    still = ("as declared", "left alone")  # the latter: something that a deploy does not repair
    changed = [name for name, host in second["hosts"].items() if host["status"] not in still]
    if changed:
        _say(f"\nNOT CONVERGED: the second run still changed {', '.join(changed)}")
        return 1
    _say(
        f"\nThe second run changed nothing on {len(second['hosts'])} host(s).\n\n"
        f"Look around on a host:    ssh -F {lab.shown_ssh_config} gpu1\n"
        "Deploy again yourself:    .venv/bin/pyinfra inventories/rehearsal.py deploy.py\n"
        "Make a host bare again:   .venv/bin/pyinfra-gpu rehearsal fresh gpu1\n"
        "Remove everything:        make clean"
    )
    return 0


def _deploy(title: str) -> dict[str, Any] | None:
    """Run pyinfra's own command line; return the run's verdict, or None when it failed."""
    words = ["-y", "inventories/rehearsal.py", "deploy.py"]
    _say(f"\n{'=' * 80}\n{title}\n$ pyinfra {' '.join(words)}\n{'=' * 80}")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "report.json")
        program = str(Path(sys.executable).with_name("pyinfra"))
        started = time.monotonic()
        environment = {**os.environ, REPORT_VARIABLE: str(path)}
        code = subprocess.run([program, *words], env=environment, check=False).returncode
        _say(f"pyinfra ended with exit code {code} after {time.monotonic() - started:.1f} s")
        return json.loads(path.read_text()) if code == 0 else None
