"""One run from its claim to its end: devices, code, program, logs, and nothing left behind."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from .. import claims, code, environment, presets, resuming, units
from ..errors import TrainError
from ..presets import Preset
from ..rundir import Run, boot_id, later, now
from ..site import Site
from . import child, failure, group, notify
from .logs import Log
from .metrics import Metrics
from .retrying import Cause, Retries, cause_of

_POLL_S = 1.0  # of who waits for a GPU
_CHUNK = 64 << 10
_STRAY_S = 5.0  # for what is left when the program itself has ended


class Supervisor:
    """The process that a run's unit is."""

    def __init__(self, site: Site, run: Run) -> None:
        self.site, self.run = site, run
        self.request = run.request()
        self.preset: Preset = presets.from_json(self.request["preset"])
        self.stopping = False
        self.held: claims.Held | None = None
        self.waited = False  # whoever started it has gone
        reading, self._wakes = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self.woken = reading

    # -- the whole of it

    def work(self) -> int:
        """Supervise the run to its end; return the exit code of the unit."""
        signal.set_wakeup_fd(self._wakes)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._stop)
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        try:
            with self.run.supervised():
                return self._supervised()
        except (TrainError, OSError) as error:
            self.run.refuse(str(error))
            return 1

    def _stop(self, number: int, frame: object) -> None:
        del number, frame
        self.stopping = True

    def _supervised(self) -> int:
        waited = self._claimed()
        if self.held is None:
            return waited
        retries = Retries(int(self.request.get("retries", 0)), self.site.retry_wait_s)
        try:
            while self._attempted(retries):
                self.waited = True
            return 0
        finally:
            self.held.release()

    # -- devices

    def _claimed(self) -> int:
        """Have the devices; where that cannot be, return the exit code."""
        devices, ranks = self.request["devices"], int(self.request["ranks"])
        count = 1 if devices == [claims.CPU] else ranks
        ticket = None
        if self.request["queue"]:
            ticket = claims.Ticket(self.site, self.run.name, devices)
        try:
            while not self.stopping:
                got = claims.claim(self.site, self.run.name, devices, count, ticket)
                if isinstance(got, claims.Held):
                    self.held = got
                    return 0
                if ticket is None:
                    who = ", ".join(got) or "other runs"
                    self.run.refuse(
                        f"what it needs is taken by {who}: give --queue to wait, or stop it"
                    )
                    return 1
                self.change(state="queued")
                notify.tell(f"READY=1\nSTATUS=waits for {', '.join(got)}")
                self.waited = True
                self._sleep(_POLL_S)
        finally:
            if ticket is not None:
                ticket.give_up()
        self.change(state="ended")
        return 0

    def _sleep(self, seconds: float) -> None:
        if select.select([self.woken], [], [], seconds)[0]:
            os.read(self.woken, 512)

    def change(self, **changes: Any) -> None:
        """Write down what changed; on a full disk the run goes on without."""
        document = self.run.read()
        if any(document.get(name) != value for name, value in changes.items()):
            with contextlib.suppress(OSError):
                self.run.write({**document, **changes})

    # -- one attempt

    def _attempted(self, retries: Retries) -> bool:
        """Go through one attempt; return whether another one is to follow, which was waited for."""
        assert self.held is not None  # noqa: S101 - see `_supervised`
        number = len(self.run.read()["attempts"]) + 1
        folder = self.run.attempt(number)
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        worktree = self.run.folder / "code"
        checkout = Path(self.site.checkout)
        code.lay_out_all(checkout, worktree, self.request["code"], self.run.folder)
        attempt = {
            "number": number,
            "started": now(),
            "ended": None,
            "boot_id": boot_id(),
            "resumed_from": self.request["resumed_from"],
            "exit": None,
            "outcome": None,
            "first_failed_rank": None,
            "cause": None,
        }
        document = self.run.read()
        document["attempts"].append(attempt)
        changed = {"gpus": self.held.devices, "attempts": document["attempts"]}
        self.change(state="running", waits=None, **changed)
        try:
            ended = _Attempt(self, number, folder, worktree).run()
        except (TrainError, OSError) as error:
            if not self.waited:
                raise  # whoever waits for the start is told
            with contextlib.closing(Log(folder / "launcher.log", self.site.log_mib << 20)) as log:
                log.say(f"train: {error}")
            ended = {"exit": None, "outcome": "failed", "first_failed_rank": None}
        attempts = self.run.read()["attempts"]
        attempts[-1] |= {"ended": now(), **ended}
        if ended["outcome"] == "failed" and not self.stopping:
            self.change(attempts=attempts)  # it is explained from what is written down
            cause = cause_of(self.run)
            attempts[-1]["cause"] = cause.id or None
            if self._waited_after(cause, retries, attempts):
                return True
        for _ in range(30):
            self.change(state="ended", waits=None, attempts=attempts)
            if self.run.read()["state"] == "ended":
                break
            time.sleep(1)  # the disk is full: what became of the run is worth a wait
        return False

    def _waited_after(self, cause: Cause, retries: Retries, attempts: list[dict[str, Any]]) -> bool:
        """Wait before the next attempt, with the devices held; return whether one follows."""
        seconds = retries.wait(cause)
        if seconds is None:
            return False
        waits = {"after": "failure", "for": retries.words(cause), "until": later(seconds)}
        self.change(state="waiting", waits=waits, attempts=attempts)
        notify.tell(f"STATUS=waits for {waits['for']}")
        until = time.monotonic() + seconds
        while not self.stopping and (left := until - time.monotonic()) > 0:
            self._sleep(left)
        if self.stopping:
            return False
        point = resuming.newest(self.run, self.request, self.run.read()["created"])
        self.request = resuming.orders(self.site, self.run, self.request, point)
        return True


