"""Every fault at every boundary of a fresh deploy and of a driver update; prints a table.

    .venv/bin/python benchmarks/fault_matrix.py                        all of it: an hour or two
    .venv/bin/python benchmarks/fault_matrix.py --scenario update --only power,disk
    .venv/bin/python benchmarks/fault_matrix.py --from 10 --to 20 --moment within
    .venv/bin/python benchmarks/fault_matrix.py --part 1/2             for two beside one another
    .venv/bin/python benchmarks/fault_matrix.py --whole                each next run to its end
    .venv/bin/python benchmarks/fault_matrix.py --table                what EVIDENCE has, no host
    .venv/bin/python benchmarks/fault_matrix.py --down                 take the host away

Makes a throwaway host of its own below FOLDER. Each case that was tried is a line of EVIDENCE with
the commit it was tried at: the next call goes on with what is left, and tries again what failed,
or what comes before another command by now. `--anew` tries all of them again. Exits with 1 where a
case failed, with 0 where none did.

A run's commands are numbered once, while nobody disturbs it (tests/rehearsal/boundaries.py). Three
things make it shorter, and none changes what is shown:

- Where a command left nothing behind, neither a file nor a unit or module, the boundary after it is
  the same as the one before, and neither that nor a moment within it is tried.
- Behind each long command is a milestone: all that the host then held, as two undisturbed runs had
  it (tests/rehearsal/host_state.py). There the host is kept, and the cases up to the next milestone
  begin with a run from there; where a host that boots from what is kept holds anything else, they
  begin further back.
- A next run that has come past its boundary to a milestone, with all of the host as it was in the
  undisturbed run, is ended. What it would do from there was seen: by the undisturbed run, and by
  one that began at that milestone, up to the next. Behind the last one, and wherever anything is
  different, it goes to its end, and the run after it must change nothing. Where all of that was
  well, what the host held in those places is a milestone, too, for the cases that come later.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import subprocess
import sys
import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import median

sys.path[:0] = [str(Path(__file__).parents[1] / each) for each in ("", "tests/rehearsal")]

from attempt import Attempt, Base, Milestone, NotReachedError  # noqa: E402 - in that folder
from boundaries import FAULTS, Case, cases_of, driver_update, fresh_deploy  # noqa: E402
from milestones import Recorded  # noqa: E402
from running import CONVERGED, GPU_HOST, Deployer, usual_offer  # noqa: E402

from pyinfra_gpu_rehearsal import Lab, LabHost  # noqa: E402
from pyinfra_gpu_rehearsal.snapshots import names  # noqa: E402

PROJECT = Path(__file__).resolve().parents[1]
EVIDENCE = PROJECT / "tests/rehearsal/evidence/fault_matrix.jsonl"
POLICY = ("deploy.py", "config.py", "tasks", "group_data", "inventories/rehearsal.py")


@dataclass(frozen=True)
class Tried:
    """How a case ended.

    + command: the end of the one that it is about
    + commit: the last that changed what is deployed, with "+" where its files were others
    + problems: what was wrong; none: it passed
    + milestone: the number of the command before which the next run had come to a milestone; 0: it
      went to its end, and one more after it
    + seen: the case whose next run had come by the same state and was seen to its end; empty where
      that was the undisturbed run
    """

    case: str
    command: str
    commit: str
    problems: list[str]
    seconds: float
    milestone: int = 0
    seen: str = ""


def last_tries() -> dict[tuple[str, str], Tried]:
    """Return how each case ended when it was last tried, by its name and its command."""
    lines = EVIDENCE.read_text().splitlines() if EVIDENCE.exists() else []
    rows = [Tried(**json.loads(line)) for line in lines]
    return {(row.case, row.command): row for row in rows}


def passed() -> set[tuple[str, str]]:
    """Return the cases that passed when they were last tried, each with its command."""
    return {case for case, row in last_tries().items() if not row.problems}


def print_table() -> None:
    """Print how each case ended when it was last tried, a line for each boundary, and the counts.

    A number is that of the milestone which the next run had come to.
    """
    places: dict[tuple[str, int, str, str], dict[str, Tried]] = {}
    for row in last_tries().values():
        case = Case.read(row.case)
        place = (case.scenario, case.number, case.moment, row.command)
        places.setdefault(place, {})[case.fault] = row
    print(f"{'':>18}", *(f"{fault:>10}" for fault in FAULTS), " command")
    for place in sorted(places):
        scenario, number, moment, words = place
        ended = [_ended(places[place].get(fault)) for fault in FAULTS]
        print(f"{scenario:6} {number:>4} {moment:6}", *(f"{each:>10}" for each in ended), end="")
        print(f"  {words}")
    for scenario in sorted({place[0] for place in places}):
        rows = [row for at, tries in places.items() if at[0] == scenario for row in tries.values()]
        good = sum(not row.problems for row in rows)
        shorter = sum(row.milestone > 0 for row in rows)
        print(
            f"{scenario}: {len(rows)} cases, {good} passed, {shorter} of them to a milestone;",
            end="",
        )
        print(f" {median(row.seconds for row in rows):.0f} s a case, half of them longer")


def _ended(row: Tried | None) -> str:
    """Return how a case ended, in a word."""
    if row is None:
        return "-"
    return "FAILED" if row.problems else f"pass {row.milestone or 'end'}"


def commit() -> str:
    """Return the last commit that changed what is deployed, as `Tried` has it."""
    git, deployed = ["git", "-C", str(PROJECT)], ["--", "pyinfra_gpu", *POLICY]
    last = [*git, "log", "-1", "--format=%h", "--abbrev=12", *deployed]
    name = subprocess.run(last, capture_output=True, text=True)
    status = [*git, "status", "--porcelain", *deployed]
    changed = subprocess.run(status, capture_output=True, text=True).stdout
    return name.stdout.strip() + ("+" if changed else "")


class Matrix:
    """The cases of both scenarios, on one throwaway host."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.lab = Lab(folder / ".rehearsal", training=PROJECT / "examples/tiny-gpt")
        self.lab.up(1, machine="2x RTX 5090")
        self.lab.host(GPU_HOST).network("restore")  # a case that was interrupted left it cut
        runs = folder / "runs"
        runs.mkdir(exist_ok=True)
        self.deployer = Deployer(self.lab, runs, ("--data", "smoke=skip"))
        deploy = fresh_deploy(self.lab, self.deployer)
        update = driver_update(self.lab, runs, self._converged)
        self.scenarios = {"deploy": deploy, "update": update}

    def recorded(self, scenario: str) -> Recorded:
        """Return the boundaries of a scenario, observed now if they never were."""
        return Recorded(self.scenarios[scenario], self.lab.host(GPU_HOST), self.folder)

    def _converged(self) -> LabHost:
        usual_offer(self.lab)
        if CONVERGED not in names(self.lab.host(GPU_HOST)):
            self.lab.fresh(GPU_HOST)
            self.deployer.converge(limit=GPU_HOST)
            self.lab.snapshot(GPU_HOST, CONVERGED)
        return self.lab.restore(GPU_HOST, CONVERGED)

    def tried(self, case: Case, recorded: Recorded, *, whole: bool) -> tuple[Attempt, list[str]]:
        """Try a case; return how it went, and what was wrong.

        + whole: the next run goes to its end
        """
        milestones = () if whole else recorded.milestones
        attempt = Attempt(recorded.scenario, recorded.run, case, None, milestones)
        base = self._base(recorded, case.number)
        if base is not None:
            try:
                began = replace(attempt, base=base)
                return began, began.problems()
            except NotReachedError:  # from there it sends another one: from the start it comes
                pass
        try:
            return attempt, attempt.problems()
        except NotReachedError as error:
            return attempt, [str(error)]

    def _base(self, recorded: Recorded, number: int) -> Base | None:
        """Return the last base up to a command; each is made with the help of the one before."""
        base = None
        for each in recorded.milestones:
            own, name = each.command.number, f"{recorded.scenario.name}-{each.command.number}"
            if own > number or each.case:
                break
            if each.busy or self._differs(recorded, each, name, base):
                continue

            def restored(name: str = name) -> LabHost:
                recorded.scenario.offered()
                return self.lab.restore(GPU_HOST, name)

            base = Base(own, restored)
        return base

    def _differs(
        self, recorded: Recorded, milestone: Milestone, name: str, base: Base | None
    ) -> list[str]:
        """Return in what the snapshot of that name differs from the milestone; made if it is not.

        + base: where the run to it begins
        """
        noted = self.folder / f"base-{name}.json"
        if noted.exists():
            return list(json.loads(noted.read_text()))
        if name in names(self.lab.host(GPU_HOST)):  # interrupted then, so nothing stands on it
            shutil.rmtree(self.lab.fresh(GPU_HOST).folder / "snapshots" / name)
        case = Case(recorded.scenario.name, milestone.command.number, "before", "power")
        attempt = Attempt(recorded.scenario, recorded.run, case, base)
        try:
            found = attempt.kept(self.lab, name, milestone)
        except NotReachedError:
            found = replace(attempt, base=None).kept(self.lab, name, milestone)
        noted.write_text(json.dumps(found))
        print(f"host kept before {case.number}:", ", ".join(found[:5]) or "the same", flush=True)
        return found

    def keep(self, tried: Tried, output: str) -> None:
        """Note how a case ended, and the output of its runs."""
        with EVIDENCE.open("a") as file:
            file.write(json.dumps(asdict(tried)) + "\n")
        name = tried.case.replace(":", "-")
        (self.folder / f"{name}.log").write_text(output)


