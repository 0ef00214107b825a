"""A run that meets a fault at one of its boundaries, and what the two runs after it do.

After the fault the next run must bring the host to what is declared, the one after must change
nothing, and no reboot may be one too many. Where the next run has brought the host to a state that
the undisturbed run was seen in, a milestone, the rest was seen already.
"""

from __future__ import annotations

import random
import signal
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice

from boundaries import Case, Numbered, Scenario, boots
from gate import Command, Gate
from host_state import HostState, differences, settle
from running import GPU_HOST, PATIENCE_S, Deployer, Run
from warm import Process

from pyinfra_gpu_rehearsal import Lab, LabError, LabHost

# A reboot that was ordered just before the end begins two seconds later, with nobody there.
_REBOOT_BEGINS_S = 3
_NAMED = 12  # so many differences from a milestone are named
_BOOT_S = 300.0  # for what takes a second where nobody else works


class NotReachedError(Exception):
    """The run ended before the command came at which a fault was to come."""


@dataclass(frozen=True)
class Milestone:
    """A moment of a run that was seen to its end, that others are compared with.

    + command: the one before which it is
    + behind: the likeness of the one before that, which took long
    + varying: what differs there from one undisturbed run to the other
    + reboots: how many were still to come
    + busy: something that nobody holds would still be at work there, so no run may begin with it
    + case: whose next run it was; empty: the undisturbed one
    """

    command: Command
    behind: str
    state: HostState
    varying: frozenset[str]
    reboots: int
    busy: bool = False
    case: str = ""


@dataclass(frozen=True)
class Base:
    """A host on which a part of the run is done already.

    + number: of the command before which it stands
    """

    number: int
    restored: Callable[[], LabHost]