class _Attempt:
    """The program, from its start until nothing of it is left."""

    def __init__(self, whole: Supervisor, number: int, folder: Path, worktree: Path) -> None:
        self.whole, self.folder, self.worktree = whole, folder, worktree
        largest = whole.site.log_mib << 20
        self.metrics = Metrics(whole.run.folder / "metrics.jsonl", number)
        self.summary = failure.Summary()
        self.launcher = Log(folder / "launcher.log", largest, self.summary.read)
        self.unit = units.unit(whole.run.name)
        self.inhibitor = notify.Inhibitor(whole.run.name)
        self.sources: dict[int, Log] = {}
        self.ranks = 1 if whole.preset.launch == "python" else int(whole.request["ranks"])
        self.logs = [
            Log(folder / f"rank{rank}.log", largest, self.metrics.reader())
            for rank in range(self.ranks)
        ]

    def run(self) -> Mapping[str, Any]:
        """Return what the document says of its end."""
        pipes = child.pipes(self.folder, self.ranks)
        own_output, output = os.pipe2(os.O_CLOEXEC)
        os.set_blocking(own_output, False)
        self.sources = dict(zip(pipes, self.logs, strict=True))
        torchrun = self.whole.preset.launch == "torchrun"
        self.sources[own_output] = self.launcher if torchrun else self.logs[0]
        try:
            process = self._started(output)
            os.close(output)
            notify.tell("READY=1\nSTATUS=on")
            if self.inhibitor.refused():
                self.launcher.say("train: logind gave no lock against a shutdown")
            code_ = self._followed(process)
            if not group.empty(group.folder(self.unit), self._ours(), _STRAY_S):
                self.launcher.say("train: not all processes could be ended here")
            self._drain()
        finally:
            self.inhibitor.release()
            for log in (*self.logs, self.launcher):
                log.close()
            self.metrics.close()
            for descriptor in self.sources:
                os.close(descriptor)
            for path in self.folder.glob(".pipe*"):
                path.unlink()
        return self._outcome(code_)

    def _started(self, output: int) -> subprocess.Popen[bytes]:
        whole = self.whole
        assert whole.held is not None  # noqa: S101 - see `Supervisor._supervised`
        declared = environment.read(whole.site)
        variables = environment.variables(declared, whole.request["variables"], whole.held.devices)
        command = child.with_pipes(whole.request["command"], self.folder)
        return child.start(command, self.worktree, variables, output)

    def _ours(self) -> set[int]:
        """Return the processes of the group that are not the run."""
        return {os.getpid(), *self.inhibitor.pids()}

    def _followed(self, process: subprocess.Popen[bytes]) -> int:
        """Write what comes, until the program has ended or is to be ended; return its exit code."""
        whole = self.whole
        ends = os.pidfd_open(process.pid)
        kill_at: float | None = None
        try:
            while True:
                wait = None if kill_at is None else max(0.0, kill_at - time.monotonic())
                ready, _, _ = select.select([*self.sources, ends, whole.woken], [], [], wait)
                self._read([each for each in ready if each in self.sources])
                if whole.woken in ready:
                    os.read(whole.woken, 512)
                if ends in ready:
                    return process.wait()
                if whole.stopping and kill_at is None:
                    whole.change(state="stopping")
                    kill_at = time.monotonic() + whole.site.stop_grace_s
                    self._signal(signal.SIGTERM)
                elif kill_at is not None and time.monotonic() >= kill_at:
                    self._signal(signal.SIGKILL)
                    kill_at = time.monotonic() + 1
        finally:
            os.close(ends)

    def _signal(self, number: signal.Signals) -> None:
        folder = group.folder(self.unit)
        if folder is not None:
            group.send(group.members(folder, self._ours()), number)

    def _read(self, descriptors: list[int]) -> None:
        """Hand each log what its pipe has, a bounded piece; one that has ended is closed."""
        for descriptor in descriptors:
            try:
                chunk = os.read(descriptor, _CHUNK)
            except BlockingIOError:
                continue
            if chunk:
                self.sources[descriptor].feed(chunk)
            else:
                os.close(descriptor)
                del self.sources[descriptor]

    def _drain(self) -> None:
        """Take what is left in the pipes; nobody writes to them any more."""
        while self.sources and (ready := select.select([*self.sources], [], [], 0)[0]):
            self._read(ready)

    def _outcome(self, code_: int) -> Mapping[str, Any]:
        outcome = "finished" if code_ == 0 else "failed"
        if self.whole.stopping:
            outcome = "stopped"
        first = None
        if outcome == "failed":
            first = failure.first_by_files(self.folder)
            first = self.summary.first if first is None else first
            if first is None and self.whole.preset.launch == "python":
                first = 0
        return {"exit": code_, "outcome": outcome, "first_failed_rank": first}


def supervise(site: Site, run: Run) -> int:
    """Work as the unit of a run; see `Supervisor`."""
    return Supervisor(site, run).work()
