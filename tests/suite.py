"""Run the tests in lanes: processes beside one another, each with a log of its own.

    python -m tests.suite quick     tests/unit and tests/fake, programs for hosts in one shell
    python -m tests.suite all       those, tests/on_host, tests/rehearsal and tests/gpu

A lane's log is shown when the lane ends, so that two never mix; meanwhile one line now and then
says how far each is. Logs and JUnit files stay in .venv/lanes, where benchmarks/suite_times.py
reads them. The exit code is 0 only if every lane passed and no test outside tests/gpu was skipped.

Why processes: importing pyinfra's command line, as tests/unit and tests/fake do, has gevent replace
the parts of Python that start and watch processes, which is what the other folders test.
"""

from __future__ import annotations

import argparse
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from xml.etree import ElementTree

from pyinfra_gpu_rehearsal.errors import LabError
from tests import memory, needs

ROOT = Path(__file__).resolve().parents[1]
LOGS = ROOT / ".venv" / "lanes"
MAY_SKIP = "tests.gpu."
"""Where a skipped test is no fault, as the start of its name in a JUnit file."""

_POLL = 0.2
_NEWS = 30.0  # seconds between two lines that say how far the lanes are
_ENDING = ((signal.SIGINT, 60.0), (signal.SIGTERM, 5.0), (signal.SIGKILL, 5.0))
"""How a lane is ended, and the seconds it then has: first those for taking its hosts down."""
_SELECTED = re.compile(r"^collected (\d+) items?(?: .* (\d+) selected)?$", re.M)
_RESULTS = re.compile(r"^(?:tests/\S+\.py )?([.FEsxX]+)(?: +\[ *\d+%\])?$", re.M)
INTERRUPTED = 130
HOSTS = "tests/rehearsal"
PROCESSOR = ("-p", "tests.processor")
"""For lanes whose tests start programs: unit's and fake's are 10,000 and take a share of one."""
QUICK_LANES = 3
"""Where they are alone: a fifth of what two do is to wait for a time to pass, on two cores. Beside
lanes with hosts there is always one that does not wait, and finding all tests once more is lost."""
AT_ONCE = 4
"""Lanes beside one another: with three on two cores, a tenth of both had nothing to do."""
HOSTS_GIB = 16
"""What must be free of memory for hosts to be kept there: a lab takes 2 GiB once its hosts are
deployed, and half as much again for each host that is deployed anew."""
ROOM_GIB = 64
"""How large the hosts' disk says that it is: as one with room for a driver, a toolkit and torch.
By what is left of a smaller one they would judge what the other lanes have used of it."""
SEEDS = ("PYINFRA_GPU_FAULT_SEED", "PYINFRA_GPU_FUZZ_SEED")
"""The variables that say which of all cases are tried, where tests try a share of them."""


@dataclass(frozen=True)
class Lane:
    """What one process of pytest runs.

    + queue: the name of the queue that it shares with others, each taking what comes next; empty:
      it runs all that its arguments say
    """

    name: str
    arguments: tuple[str, ...]
    queue: str = ""


@dataclass
class Counts:
    """How the tests of a lane ended; errors count as failed."""

    passed: int = 0
    failed: int = 0
    skipped: int = 0
    reasons: Counter[str] = field(default_factory=Counter)
    """Why tests were skipped that must not be, with their number."""

    def add(self, other: Counts) -> None:
        """Add another lane's."""
        self.passed += other.passed
        self.failed += other.failed
        self.skipped += other.skipped
        self.reasons += other.reasons

    def __str__(self) -> str:
        return f"{self.passed} passed, {self.failed} failed, {self.skipped} skipped"


@dataclass
class Running:
    """A lane that was started."""

    lane: Lane
    process: subprocess.Popen[bytes]
    began: float
    seconds: float = 0.0
    counts: Counts = field(default_factory=Counts)

    @property
    def log(self) -> Path:
        """What the lane printed."""
        return log_of(self.lane)

    @property
    def passed(self) -> bool:
        """Whether it ended well, with at least one test, and skipped none that must run."""
        counts = self.counts
        ran = counts.passed + counts.failed + counts.skipped > 0
        return self.process.returncode == 0 and ran and not counts.reasons

    def progress(self) -> str:
        """How far it is, by what pytest has printed."""
        return f"{self.lane.name} {progress(self.log.read_text(errors='replace'))}"

    def finish(self) -> None:
        """Note the result, and end whatever is left of its process group."""
        self.seconds = time.monotonic() - self.began
        _signal(self.process.pid, signal.SIGKILL)
        self.counts = count(junit_of(self.lane))
        print(f"\n=== {self.lane.name}: {' '.join(self.lane.arguments)}", flush=True)
        sys.stdout.buffer.write(self.log.read_bytes())
        sys.stdout.buffer.flush()
        how = "passed" if self.passed else f"FAILED (exit code {self.process.returncode})"
        print(f"=== {self.lane.name} {how} after {clock(self.seconds)}: {self.counts}", flush=True)


