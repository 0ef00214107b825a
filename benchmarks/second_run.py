"""How long a run with nothing to do takes, and a check, and how many SSH channels each opens.

    .venv/bin/python benchmarks/second_run.py [RUNS]

Needs throwaway hosts that are deployed: make rehearsal.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from pathlib import Path

from pyinfra_gpu_rehearsal import Lab, LabHost

RUNS = int(sys.argv[1]) if len(sys.argv) > 1 else 5


def timed(command: list[str]) -> tuple[float, str]:
    """Run COMMAND; return how many seconds it took, and what it printed."""
    started = time.perf_counter()
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return time.perf_counter() - started, done.stdout + done.stderr


def measure(what: str, command: list[str], hosts: list[LabHost], as_declared: str) -> None:
    """Run COMMAND RUNS times, and print what a person wants to know."""
    before = [host.ssh_sessions() for host in hosts]
    seconds = []
    for _ in range(RUNS):
        wall, text = timed(command)
        seconds.append(wall)
        if as_declared not in text:
            sys.exit(f"the hosts are not deployed: make rehearsal\n{text}")
    channels = [
        f"{host.name} {(host.ssh_sessions() - count) / RUNS:g}"
        for host, count in zip(hosts, before, strict=True)
    ]
    wall_text = f"min {min(seconds):.2f} s, median {statistics.median(seconds):.2f} s"
    print(f"{what}: {wall_text}; SSH channels each: {', '.join(channels)}")


def main() -> None:
    """Measure both on the throwaway hosts that are up."""
    hosts = Lab().hosts()
    folder, inventory = Path(sys.executable).parent, "inventories/rehearsal.py"
    print(f"{len(hosts)} hosts, {RUNS} runs each")
    run = [str(folder / "pyinfra"), "-y", inventory, "deploy.py"]
    measure("a run with nothing to do", run, hosts, f"{len(hosts)} as declared")
    check = [str(folder / "pyinfra-gpu"), "check", inventory]
    measure("a check", check, hosts, "exit code 0")


if __name__ == "__main__":
    main()
