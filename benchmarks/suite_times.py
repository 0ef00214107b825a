"""Where the time of the test suite goes: one row for each file of tests, the largest first.

    make test && python benchmarks/suite_times.py        or  make quick && ...

Reads what the last run left in .venv/lanes. The seconds are those of the tests and what they share;
two lanes run at the same time, so that they are more than the run took. Of lanes with hosts there
is also what they took of a processor, their hosts included (tests/processor.py): that is what they
compete for. Files under a second are one row.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

LANES = Path(__file__).resolve().parents[1] / ".venv" / "lanes"
SHORTEST = 1.0  # seconds; what is below stands in one row
PROPERTY = "processor"  # as in tests/processor.py


@dataclass
class Taken:
    """What some tests took.

    + processor: seconds of one, None where nobody has measured it
    """

    tests: int = 0
    seconds: float = 0.0
    processor: float | None = None

    def add(self, other: Taken) -> None:
        """Add that of others."""
        self.tests += other.tests
        self.seconds += other.seconds
        if other.processor is not None:
            self.processor = (self.processor or 0.0) + other.processor

    @property
    def largest(self) -> float:
        """The seconds to sort by."""
        return self.seconds if self.processor is None else self.processor

    def __str__(self) -> str:
        measured = "" if self.processor is None else f"{self.processor:.0f}"
        return f"{self.tests} | {self.seconds:.0f} | {measured}"


def file_of(classname: str) -> str:
    """Return a test's file; JUnit says "tests.unit.test_x" or "tests.unit.test_x.Class"."""
    parts = classname.split(".")
    last = next((n for n, part in enumerate(parts) if part.startswith("test_")), len(parts) - 1)
    return "/".join(parts[: last + 1]) + ".py"


def of(case: ElementTree.Element) -> Taken:
    """Return what one test took."""
    measured = case.find(f"properties/property[@name='{PROPERTY}']")
    processor = None if measured is None else float(measured.get("value", 0))
    return Taken(1, float(case.get("time", 0)), processor)


def times(junit: Path) -> dict[str, Taken]:
    """Return file -> what its tests took."""
    found: dict[str, Taken] = defaultdict(Taken)
    for case in ElementTree.parse(junit).iter("testcase"):
        found[file_of(case.get("classname", ""))].add(of(case))
    return found


def together(each: list[Taken]) -> Taken:
    """Return what these took in all."""
    total = Taken()
    for taken in each:
        total.add(taken)
    return total


def rows(found: dict[str, Taken]) -> list[tuple[str, Taken]]:
    """Return a lane's files, the largest first, and one row for those that are hardly anything."""
    files = sorted(found.items(), key=lambda each: (-each[1].largest, each[0]))
    shown = [each for each in files if max(each[1].seconds, each[1].largest) >= SHORTEST]
    rest = [taken for file, taken in files if (file, taken) not in shown]
    if rest:
        shown.append((f"{len(rest)} files below {SHORTEST:.0f} s", together(rest)))
    return shown


def main() -> int:
    """Print the table; return the exit code."""
    files = sorted(LANES.glob("*.xml"))
    if not files:
        print(f"no results in {LANES}; run: make test", file=sys.stderr)
        return 1
    print("| lane | file | tests | seconds | of a processor |\n|---|---|---:|---:|---:|")
    for junit in files:
        found = times(junit)
        for file, taken in rows(found):
            print(f"| {junit.stem} | {file} | {taken} |")
        print(f"| **{junit.stem}** | all | {together([*found.values()])} |")
    return 0


if __name__ == "__main__":
    sys.exit(main())
