"""Every fault at every boundary of a fresh deploy and of a driver update; prints a table.

    .venv/bin/python benchmarks/fault_matrix.py                        all of it: hours
    .venv/bin/python benchmarks/fault_matrix.py --scenario update --only power,disk
    .venv/bin/python benchmarks/fault_matrix.py --from 10 --to 20 --moment within
    .venv/bin/python benchmarks/fault_matrix.py --part 1/2             for two beside one another
    .venv/bin/python benchmarks/fault_matrix.py --down                 take the host away

Makes a throwaway host of its own below FOLDER. Each case that was tried is a line of EVIDENCE with
the commit it was tried at: the next call goes on with what is left, and tries again what failed,
or what comes before another command by now. `--anew` tries all of them again. Exits with 1 where a
case failed, with 0 where none did.

A run's commands are numbered once, while nobody disturbs it (tests/rehearsal/boundaries.py). Two
things make it shorter. Where a command left nothing behind, neither a file nor a unit or module,
the boundary after it is the same as the one before, and neither that nor a moment within it is
tried. And after its reboot
a deploy need not begin from a bare machine each time: after each long command its host is kept,
as a power cut leaves it there, and the cases up to the next one begin with a run from there.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parents[1] / each) for each in ("", "tests/rehearsal")]

from boundaries import (  # noqa: E402 - found in that folder only
    FAULTS,
    Attempt,
    Case,
    NotReachedError,
    Numbered,
    Scenario,
    boots,
    cases_of,
    driver_update,
    fresh_deploy,
    stepped,
)
from gate import PLACE, Command, Gate  # noqa: E402
from running import CONVERGED, GPU_HOST, Deployer, usual_offer  # noqa: E402

from pyinfra_gpu_rehearsal import Lab, LabHost  # noqa: E402
from pyinfra_gpu_rehearsal.snapshots import names  # noqa: E402

PROJECT = Path(__file__).resolve().parents[1]
EVIDENCE = PROJECT / "tests/rehearsal/evidence/fault_matrix.jsonl"
BASE_S = 5.0  # a command this long is not done again for each case behind it
# What any login and any command leaves, and the gate itself.
PASSING = ("var/log/", "var/lib/systemd/", "tmp/", "run/", "etc/.pwd.lock", PLACE[1:])
UNITS = "systemctl list-units --plain --no-legend --state=active --type=service,mount,timer"
MEMORY = f"{UNITS}; ls /sys/module; cat /sys/module/*/version; cat /proc/sys/kernel/random/boot_id"


@dataclass(frozen=True)
class Boundary:
    """A command of the undisturbed run, and the host just before it.

    + same_as: the number of an earlier command, since which nothing was left behind
    + boots: how often the host had booted
    """

    command: Command
    same_as: int
    boots: int


def state_of(host: LabHost) -> str:
    """Return what a command can leave behind: every file's stat, the units and the modules."""
    lines = [host.run(MEMORY, check=False).stdout]
    for folder, folders, files in os.walk(host.upper):
        for name in (*folders, *files):
            path = Path(folder, name)
            relative = str(path.relative_to(host.upper))
            if relative.startswith(PASSING):
                continue
            stat = path.lstat()
            changed = 0 if path.is_dir() else stat.st_mtime_ns
            lines.append(f"{relative} {stat.st_mode} {stat.st_uid} {stat.st_size} {changed}")
    return "\n".join(sorted(lines))


class Recorded:
    """The boundaries of one scenario's run, kept in a file."""

    def __init__(self, scenario: Scenario, file: Path) -> None:
        self.scenario = scenario
        if not file.exists():
            rows = [asdict(each) for each in self._observed()]
            file.write_text(json.dumps(rows, indent=1))
        self.boundaries = [
            Boundary(**{**row, "command": Command(**row["command"])})
            for row in json.loads(file.read_text())
        ]
        counts = [each.boots for each in self.boundaries]
        commands = tuple(each.command for each in self.boundaries)
        self.run = Numbered(commands, counts[-1] - counts[0])

    def _observed(self) -> Iterator[Boundary]:
        host = self.scenario.prepared()
        gate = Gate(host)
        gate.install()
        process, commands = stepped(gate, self.scenario.deployer)
        held, last, same = 0.0, "", 1
        for command in commands:
            began = time.time()
            state = state_of(host)
            same = same if state == last else command.number
            yield Boundary(replace(command, at=command.at - held), same, boots(host))
            last = state
            held += time.time() - began
        output = process.communicate()[0]
        if process.returncode != 0:
            sys.exit(f"the run that nobody disturbed failed:\n{output}")
        gate.remove()

    def bases(self) -> list[int]:
        """Return before which commands a host is kept: long ones are behind it, the reboot too."""
        last = self.boundaries[-1].boots
        rebooted = [each.command.number for each in self.boundaries if each.boots == last]
        return [
            number
            for number in rebooted
            if number > rebooted[0] > 1 and self.run.seconds(number - 1) >= BASE_S
        ]


