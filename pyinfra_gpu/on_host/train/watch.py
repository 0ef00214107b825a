"""A run as it goes: a screen that is drawn anew each second, or lines."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

from ..terminal import columns, draws, shortened
from . import host, runs
from .host import CPU, TrainError, moment
from .listing import duration, loss_words, speed_words
from .metrics import History
from .runs import Run, tail_of, unstamped

if TYPE_CHECKING:
    from rich.console import RenderableType

NARROW = 60
"""Columns; below that there are lines in place of a screen."""
_LINE_EVERY_S = 10.0
_BLOCKS = " ▁▂▃▄▅▆▇█"
_CURVE = 5  # lines


@dataclass
class Seen:
    """A run as it was at a moment."""

    run: Run
    history: History
    now: float
    gpus: Sequence[host.Gpu] = ()
    no_gpus: str = ""
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
    for log in seen.run.logs()[:1] if "step" not in history.last else ():
        lines = [line for line in tail_of(log, 64 << 10) if line.strip()]
        seen.last_line = shortened(unstamped(lines[-1]), 300) if lines else ""
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
    seen = look(folder, History(folder / "metrics.jsonl"))
    try:
        seen = (_screens if drawn else _lines)(folder, seen, once)
    except KeyboardInterrupt:
        print(f"\nthe run goes on: `train watch {folder.name}` shows it again", file=sys.stderr)
        return 0
    return 2 if seen.wrong else 0


def _lines(folder: Path, seen: Seen, once: bool) -> Seen:
    shown, printed = (-1, ""), float("-inf")
    while True:
        now = (seen.history.lines, seen.run.state)
        ends = once or seen.run.over
        if ends or (now != shown and time.monotonic() - printed >= _LINE_EVERY_S):
            print(line(seen), flush=True)
            shown, printed = now, time.monotonic()
        if ends:
            return seen
        time.sleep(1)
        seen = look(folder, seen.history)


def _screens(folder: Path, seen: Seen, once: bool) -> Seen:
    from rich.console import Console
    from rich.live import Live

    console = Console(highlight=False)
    if not (once or seen.run.over):
        with Live(console=console, screen=True, auto_refresh=False) as live:
            while not seen.run.over:
                live.update(screen(seen), refresh=True)
                time.sleep(1)
                seen = look(folder, seen.history)
    console.print(screen(seen))
    return seen


# -- how it is shown


def _told(seen: Seen) -> Iterator[tuple[str, str]]:
    """Yield (name, words) of what is known of a run, for a line or a screen."""
    known, history, run = seen.history.now, seen.history, seen.run
    if run.waits:
        until = time.strftime("%F %T", time.localtime(moment(run.waits.get("until")) or 0))
        yield "waits", f"until {until} for {run.waits.get('for')}"
    if (step := known.get("step")) is not None:
        epoch = f"epoch {known['epoch']}, " if "epoch" in known else ""
        steps = known.get("steps")
        share = f"/{steps} ({min(1.0, step / steps):.1%})" if steps else ""
        yield "step", f"{epoch}{step}{share}"
    if loss := loss_words(known):
        since = history.not_finite and history.not_finite[0]
        yield "loss", loss + (f" since step {since}" if since is not None else "")
    if speed := speed_words(known):
        yield "speed", speed
    still = run.over or history.stalled(seen.now) is not None
    if (left := history.left) is not None and not still:
        until = time.strftime("%H:%M", time.localtime(seen.now + left))
        yield "left", f"{duration(left)}, until {until}; {history.pace:.3g} s a step"
    if seen.saved:
        yield "saved", seen.saved
    if seen.last_line:
        yield "log", seen.last_line


def _machine(seen: Seen) -> Iterator[str]:
    if seen.run.over:
        return
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


def line(seen: Seen) -> str:
    """Return a run on one line."""
    told = (words if name == "speed" else f"{name} {words}" for name, words in _told(seen))
    return " | ".join([time.strftime("%T"), seen.state, *told, *_machine(seen)])


def screen(seen: Seen) -> RenderableType:
    """Return a run as a screen of rich's."""
    from rich.console import Group
    from rich.progress_bar import ProgressBar
    from rich.table import Table
    from rich.text import Text

    run, known, last = seen.run, seen.history.last, seen.run.last
    good = seen.state in ("running", "finished")
    head = Text.assemble((run.run, "bold"), "  ", (seen.state, "green" if good else "yellow"))
    if last is not None and (began := moment(last.started)) is not None:
        head.append(f" · {duration((moment(last.ended) or seen.now) - began)}", style="dim")
    about = [run.host, f"preset {run.preset}", *(f"{n}={v}" for n, v in run.overrides.items())]
    about += [f"{run.nproc} ranks", f"commit {run.commit[:9]}{' and changes' if run.dirty else ''}"]
    about += [f"attempt {last.number}"] if last is not None and last.number > 1 else []
    about += ["unproven host"] if run.unproven else []
    rows = Table.grid(padding=(0, 2))
    rows.add_column(style="dim")
    rows.add_column(overflow="ellipsis", no_wrap=True)
    for name, words in _told(seen):
        rows.add_row(name, Text(words))
    if known.get("steps"):
        rows.add_row("", ProgressBar(known["steps"], known.get("step", 0), width=40))
    curve = [Text(row, style="cyan") for row in chart(seen.history.losses, columns() - 2)]
    machine = [Text(text, no_wrap=True) for text in _machine(seen)]
    hint = f"train {'why' if run.wrong else 'logs'} {run.run}"
    hint = hint if run.over else "Ctrl-C leaves, and the run goes on; `train stop` ends it"
    what = Text(" · ".join(about), style="dim", no_wrap=True, overflow="ellipsis")
    return Group(head, what, Text(), rows, *curve, Text(), *machine, Text(hint, style="dim"))


def chart(values: Sequence[float], width: int) -> list[str]:
    """Return a curve in lines of blocks; the first steps are far above all others, so they end."""
    if len(values) < 2:
        return []
    count = min(width, len(values))
    ends = [round(n * len(values) / count) for n in range(count + 1)]
    means = [sum(values[a:b]) / (b - a) for a, b in pairwise(ends)]
    low, high = bounds(means)
    scale = (_CURVE * 8 - 1) / (high - low) if high > low else 0
    levels = [1 + round((min(value, high) - low) * scale) for value in means]
    rows = reversed(range(_CURVE))
    return ["".join(_BLOCKS[max(0, min(8, each - 8 * row))] for each in levels) for row in rows]


def bounds(values: Sequence[float]) -> tuple[float, float]:
    """Return what a curve is drawn between."""
    ordered = sorted(values)
    return ordered[0], ordered[min(len(ordered) - 1, round(0.9 * len(ordered)))]
