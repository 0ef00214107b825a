"""Why a run failed, or makes no progress: one cause, the lines that show it, and what to do.

The host explains by itself, by the catalogue that was packed with this program: whoever sits there
at night has no controller at hand. What no log says, that there are no steps any more or that the
loss is no number, is put into words of ours, which the catalogue knows as well.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from ..diagnosis.entries import Catalogue, carried
from ..diagnosis.log import Source
from ..diagnosis.matcher import Diagnosis, Finding, diagnose
from . import calling, together, unwritten, words
from .advice import MEMORY, smaller
from .explanation import LAST_LINES, Explanation
from .record import Run, rank_of, settled_run, tail_of, unstamped
from .watch.history import History

_TAIL = 256 << 10  # bytes of one rank's log
_MOST_LOGS = 16
_KERNEL_LIMIT_S = 5.0
_LITTLE_MIB = 64  # free on a disk that is full for all that training writes
_KILLED = (-9, 128 + 9)  # by SIGKILL; of torchrun itself, or of the one process of a preset

_GOING = {"starting": "is starting", "stopping": "is being ended"}
_FOLLOWS = ("STORE-02", "STORE-06", "STORE-10", "STORE-12", "NCCL-11", "NCCL-12")
"""Entries that say only that another process ended or was not heard of any more."""

_RESUMES = re.compile(r"`(?:pyinfra-gpu )?train (?:\S{1,300} )?resume\b")

Kernel = Callable[[float], Sequence[str]]
"""Returns the kernel's lines since a moment, as far as this user may read them."""


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
    now = time.time() if now is None else now
    history = History(run_directory / "metrics.jsonl")
    history.follow()
    ours = list(_own_words(run, history, now))
    if not run.over and not ours:
        waits = run.state == "starting" and others
        facts = (f"it waits for {', '.join(others)}",) if waits else tuple(_before(run))
        what = f"run {run.name} {_GOING.get(run.state, 'goes on')}: nothing has failed"
        return Explanation(run=run.name, what=what, facts=facts, across=run.across)
    if run.last is not None and run.last.outcome in ("finished", "stopped") and not ours:
        stopped = run.last.outcome == "stopped"
        return Explanation(
            run=run.name,
            what=_what(run, history, now),
            facts=tuple(_stopped_by(run)),
            stopped=stopped,
            across=run.across if stopped else (),
            ended=run.last.ended if stopped else None,
        )
    known = carried() if known is None else known
    logs = _logs(run)
    lines = _kernel_lines(run, kernel or kernel_lines)
    if (sentence := together.not_shared(run, logs)) is not None:
        # It is what the rank's own error means, and that alone would be the cause.
        diagnosis = diagnose([Source(sentence)], known)
    else:
        diagnosis = diagnose([*logs, *map(Source, lines), *map(Source, ours)], known)
    fix = partial(_fix, run, smaller_preset=smaller_preset, gpus=gpus)
    found = _explained(run, history, diagnosis, known, fix, others, now)
    found = replace(found, ended=together.failed_at(run, found.evidence) or found.ended)
    said = any(_RESUMES.search(each) for each in found.fix)
    return found if said or found.id == MEMORY or not run.failed else replace(found, go_on=go_on)


def _explained(
    run: Run,
    history: History,
    diagnosis: Diagnosis,
    known: Catalogue,
    fix: Callable[[Finding], tuple[str, ...]],
    others: Sequence[str],
    now: float,
) -> Explanation:
    root = next((each for each in diagnosis.findings if each.kind == "root"), None)
    first = run.last.first_failed_rank if run.last else None
    what, facts = _what(run, history, now), tuple(_facts(run, first))
    ended = run.last.ended if run.last and run.over else None
    lost = _peer_lost(run, root, first, known) if others else ()
    if lost:
        return Explanation(
            run=run.name,
            what=what,
            rank=first,
            evidence=lost,
            facts=(*facts, elsewhere(run.name, others)),
            secondary=True,
            across=run.across,
            ended=ended,
        )
    if root is None:
        last = tuple(_last_words(run, first)) or diagnosis.tail[-LAST_LINES:]
        return Explanation(
            run=run.name,
            what=what,
            rank=first,
            evidence=last,
            facts=facts,
            more=calling.typed("logs", run.name),
            across=run.across,
            ended=ended,
        )
    return Explanation(
        run=run.name,
        what=what,
        across=run.across,
        ended=ended,
        id=root.id,
        rank=root.rank if first is None else first,
        evidence=root.shown_by,
        cause=root.cause,
        fix=tuple(map(calling.said, fix(root))),
        facts=facts,
        passing=root.passing,
    )


