"""One run from its claim to its end: devices, code, program, logs, and nothing left behind."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from .. import across, claims, code, presets, resuming, unwritten
from ..errors import TrainError
from ..presets import Preset
from ..rundir import Run, boot_id, later, now
from ..site import Site
from . import messages, notify
from .attempt import Attempt
from .logs import Log
from .retrying import Cause, Retries, cause_of

_POLL_S = 1.0  # of who waits for a GPU


class Supervisor:
    """The process that a run's unit is."""

    def __init__(self, site: Site, run: Run) -> None:
        self.site, self.run = site, run
        self.request = run.request()
        self.preset: Preset = presets.from_json(self.request["preset"])
        self.part = across.from_json(told) if (told := self.request.get("across")) else None
        self.stopping = False
        self.held: claims.Held | None = None
        self.waited = False  # whoever started it has gone
        self.messenger = messages.Messenger(site.notify, self._say)
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
            print(error, file=sys.stderr)  # the journal takes it also where the disk does not
            with contextlib.suppress(OSError):
                self.run.refuse(str(error))
            return 1

    def _stop(self, number: int, frame: object) -> None:
        del number, frame
        self.stopping = True

    def _say(self, text: str) -> None:
        """Write a line into the launcher's log of the last attempt."""
        folder = self.run.attempt(max(1, len(self.run.read()["attempts"])))
        with contextlib.closing(Log(folder / "launcher.log", self.site.log_mib << 20)) as log:
            log.say(text)

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
                    remedy = claims.remedy(got, alone=self.part is None)
                    self.run.refuse(f"what it needs is taken by {who}: {remedy}")
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

    def _ended(self, attempts: list[dict[str, Any]], **changes: Any) -> bool:
        """Write down how an attempt ended; where that cannot be, whoever looks is told as well."""
        changes["attempts"] = attempts
        self.change(**changes)
        document = self.run.read()
        written = all(document.get(name) == value for name, value in changes.items())
        if written:
            unwritten.drop(self.run.folder)
        else:
            unwritten.keep(self.run.folder, attempts)
        return written

    # -- one attempt

    def _attempted(self, retries: Retries) -> bool:
        """Go through one attempt; return whether another one is to follow, which was waited for."""
        assert self.held is not None  # noqa: S101 - see `_supervised`
        number = len(self.run.read()["attempts"]) + 1
        folder = self.run.attempt(number)
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        worktree = self.run.folder / code.WORKTREE
        checkout = Path(self.site.checkout)
        code.lay_out_all(checkout, worktree, self.request["code"], self.run.folder)
        attempts = [*self.run.read()["attempts"], self._begun(number)]
        changed = {"gpus": self.held.devices, "attempts": attempts}
        if self.part is not None:
            # The controller is told now, so that it starts the other hosts.
            notify.tell("READY=1\nSTATUS=waits for the other hosts")
            self.waited = True
        self.change(state="starting" if self.part else "running", waits=None, **changed)
        if number > 1:
            self.tell("resumed", {})
        ended, last = self._gone_through(Attempt(self, number, folder, worktree))
        # On a full disk the attempts in the record are fewer than these.
        attempts[-1] |= {"ended": now(), **ended}
        return self._another_follows(retries, attempts, last)

    def _begun(self, number: int) -> dict[str, Any]:
        """Return what is written down of an attempt as it begins."""
        return {
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

    def _gone_through(self, going: Attempt) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
        """Return how an attempt ended, and the figures of its last step."""
        try:
            return going.run(), going.metrics.last
        except (TrainError, OSError) as error:
            if not self.waited:
                raise  # whoever waits for the start is told
            self._say(f"train: {error}")
            outcome = "stopped" if self.stopping else "failed"
            return {"exit": None, "outcome": outcome, "first_failed_rank": None}, {}

    def _another_follows(
        self, retries: Retries, attempts: list[dict[str, Any]], last: Mapping[str, Any]
    ) -> bool:
        """Write down how the last attempt ended; return whether another was waited for.

        + last: the figures of its last step
        """
        cause = Cause()
        if attempts[-1]["outcome"] == "failed" and not self.stopping:
            self._ended(attempts)  # it is explained from what is written down
            cause = cause_of(self.run)
            attempts[-1]["cause"] = cause.id or None
            seconds = retries.wait(cause)
            if seconds is not None:
                words = retries.words(cause)
                waits = {"after": "failure", "for": words, "until": later(seconds)}
                self.change(state="waiting", waits=waits, attempts=attempts)
                unwritten.drop(self.run.folder)
                self.tell("failed", last, **messages.of_cause(cause))
                if self._waited(seconds):
                    return True
        for _ in range(30):
            if self._ended(attempts, state="ended", waits=None):
                break
            time.sleep(1)  # the disk is full: what became of the run is worth a wait
        self.tell(attempts[-1]["outcome"], last, **messages.of_cause(cause))
        self.messenger.finish()
        return False

    def _waited(self, seconds: float) -> bool:
        """Wait before the next attempt, with the devices held; return whether it is to be."""
        notify.tell("STATUS=waits to begin again")
        until = time.monotonic() + seconds
        while not self.stopping and (left := until - time.monotonic()) > 0:
            self._sleep(left)
        if self.stopping:
            return False
        point = resuming.newest(self.run, self.request, self.run.read()["created"])
        self.request = resuming.orders(self.site, self.run, self.request, point)
        return True

    def tell(self, event: str, last: Mapping[str, Any], **more: Any) -> None:
        """Tell the owner by the declared command, if there is one."""
        if self.site.notify:
            self.messenger.tell(messages.message(event, self.run.read(), last, **more))


def supervise(site: Site, run: Run) -> int:
    """Work as the unit of a run; see `Supervisor`."""
    return Supervisor(site, run).work()
