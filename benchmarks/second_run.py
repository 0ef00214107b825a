"""How long a run with nothing to do takes, and how many SSH channels it opens.

    .venv/bin/python benchmarks/second_run.py [RUNS]

Needs throwaway hosts that are deployed: make rehearsal.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from pathlib import Path

from pyinfra_gpu_rehearsal import Lab

RUNS = int(sys.argv[1]) if len(sys.argv) > 1 else 5


def main() -> None:
    """Run it RUNS times, and print what a person wants to know."""
    lab = Lab()
    hosts = lab.hosts()
    pyinfra = str(Path(sys.executable).parent / "pyinfra")
    command = [pyinfra, "-y", "inventories/rehearsal.py", "deploy.py"]
    seconds = []
    time.sleep(1.1)  # the journal counts in whole seconds
    since = time.time()
    for _ in range(RUNS):
        started = time.perf_counter()
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        seconds.append(time.perf_counter() - started)
        if f"{len(hosts)} as declared" not in done.stderr:
            sys.exit("the hosts are not deployed: make rehearsal\n" + done.stderr)
    print(f"{len(hosts)} hosts, {RUNS} runs with nothing to do")
    print(f"wall time: min {min(seconds):.2f} s, median {statistics.median(seconds):.2f} s")
    for host in hosts:
        print(f"{host.name}: {host.ssh_sessions(since) / RUNS:g} SSH channels a run")


if __name__ == "__main__":
    main()
