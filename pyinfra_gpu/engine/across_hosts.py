"""A step that several hosts train together, as the controller leads it.

Each host runs the ordinary launcher for its own ranks; torchrun's rendezvous makes one world of
them. The controller, which talks to all of them, ends the others where one is lost or fails, and
judges what all ranks wrote down.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import gevent  # type: ignore[import-untyped]  # it has none; pyinfra's own event loop

from pyinfra_gpu.engine.together import Together
from pyinfra_gpu.facts import document
from pyinfra_gpu.on_host.smoke import across
from pyinfra_gpu.on_host.smoke.across import Part, Step
from pyinfra_gpu.on_host.smoke.document import AcrossVerdict
from pyinfra_gpu.on_host.smoke.ranks import Ending
from pyinfra_gpu.on_host.smoke.verdict import now

_PART = "part"
_PART_LIMIT = 4 * 2**20
"""Bytes of one; sixteen ranks write some hundred thousand."""
_NONSENSE = "a host told something that cannot be judged: is it the same pyinfra-gpu on all?"
_POLL_S = 0.1


def gone(host: str, why: str) -> Part:
    """Return the part of a host that has told nothing."""
    return Part(host, Ending("gone", why, host=host))


def read(text: str, run_id: str) -> Part | None:
    """Return the part in a host's file; None where it is of another run, or not a part."""
    part = document.read(Part, text, limit=_PART_LIMIT)
    if not isinstance(part, Part) or part.run_id != run_id:
        return None
    end = replace(part.end, sentence=part.end.sentence[:2000], tail=across.shortened(part.end.tail))
    return replace(part, end=end)


@dataclass
class Trained:
    """A step as one of its hosts goes through it.

    + grace_s: seconds that the others go on after the first bad news: what follows often narrows
      the cause
    + last_words_s: after the deadline, for a launcher to end its ranks and leave its part
    """

    meeting: Together
    step: Step
    grace_s: float = 5.0
    last_words_s: float = 30.0
    _began: float = field(init=False, default_factory=time.monotonic)
    _started: str = field(init=False, default_factory=now)

    def take_part(
        self, name: str, run: Callable[[], Part], end: Callable[[], Any]
    ) -> AcrossVerdict:
        """Run a host's ranks beside the others'; return the verdict, which differs in `host`.

        + run: runs its launcher; returns the host's part, whatever becomes of it
        + end: asks the launcher to end; may be called while `run` works
        """
        watcher = gevent.spawn(self._end_with_the_others, end)
        try:
            part = run()
        finally:
            watcher.kill()
        self.meeting.say(_PART, name, part)
        patience = self._began + self.step.deadline + self.last_words_s - time.monotonic()
        told = self.meeting.hear(_PART, self.step.hosts, max(self.last_words_s, patience))
        judged: AcrossVerdict = self.meeting.once("verdict", lambda: self.judged(told))
        return replace(judged, host=name)

    def _end_with_the_others(self, end: Callable[[], Any]) -> None:
        """Wait for bad news of another host; then let this one's launcher end its ranks."""
        while not self._bad_news():
            gevent.sleep(_POLL_S)
        gevent.sleep(self.grace_s)
        end()

    def _bad_news(self) -> bool:
        told = self.meeting.said(_PART)
        bad = any(part.end.kind != "done" for part in told.values())
        return bad or bool(self.meeting.silent(_PART, self.step.hosts))

    def judged(self, told: Mapping[str, Part]) -> AcrossVerdict:
        """Return the verdict on what the hosts have told."""
        late = {
            host: Part(host, Ending("late", f"{host} did not finish in time", host=host))
            for host in self.step.hosts
        }
        try:
            return self._document({**late, **told})
        except Exception:  # a host's part is JSON, and nothing that a check can judge
            return self._document({host: gone(host, _NONSENSE) for host in self.step.hosts})

    def _document(self, parts: Mapping[str, Part]) -> AcrossVerdict:
        return across.document(self.step, parts, started=self._started, began=self._began)