def shown(words: str) -> str:
    """Return the end of a command, as it is on any lab: each has its addresses."""
    return re.sub(r"\b10\.77\.\d+\.", "10.77.N.", words[-42:])


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
    parser.add_argument("--whole", action="store_true", help="end no next run at a milestone")
    parser.add_argument("--anew", action="store_true", help="try what passed before, too")
    parser.add_argument("--table", action="store_true", help="print what was tried, and end")
    parser.add_argument("--down", action="store_true", help="take the host away, and end")
    options = parser.parse_args()
    if unknown := set(options.only.split(",")) - set(FAULTS):
        parser.error(f"--only {','.join(sorted(unknown))}: there are {', '.join(FAULTS)}")
    return options


def tried(matrix: Matrix, scenario: str, options: argparse.Namespace) -> int:
    """Try the cases of a scenario that are left; print a line for each; return how many failed."""
    recorded, state, failed = matrix.recorded(scenario), commit(), 0
    commands = [shown(each.words) for each in recorded.run.commands]
    before = set() if options.anew else passed()
    cases = [each for each in cases_of(scenario, recorded.run) if wanted(each, recorded, options)]
    left = [each for each in cases if (str(each), commands[each.number - 1]) not in before]
    print(f"{scenario}: {len(recorded.run.commands)} commands, {len(cases)} cases,", end=" ")
    print(f"{len(cases) - len(left)} of them passed before")
    print(f"{'no':>4} {'moment':6} {'fault':10} {'result':6} {'s':>5} {'until':>5}  command")
    share, of = map(int, options.part.split("/"))
    for case in left[share - 1 :: of]:
        began = time.monotonic()
        attempt, problems = matrix.tried(case, recorded, whole=options.whole)
        seconds = round(time.monotonic() - began, 1)
        words = commands[case.number - 1]
        at = attempt.reached
        number, seen = (at.command.number, at.case) if at else (0, "")
        ended = Tried(str(case), words, state, problems, seconds, number, seen)
        matrix.keep(ended, attempt.output)
        recorded.learn(attempt.seen)
        result = "FAILED" if problems else "pass"
        row = f"{case.number:>4} {case.moment:6} {case.fault:10} {result:6} {seconds:>5.0f}"
        row = f"{row} {number or 'end':>5}"
        print(f"{row}  {words}", flush=True)
        for line in attempt.output.splitlines():
            if line.startswith("=== not as"):
                print(f"     {line}", flush=True)
        for problem in problems:
            print(f"     {problem}", flush=True)
        failed += bool(problems)
    return failed


def main() -> None:
    """Try what was asked for."""
    options = arguments()
    if options.table:
        print_table()
        return
    options.folder.mkdir(parents=True, exist_ok=True)
    EVIDENCE.parent.mkdir(exist_ok=True)
    if options.down:
        Lab(options.folder / ".rehearsal").down()
        return
    if options.anew:
        for kind in ("*.json", "*.jsonl", "*.log"):
            for file in options.folder.glob(kind):
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
