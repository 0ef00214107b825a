"""A run that meets a fault at one of its numbered boundaries, and what the two runs after it do.

A boundary is the moment before a command of the run begins on its host, or a moment within it. The
host's gate (gate.py) numbers the commands. After the fault the next run must bring the host to
what is declared, the one after must change nothing, and no reboot may be one too many.
"""

from __future__ import annotations

import random
import re
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal, Self, get_args

from drifts import R580
from gate import Command, Gate
from running import GPU_HOST, PATIENCE_S, Deployer, OnlyDriver, Run, usual_offer

from pyinfra_gpu_rehearsal import Lab, LabError, LabHost

Fault = Literal["controller", "network", "power", "disk", "reboot"]
Moment = Literal["before", "within"]
FAULTS: tuple[Fault, ...] = get_args(Fault)
LONG_S = 1.0
"""Seconds from which on a command is long enough for a fault within it."""

# A reboot that was ordered just before the end begins two seconds later, with nobody there.
_REBOOT_BEGINS_S = 3
_BOOT_S = 300.0  # for what takes a second where nobody else works
_NAME = re.compile(r"([a-z]+):(\d+):(before|within):([a-z]+)")


class NotReachedError(Exception):
    """The run ended before the command came at which a fault was to come."""


@dataclass(frozen=True)
class Scenario:
    """What a run finds, and what it makes of it.

    + prepared: puts the host into the state that the run finds
    + driver: the version that is loaded in the end
    """

    name: str
    deployer: Deployer
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

    def prepared() -> LabHost:
        usual_offer(lab)
        return lab.fresh(GPU_HOST)

    return Scenario("deploy", deployer, prepared, "580.95.05")


def driver_update(lab: Lab, folder: Path, converged: Callable[[], LabHost]) -> Scenario:
    """Return an update of the driver, on a host that is as declared but for its version."""
    newest = R580[-1]

    def prepared() -> LabHost:
        host = converged()
        lab.nvidia.publish(*R580)
        return host

    deployer = OnlyDriver(lab, folder, ("--data", f"driver_version={newest}"))
    return Scenario("update", deployer, prepared, newest)


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


def stepped(
    gate: Gate, deployer: Deployer, *, hold: int = 1
) -> tuple[subprocess.Popen[str], Iterator[Command]]:
    """Start a run; return it, and each of its commands while that waits.

    + hold: the number of the first that waits

    A command begins when the next one is asked for; the last is the last before the run ends.
    """
    gate.renumber(hold=hold)
    process = deployer.start(limit=GPU_HOST)

    def commands() -> Iterator[Command]:
        number = hold
        while (command := gate.wait_for(number, process, PATIENCE_S)) is not None:
            yield command
            _when_up(gate.host, partial(gate.decide, number, run=True))
            number += 1

    return process, commands()


def _when_up(host: LabHost, act: Callable[[], None]) -> None:
    """Do it; where the host is just rebooting because it was told to, as soon as it is back."""
    try:
        act()
    except LabError:
        host.wait_ready(_BOOT_S)
        act()


