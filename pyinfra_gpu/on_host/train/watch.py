"""A run as it goes: a screen that is drawn anew each second, or lines."""

from __future__ import annotations

import contextlib
import os
import re
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..terminal import columns, draws, shortened
from . import host, runs
from .host import CPU, TrainError, moment
from .metrics import History
from .runs import Run, rank_of

if TYPE_CHECKING:
    from rich.console import RenderableType

NARROW = 60
"""Columns; below that there are lines in place of a screen."""
_LINE_EVERY_S = 10.0
_BLOCKS = " ▁▂▃▄▅▆▇█"
_WARNING = re.compile(r"\b(?:WARN(?:ING)?|\w{0,40}[Ww]arning)\b|(?:^|[\[ ])W\d{4} \d\d:|\[W ")
_HARMLESS = "[c10d] The hostname of the client socket cannot be retrieved"
_COLOURS = {"running": "green", "finished": "green", "failed": "red", "lost": "red"}


# -- words, which the report uses as well


def duration(seconds: float) -> str:
    """Return a time in its two largest units, such as "1 h 39 min"."""
    whole = max(0, round(seconds))
    for size, unit, smaller, below in ((86400, "d", 3600, "h"), (3600, "h", 60, "min")):
        if whole >= size:
            rest = whole % size // smaller
            return f"{whole // size} {unit}" + (f" {rest} {below}" if rest else "")
    if whole < 60:
        return f"{whole} s"
    minutes, rest = divmod(whole, 60)
    return f"{minutes} min" + (f" {rest} s" if rest and minutes < 10 else "")


def loss_words(value: float) -> str:
    return f"{value:.4f}" if value == 0 or 1e-3 <= abs(value) < 1e5 else f"{value:.3e}"


def no_number(word: str) -> str:
    """Return how a loss that is no number is called."""
    return {"nan": "NaN", "inf": "infinite", "-inf": "minus infinite"}.get(word, "no number")


def bounds(values: Sequence[float]) -> tuple[float, float]:
    """Return what a curve is drawn between: first steps are far above all others."""
    ordered = sorted(values)
    return ordered[0], ordered[min(len(ordered) - 1, round(0.9 * len(ordered)))]


def chart(values: Sequence[float], width: int, height: int) -> list[str]:
    """Return a curve in lines of blocks."""
    if not values:
        return []
    count = min(width, len(values))
    ends = [round(n * len(values) / count) for n in range(count + 1)]
    means = [sum(values[a:b]) / (b - a) for a, b in pairwise(ends)]
    low, high = bounds(means)
    scale = (height * 8 - 1) / (high - low) if high > low else 0
    levels = [1 + round((min(value, high) - low) * scale) for value in means]
    rows = reversed(range(height))
    return ["".join(_BLOCKS[max(0, min(8, each - 8 * row))] for each in levels) for row in rows]


def tail_of(path: Path, size: int) -> list[str]:
    """Return the lines of a file's end; none where it cannot be read."""
    with contextlib.suppress(OSError), path.open("rb") as file:
        file.seek(max(0, file.seek(0, os.SEEK_END) - size))
        return file.read(size).decode("utf-8", "replace").splitlines()
    return []


def unstamped(line: str) -> tuple[str, str]:
    """Return (local time, text) of a line of a log."""
    stamp, _, rest = line.partition(" ")
    when = moment(stamp) if stamp.endswith("Z") else None
    return ("", line) if when is None else (time.strftime("%T", time.localtime(when)), rest)


# -- what there is to see


@dataclass
class Seen:
    """A run as it was at a moment."""

    run: Run
    history: History
    now: float
    gpus: Sequence[host.Gpu] = ()
    no_gpus: str = ""
    warning: str = ""
    last_line: str = ""
    saved: str = ""

    @property
    def state(self) -> str:
        if self.run.cut_off and self.run.over:
            return "lost: the host was started anew"
        if self.run.state == "running" and (waited := self.history.stalled(self.now)):
            return f"stalled: no step for {duration(waited)}"
        return self.run.outcome

    @property
    def wrong(self) -> bool:
        return self.run.damaged != "" or (self.run.over and self.run.wrong)