def lanes(which: str, rehearsal: int, *, measure: bool = False) -> list[Lane]:
    """Return the lanes of a run, the longest first.

    + which: "quick" or "all"
    + rehearsal: how many share the tests on hosts; each makes a lab of its own
    + measure: whether these write down what they take, by which they are shared out
    """
    of = QUICK_LANES if which == "quick" else 2
    paths = ("tests/unit", "tests/fake", *(["--one-shell"] if which == "quick" else []))
    quick = [shared("unit", n + 1, of, *paths) for n in range(of)]
    if which == "quick":
        return quick
    words = (HOSTS, *PROCESSOR, *(["--measure-lanes"] if measure else []))
    dealt = (shared("rehearsal", n + 1, rehearsal, *words) for n in range(rehearsal))
    hosts = [replace(lane, queue="rehearsal" if rehearsal > 1 else "") for lane in dealt]
    on_host = Lane("on_host", ("tests/on_host", *PROCESSOR))
    return [*hosts, on_host, *quick, Lane("gpu", ("tests/gpu",))]


def shared(name: str, number: int, of: int, *paths: str) -> Lane:
    """Return one of `of` lanes that share the tests below `paths`."""
    if of == 1:
        return Lane(name, paths)
    return Lane(f"{name}-{number}", (*paths, "--lane", f"{number}/{of}"))


def log_of(lane: Lane) -> Path:
    """Return the file for what a lane prints."""
    return LOGS / f"{lane.name}.log"


def junit_of(lane: Lane) -> Path:
    """Return the file for a lane's results."""
    return LOGS / f"{lane.name}.xml"


def count(junit: Path) -> Counts:
    """Return how the tests in a JUnit file ended; all zero where a lane came to write none."""
    counts = Counts()
    if not junit.exists():
        return counts
    for case in ElementTree.parse(junit).iter("testcase"):
        skipped = case.find("skipped")
        if case.find("failure") is not None or case.find("error") is not None:
            counts.failed += 1
        elif skipped is None:
            counts.passed += 1
        else:
            counts.skipped += 1
            if not case.get("classname", "").startswith(MAY_SKIP):
                counts.reasons[f"{case.get('classname')}: {skipped.get('message')}"] += 1
    return counts


def progress(log: str) -> str:
    """Return how many tests have ended by what pytest printed so far, and how many failed.

    That is of all it has found, which for lanes with a queue is what they have together.
    """
    selected = _SELECTED.search(log)
    if selected is None:
        return "begins"
    results = "".join(_RESULTS.findall(log))
    failed = results.count("F") + results.count("E")
    so_far = f"{len(results)} of {selected[2] or selected[1]}"
    return f"{so_far}, {failed} failed" if failed else so_far


def clock(seconds: float) -> str:
    """Return a duration as a person says it."""
    return f"{int(seconds) // 60} min {int(seconds) % 60:02d} s"


def run(wanted: Sequence[Lane], at_once: int) -> list[Running]:
    """Run all lanes, at most `at_once` beside one another; return them, ended.

    Whatever ends this early, Ctrl-C included, ends every lane and what it started.
    """
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    # What a shell starts in the background ignores SIGINT, and so would every lane and test.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    LOGS.mkdir(parents=True, exist_ok=True)
    for old in LOGS.iterdir():
        old.unlink()
    waiting, ended = list(wanted), []
    with _scratch() as scratch, _hosts_place(waiting) as hosts, _ending_all() as running:
        news = time.monotonic() + _NEWS
        while waiting or running:
            while waiting and len(running) < at_once:
                lane = waiting.pop(0)
                running.append(_start(lane, hosts if HOSTS in lane.arguments else scratch))
            for each in [each for each in running if each.process.poll() is not None]:
                running.remove(each)
                each.finish()
                ended.append(each)
            if time.monotonic() > news:
                print("... " + "; ".join(each.progress() for each in running), flush=True)
                news = time.monotonic() + _NEWS
            time.sleep(_POLL)
    return ended


@contextmanager
def _hosts_place(wanted: Sequence[Lane]) -> Iterator[Path]:
    """Yield a folder for the files of hosts, in memory where one of the lanes has hosts."""
    needed = any(HOSTS in lane.arguments for lane in wanted)
    with _scratch() as place, in_memory(place) if needed else nullcontext():
        yield place


@contextmanager
def in_memory(place: Path) -> Iterator[None]:
    """Have memory in the place of a folder, if there is room in it for the hosts of all lanes.

    Nothing is done where hosts are not this machine's root's: theirs need attributes that memory
    has not everywhere. The mount is for all to see: to the list of this machine's labs, a lab whose
    folder is not there is one to clean up.
    """
    enough = os.geteuid() == 0 and memory.available_gib() >= HOSTS_GIB
    done = enough and memory.mount(place, 0o700, ROOM_GIB)
    try:
        yield
    finally:
        if done:
            memory.unmount(place)