def stepped(gate: Gate, deployer: Deployer, *, hold: int = 1) -> tuple[Process, Iterator[Command]]:
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
    + milestones: moments of the undisturbed run from which on nothing need be seen again; none:
      the next run goes to its end, and one more comes after it
    + reached: the milestone at which the next run was ended; None: it was not
    + seen: the moments of the next run that others may be held to from now on, as all ended well
    """

    scenario: Scenario
    undisturbed: Numbered
    case: Case
    base: Base | None = None
    milestones: Sequence[Milestone] = ()
    output: str = ""
    reached: Milestone | None = None
    seen: list[Milestone] = field(default_factory=list)

    def problems(self) -> list[str]:
        """Try it, and return what was not as it must be, each a sentence; none if all was.

        Raises NotReachedError where the command does not come, as it may from a base.
        """
        host, gate = self._prepared()
        process, waiting, going = self._reached(gate)
        try:
            before = boots(host)
            found = self._struck(host, gate, process, waiting, going)
            process.kill()
            return found + self._recovered(host, gate, before)
        except (LabError, TimeoutError, subprocess.TimeoutExpired) as error:
            return [f"{error}"]
        finally:
            process.kill()

    def kept(self, lab: Lab, snapshot: str, milestone: Milestone) -> list[str]:
        """Keep the host as the case finds it, cut from its power, as a snapshot of that name.

        Returns in what it was not as the undisturbed run had it, before the cut and after it.

        Raises NotReachedError where the command does not come, as it may from a base.
        """
        host, gate = self._prepared()
        process, _, _ = self._reached(gate)
        settle(host)
        state = HostState.of(host)
        found = list(differences(state, milestone.state, host, milestone.varying))
        lab.snapshot(host.name, snapshot)
        process.kill()
        process.communicate()
        lost = milestone.state.modules() ^ HostState.of(host).modules()
        return found + [f"from memory: {line}" for line in sorted(lost)]

    def _prepared(self) -> tuple[LabHost, Gate]:
        host = (self.base.restored if self.base else self.scenario.prepared)()
        gate = Gate(host)
        gate.install()
        return host, gate

    def _reached(self, gate: Gate) -> tuple[Process, int, Iterator[Command]]:
        """Start the run; return it, the number of the command that waits, ours, and those after it.

        From a base the run looks at what is there, and then does what the undisturbed one did: the
        command is the one that comes after all those by which that one's way to it is known.
        """
        number = self.case.number
        process, commands = stepped(gate, self.scenario.deployer, hold=1 if self.base else number)
        wanted = self.undisturbed.commands[number - 1]
        missing = self.undisturbed.single(self.base.number, number) if self.base else set()
        try:
            for command in commands:
                if self.base is None or (command.likeness == wanted.likeness and not missing):
                    return process, command.number, commands
                missing.discard(command.likeness)
        except BaseException:
            process.kill()
            raise
        self.output += process.communicate()[0]
        raise NotReachedError(f"the run ended before command {wanted.number}: {wanted.words}")

    def _struck(
        self, host: LabHost, gate: Gate, process: Process, waiting: int, going: Iterator[Command]
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
            problems = self._weathered(host, gate, process, () if begun else going)
        ordered = self.undisturbed.may_have_ordered_a_reboot(self.case.number)
        if fault in ("controller", "network") and ordered:
            time.sleep(_REBOOT_BEGINS_S)
        host.wait_ready(_BOOT_S)
        gate.open()
        if fault in ("controller", "network") and not begun:
            gate.decide(waiting, run=False)
        return problems

    def _weathered(
        self, host: LabHost, gate: Gate, process: Process, going: Iterable[Command]
    ) -> list[str]:
        """Let a fault happen that the run lives to see, and wait for what it makes of it.

        + going: what the run does next, the command that waits at first; none where that has begun
        """
        fault = self.case.fault
        if fault == "network":
            host.network("cut")
        elif fault == "reboot":
            _when_up(host, gate.open)
            _when_up(host, host.reboot)
        else:
            _when_up(host, host.fill_disk)
            if not self._coming():
                _when_up(host, gate.open)
            # A reboot takes the full disk away, and then there is nothing to wait for.
            self.reached = self._come_to(host, going, unless="mountpoint -q /dev/.full")
            if self.reached is not None:
                process.kill()
                self.output += process.communicate()[0]
                return []
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

    def _recovered(self, host: LabHost, gate: Gate, before: int) -> list[str]:
        """Run again, and once more after that; return what was wrong.

        + before: how often the host had booted when the fault came
        """
        found = []
        already = boots(host)
        # A host whose cards nouveau has needs one reboot, as from the start; no other does.
        owed = int(host.gpu.nouveau())
        run = None if self.reached else self._next(host, gate)
        if run is not None and self.reached is None:
            if run.code != 0:
                said = "; ".join(run.problems(GPU_HOST)) if run.report["hosts"] else "no report"
                return [f"the next run ended with exit code {run.code}: {said}"]
            found += self._at_its_end(host)
        after = boots(host) + (self.reached.reboots if self.reached else 0)
        if after - already > owed:
            found.append(f"the next runs rebooted {after - already} times, {owed} was owed")
        own = self.case.fault in ("power", "reboot")
        if after - before - own > self.undisturbed.reboots:
            found.append(f"{after - before - own} reboots, {self.undisturbed.reboots} undisturbed")
        last = 0 if found else after
        self.seen = [replace(each, reboots=last - each.reboots) for each in self.seen if last]
        return found

    def _next(self, host: LabHost, gate: Gate) -> Run:
        """Run again, to the end or to a milestone behind the case; note where that was reached."""
        deployer = self.scenario.deployer
        if not self._coming():
            return self._noted("the next run", deployer.deploy(limit=GPU_HOST))
        process, commands = stepped(gate, deployer)
        try:
            self.reached = self._come_to(host, commands)
        finally:
            if self.reached is not None or process.poll() is None:
                process.kill()
        gate.open()
        return self._noted("the next run", deployer.ended(process))

    def _coming(self) -> list[Milestone]:
        return [each for each in self.milestones if each.command.number > self.case.number]

    def _come_to(
        self, host: LabHost, commands: Iterable[Command], *, unless: str = "false"
    ) -> Milestone | None:
        """Let a run go on to a milestone behind the case; return it, None where it ends before.

        + unless: a shell command; where it succeeds on the host, that is at none
        """
        coming, behind = self._coming(), ""
        for command in commands:
            at = (behind, command.likeness)
            places = [each for each in coming if (each.behind, each.command.likeness) == at]
            if places and host.run(unless, check=False).returncode != 0:
                found = self._milestone_at(host, places)
                if found is not None:
                    return found
            behind = command.likeness
        return None

    def _milestone_at(self, host: LabHost, places: Sequence[Milestone]) -> Milestone | None:
        """Return the milestone that the host is at, out of those where it could be."""
        settle(host)
        state = HostState.of(host)
        for each in places:
            differing = [*islice(differences(state, each.state, host, each.varying), _NAMED)]
            if not differing:
                return each
            some = ", ".join(differing)
            self.output += f"\n=== not as before {each.command.number}: {some}"
        # Of the boots, until it is known how many follow.
        own = replace(places[0], state=state, reboots=boots(host), case=str(self.case))
        self.seen.append(own)
        return None

    def _at_its_end(self, host: LabHost) -> list[str]:
        """Return what is wrong with a host that the next run has brought to what is declared."""
        found = []
        loaded = host.run("cat /sys/module/nvidia/version").stdout.strip()
        if loaded != self.scenario.driver:
            found.append(f"driver {loaded} is loaded, not {self.scenario.driver}")
        after = self._noted("the run after it", self.scenario.deployer.deploy(limit=GPU_HOST))
        if after.code != 0:
            found.append(f"the run after it ended with exit code {after.code}")
        elif changed := after.changed(GPU_HOST):
            found.append(f"the run after it changed {', '.join(changed)}")
        return found

    def _noted(self, what: str, run: Run) -> Run:
        self.output += f"\n=== {what} (exit code {run.code})\n{run.output}"
        return run