def _peer_lost(
    run: Run, root: Finding | None, first: int | None, known: Catalogue
) -> tuple[str, ...]:
    """Return the lines by which the ranks here only tell that others ended; empty if they do not.

    What a rank said last is what ended it: an error of its own would stand there.
    """
    if root is not None:
        return (root.evidence,) if root.id in _FOLLOWS else ()
    last = _last_words(run, first) or [
        unstamped(line)[1] for line in tail_of(_launcher_log(run), _TAIL)[-LAST_LINES:]
    ]
    said = diagnose([Source("\n".join(last), first)], known)
    follows = {*said.suppressed, *(each.id for each in said.findings)} & {*_FOLLOWS}
    return tuple(last[-1:]) if follows else ()


def _launcher_log(run: Run) -> Path:
    number = run.last.number if run.last else 1
    return run.folder / "attempts" / str(number) / "launcher.log"


def elsewhere(run: str, others: Sequence[str]) -> str:
    """Say that the cause may be on another host, and how to see it there."""
    asked = calling.caller()
    if asked is None:
        there = f"`train why {run}` there"
        there += f", or `pyinfra-gpu train INVENTORY why -- {run}` on the controller"
    else:
        limits = tuple(word for name in others for word in ("--limit", name))
        there = f"`{replace(asked, chosen=limits).typed(['why', run])}`"
    return f"its ranks lost those of {' and '.join(others)}: the cause may be there, see {there}"


def _fix(run: Run, root: Finding, *, smaller_preset: str, gpus: str) -> tuple[str, ...]:
    """Return what to do; of memory, first in the words of this run's own command line."""
    if root.id != MEMORY:
        return tuple(together.on_all_hosts(run, each) for each in root.fix)
    ours = smaller(run, smaller_preset, gpus)
    return (*ours, *root.fix[:2]) if ours else root.fix


def _what(run: Run, history: History, now: float) -> str:
    last = run.last
    name = f"run {run.name}"
    at = history.last.get("step")
    place = f" at step {at:,.0f}" if at is not None else " before its first step"
    if at is None and run.across:
        place = ""  # of several hosts one alone prints the steps
    if last is None or not run.over:
        if (waited := history.stalled(now)) is not None:
            return f"{name} stands still{place}: no step for {words.duration(waited)}"
        return f"{name} goes on{place}, and its loss is no number any more"
    known = last.started is not None and last.ended is not None
    after = f" after {words.duration((last.ended or 0) - (last.started or 0))}" if known else ""
    if run.cut_off:
        return f"{name} was lost{place}: the host was started anew"
    if run.unsupervised:
        # When it ended nobody wrote down: the moment in the record is that of the first look.
        return f"{name} was lost{place}: its supervisor was ended"
    word = {"lost": "was lost", "stopped": "was stopped"}.get(last.outcome, last.outcome or "ended")
    if last.outcome == "finished":
        return f"{name} finished{after}: nothing has failed"
    return f"{name} {word}{after}{place}"


