"""Seconds that each drift of the table takes to see and to repair, on a throwaway host.

    .venv/bin/python benchmarks/drift_table.py

Runs the drift tests and prints a line for each class: `see` is one `pyinfra-gpu check` and one
`--dry` run, `repair` the deploy that repairs (or refuses) it.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

TEST = "tests/rehearsal/test_drift.py"
VARIABLE = "PYINFRA_GPU_DRIFT_TIMES"


def measured(times: Path) -> list[dict[str, object]]:
    """Run the drift tests, and return what they noted in the file TIMES."""
    command = [sys.executable, "-m", "pytest", "-q", TEST]
    environment = {**os.environ, VARIABLE: str(times), "PYINFRA_GPU_COLD": "1"}
    subprocess.run(command, env=environment, check=True)
    return [json.loads(line) for line in times.read_text().splitlines()]


def main() -> None:
    """Print a table of all classes, and its summary."""
    with tempfile.TemporaryDirectory() as folder:
        rows = measured(Path(folder) / "times.jsonl")
    print("| drift | see, s | repair, s |\n|---|---|---|")
    for row in rows:
        print(f"| {row['drift']} | {row['see']} | {row['repair']} |")
    for what in ("see", "repair"):
        seconds = [float(str(row[what])) for row in rows]
        median = statistics.median(seconds)
        print(f"{what}: median {median:.1f} s, slowest {max(seconds):.1f} s, {len(rows)} classes")


if __name__ == "__main__":
    main()