@contextmanager
def _scratch() -> Iterator[Path]:
    """Yield a folder for the lanes' temporary files, gone afterwards.

    Left to itself, pytest keeps those of three runs in one place for all lanes and takes older ones
    away as it exits; where that fails, a lane whose tests have all passed ends with an error.
    """
    folder = tempfile.mkdtemp(prefix="gpu-tests-")
    try:
        yield Path(folder)
    finally:
        # Not shutil.rmtree, which holds a descriptor for each level of a deep tree.
        subprocess.run(["rm", "-rf", folder], check=False)


def _seeds() -> dict[str, str]:
    """Return the same seeds for every run on one commit, other ones for the next commit.

    So what fails on one machine is seen on another, and yet in time every case has its turn. None
    where the tree is no clone: tests then draw their own.
    """
    words = ["git", "-C", str(ROOT), "rev-parse", "HEAD"]
    head = subprocess.run(words, capture_output=True, text=True, check=False).stdout.strip()
    return {name: str(int(head[:5], 16)) for name in SEEDS} if head else {}


def _environment() -> dict[str, str]:
    """Return what a lane runs in: this environment, but that Python keeps what it compiles.

    Without that each lane compiles all tests anew, which is half of the time it takes to find them,
    and each program that a test starts compiles ours: 0.3 of 1.1 s of `pyinfra-gpu`.
    """
    kept = {**_seeds(), **os.environ, "PYTHONUNBUFFERED": "1"}
    kept.pop("PYTHONDONTWRITEBYTECODE", None)
    return kept


def _start(lane: Lane, scratch: Path) -> Running:
    command = [sys.executable, "-m", "pytest", *lane.arguments]
    command += [f"--basetemp={scratch / lane.name}"]
    command += [f"--queue={scratch / lane.queue}.queue"] if lane.queue else []
    with log_of(lane).open("wb") as log:
        process = subprocess.Popen(
            [*command, "--color=no", f"--junitxml={junit_of(lane)}"],
            cwd=ROOT,
            env=_environment(),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    return Running(lane, process, time.monotonic())


@contextmanager
def _ending_all() -> Iterator[list[Running]]:
    """Yield a list; lanes that are in it at the end are interrupted, and killed if they stay."""
    running: list[Running] = []
    try:
        yield running
    finally:
        for number, seconds in _ENDING:
            for each in running:
                _signal(each.process.pid, number)
            _wait(running, seconds)


def _wait(running: Sequence[Running], seconds: float) -> None:
    limit = time.monotonic() + seconds
    while time.monotonic() < limit and any(each.process.poll() is None for each in running):
        try:
            time.sleep(_POLL)
        except KeyboardInterrupt:  # a second Ctrl-C: no more patience
            return


def _signal(group: int, number: signal.Signals) -> None:
    try:
        os.killpg(group, number)
    except ProcessLookupError:
        return


def report(ended: Sequence[Running], seconds: float) -> bool:
    """Print the table of the lanes and, last, what all tests together came to.

    Returns whether the whole run passed.
    """
    total = Counts()
    print(f"\n{'lane':<14}{'passed':>8}{'failed':>8}{'skipped':>9}  time")
    for each in sorted(ended, key=lambda each: each.lane.name):
        total.add(each.counts)
        counts, how = each.counts, "" if each.passed else "  FAILED"
        row = f"{counts.passed:>8}{counts.failed:>8}{counts.skipped:>9}  {clock(each.seconds)}"
        print(f"{each.lane.name:<14}{row}{how}")
    for reason, number in total.reasons.items():
        print(f"skipped, though only tests/gpu may be: {number} of {reason}")
    print(f"{total} in {clock(seconds)}", flush=True)
    return all(each.passed for each in ended)


def main() -> int:
    """Run what the command line asks for; return the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("which", choices=("quick", "all"))
    parser.add_argument("--rehearsal-lanes", type=int, default=2, metavar="M")
    parser.add_argument(
        "--at-once", type=int, default=AT_ONCE, metavar="N", help="lanes side by side"
    )
    parser.add_argument("--measure-lanes", action="store_true", help="write lanes.json anew")
    asked = parser.parse_args()
    began = time.monotonic()
    try:
        needs.ensure(print, everything=asked.which == "all")
        wanted = lanes(asked.which, asked.rehearsal_lanes, measure=asked.measure_lanes)
        ended = run(wanted, asked.at_once)
    except LabError as error:
        print(error, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\ninterrupted; every lane was ended", file=sys.stderr)
        return INTERRUPTED
    return 0 if report(ended, time.monotonic() - began) else 1


if __name__ == "__main__":
    sys.exit(main())
