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
from pyinfra_gpu.on_host.smoke.across import End, Part, Step
from pyinfra_gpu.on_host.smoke.document import AcrossVerdict

_PART = "part"
_PART_LIMIT = 4 * 2**20
"""Bytes of one; sixteen ranks write some hundred thousand."""
_NONSENSE = "told something that cannot be judged: is it the same pyinfra-gpu there?"
_GRACE_S = 5.0
"""Seconds that the others go on after the first bad news: what follows often narrows the cause."""
_POLL_S = 0.1
_LAST_WORDS_S = 30.0
"""Seconds after the deadline in which a launcher ends its ranks and leaves its part."""


@dataclass(frozen=True)
class Member:
    """One host of the step: how its launcher is run, and how it is asked to end.

    + run: returns the host's part, whatever becomes of it; end: may be called while `run` works
    """

    name: str
    run: Callable[[], Part]
    end: Callable[[], Any]


def gone(host: str, why: str) -> Part:
    """Return the part of a host that has told nothing."""
    return Part(host, End("gone", host, why))


def read(text: str, run_id: str) -> Part | None:
    """Return the part in a host's file; None where it is of another run, or not a part."""
    part = document.read(Part, text, limit=_PART_LIMIT)
    if not isinstance(part, Part) or part.run_id != run_id:
        return None
    end = replace(part.end, sentence=part.end.sentence[:2000], tail=across.shortened(part.end.tail))
    return replace(part, end=end)


@dataclass
class Trained:
    """A step as one of its hosts goes through it."""

    meeting: Together
    step: Step
    grace_s: float = _GRACE_S
    last_words_s: float = _LAST_WORDS_S
    _began: float = field(init=False, default_factory=time.monotonic)
    _started: str = field(init=False, default_factory=lambda: _now())

    def take_part(self, member: Member) -> AcrossVerdict:
        """Run this host's ranks beside the others'; return the verdict, which differs in `host`."""
        watcher = gevent.spawn(self._end_with_the_others, member)
        try:
            part = member.run()
        finally:
            watcher.kill()
        self.meeting.say(_PART, member.name, part)
        patience = self._began + self.step.deadline + self.last_words_s - time.monotonic()
        told = self.meeting.hear(_PART, self.step.hosts, max(self.last_words_s, patience))
        judged: AcrossVerdict = self.meeting.once("verdict", lambda: self._judged(told))
        return replace(judged, host=member.name)

    def _end_with_the_others(self, member: Member) -> None:
        """Wait for bad news of another host; then let this one's launcher end its ranks."""
        while not self._bad_news():
            gevent.sleep(_POLL_S)
        gevent.sleep(self.grace_s)
        member.end()

    def _bad_news(self) -> bool:
        told = self.meeting.said(_PART)
        bad = any(not part.end.good for part in told.values())
        return bad or bool(self.meeting.silent(_PART, self.step.hosts))

    def _judged(self, told: Mapping[str, Part]) -> AcrossVerdict:
        parts = {
            host: told.get(host) or Part(host, End("late", host, f"{host} did not finish in time"))
            for host in self.step.hosts
        }
        try:
            return self._document(self.step, parts)
        except Exception:  # a host's part is JSON, and nothing that a check can judge
            sound = {host: part for host, part in parts.items() if self._is_sound(host, part)}
            odd = {host: gone(host, f"{host} {_NONSENSE}") for host in parts}
            return self._document(self.step, {**odd, **sound})

    def _is_sound(self, host: str, part: Part) -> bool:
        """Tell whether a host's part can be judged by itself, as a step of that host alone."""
        fingerprints = {host: self.step.fingerprints[host]}
        alone = replace(self.step, hosts={host: self.step.hosts[host]}, fingerprints=fingerprints)
        ranks = enumerate(part.journals.values())
        journals = {number: replace(journal, rank=number) for number, journal in ranks}
        try:
            self._document(alone, {host: replace(part, journals=journals)})
        except Exception:
            return False
        return True

    def _document(self, step: Step, parts: Mapping[str, Part]) -> AcrossVerdict:
        return across.document(
            step,
            parts,
            started=self._started,
            finished=_now(),
            seconds=time.monotonic() - self._began,
        )


def _now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
