"""One attempt of a run: the program, its output, and the end of all that it started."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .. import across, environment, units
from ..rendezvous import Met
from . import child, failure, group, messages, notify
from .logs import Log
from .metrics import Metrics
from .reserve import Reserve

if TYPE_CHECKING:
    from .supervisor import Supervisor

_CHUNK = 64 << 10
_STRAY_S = 5.0  # for what is left when the program itself has ended
_LOOK_S = 30.0  # between two looks whether it stands still


class Attempt:
    """The program, from its start until nothing of it is left."""

    def __init__(self, whole: Supervisor, number: int, folder: Path, worktree: Path) -> None:
        self.whole, self.folder, self.worktree = whole, folder, worktree
        largest = whole.site.log_mib << 20
        self.metrics = Metrics(whole.run.folder / "metrics.jsonl", number)
        self.summary = failure.Summary()
        self.stall = messages.Stall()
        self.launcher = Log(folder / "launcher.log", largest, self.summary.read)
        self.unit = units.unit(whole.run.name)
        self.inhibitor = notify.Inhibitor(whole.run.name)
        self.reserve = Reserve(folder / ".reserve")
        self.sources: dict[int, Log] = {}
        self.ranks = whole.preset.processes(int(whole.request["ranks"]))
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
            met = self._met()
            process = self._started(output, met)
            os.close(output)
            notify.tell("READY=1\nSTATUS=on")
            if self.inhibitor.refused():
                self.launcher.say("train: logind gave no lock against a shutdown")
            code_ = self._followed(process)
            self.whole.messenger.finish()
            if not group.empty(group.folder(self.unit), self._ours(), _STRAY_S):
                self.launcher.say("train: not all processes could be ended here")
            self._drain()
        finally:
            self.inhibitor.release()
            self.reserve.give()
            for log in (*self.logs, self.launcher):
                log.close()
            self.metrics.close()
            for descriptor in self.sources:
                os.close(descriptor)
            with contextlib.suppress(OSError):  # of a disk that is full
                for path in self.folder.glob(".pipe*"):
                    path.unlink()
        return self._outcome(code_)

    def _met(self) -> Met | None:
        """Wait for the other hosts where there are any; raises TrainError."""
        if self.whole.part is None:
            return None
        return across.meet(self.whole.part, lambda: "stopped" if self.whole.stopping else None)

    def _started(self, output: int, met: Met | None) -> subprocess.Popen[bytes]:
        whole = self.whole
        assert whole.held is not None  # noqa: S101 - see `Supervisor._supervised`
        declared = environment.read(whole.site)
        variables = environment.variables(declared, whole.request["variables"], whole.held.devices)
        found: list[str] = []
        if whole.part is not None and met is not None:
            found = across.rendezvous_words(whole.part, whole.run.name, met)
            variables = {**across.variables(met), **variables}
            whole.change(state="running")
        command = child.with_pipes(whole.request["command"], self.folder, found)
        return child.start(command, self.worktree, variables, output)

    def _ours(self) -> set[int]:
        """Return the processes of the group that are not the run."""
        return {os.getpid(), *self.inhibitor.pids(), *self.whole.messenger.pids()}

    def _followed(self, process: subprocess.Popen[bytes]) -> int:
        """Write what comes, until the program has ended or is to be ended; return its exit code."""
        whole = self.whole
        ends = os.pidfd_open(process.pid)
        kill_at: float | None = None
        try:
            while True:
                wait = _LOOK_S if kill_at is None else max(0.0, kill_at - time.monotonic())
                ready, _, _ = select.select([*self.sources, ends, whole.woken], [], [], wait)
                self._read([each for each in ready if each in self.sources])
                if whole.woken in ready:
                    os.read(whole.woken, 512)
                if ends in ready:
                    return process.wait()
                self._look()
                if whole.stopping and kill_at is None:
                    whole.change(state="stopping")
                    kill_at = time.monotonic() + whole.site.stop_grace_s
                    self._signal(signal.SIGTERM)
                elif kill_at is not None and time.monotonic() >= kill_at:
                    self._signal(signal.SIGKILL)
                    kill_at = time.monotonic() + 1
        finally:
            os.close(ends)

    def _look(self) -> None:
        """Tell the owner where the run begins to stand still."""
        whole = self.whole
        whole.messenger.look()
        waited = self.stall.begun(self.metrics.times, time.time())
        if waited is not None:
            whole.tell("stalled", self.metrics.last, stalled_seconds=round(waited))

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
