"""Where the time of the test suite goes: one row for each file of tests, the slowest first.

    make test && python benchmarks/suite_times.py        or  make quick && ...

Reads what the last run left in .venv/lanes. The seconds are those of the tests and what they share;
two lanes run at the same time, so that they are more than the run took. Files under a second are
one row.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from pathlib import Path
from xml.etree import ElementTree

LANES = Path(__file__).resolve().parents[1] / ".venv" / "lanes"
SHORTEST = 1.0  # seconds; what is below stands in one row


def file_of(classname: str) -> str:
    """Return a test's file; JUnit says "tests.unit.test_x" or "tests.unit.test_x.Class"."""
    parts = classname.split(".")
    last = next((n for n, part in enumerate(parts) if part.startswith("test_")), len(parts) - 1)
    return "/".join(parts[: last + 1]) + ".py"


def times(junit: Path) -> dict[str, list[float]]:
    """Return file -> the seconds of each of its tests."""
    found: dict[str, list[float]] = defaultdict(list)
    for case in ElementTree.parse(junit).iter("testcase"):
        found[file_of(case.get("classname", ""))].append(float(case.get("time", 0)))
    return found


def rows(lane: str, found: dict[str, list[float]]) -> list[tuple[str, str, int, float]]:
    """Return a lane's rows (lane, file, tests, seconds), the slowest first."""
    summed = sorted(((sum(each), len(each), file) for file, each in found.items()), reverse=True)
    shown = [
        (lane, file, number, seconds) for seconds, number, file in summed if seconds >= SHORTEST
    ]
    rest = summed[len(shown) :]
    if rest:
        name = f"{len(rest)} files below {SHORTEST:.0f} s"
        shown.append((lane, name, sum(each[1] for each in rest), sum(each[0] for each in rest)))
    return shown


def main() -> int:
    """Print the table; return the exit code."""
    files = sorted(LANES.glob("*.xml"))
    if not files:
        print(f"no results in {LANES}; run: make test", file=sys.stderr)
        return 1
    print("| lane | file | tests | seconds |\n|---|---|---:|---:|")
    for junit in files:
        found = times(junit)
        for lane, file, number, seconds in rows(junit.stem, found):
            print(f"| {lane} | {file} | {number} | {seconds:.0f} |")
        every = [seconds for each in found.values() for seconds in each]
        print(f"| **{junit.stem}** | all | {len(every)} | {sum(every):.0f} |")
    return 0


if __name__ == "__main__":
    sys.exit(main())