def look(folder: Path, history: History) -> Seen:
    """Look at a run, its logs, its checkpoints and its GPUs."""
    seen = Seen(runs.read(folder), history.follow(), time.time())
    history.begin(len(seen.run.attempts))
    if seen.run.gpus not in ([], [CPU]) and not seen.run.over:
        try:
            seen.gpus = [gpu for gpu in host.gpus() if gpu.uuid in seen.run.gpus]
        except TrainError as error:
            seen.no_gpus = shortened(str(error), 100)
    for log in seen.run.logs()[:16]:
        lines = [line for line in tail_of(log, 64 << 10) if line.strip()]
        if lines and not seen.last_line:
            seen.last_line = shortened(unstamped(lines[-1])[1], 300)
        warns = (line for line in reversed(lines) if _WARNING.search(line[:1000]))
        if found := next((line for line in warns if _HARMLESS not in line), ""):
            at, text = unstamped(found)
            if at >= seen.warning[:8]:
                seen.warning = shortened(f"{at} rank {rank_of(log)}  {text}", 300)
    if seen.run.spec:
        with contextlib.suppress(OSError, TypeError, ValueError):
            if (point := seen.run.newest()) is not None:
                seen.saved = point.path.name
                if not seen.run.over:
                    seen.saved += f", {duration(seen.now - point.changed)} ago"
    return seen


def watch(folder: Path, *, plain: bool, once: bool) -> int:
    """Show a run until it ends; return 2 where it failed."""
    utf8 = (sys.stdout.encoding or "").lower().replace("-", "") == "utf8"
    drawn = draws(sys.stdout) and utf8 and columns() >= NARROW and not plain
    history = History(folder / "metrics.jsonl")
    try:
        seen = look(folder, history)
        if once:
            _print(seen, drawn)
        elif drawn:
            seen = _screens(folder, seen)
        else:
            seen = _lines(folder, seen)
    except KeyboardInterrupt:
        print(f"\nthe run goes on: `train watch {folder.name}` shows it again", file=sys.stderr)
        return 0
    return 2 if seen.wrong else 0


def _print(seen: Seen, drawn: bool) -> None:
    if not drawn:
        print(line(seen), flush=True)
        return
    from rich.console import Console

    Console(highlight=False).print(screen(seen))


def _lines(folder: Path, seen: Seen) -> Seen:
    shown, printed = (-1, ""), float("-inf")
    while True:
        now = (seen.history.lines, seen.run.state)
        if seen.run.over or (now != shown and time.monotonic() - printed >= _LINE_EVERY_S):
            print(line(seen), flush=True)
            shown, printed = now, time.monotonic()
        if seen.run.over:
            return seen
        time.sleep(1)
        seen = look(folder, seen.history)


def _screens(folder: Path, seen: Seen) -> Seen:
    from rich.console import Console
    from rich.live import Live

    console = Console(highlight=False)
    with Live(console=console, screen=True, auto_refresh=False) as live:
        while not seen.run.over:
            live.update(screen(seen), refresh=True)
            time.sleep(1)
            seen = look(folder, seen.history)
    console.print(screen(seen))
    return seen


# -- how it is shown


def line(seen: Seen) -> str:
    """Return a run on one line."""
    known = seen.history.last
    parts = [time.strftime("%T", time.localtime(seen.now))]
    parts += [seen.state] if seen.state != "running" else []
    parts += [_waits(seen.run), _step(known), _loss(seen), _speed(known)]
    parts += [f"{duration(left)} left" if (left := _left(seen)) is not None else ""]
    parts += [f"saved {seen.saved}" if seen.saved else ""]
    if "step" not in known and seen.last_line:
        parts.append(f"no step seen; last line: {seen.last_line}")
    return " | ".join(filter(None, [*parts, *([] if seen.run.over else _machine(seen))]))


def _waits(run: Run) -> str:
    if not run.waits:
        return ""
    until = time.strftime("%F %T", time.localtime(moment(run.waits.get("until")) or 0))
    return f"waits until {until} for {run.waits.get('for')}"


def _step(known: dict[str, Any]) -> str:
    step, steps, epoch = known.get("step"), known.get("steps"), known.get("epoch")
    if step is None:
        return ""
    within = f"epoch {epoch} " if epoch is not None else ""
    return f"{within}step {step}" + (f"/{steps} ({min(1.0, step / steps):.1%})" if steps else "")


