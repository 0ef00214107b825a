"""What is known of a run, and why it became so: in words, as a document, a line or a screen."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..terminal import columns, draws, one_line, paragraph, shortened
from . import host, runs, starting
from .host import CPU, Site, TrainError, above, moment
from .metrics import sampled
from .runs import Run, rank_of, tail_of

if TYPE_CHECKING:
    from ..diagnosis.explain import Answer

NARROW = 60
"""Columns; below that there are lines in place of a screen."""
_LINE_EVERY_S = 10.0
_BLOCKS = " ▁▂▃▄▅▆▇█"
_CURVE = 5  # lines
_TAIL = 256 << 10
_MOST_LOGS = 16
_MEMORY = "cuda-out-of-memory"
_KERNEL = ("Out of memory", "oom-kill", "Killed process", "Xid", "NVRM", "I/O error")


def duration(seconds: float) -> str:
    """Return a time such as "1:39:00"."""
    return str(timedelta(seconds=max(0, round(seconds))))


def words(known: Mapping[str, Any]) -> dict[str, str]:
    """Return what a step says, by its names; what it does not say is left out."""
    step, steps, found, speed = known.get("step"), known.get("steps"), {}, []
    for name, unit in (
        ("tokens_per_second", "tokens/s"), ("tokens_per_second_per_gpu", "tokens/s a GPU"),
        ("mfu", "% MFU"),
    ):  # fmt: skip
        if (value := known.get(name)) is not None:
            speed.append((f"{value:,.0f}" if value >= 100 else f"{value:.3g}") + f" {unit}")
    if step is not None:
        found["step"] = f"{step:,}" + (f"/{steps:,}" if steps else "")
    if known.get("loss") is not None:
        found["loss"] = f"{known['loss']:.5g}"
    elif "not_finite" in known:
        found["loss"] = known["not_finite"]
    return {**found, "speed": ", ".join(speed)} if speed else found


def document(run: Run) -> dict[str, Any]:
    """Return what `list --json` and a notification say of a run."""
    own = {key: value for key, value in asdict(run).items() if key != "folder"}
    more = {name: getattr(run, name) for name in ("across", "dirty", "outcome", "wrong", "nproc")}
    last = {"last": run.history.last or None, "words": words(run.history.last)}
    return {**own, **more, **last, "stalled_seconds": run.stalled}


def state_words(run: Run) -> str:
    """Return what a run does or became, and for how long it did."""
    text = f"{run.outcome}: {run.refused}" if run.refused else run.outcome
    if run.stalled is not None:
        text = f"stalled: no step for {duration(run.stalled)}"
    if run.outcome == "lost":
        reboot = run.boot_id != host.boot_id()
        text = f"lost: {'the host was restarted' if reboot else 'its supervisor was ended'}"
    if run.last is not None and (began := moment(run.last.started)) is not None:
        took = duration((moment(run.last.ended) or time.time()) - began)
        text += f", {'after' if run.last.ended else 'for'} {took}"
    return text + (f", attempt {len(run.attempts)}" if len(run.attempts) > 1 else "")


def rows_of(run: Run) -> Iterator[tuple[str, str]]:
    """Yield (name, words) of what is known of a run, for a line or a screen."""
    known, history = run.history.last, run.history
    if run.waits:
        yield "waits", run.waits
    for name, text in words(known).items():
        if name == "step" and known.get("steps"):
            text += f" ({min(1.0, known['step'] / known['steps']):.1%})"
        if name == "loss" and history.not_finite:
            text += f" since step {history.not_finite[0] or 0}"
        yield name, text
    if history.left is not None and not run.over and run.stalled is None:
        yield "left", f"{duration(history.left)}, {history.pace:.3g} s a step"
    with contextlib.suppress(OSError, TypeError, ValueError):
        if run.spec and (point := run.newest()):
            yield "saved", point.name
    for log in () if "step" in known else run.logs()[:1]:
        if lines := [line for line in tail_of(log, 64 << 10) if line.strip()]:
            yield "log", shortened(lines[-1], 300)


# -- watch


def _gpus(run: Run) -> Iterator[str]:
    """Yield what each GPU of a run does, while it is on."""
    try:
        known = [] if run.over or run.gpus in ([], [CPU]) else host.gpus()
        yield from (gpu.words for gpu in known if gpu.uuid in run.gpus)
    except TrainError as error:
        yield f"GPUs not known: {shortened(str(error), 100)}"


def line(run: Run) -> str:
    """Return a run on one line."""
    parts = (text if name == "speed" else f"{name} {text}" for name, text in rows_of(run))
    return " | ".join([time.strftime("%T"), state_words(run), *parts, *_gpus(run)])


def screen(run: Run, width: int) -> str:
    """Return a run on lines of at most so many columns."""
    about = [run.host, f"preset {run.preset}", *(f"{n}={v}" for n, v in run.overrides.items())]
    about += [f"commit {run.commit[:9]}{' and changes' if run.dirty else ''}"]
    hint = "Ctrl-C leaves, and the run continues; `train stop` ends it"
    if run.over:
        hint = f"train {'why' if run.failed else 'logs'} {run.run}"
    rows = [f"{name:5}  {text}" for name, text in rows_of(run)]
    head = [f"{run.run}  {state_words(run)}", " · ".join(about), "", *rows]
    curve, foot = chart(run.history.losses, width - 2), ["", *_gpus(run), hint]
    head, foot = ([one_line(text)[:width] for text in part] for part in (head, foot))
    return "\n".join([*head, *curve, *foot])


def watch(folder: Path, *, once: bool) -> int:
    """Show a run until it ends; return 2 where somebody should look at it."""
    drawn = draws(sys.stdout) and columns() >= NARROW
    shown: object = None
    printed, clear = float("-inf"), ""
    try:
        while True:
            run = runs.read(folder)
            now, ends = (run.history.last, run.outcome), once or run.over
            if drawn:
                print(clear + screen(run, columns()), flush=True)
                clear = "\x1b[H\x1b[J"
            elif ends or (now != shown and time.monotonic() - printed >= _LINE_EVERY_S):
                print(line(run), flush=True)
                shown, printed = now, time.monotonic()
            if ends:
                return 2 if run.wrong else 0
            time.sleep(1)
    except KeyboardInterrupt:
        print(f"\nthe run continues: `train watch {folder.name}` shows it again", file=sys.stderr)
        return 0


def chart(losses: Sequence[float], width: int) -> list[str]:
    """Return a curve in lines of blocks; the first steps are far above all others, so they end."""
    if len(losses) < 2:
        return []
    values = sampled(losses, width)
    low, high = min(values), sorted(values)[min(len(values) - 1, round(0.9 * len(values)))]
    scale = (_CURVE * 8 - 1) / (high - low) if high > low else 0
    levels = [1 + round((min(value, high) - low) * scale) for value in values]
    rows = reversed(range(_CURVE))
    return ["".join(_BLOCKS[max(0, min(8, each - 8 * row))] for each in levels) for row in rows]


# -- why


@dataclass(kw_only=True)
class Explanation:
    """Why a run failed, stands still or waits, and what to do about it: what `why --json` prints.

    + passing: whether it usually passes by itself
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
    answer: Answer | None = None

    def text(self, width: int) -> str:
        """Return it for people."""
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
    what = f"run {run.run}: {state_words(run)}"
    found = Explanation(run=run.run, what=what, outcome=run.outcome, facts=[*_facts(site, run)])
    found.rank = run.last.first_failed_rank if run.last else None
    ours = "\n".join(_own_words(run))
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
    with contextlib.suppress(ValueError):  # of the host, where the controller asks
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
    if run.goes_on and not run.unproven and (unproven := host.unproven(site)):
        yield f"it goes on when this is done: {unproven}: {starting.PROVE}"
    folders = [run.folder.parent] if run.failed else []
    folders += [above(saves)] if run.failed and (saves := run.saves) else []
    for folder in {each.stat().st_dev: each for each in folders}.values():
        if (free := shutil.disk_usage(folder).free >> 20) < 64:
            yield f"the disk that holds {folder} is full now: {free} MiB are free"
    if last is None:
        return
    if last.resumed_from:
        yield f"it began from {Path(last.resumed_from).name}"
    if last.stopped_by:
        yield f"it was stopped by {last.stopped_by}"
    if last.first_failed_rank is not None and run.nproc > 1:
        yield f"rank {last.first_failed_rank} of {run.nproc} failed first; the others were ended"
    if last.exit not in (None, 0, 1):
        number = -last.exit if last.exit < 0 else last.exit - 128
        named = number in {*signal.Signals}
        yield f"exit code {last.exit}" + (f" ({signal.Signals(number).name})" if named else "")


def _own_words(run: Run) -> Iterator[str]:
    """Yield what the launcher itself knows, in lines that the catalogue has entries for."""
    history, last = run.history, run.last
    until = moment(last.ended) if last and last.outcome else None
    outcome = last.outcome if last else None
    if outcome != "lost" and (waited := history.stalled(until or time.time())) is not None:
        yield f"train: no step for {waited:.0f} s, where one takes {history.pace or 0:.2f} s"
    if outcome == "failed" and last and last.exit in (-9, 128 + 9):
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