@dataclass(frozen=True)
class Tried:
    """How a case ended.

    + command: the end of the one that it is about
    + commit: of the project, with "+" where its files were others than that one's
    + problems: what was wrong; none: it passed
    """

    case: str
    command: str
    commit: str
    problems: list[str]
    seconds: float


def passed() -> set[tuple[str, str]]:
    """Return the cases that passed when they were last tried, each with its command."""
    if not EVIDENCE.exists():
        return set()
    rows = [Tried(**json.loads(line)) for line in EVIDENCE.read_text().splitlines()]
    last = {(row.case, row.command): row.problems for row in rows}
    return {case for case, problems in last.items() if not problems}


def commit() -> str:
    """Return the state of what is deployed, as `Tried` has it."""
    git = ["git", "-C", str(PROJECT)]
    name = subprocess.run([*git, "rev-parse", "--short=12", "HEAD"], capture_output=True, text=True)
    status = [*git, "status", "--porcelain", "--", "pyinfra_gpu", "deploy.py", "config.py"]
    changed = subprocess.run(status, capture_output=True, text=True).stdout
    return name.stdout.strip() + ("+" if changed else "")


class Matrix:
    """The cases of both scenarios, on one throwaway host."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.lab = Lab(folder / ".rehearsal", training=PROJECT / "examples/tiny-gpt")
        self.lab.up(1, machine="2x RTX 5090")
        runs = folder / "runs"
        runs.mkdir(exist_ok=True)
        self.deployer = Deployer(self.lab, runs, ("--data", "smoke=skip"))
        deploy = fresh_deploy(self.lab, self.deployer)
        update = driver_update(self.lab, runs, self._converged)
        self.scenarios = {"deploy": deploy, "update": update}

    def recorded(self, scenario: str) -> Recorded:
        """Return the boundaries of a scenario, observed now if they never were."""
        return Recorded(self.scenarios[scenario], self.folder / f"boundaries-{scenario}.json")

    def _converged(self) -> LabHost:
        usual_offer(self.lab)
        if CONVERGED not in names(self.lab.host(GPU_HOST)):
            self.lab.fresh(GPU_HOST)
            self.deployer.converge(limit=GPU_HOST)
            self.lab.snapshot(GPU_HOST, CONVERGED)
        return self.lab.restore(GPU_HOST, CONVERGED)

    def problems(self, case: Case, recorded: Recorded) -> tuple[list[str], str]:
        """Try a case; return what was wrong, and what the runs printed."""
        numbers = [number for number in recorded.bases() if number <= case.number]
        base = self._base(recorded, numbers) if numbers else None
        attempt = Attempt(recorded.scenario, recorded.run, case, base)
        try:
            return attempt.problems(), attempt.output
        except NotReachedError:  # from there it sends another one: from the start it comes
            attempt = Attempt(recorded.scenario, recorded.run, case)
        try:
            return attempt.problems(), attempt.output
        except NotReachedError as error:
            return [str(error)], attempt.output

    def _base(self, recorded: Recorded, numbers: list[int]) -> Callable[[], LabHost] | None:
        """Return what puts the host where the run stood before the last of these commands."""
        *before, number = numbers
        name = f"before-{number}"
        if name not in names(self.lab.host(GPU_HOST)):
            earlier = self._base(recorded, before) if before else None
            case = Case(recorded.scenario.name, number, "before", "power")
            try:
                Attempt(recorded.scenario, recorded.run, case, earlier).kept(self.lab, name)
            except NotReachedError:
                Attempt(recorded.scenario, recorded.run, case).kept(self.lab, name)
        usual_offer(self.lab)
        return lambda: self.lab.restore(GPU_HOST, name)

    def keep(self, tried: Tried, output: str) -> None:
        """Note how a case ended, and the output of its runs where it failed."""
        with EVIDENCE.open("a") as file:
            file.write(json.dumps(asdict(tried)) + "\n")
        if tried.problems:
            name = tried.case.replace(":", "-")
            (self.folder / f"{name}.log").write_text(output)


def wanted(case: Case, recorded: Recorded, options: argparse.Namespace) -> bool:
    """Tell whether a case is one that was asked for, and not the same as an earlier one."""
    same = [each.same_as for each in recorded.boundaries]
    new = same[case.number - 1] == case.number
    if case.moment == "within":  # the last leaves nothing: the run has ended well
        new = same[case.number - 1] != same[min(case.number, len(same) - 1)]
    asked = case.fault in options.only.split(",") and options.moment in ("both", case.moment)
    return asked and new and options.first <= case.number <= options.last


def arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--scenario", choices=("deploy", "update", "both"), default="both")
    parser.add_argument("--only", default=",".join(FAULTS), help=f"of {','.join(FAULTS)}")
    parser.add_argument("--moment", choices=("before", "within", "both"), default="both")
    parser.add_argument("--from", dest="first", type=int, default=1, help="the first command")
    parser.add_argument("--to", dest="last", type=int, default=9999, help="the last command")
    parser.add_argument("--folder", type=Path, default=PROJECT / ".venv" / "fault-matrix")
    parser.add_argument("--part", default="1/1", help="K/N: the Kth of N shares of what is left")
    parser.add_argument("--anew", action="store_true", help="try what passed before, too")
    parser.add_argument("--down", action="store_true", help="take the host away, and end")
    options = parser.parse_args()
    if unknown := set(options.only.split(",")) - set(FAULTS):
        parser.error(f"--only {','.join(sorted(unknown))}: there are {', '.join(FAULTS)}")
    return options


def tried(matrix: Matrix, scenario: str, options: argparse.Namespace) -> int:
    """Try the cases of a scenario that are left; print a line for each; return how many failed."""
    recorded, state, failed = matrix.recorded(scenario), commit(), 0
    commands = [each.words[-42:] for each in recorded.run.commands]
    before = set() if options.anew else passed()
    cases = [each for each in cases_of(scenario, recorded.run) if wanted(each, recorded, options)]
    left = [each for each in cases if (str(each), commands[each.number - 1]) not in before]
    print(f"{scenario}: {len(recorded.run.commands)} commands, {len(cases)} cases,", end=" ")
    print(f"{len(cases) - len(left)} of them passed before")
    print(f"{'no':>4} {'moment':6} {'fault':10} {'result':6} {'s':>5}  command")
    number, of = map(int, options.part.split("/"))
    for case in left[number - 1 :: of]:
        began = time.monotonic()
        problems, output = matrix.problems(case, recorded)
        seconds = time.monotonic() - began
        words = commands[case.number - 1]
        matrix.keep(Tried(str(case), words, state, problems, round(seconds, 1)), output)
        result = "FAILED" if problems else "pass"
        row = f"{case.number:>4} {case.moment:6} {case.fault:10} {result:6} {seconds:>5.0f}"
        print(f"{row}  {words}", flush=True)
        for problem in problems:
            print(f"     {problem}", flush=True)
        failed += bool(problems)
    return failed


def main() -> None:
    """Try what was asked for."""
    options = arguments()
    options.folder.mkdir(parents=True, exist_ok=True)
    EVIDENCE.parent.mkdir(exist_ok=True)
    if options.down:
        Lab(options.folder / ".rehearsal").down()
        return
    if options.anew:
        for file in (*options.folder.glob("*.json"), *options.folder.glob("*.log")):
            file.unlink()
        Lab(options.folder / ".rehearsal").down()
    matrix = Matrix(options.folder)
    scenarios = matrix.scenarios if options.scenario == "both" else (options.scenario,)
    failed = sum(tried(matrix, scenario, options) for scenario in scenarios)
    print(f"{failed} failed; the host is kept for the next call, --down takes it away")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit("interrupted: the next call goes on with what is left")
