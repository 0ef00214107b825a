"""The numbered boundaries of a run, and the cases: a fault at each of them.

A boundary is the moment before a command of the run begins on its host, or a moment within it. The
host's gate (gate.py) numbers the commands; what a case is tried for is in attempt.py.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Self, get_args

from drifts import R580
from gate import Command, Gate
from running import GPU_HOST, Deployer, OnlyDriver, Run, usual_offer

from pyinfra_gpu_rehearsal import Lab, LabHost

Fault = Literal["controller", "network", "power", "disk", "reboot"]
Moment = Literal["before", "within"]
FAULTS: tuple[Fault, ...] = get_args(Fault)
LONG_S = 1.0
"""Seconds from which on a command is long enough for a fault within it."""

_ORDERS_REBOOT = "pyinfra-gpu-restart"
_NAME = re.compile(r"([a-z]+):(\d+):(before|within):([a-z]+)")


@dataclass(frozen=True)
class Scenario:
    """What a run finds, and what it makes of it.

    + offered: lets NVIDIA's repository offer what it then offers
    + prepared: puts the host into the state that the run finds, after that
    + driver: the version that is loaded in the end
    """

    name: str
    deployer: Deployer
    offered: Callable[[], None]
    prepared: Callable[[], LabHost]
    driver: str


@dataclass(frozen=True)
class Numbered:
    """A run that nobody disturbed: its commands, and how often the host rebooted in it."""

    commands: tuple[Command, ...]
    reboots: int

    def seconds(self, number: int) -> float:
        """Return how long the command took, with what the run did until the next one."""
        if number >= len(self.commands):
            return 0.0
        return self.commands[number].at - self.commands[number - 1].at

    def single(self, first: int, last: int) -> set[str]:
        """Return the likenesses of those from FIRST to before LAST that the run sends only once."""
        counts = Counter(each.likeness for each in self.commands)
        chosen = (each.likeness for each in self.commands[first - 1 : last - 1])
        return {likeness for likeness in chosen if counts[likeness] == 1}

    def may_have_ordered_a_reboot(self, number: int) -> bool:
        """Tell whether one may begin after the run has ended before or within this command."""
        return any(
            _ORDERS_REBOOT in each.text for each in self.commands[max(number - 2, 0) : number]
        )


@dataclass(frozen=True)
class Case:
    """One fault at one boundary; as text, "deploy:37:before:power"."""

    scenario: str
    number: int
    moment: Moment
    fault: Fault

    def __str__(self) -> str:
        return f"{self.scenario}:{self.number}:{self.moment}:{self.fault}"

    @classmethod
    def read(cls, text: str) -> Self:
        """Return the case that the text names. Raises ValueError where it names none."""
        match = _NAME.fullmatch(text)
        if match is None or match[4] not in FAULTS:
            raise ValueError(f"{text!r} is no case; one is deploy:37:before:power")
        moment: Moment = "before" if match[3] == "before" else "within"
        fault = next(each for each in FAULTS if each == match[4])
        return cls(match[1], int(match[2]), moment, fault)


def cases_of(scenario: str, numbered: Numbered) -> list[Case]:
    """Return every case of a run: each fault before each command, and within each long one."""
    found = []
    for command in numbered.commands:
        long = numbered.seconds(command.number) >= LONG_S
        moments: tuple[Moment, ...] = ("before", "within") if long else ("before",)
        found += [
            Case(scenario, command.number, moment, fault) for moment in moments for fault in FAULTS
        ]
    return found


def boots(host: LabHost) -> int:
    """Return how often the host was switched on, or rebooted, since it was a bare machine."""
    return host.run("last -x reboot").stdout.count("system boot")


def fresh_deploy(lab: Lab, deployer: Deployer) -> Scenario:
    """Return a deploy of the bare GPU host. The smoke test changes nothing of what it finds."""

    def offered() -> None:
        usual_offer(lab)

    def prepared() -> LabHost:
        offered()
        return lab.fresh(GPU_HOST)

    return Scenario("deploy", deployer, offered, prepared, "580.95.05")


def driver_update(lab: Lab, folder: Path, converged: Callable[[], LabHost]) -> Scenario:
    """Return an update of the driver, on a host that is as declared but for its version."""
    newest = R580[-1]

    def offered() -> None:
        usual_offer(lab)
        lab.nvidia.publish(*R580)

    def prepared() -> LabHost:
        host = converged()
        offered()
        return host

    deployer = OnlyDriver(lab, folder, ("--data", f"driver_version={newest}"))
    return Scenario("update", deployer, offered, prepared, newest)


def undisturbed(scenario: Scenario) -> tuple[Run, Numbered]:
    """Return the scenario's run where no fault comes, and its commands."""
    host = scenario.prepared()
    return numbered(host, lambda: scenario.deployer.deploy(limit=GPU_HOST))


def numbered(host: LabHost, run: Callable[[], Run]) -> tuple[Run, Numbered]:
    """Let RUN go through the host's gate undisturbed; return it with the commands that it sent."""
    gate, before = Gate(host), boots(host)
    gate.install()
    done = run()
    found = Numbered(tuple(gate.commands()), boots(host) - before)
    gate.remove()
    return done, found