def _facts(run: Run, first: int | None) -> Iterator[str]:
    """Tell what the host says, where it says more than the log."""
    last = run.last
    yield from _before(run)
    yield from _stopped_by(run)
    if unwritten.kept(run.folder):
        yield unwritten.TOLD
    if run.waits:
        yield run.waits
    if first is not None and run.nproc and run.nproc > 1:
        yield f"rank {first} of {run.nproc} failed first; the others were ended after it"
    if last is not None and last.exit is not None and last.exit not in (0, 1):
        yield f"exit code {last.exit}{_signal(last.exit)}"
    try:
        free = shutil.disk_usage(run.folder).free >> 20
    except OSError:
        return
    if free < _LITTLE_MIB:
        yield f"the disk that holds {run.folder} is full now: {free} MiB are free"


def _stopped_by(run: Run) -> Iterator[str]:
    """Tell who stopped it; a shutdown, which stops it as well, is nobody."""
    if run.last is not None and run.last.stopped_by:
        yield f"it was stopped by {run.last.stopped_by}"


def _before(run: Run) -> Iterator[str]:
    """Tell of the attempt before the last one."""
    if len(run.attempts) < 2:
        return
    before, last = run.attempts[-2:]
    cause = f" ({before.cause})" if before.cause else ""
    point = Path(last.resumed_from).name if last.resumed_from else "the beginning"
    yield f"attempt {before.number} {before.outcome}{cause}; {last.number} began from {point}"


def _signal(code: int) -> str:
    number = -code if code < 0 else code - 128
    names = {6: "SIGABRT", 9: "SIGKILL", 11: "SIGSEGV", 15: "SIGTERM", 7: "SIGBUS"}
    return f" ({names[number]})" if number in names else ""


def _own_words(run: Run, history: History, now: float) -> Iterator[str]:
    """Say what no log does, as the catalogue knows it."""
    over = run.over
    ended = run.last.ended if run.last and run.last.ended is not None else now
    waited = history.stalled(ended if over else now)
    if waited is not None and not (run.cut_off or run.unsupervised):
        yield f"train: no step for {waited:.0f} s, where one takes {history.pace() or 0:.2f} s"
    if run.last and run.last.outcome == "failed" and run.last.exit in _KILLED:
        yield "train: the program was killed by SIGKILL"
    if run.cut_off:
        yield f"train: the host was started anew while run {run.name} was on"
    if run.unsupervised:
        yield f"train: the supervisor of run {run.name} was ended before the run was"
    if history.not_finite:
        at, word = history.not_finite
        yield f"train: the loss is {word} since step {at if at is not None else 0}"


def _logs(run: Run) -> list[Source]:
    """Return the ends of the logs, that of the rank that failed first before the others."""
    first = run.last.first_failed_rank if run.last else None
    logs = sorted(run.logs()[:_MOST_LOGS], key=lambda log: rank_of(log) != first)
    found = [Source(_text(log), rank_of(log)) for log in logs]
    if run.last is not None:
        found.append(Source(_text(_launcher_log(run))))
    return [each for each in found if each.text]


def _text(log: Path) -> str:
    return "\n".join(unstamped(line)[1] for line in tail_of(log, _TAIL))


def _last_words(run: Run, first: int | None) -> list[str]:
    """Return the last lines of the rank that failed first, else of rank 0."""
    logs = sorted(run.logs(), key=lambda log: rank_of(log) != (first or 0))
    return [unstamped(line)[1] for line in tail_of(logs[0], _TAIL)[-LAST_LINES:]] if logs else []


def _kernel_lines(run: Run, kernel: Kernel) -> list[str]:
    started = run.last.started if run.last else None
    telling = ("Out of memory", "oom-kill", "Killed process", "Xid", "NVRM", "I/O error")
    lines = kernel(started) if started is not None else ()
    return ["\n".join(line for line in lines if any(word in line for word in telling))]


def kernel_lines(since: float) -> Sequence[str]:
    """Return what the kernel said since then; nothing where this user may not read it."""
    command = ["journalctl", "-k", "-q", "--no-pager", "-o", "short", "-n", "2000"]
    try:
        done = subprocess.run(
            [*command, "--since", f"@{since:.0f}"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=_KERNEL_LIMIT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ()
    return done.stdout[-(1 << 20) :].decode("utf-8", "replace").splitlines()