def _loss(seen: Seen) -> str:
    if seen.history.not_finite:
        step, word = seen.history.not_finite
        return f"loss {no_number(word)}" + (f" since step {step}" if step is not None else "")
    value = seen.history.last.get("loss")
    return "" if value is None else f"loss {loss_words(value)}"


def _speed(known: dict[str, Any]) -> str:
    parts = []
    for name, unit in (("tokens_per_second", ""), ("tokens_per_second_per_gpu", " a GPU")):
        if (value := known.get(name)) is not None:
            parts.append((f"{value:,.0f}" if value >= 100 else f"{value:.3g}") + f" tokens/s{unit}")
    if (mfu := known.get("mfu")) is not None:
        parts.append(f"MFU {mfu:.1f} %")
    return ", ".join(parts)


def _left(seen: Seen) -> float | None:
    still = seen.run.over or seen.history.stalled(seen.now) is not None
    return None if still else seen.history.left


def _machine(seen: Seen) -> Iterator[str]:
    if seen.no_gpus:
        yield f"GPUs not known: {seen.no_gpus}"
    for gpu in seen.gpus:
        told = [f"GPU {gpu.index}", "" if gpu.percent is None else f"{gpu.percent:.0f} %"]
        told += [f"{gpu.used_mib / 1024:.1f}/{gpu.total_mib / 1024:.1f} GiB"]
        told += ["" if gpu.celsius is None else f"{gpu.celsius:.0f} °C"]
        limit = "" if gpu.limit is None else f"/{gpu.limit:.0f}"
        told += ["" if gpu.watts is None else f"{gpu.watts:.0f}{limit} W", gpu.slowed]
        yield " ".join(filter(None, told))
    total, available = host.memory_gib()
    yield f"RAM {total - available:.1f}/{total:.1f} GiB"


def screen(seen: Seen) -> RenderableType:
    """Return a run as a screen of rich's."""
    from rich.console import Group
    from rich.progress_bar import ProgressBar
    from rich.table import Table
    from rich.text import Text

    run, known = seen.run, seen.history.last
    last = run.last
    head = Text.assemble((run.run, "bold"), "  ", (seen.state, _colour(seen.state)))
    if last is not None and (began := moment(last.started)) is not None:
        head.append(f" · {duration((moment(last.ended) or seen.now) - began)}", style="dim")
    about = [run.host, f"preset {run.preset}", *(f"{n}={v}" for n, v in run.overrides.items())]
    about += [f"{run.nproc} ranks", f"commit {run.commit[:9]}{' and changes' if run.dirty else ''}"]
    about += [f"attempt {last.number}"] if last is not None and last.number > 1 else []
    about += ["unproven host"] if run.unproven else []
    rows = Table.grid(padding=(0, 2))
    rows.add_column(style="dim")
    rows.add_column(overflow="ellipsis", no_wrap=True)
    told = [("step", _step(known) or "none is known yet"), ("loss", _loss(seen))]
    told += [("log", "" if "step" in known else seen.last_line), ("speed", _speed(known))]
    if (left := _left(seen)) is not None:
        until = time.strftime("%H:%M", time.localtime(seen.now + left))
        pace = known.get("seconds") or seen.history.pace or 0
        told.append(("time", f"{duration(left)} left, until {until}; {pace:.3g} s a step"))
    told += [("saved", seen.saved), ("waits", _waits(run)), ("warning", seen.warning)]
    for name, text in told:
        if text:
            rows.add_row(name, Text(text))
    machine = [Text(text, no_wrap=True) for text in _machine(seen)] if not run.over else []
    bar = [ProgressBar(known["steps"], known.get("step", 0))] if known.get("steps") else []
    curve = [Text(row, style="cyan") for row in chart(seen.history.losses, columns() - 2, 5)]
    curve = curve if len(seen.history.losses) > 1 else []
    hint = f"train {'why' if run.wrong else 'logs'} {run.run}"
    hint = hint if run.over else "Ctrl-C leaves, and the run goes on; `train stop` ends it"
    what = Text(" · ".join(about), style="dim", no_wrap=True, overflow="ellipsis")
    return Group(head, what, Text(), *bar, rows, *curve, Text(), *machine, Text(hint, style="dim"))


def _colour(state: str) -> str:
    return _COLOURS.get(state.partition(":")[0], "yellow" if "stalled" not in state else "red")
