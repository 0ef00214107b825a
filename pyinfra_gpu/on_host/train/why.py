"""Why a run failed, stands still or waits, and what to do about it."""

from __future__ import annotations

import json
import os
import shutil
import signal
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..terminal import columns, paragraph
from . import checks, host, starting
from .host import Site, above, moment
from .listing import rows_of, state_words
from .runs import Run, rank_of, tail_of

if TYPE_CHECKING:
    from ..diagnosis.explain import Answer

_TAIL = 256 << 10
_MOST_LOGS = 16
_MEMORY = "cuda-out-of-memory"
_KERNEL = ("Out of memory", "oom-kill", "Killed process", "Xid", "NVRM", "I/O error")


@dataclass(kw_only=True)
class Explanation:
    """What `why --json` prints, beside the text that people read.

    + ended: when its rank failed, or it ended otherwise; + across: the hosts of such a run
    + answer: the catalogue's, of a run that failed
    """

    run: str
    what: str
    outcome: str
    id: str | None = None
    rank: int | None = None
    cause: str | None = None
    facts: list[str] = field(default_factory=list)
    passing: bool = False
    across: list[str] | None = None
    ended: float | None = None
    answer: Answer | None = None

    def as_json(self) -> dict[str, Any]:
        return {**asdict(self), "text": self.text(columns())}

    def text(self, width: int) -> str:
        from ..diagnosis import writing

        lines = paragraph(self.what, width=width)
        for fact in self.facts:
            lines += paragraph(fact, "  ", "  ", width=width)
        if self.answer:
            lines += ["", *writing.lines(self.answer, width=width)]
        return "\n".join(lines)


def explain(site: Site, run: Run) -> Explanation:
    """Explain one run, as far as its logs and the host say."""
    if run.damaged:
        return Explanation(run=run.run, what=run.damaged, outcome=run.outcome)
    last, ended = run.last, None
    if last is not None and last.outcome is not None:
        ended = last.failed_at or moment(last.ended)
    found = Explanation(
        run=run.run,
        what=f"run {run.run}: {state_words(run)}",
        outcome=run.outcome,
        rank=last.first_failed_rank if last else None,
        facts=[*_facts(site, run)],
        across=run.across,
        ended=ended,
    )
    ours = "\n".join(_own_words(run, ended or time.time()))
    if run.failed or ours:
        _diagnose(run, found, ours)
    return found


def _diagnose(run: Run, found: Explanation, ours: str) -> None:
    """Add what the catalogue says, and what helps whatever the cause."""
    from ..diagnosis.causes import carried
    from ..diagnosis.explain import explain

    if run.across:
        others = ", ".join(run.across)
        found.facts.append(f"it was one run of {others}: see `train why {run.run}` there too")
    first, known, facts = found.rank, carried(), {}
    with suppress(ValueError):  # of the host, where the controller asks
        facts = json.loads(os.environ.get("PYINFRA_GPU_HOST_FACTS", "{}"))
    logs = sorted(run.logs()[:_MOST_LOGS], key=lambda log: rank_of(log) != first)
    texts = {f"rank {rank_of(log)}": "\n".join(tail_of(log, _TAIL)) for log in logs}
    texts["launcher"] = "\n".join(tail_of(run.attempt() / "launcher.log", _TAIL))
    texts["kernel"] = "\n".join(_kernel(run))
    texts = {name: text for name, text in texts.items() if text}
    answer = found.answer = replace(explain({**texts, "train": ours}, known, facts), failed=True)
    if answer.found:
        root = answer.found[0]
        found.id, found.cause = root.name, root.cause
        found.passing = known.entries[root.name].transient
        found.rank = root.rank if first is None else first
    if run.failed and found.id != _MEMORY and (point := run.resumable()):
        where = " --across GROUP" if run.across else ""
        found.facts.append(f"`train resume {run.run}{where}` continues from {point.name}")


def _facts(site: Site, run: Run) -> Iterator[str]:
    last = run.last
    yield from (f"{name} {words}" for name, words in rows_of(run))
    if run.state == "queued":
        yield f"it {starting.waits_for(site, run)}"
    if run.waits_for_boot and not run.unproven and (unproven := host.unproven(site)):
        yield f"{unproven}: {checks.PROVE}"
    if len(run.attempts) > 1 and last is not None:
        point = Path(last.resumed_from).name if last.resumed_from else "the beginning"
        yield f"attempt {last.number} began from {point}"
    if last is not None and last.stopped_by:
        yield f"it was stopped by {last.stopped_by}"
    if last is not None and last.first_failed_rank is not None and run.nproc > 1:
        yield f"rank {last.first_failed_rank} of {run.nproc} failed first; the others were ended"
    if last is not None and last.exit not in (None, 0, 1):
        number = -last.exit if last.exit < 0 else last.exit - 128
        named = number in {*signal.Signals}
        yield f"exit code {last.exit}" + (f" ({signal.Signals(number).name})" if named else "")
    folders = [run.folder.parent] if run.failed else []
    if run.failed and (saves := run.saves):
        folders.append(above(saves))
    for folder in {each.stat().st_dev: each for each in reversed(folders)}.values():
        if (free := shutil.disk_usage(folder).free >> 20) < 64:
            yield f"the disk that holds {folder} is full now: {free} MiB are free"


def _own_words(run: Run, until: float) -> Iterator[str]:
    """Yield what the launcher itself knows, in lines that the catalogue has entries for."""
    history, outcome = run.history, run.last.outcome if run.last else None
    if outcome != "lost" and (waited := history.stalled(until)) is not None:
        yield f"train: no step for {waited:.0f} s, where one takes {history.pace or 0:.2f} s"
    if outcome == "failed" and run.last and run.last.exit in (-9, 128 + 9):
        yield "train: the program was killed by SIGKILL"
    if outcome == "lost" and run.boot_id != host.boot_id():
        yield f"train: the host was restarted while run {run.run} was on"
    elif outcome == "lost":
        yield f"train: the supervisor of run {run.run} was ended before the run was"
    if history.not_finite:
        at, word = history.not_finite
        yield f"train: the loss is {word} since step {at or 0}"


def _kernel(run: Run) -> list[str]:
    """Return what the kernel said of failures since a run began, as far as this user may read."""
    if run.last is None or (began := moment(run.last.started)) is None:
        return []
    words = ("journalctl", "-k", "-q", "--no-pager", "-o", "short", "-n", "2000")
    said = host.call(*words, "--since", f"@{began:.0f}", seconds=5)
    lines = said.stdout.splitlines()
    return [line for line in lines if any(word in line for word in _KERNEL)]