@dataclass
class Attempt:
    """One case, tried.

    + undisturbed: the same run without the fault
    + base: where the run is to begin with what a part of it has done already
    """

    scenario: Scenario
    undisturbed: Numbered
    case: Case
    base: Callable[[], LabHost] | None = None
    output: str = ""

    def problems(self) -> list[str]:
        """Try it, and return what was not as it must be, each a sentence; none if all was.

        Raises NotReachedError where the command does not come, as it may from a base.
        """
        host = (self.base or self.scenario.prepared)()
        gate = Gate(host)
        gate.install()
        process, waiting = self._reached(gate)
        try:
            before = boots(host)
            found = self._struck(host, gate, process, waiting)
            process.kill()
            return found + self._recovered(host, before)
        except (LabError, subprocess.TimeoutExpired) as error:
            return [f"{error}"]
        finally:
            process.kill()

    def kept(self, lab: Lab, snapshot: str) -> None:
        """Keep the host as the case finds it, cut from its power, as a snapshot of that name.

        Raises NotReachedError where the command does not come, as it may from a base.
        """
        host = (self.base or self.scenario.prepared)()
        gate = Gate(host)
        gate.install()
        process, _ = self._reached(gate)
        lab.snapshot(host.name, snapshot)
        process.kill()
        process.communicate()

    def _reached(self, gate: Gate) -> tuple[subprocess.Popen[str], int]:
        """Start the run; return it and the number of the command that waits, ours, in it."""
        process, commands = stepped(
            gate, self.scenario.deployer, hold=1 if self.base else self.case.number
        )
        wanted = self.undisturbed.commands[self.case.number - 1]
        try:
            for command in commands:
                if self.base is None or command.likeness == wanted.likeness:
                    return process, command.number
        except BaseException:
            process.kill()
            raise
        self.output += process.communicate()[0]
        raise NotReachedError(f"the run ended before command {wanted.number}: {wanted.words}")

    def _struck(
        self, host: LabHost, gate: Gate, process: subprocess.Popen[str], waiting: int
    ) -> list[str]:
        """Let the fault happen, and go by; return what the run itself did wrong."""
        fault, begun = self.case.fault, self.case.moment == "within"
        if begun:
            gate.open()
            gate.decide(waiting, run=True)
            time.sleep(self._delay())
        problems: list[str] = []
        if fault in ("controller", "power"):
            if fault == "power":
                host.power_off()
            process.send_signal(signal.SIGKILL)
            self.output += process.communicate(timeout=PATIENCE_S)[0]
            host.power_on()
        else:
            problems = self._weathered(host, gate, process, waiting, begun=begun)
        if fault in ("controller", "network"):
            time.sleep(_REBOOT_BEGINS_S)
        host.wait_ready(_BOOT_S)
        gate.open()
        if fault in ("controller", "network") and not begun:
            gate.decide(waiting, run=False)
        return problems

    def _weathered(
        self,
        host: LabHost,
        gate: Gate,
        process: subprocess.Popen[str],
        waiting: int,
        *,
        begun: bool,
    ) -> list[str]:
        """Let a fault happen that the run lives to see, and wait for what it makes of it."""
        fault = self.case.fault
        if fault == "network":
            host.network("cut")
        elif fault == "reboot":
            _when_up(host, gate.open)
            _when_up(host, host.reboot)
        else:
            _when_up(host, host.fill_disk)
            _when_up(host, gate.open)
            if not begun:
                gate.decide(waiting, run=True)
        try:
            output = process.communicate(timeout=PATIENCE_S)[0]
        except subprocess.TimeoutExpired:
            return [f"the run itself did not end within {PATIENCE_S} s"]
        finally:
            host.network("restore")
            _when_up(host, host.free_disk)
        self.output += output
        found = []
        if "Traceback" in output:
            found.append("the run itself ended with a traceback")
        if process.returncode not in (0, 1):
            found.append(f"the run itself ended with exit code {process.returncode}")
        return found

    def _delay(self) -> float:
        """Return after how many seconds a fault within the command comes; the same each time."""
        chance = random.Random(str(self.case))
        return chance.random() * self.undisturbed.seconds(self.case.number)

    def _recovered(self, host: LabHost, before: int) -> list[str]:
        """Run twice more, and return what was wrong.

        + before: how often the host had booted when the fault came
        """
        found = []
        own = self.case.fault in ("power", "reboot")
        already = boots(host)
        # A host whose cards nouveau has needs one reboot, as from the start; no other does.
        owed = int(host.gpu.nouveau())
        run = self._run("the next run")
        if run.code != 0:
            said = "; ".join(run.problems(GPU_HOST)) if run.report["hosts"] else "no report"
            return [f"the next run ended with exit code {run.code}: {said}"]
        loaded = host.run("cat /sys/module/nvidia/version").stdout.strip()
        if loaded != self.scenario.driver:
            found.append(f"driver {loaded} is loaded, not {self.scenario.driver}")
        if changed := self._run("the run after it").changed(GPU_HOST):
            found.append(f"the run after it changed {', '.join(changed)}")
        after = boots(host)
        if after - already > owed:
            found.append(f"the next runs rebooted {after - already} times, {owed} was owed")
        if after - before - own > self.undisturbed.reboots:
            found.append(f"{after - before - own} reboots, {self.undisturbed.reboots} undisturbed")
        return found

    def _run(self, what: str) -> Run:
        run = self.scenario.deployer.deploy(limit=GPU_HOST)
        self.output += f"\n=== {what} (exit code {run.code})\n{run.output}"
        return run
