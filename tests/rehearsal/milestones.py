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
from collections.abc import Collection, Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from attempt import Milestone, stepped
from boundaries import Numbered, Scenario, boots
from gate import Command, Gate
from host_state import PASSING, HostState, differences, memory_of

from pyinfra_gpu_rehearsal import LabHost

LONG_S = 2.0
"""Behind a command this long is a milestone."""


@dataclass(frozen=True)
class Boundary:
    """A command of the undisturbed run, and the host just before it.

    + same_as: the number of an earlier command, since which nothing was left behind
    + boots: how often the host had booted
    """

    command: Command
    same_as: int
    boots: int


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


def _looked_at(scenario: Scenario) -> Iterator[tuple[LabHost, Command]]:
    """Let a scenario's run go through the gate; yield each of its commands before it begins."""
    host = scenario.prepared()
    gate = Gate(host)
    gate.install()
    process, commands = stepped(gate, scenario.deployer)
    for command in commands:
        yield host, command
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
    held, last, same, before = 0.0, "", 1, float("inf")
    for host, command in _looked_at(scenario):
        began = time.time()
        state = traces(host)
        same = same if state == last else command.number
        own = replace(command, at=command.at - held)
        boundaries.append(Boundary(own, same, boots(host)))
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
    for host, command in _looked_at(scenario):
        number = names.get(second.of(command))
        if number is not None and number in numbers:
            found[number] = HostState.of(host)
    return found


class Recorded:
    """The boundaries of one scenario's run and its milestones, kept in two files."""

    def __init__(self, scenario: Scenario, host: LabHost, folder: Path) -> None:
        self.scenario = scenario
        boundaries = folder / f"boundaries-{scenario.name}.json"
        milestones = folder / f"milestones-{scenario.name}.json"
        if not (boundaries.exists() and milestones.exists()):
            self._write(host, boundaries, milestones)
        self.boundaries = [
            Boundary(**{**row, "command": Command(**row["command"])})
            for row in json.loads(boundaries.read_text())
        ]
        counts = [each.boots for each in self.boundaries]
        commands = tuple(each.command for each in self.boundaries)
        self.run = Numbered(commands, counts[-1] - counts[0])
        self.milestones = [
            Milestone(
                commands[row["number"] - 1],
                commands[row["number"] - 2].likeness,
                HostState.read(row["state"]),
                frozenset(row["varying"]),
                counts[-1] - counts[row["number"] - 1],
            )
            for row in json.loads(milestones.read_text())
        ]

    def _write(self, host: LabHost, boundaries: Path, milestones: Path) -> None:
        found, first = observed(self.scenario)
        again = observed_again(self.scenario, found, first)
        rows = [
            {
                "number": number,
                "varying": sorted(differences(state, again[number], host)),
                "state": state.told(),
            }
            for number, state in first.items()
            if number in again
        ]
        milestones.write_text(json.dumps(rows))
        boundaries.write_text(json.dumps([asdict(each) for each in found], indent=1))
