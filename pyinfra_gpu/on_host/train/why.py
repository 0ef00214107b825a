"""Why a run failed, or makes no progress: one cause, the lines that show it, and what to do.

The host explains by itself, by the catalogue that was packed with this program: whoever sits there
at night has no controller at hand. What no log says, that there are no steps any more or that the
loss is no number, is put into words of ours, which the catalogue knows as well.
"""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from ..diagnosis.causes import Catalogue, carried
from ..diagnosis.explain import Answer, Found, explain
from . import account, calling, evidence, together
from .advice import MEMORY, smaller
from .evidence import Kernel
from .explanation import LAST_LINES, Explanation
from .record import Run, settled_run
from .watch.history import History

_DISK_FULL = "disk-full"
_GOING = {"starting": "is starting", "stopping": "is being ended"}
_FOLLOWS = {
    "launcher-repeats",
    "nccl-peer-gone",
    "nccl-reason-missing",
    "store-connection-lost",
    "store-key-timeout",
    "store-not-reached",
}
"""Entries that say only that another process ended or was not heard of any more."""

_RESUMES = re.compile(r"`(?:pyinfra-gpu )?train (?:\S{1,300} )?resume\b")


def why(
    run_directory: Path,
    *,
    known: Catalogue | None = None,
    smaller_preset: str = "",
    gpus: str = "",
    queued: str = "",
    others: Sequence[str] = (),
    go_on: str = "",
    now: float | None = None,
    kernel: Kernel | None = None,
) -> Explanation:
    """Explain a run.

    + known: the catalogue; the one that travels with this program if None
    + smaller_preset: the next smaller preset that is known to fit; mostly nobody knows one
    + gpus: those that it had, where they were not all of the host
    + queued: what a run in the queue waits for, a sentence; see `commands.telling`
    + others: the hosts that train it together with this one
    + go_on: how it goes on from its newest checkpoint, a sentence; empty where it cannot
    + now, kernel: of the host, for tests
    """
    run = settled_run(run_directory)
    if run is None:
        return Explanation(run=run_directory.name, what=f"{run_directory} holds no run")
    if run.state == "queued":
        what = f"run {run.name} waits in the queue: nothing has failed"
        return Explanation(run=run.name, what=what, facts=(queued,) if queued else ())
    moment = time.time() if now is None else now
    history = History(run_directory / "metrics.jsonl")
    history.follow()
    if run.last is not None:
        history.begin(run.last.number)
    ours = tuple(account.own_words(run, history, moment))
    seen = _Seen(run, account.what(run, history, moment), ours, others)
    if not ours and (nothing := _nothing_failed(seen)) is not None:
        return nothing
    return _failed(
        seen,
        known or carried(),
        evidence.kernel_said(run, kernel or evidence.kernel_lines),
        advised=(smaller_preset, gpus),
        go_on=go_on,
    )


@dataclass(frozen=True, slots=True)
class _Seen:
    """A run, what became of it, what no log of it says, and who trains it together with here."""

    run: Run
    what: str
    ours: tuple[str, ...]
    others: Sequence[str]


def _nothing_failed(seen: _Seen) -> Explanation | None:
    run, last = seen.run, seen.run.last
    if not run.over:
        waits = run.state == "starting" and seen.others
        facts = (f"it waits for {', '.join(seen.others)}",) if waits else account.before(run)
        what = f"run {run.name} {_GOING.get(run.state, 'goes on')}: nothing has failed"
        return Explanation(run=run.name, what=what, facts=tuple(facts), across=run.across)
    if last is None or last.outcome not in ("finished", "stopped"):
        return None
    done = Explanation(run=run.name, what=seen.what, facts=tuple(account.stopped_by(run)))
    if last.outcome == "finished":
        return done
    return replace(done, stopped=True, across=run.across, ended=last.ended)


def _failed(
    seen: _Seen, known: Catalogue, kernel: str, *, advised: tuple[str, str], go_on: str
) -> Explanation:
    run, logs = seen.run, evidence.logs(seen.run)
    if (sentence := together.not_shared(run, logs)) is not None:
        # It is what the rank's own error means, and that alone would be the cause.
        answer = explain({"train": sentence}, known)
    else:
        texts = {**logs, "kernel": kernel, "train": "\n".join(seen.ours)}
        answer = explain({name: text for name, text in texts.items() if text}, known)
    found = _explained(seen, answer, known, advised)
    found = replace(found, ended=together.failed_at(run, found.evidence) or found.ended)
    said = any(_RESUMES.search(each) for each in found.fix)
    if said or found.id == MEMORY or not run.failed:
        return found
    if found.id == _DISK_FULL and go_on:
        go_on = f"When there is room: {go_on[0].lower()}{go_on[1:]}"
    return replace(found, go_on=go_on)


def _explained(
    seen: _Seen, answer: Answer, known: Catalogue, advised: tuple[str, str]
) -> Explanation:
    run, first = seen.run, seen.run.first_failed_rank
    root = next(iter(answer.found), None)
    found = Explanation(
        run=run.name,
        what=seen.what,
        rank=first,
        facts=tuple(account.facts(run, first)),
        across=run.across,
        ended=run.last.ended if run.last and run.over else None,
    )
    if lost := _peer_lost(run, root, first, known) if seen.others else ():
        facts = (*found.facts, _elsewhere(run.name, seen.others))
        return replace(found, evidence=lost, facts=facts, secondary=True)
    if root is None:
        last = evidence.last_words(run, first) or answer.unexplained.splitlines()[-LAST_LINES:]
        return replace(found, evidence=tuple(last), more=calling.typed(*evidence.more(run, first)))
    return replace(
        found,
        id=root.name,
        rank=root.rank if first is None else first,
        evidence=(root.line,),
        cause=root.cause,
        fix=tuple(map(calling.said, _fix(run, root, *advised))),
        passing=known.entries[root.name].transient,
    )


def _peer_lost(
    run: Run, root: Found | None, first: int | None, known: Catalogue
) -> tuple[str, ...]:
    """Return the lines by which the ranks here only tell that others ended; empty if they do not.

    What a rank said last is what ended it: an error of its own would stand there.
    """
    if root is not None:
        return (root.line,) if root.name in _FOLLOWS else ()
    last = evidence.last_words(run, first) or evidence.launchers_last_words(run)
    said = explain({f"rank {first or 0}": "\n".join(last)}, known)
    return tuple(last[-1:]) if _FOLLOWS & {each.name for each in said.found} else ()


def _elsewhere(run: str, others: Sequence[str]) -> str:
    """Say that the cause may be on another host, and how to see it there."""
    asked = calling.caller()
    if asked is None:
        there = f"`train why {run}` there"
        there += f", or `pyinfra-gpu train INVENTORY why -- {run}` on the controller"
    else:
        limits = tuple(word for name in others for word in ("--limit", name))
        there = f"`{replace(asked, chosen=limits).typed(['why', run])}`"
    return f"its ranks lost those of {' and '.join(others)}: the cause may be there, see {there}"


def _fix(run: Run, root: Found, smaller_preset: str, gpus: str) -> tuple[str, ...]:
    """Return what to do; of memory, first in the words of this run's own command line."""
    steps = tuple(together.on_all_hosts(run, str(each)) for each in root.fix)
    ours = smaller(run, smaller_preset, gpus) if root.name == MEMORY else ()
    return (*ours, *steps[:2]) if ours else steps
