"""What a fresh deploy takes, by stage, and what of it is the controller's and the line's.

    .venv/bin/python benchmarks/fresh_deploy.py [--hosts 2] [--delay 20]
    .venv/bin/python benchmarks/fresh_deploy.py --down         take the hosts away

Makes bare throwaway hosts of its own below FOLDER, with two simulated GPUs each, and deploys them
once, the smoke test included. It prints the seconds of each stage on the host that took longest;
how long the whole run took, and how much of a processor the controller had for it; and the SSH
channels of each host. A command takes one of them, and costs its two round trips: with DELAY
milliseconds there and back, that is the line's share.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from compare import MACHINE, PROJECT, environment, ours, write_inventory

from pyinfra_gpu_rehearsal import Lab

ROUND_TRIPS = 2  # of a command: the channel is opened, and the command is asked for


def deployed(folder: Path, lab: Lab, hosts: int) -> tuple[dict[str, Any], float, float]:
    """Deploy them; return the run's report, its wall seconds, and the controller's processor."""
    inventory, report = folder / "fresh.py", folder / "report.json"
    write_inventory(inventory, lab, hosts)
    told = {**environment(lab), "PYINFRA_GPU_REPORT": str(report)}
    began = time.perf_counter()
    process = subprocess.Popen(ours(inventory), cwd=PROJECT, env=told)
    _, status, used = os.wait4(process.pid, 0)
    wall = time.perf_counter() - began
    if status != 0:
        sys.exit(1)
    return json.loads(report.read_text()), wall, used.ru_utime + used.ru_stime


def shown(report: dict[str, Any], wall: float, processor: float, channels: dict[str, int]) -> str:
    """Return what a person wants to know of it."""
    stages: dict[str, float] = {}
    for host in report["hosts"].values():
        for stage in host["stages"]:
            stages[stage["stage"]] = max(stages.get(stage["stage"], 0.0), stage["seconds"])
    lines = [f"{name:12}{seconds:7.1f} s" for name, seconds in stages.items() if seconds >= 0.1]
    opened = ", ".join(f"{name} {count}" for name, count in channels.items())
    lines += [f"the whole run {wall:.1f} s; of the controller's processor {processor:.1f} s"]
    return "\n".join([*lines, f"SSH channels: {opened}"])


def main() -> None:
    """Make the hosts anew, deploy them, and print what it took."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--hosts", type=int, default=2)
    parser.add_argument("--delay", type=int, default=0, help="milliseconds there and back")
    parser.add_argument("--folder", type=Path, default=PROJECT / ".rehearsal/fresh")
    parser.add_argument("--down", action="store_true", help="remove the hosts")
    given = parser.parse_args()
    given.folder.mkdir(parents=True, exist_ok=True)
    lab = Lab(given.folder / "lab", training=PROJECT / "examples/tiny-gpt")
    lab.down()
    if given.down:
        return
    hosts = lab.up(given.hosts, machine=MACHINE)[: given.hosts]
    if given.delay:
        for host in hosts:
            host.network("delay", given.delay // 2)
    before = {host.name: host.ssh_sessions() for host in hosts}
    report, wall, processor = deployed(given.folder, lab, given.hosts)
    channels = {host.name: host.ssh_sessions() - before[host.name] for host in hosts}
    print(f"\n{shown(report, wall, processor, channels)}")
    if given.delay:
        seconds = max(channels.values()) * ROUND_TRIPS * given.delay / 1000
        print(f"the line, at {given.delay} ms and {ROUND_TRIPS} round trips each: {seconds:.1f} s")


if __name__ == "__main__":
    main()
