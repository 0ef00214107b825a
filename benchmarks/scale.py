"""What a run with nothing to do costs the controller, by the number of hosts.

    .venv/bin/python benchmarks/scale.py [HOSTS...]

The hosts are those of tests/fake: pyinfra's own fake connector, and one recorded answer to the one
look, so that what is measured is the controller alone: pyinfra's command line, the deploy, and
judging each host. It prints wall and processor seconds and memory for each number of hosts, and
the line through them: what any run costs, and each host.
"""

from __future__ import annotations

import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[1]
HOSTS = (1, 10, 25, 100)
RUNS = 3
# Made before the run, as hosts' answers are: what is measured reads them.
MAKE = """
import pickle, sys
sys.path[:0] = [{tests!r}]
from fake_host import FakeHost, FakeRun
hosts = [FakeHost(name=f"gpu{{number}}") for number in range(1, {hosts} + 1)]
data = [(f"@fake/{{host.name}}", FakeRun._data(host)) for host in hosts]
pickle.dump(data, open({answers!r}, "wb"))
"""
INVENTORY = """
import pickle
gpu = pickle.load(open({answers!r}, "rb"))
"""


@dataclass(frozen=True, slots=True)
class Cost:
    """Of one run: seconds of wall and processor, and MiB at most."""

    hosts: int
    wall: float
    processor: float
    memory: float


def measured(hosts: int, folder: Path) -> Cost:
    """Run the deploy for that many hosts; end where it says anything else than "as declared"."""
    inventory = folder / f"fleet{hosts}.py"
    answers = str(folder / f"fleet{hosts}.answers")
    made = MAKE.format(tests=str(PROJECT / "tests" / "fake"), hosts=hosts, answers=answers)
    subprocess.run([sys.executable, "-c", made], cwd=PROJECT, check=True)
    inventory.write_text(INVENTORY.format(answers=answers))
    command = [Path(sys.executable).parent / "pyinfra", "-y", inventory, "deploy.py"]
    environment = {**os.environ, "PYINFRA_PROGRESS": "off"}
    began = time.perf_counter()
    process = subprocess.Popen(
        command, cwd=PROJECT, env=environment, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    output = process.stdout.read() if process.stdout else ""
    _, status, used = os.wait4(process.pid, 0)
    wall = time.perf_counter() - began
    if status != 0 or "as declared" not in output or "changed" in output:
        sys.exit(f"this was not a run with nothing to do:\n{output}")
    return Cost(hosts, wall, used.ru_utime + used.ru_stime, used.ru_maxrss / 1024)


def main(numbers: Sequence[int]) -> None:
    """Measure each number of hosts, and print the table and the line through it."""
    print(f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()};")
    print(f"the median of {RUNS} runs each, nothing to do, pyinfra's fake connector\n")
    print("hosts   wall s   processor s   memory MiB")
    costs = []
    with tempfile.TemporaryDirectory() as folder:
        measured(1, Path(folder))  # so that everything is compiled
        for number in numbers:
            runs = [measured(number, Path(folder)) for _ in range(RUNS)]
            cost = sorted(runs, key=lambda each: each.processor)[len(runs) // 2]
            costs.append(cost)
            print(f"{number:5}{cost.wall:9.2f}{cost.processor:14.2f}{cost.memory:13.0f}")
    if len(costs) < 2:
        return
    hosts = [cost.hosts for cost in costs]
    slope, base = statistics.linear_regression(hosts, [cost.processor for cost in costs])
    grown, _ = statistics.linear_regression(hosts, [cost.memory for cost in costs])
    print(
        f"\nany run {base:.2f} s of processor, each host {1000 * slope:.1f} ms and {grown:.2f} MiB"
    )


if __name__ == "__main__":
    main([int(each) for each in sys.argv[1:]] or HOSTS)
