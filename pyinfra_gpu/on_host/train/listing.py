"""What is known of a run, in words, as a document, a line, or a screen."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ..terminal import columns, draws, one_line, shortened
from . import host, runs
from .host import CPU, TrainError, moment
from .metrics import sampled
from .runs import Run, tail_of

NARROW = 60
"""Columns; below that there are lines in place of a screen."""
_LINE_EVERY_S = 10.0
_BLOCKS = " ▁▂▃▄▅▆▇█"
_CURVE = 5  # lines
_NOT_FINITE = {"nan": "NaN", "inf": "infinite", "-inf": "minus infinite"}


# -- words


def duration(seconds: float) -> str:
    """Return a time in its two largest units, such as "1 h 39 min"."""
    whole = max(0, round(seconds))
    for size, unit, smaller, below in (
        (86400, "d", 3600, "h"), (3600, "h", 60, "min"), (60, "min", 1, "s"),
    ):  # fmt: skip
        if whole >= size:
            rest = whole % size // smaller
            return f"{whole // size} {unit}" + (f" {rest} {below}" if rest else "")
    return f"{whole} s"


def words(known: Mapping[str, Any]) -> dict[str, str]:
    """Return what a step says, by its names; what it does not say is left out."""
    step, steps, loss, speed = known.get("step"), known.get("steps"), known.get("loss"), []
    for name, unit in (("tokens_per_second", ""), ("tokens_per_second_per_gpu", " a GPU")):
        if (value := known.get(name)) is not None:
            speed.append((f"{value:,.0f}" if value >= 100 else f"{value:.3g}") + f" tokens/s{unit}")
    if (mfu := known.get("mfu")) is not None:
        speed.append(f"MFU {mfu:.1f} %")
    found = {
        "step": "" if step is None else f"{step:,}" + (f"/{steps:,}" if steps else ""),
        "loss": _NOT_FINITE.get(known.get("not_finite", ""), ""),
        "speed": ", ".join(speed),
    }
    if loss is not None:
        found["loss"] = f"{loss:.4f}" if loss == 0 or 1e-3 <= abs(loss) < 1e5 else f"{loss:.3e}"
    return {name: text for name, text in found.items() if text}


def document(run: Run) -> dict[str, Any]:
    """Return what `list --json` and a notification say of a run."""
    own = {key: value for key, value in asdict(run).items() if key != "folder"}
    more = {name: getattr(run, name) for name in ("across", "outcome", "wrong", "nproc")}
    last = {"last": run.history.last or None, "words": words(run.history.last)}
    return {**own, **more, **last, "stalled_seconds": run.stalled}


# -- one run


def state_words(run: Run) -> str:
    """Return what a run does or became, and for how long it did."""
    words = f"{run.outcome}: {run.refused}" if run.refused else run.outcome
    if run.stalled is not None:
        words = f"stalled: no step for {duration(run.stalled)}"
    if run.outcome == "lost":
        reboot = run.boot_id != host.boot_id()
        words = f"lost: {'the host was restarted' if reboot else 'its supervisor was ended'}"
    if run.last is not None and (began := moment(run.last.started)) is not None:
        took = duration((moment(run.last.ended) or time.time()) - began)
        words += f", {'after' if run.last.ended else 'for'} {took}"
    return words


def rows_of(run: Run) -> Iterator[tuple[str, str]]:
    """Yield (name, words) of what is known of a run, for a line or a screen."""
    known, history = run.history.last, run.history
    if run.waits:
        until = time.strftime("%F %T", time.localtime(moment(run.waits.get("until")) or 0))
        yield "waits", f"until {until} for {run.waits.get('for')}"
    for name, text in words(known).items():
        if name == "step" and known.get("steps"):
            text += f" ({min(1.0, known['step'] / known['steps']):.1%})"
        if name == "loss" and history.not_finite:
            text += f" since step {history.not_finite[0] or 0}"
        yield name, text
    if history.left is not None and not run.over and run.stalled is None:
        until = time.strftime("%H:%M", time.localtime(time.time() + history.left))
        yield "left", f"{duration(history.left)}, until {until}; {history.pace:.3g} s a step"
    with contextlib.suppress(OSError, TypeError, ValueError):
        if run.spec and (point := run.newest()):
            ago = "" if run.over else f", {duration(time.time() - point.stat().st_mtime)} ago"
            yield "saved", f"{point.name}{ago}"
    for log in () if "step" in known else run.logs()[:1]:
        if lines := [line for line in tail_of(log, 64 << 10) if line.strip()]:
            yield "log", shortened(lines[-1], 300)


def machine(run: Run) -> Iterator[str]:
    """Yield what each GPU of a run does, and the host's memory, while it is on."""
    if run.over:
        return
    try:
        known = [] if run.gpus in ([], [CPU]) else host.gpus()
        yield from (gpu.words for gpu in known if gpu.uuid in run.gpus)
    except TrainError as error:
        yield f"GPUs not known: {shortened(str(error), 100)}"
    total, available = host.memory_gib()
    yield f"RAM {total - available:.1f}/{total:.1f} GiB"


def line(run: Run) -> str:
    """Return a run on one line."""
    parts = (text if name == "speed" else f"{name} {text}" for name, text in rows_of(run))
    return " | ".join([time.strftime("%T"), state_words(run), *parts, *machine(run)])


def screen(run: Run, width: int) -> str:
    """Return a run on lines of at most so many columns."""
    about = [run.host, f"preset {run.preset}", *(f"{n}={v}" for n, v in run.overrides.items())]
    about += [f"commit {run.commit[:9]}{' and changes' if run.dirty else ''}"]
    about += [f"attempt {len(run.attempts)}"] if len(run.attempts) > 1 else []
    about += ["unproven host"] if run.unproven else []
    rows = (f"{name:5}  {text}" for name, text in rows_of(run))
    hint = f"train {'why' if run.failed else 'logs'} {run.run}"
    hint = hint if run.over else "Ctrl-C leaves, and the run continues; `train stop` ends it"
    curve = chart(run.history.losses, width - 2)
    lines = [
        f"{run.run}  {state_words(run)}",
        " · ".join(about),
        "",
        *rows,
        *curve,
        "",
        *machine(run),
        hint,
    ]
    return "\n".join(text if text in curve else one_line(text)[:width] for text in lines)


def watch(folder: Path, *, plain: bool, once: bool) -> int:
    """Show a run until it ends; return 2 where somebody should look at it."""
    drawn = draws(sys.stdout) and columns() >= NARROW and not plain
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
