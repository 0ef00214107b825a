"""The run of a scenario that nobody disturbs: its boundaries, and milestones to hold others to.

It is done twice, and both are looked at in the same moments: what differs between them differs
from run to run. Of that only so much is compared as host_state.py says.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from attempt import Milestone, stepped
from boundaries import Numbered, Scenario, boots
from gate import Command, Gate
from host_state import PASSING, HostState, differences, memory_of, settle

from pyinfra_gpu_rehearsal import LabHost

LONG_S = 2.0
"""Behind a command this long is a milestone."""
_BUSY_S = 0.5  # to see that nothing is at work takes less


@dataclass(frozen=True)
class Boundary:
    """A command of the undisturbed run, and the host just before it.

    + same_as: the number of an earlier command, since which nothing was left behind
    + boots: how often the host had booted
    + busy: whether something would still be at work beside the run that nobody holds
    """

    command: Command
    same_as: int
    boots: int
    busy: bool = False


def traces(host: LabHost) -> str:
    """Return what a command can leave behind: every file's stat, the units and the modules."""
    lasting = (line for line in memory_of(host) if not line.startswith("process "))
    lines = [host.boot_id(), *lasting]
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


def _looked_at(scenario: Scenario) -> Iterator[tuple[LabHost, Command, float]]:
    """Let a scenario's run go through the gate; yield each of its commands before it begins.

    With the seconds until nothing worked beside it any more.
    """
    host = scenario.prepared()
    gate = Gate(host)
    gate.install()
    process, commands = stepped(gate, scenario.deployer)
    for command in commands:
        yield host, command, settle(host)
    output = process.communicate()[0]
    if process.returncode != 0:
        sys.exit(f"the run that nobody disturbed failed:\n{output}")
    gate.remove()


def observed(scenario: Scenario) -> tuple[list[Boundary], dict[int, HostState]]:
    """Return the boundaries of a run, and what its host held behind each long command.

    That by the number of the command after it.
    """
    boundaries: list[Boundary] = []
    states = {}
    held, last, same, before, busy_until = 0.0, "", 1, float("inf"), 0.0
    for host, command, waited in _looked_at(scenario):
        began = time.time() - waited
        state = traces(host)
        same = same if state == last else command.number
        own = replace(command, at=command.at - held)
        busy_until = max(busy_until, own.at + waited if waited >= _BUSY_S else 0.0)
        boundaries.append(Boundary(own, same, boots(host), own.at < busy_until))
        if own.at - before >= LONG_S:
            states[command.number] = HostState.of(host)
        last, before = state, own.at
        held += time.time() - began
    return boundaries, states


class Turns:
    """Names each command, so that it has one name in any undisturbed run, whatever its number."""

    def __init__(self) -> None:
        self._sent: Counter[str] = Counter()

    def of(self, command: Command) -> tuple[str, int]:
        """Return the name of the command that is sent next."""
        self._sent[command.likeness] += 1
        return command.likeness, self._sent[command.likeness]


def observed_again(
    scenario: Scenario, boundaries: list[Boundary], numbers: Collection[int]
) -> dict[int, HostState]:
    """Return what the host of another such run holds before the commands of these numbers."""
    first, second, found = Turns(), Turns(), {}
    names = {first.of(each.command): each.command.number for each in boundaries}
    for host, command, _ in _looked_at(scenario):
        number = names.get(second.of(command))
        if number is not None and number in numbers:
            found[number] = HostState.of(host)
    return found


class Recorded:
    """The boundaries of one scenario's run and its milestones, kept in files of a folder.

    What another run showed to be as good as a milestone is one from then on.
    """

    def __init__(self, scenario: Scenario, host: LabHost, folder: Path) -> None:
        self.scenario = scenario
        boundaries = folder / f"boundaries-{scenario.name}.json"
        milestones = folder / f"milestones-{scenario.name}.jsonl"
        if not (boundaries.exists() and milestones.exists()):
            self._write(host, boundaries, milestones)
        self._file = milestones
        self.boundaries = [
            Boundary(**{**row, "command": Command(**row["command"])})
            for row in json.loads(boundaries.read_text())
        ]
        counts = [each.boots for each in self.boundaries]
        commands = tuple(each.command for each in self.boundaries)
        self.run = Numbered(commands, counts[-1] - counts[0])
        rows = map(json.loads, milestones.read_text().splitlines())
        self.milestones = [self._read(row) for row in rows]

    def _read(self, row: dict[str, Any]) -> Milestone:
        number = row["number"]
        before, own = self.boundaries[number - 2].command, self.boundaries[number - 1]
        state, varying = HostState.read(row["state"]), frozenset(row["varying"])
        told = (row["reboots"], own.busy, row["case"])
        return Milestone(own.command, before.likeness, state, varying, *told)

    def learn(self, seen: Iterable[Milestone]) -> None:
        """Take moments of a run that was seen to its end for milestones, too."""
        for each in seen:
            self.milestones.append(each)
            with self._file.open("a") as file:
                file.write(json.dumps(_told(each)) + "\n")

    def _write(self, host: LabHost, boundaries: Path, milestones: Path) -> None:
        found, first = observed(self.scenario)
        again = observed_again(self.scenario, found, first)
        last = found[-1].boots
        rows = [
            Milestone(
                found[number - 1].command,
                "",
                state,
                frozenset(differences(state, again[number], host)),
                last - found[number - 1].boots,
            )
            for number, state in first.items()
            if number in again
        ]
        milestones.write_text("".join(json.dumps(_told(each)) + "\n" for each in rows))
        boundaries.write_text(json.dumps([asdict(each) for each in found], indent=1))


def _told(milestone: Milestone) -> dict[str, Any]:
    return {
        "number": milestone.command.number,
        "state": milestone.state.told(),
        "varying": sorted(milestone.varying),
        "reboots": milestone.reboots,
        "case": milestone.case,
    }
