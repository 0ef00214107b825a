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
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[1]
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


def measured(hosts: int, folder: Path) -> tuple[float, float, float]:
    """Return the processor and wall seconds of one run for that many hosts, and MiB at most."""
    inventory, answers = folder / f"fleet{hosts}.py", str(folder / f"fleet{hosts}.answers")
    made = MAKE.format(tests=str(PROJECT / "tests" / "fake"), hosts=hosts, answers=answers)
    subprocess.run([sys.executable, "-c", made], cwd=PROJECT, check=True)
    inventory.write_text(f"import pickle\ngpu = pickle.load(open({answers!r}, 'rb'))\n")
    began = time.perf_counter()
    process = subprocess.Popen(
        [Path(sys.executable).parent / "pyinfra", "-y", inventory, "deploy.py"],
        cwd=PROJECT, env={**os.environ, "PYINFRA_PROGRESS": "off"}, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    output = process.stdout.read() if process.stdout else ""
    _, status, used = os.wait4(process.pid, 0)
    if status != 0 or "as declared" not in output or "changed" in output:
        sys.exit(f"this was not a run with nothing to do:\n{output}")
    wall = time.perf_counter() - began
    return used.ru_utime + used.ru_stime, wall, used.ru_maxrss / 1024


def main(numbers: Sequence[int]) -> None:
    """Measure each number of hosts, and print the table and the line through it."""
    print(f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()};")
    print(f"the median of {RUNS} runs each, nothing to do, pyinfra's fake connector\n")
    print("hosts   wall s   processor s   memory MiB")
    costs = []
    with tempfile.TemporaryDirectory() as folder:
        measured(1, Path(folder))  # so that everything is compiled
        for number in numbers:
            cost = sorted(measured(number, Path(folder)) for _ in range(RUNS))[RUNS // 2]
            costs.append(cost)
            print(f"{number:5}{cost[1]:9.2f}{cost[0]:14.2f}{cost[2]:13.0f}")
    if len(costs) > 1:
        slope, base = statistics.linear_regression(numbers, [cost[0] for cost in costs])
        grown, _ = statistics.linear_regression(numbers, [cost[2] for cost in costs])
        each = f"each host {1000 * slope:.1f} ms and {grown:.2f} MiB"
        print(f"\nany run {base:.2f} s of processor, {each}")


if __name__ == "__main__":
    main([int(each) for each in sys.argv[1:]] or (1, 10, 25, 100))
