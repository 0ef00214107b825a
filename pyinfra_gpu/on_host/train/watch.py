"""A run as it goes: a screen that is drawn anew each second, or lines."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ..terminal import columns, draws, shortened
from . import host, runs
from .host import CPU, TrainError, moment
from .listing import duration, loss_words, speed_words
from .metrics import History, sampled
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
    """A run as it was at a moment, with its steps so far."""

    run: Run
    history: History
    now: float

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

    def told(self) -> Iterator[tuple[str, str]]:
        """Yield (name, words) of what is known of it, for a line or a screen."""
        known, history, run = self.history.last, self.history, self.run
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
        if history.left is not None and not run.over and history.stalled(self.now) is None:
            until = time.strftime("%H:%M", time.localtime(self.now + history.left))
            yield "left", f"{duration(history.left)}, until {until}; {history.pace:.3g} s a step"
        with contextlib.suppress(OSError, TypeError, ValueError):
            if run.spec and (point := run.newest()):
                ago = "" if run.over else f", {duration(self.now - point.changed)} ago"
                yield "saved", f"{point.path.name}{ago}"
        for log in run.logs()[:1] if step is None else ():
            if lines := [line for line in tail_of(log, 64 << 10) if line.strip()]:
                yield "log", shortened(unstamped(lines[-1]), 300)

    def machine(self) -> Iterator[str]:
        """Yield what each GPU of it does, and the host's memory, while it is on."""
        if self.run.over:
            return
        try:
            known = [] if self.run.gpus in ([], [CPU]) else host.gpus()
        except TrainError as error:
            known = []
            yield f"GPUs not known: {shortened(str(error), 100)}"
        for gpu in known:
            if gpu.uuid in self.run.gpus:
                yield gpu.words
        total, available = host.memory_gib()
        yield f"RAM {total - available:.1f}/{total:.1f} GiB"


def look(folder: Path) -> Seen:
    """Look at a run and its steps."""
    run = runs.read(folder)
    return Seen(run, run.history(), time.time())


def watch(folder: Path, *, plain: bool, once: bool) -> int:
    """Show a run until it ends; return 2 where it failed."""
    utf8 = (sys.stdout.encoding or "").lower().replace("-", "") == "utf8"
    drawn = draws(sys.stdout) and utf8 and columns() >= NARROW and not plain
    seen = look(folder)
    try:
        seen = (_screens if drawn else _lines)(folder, seen, once)
    except KeyboardInterrupt:
        print(f"\nthe run continues: `train watch {folder.name}` shows it again", file=sys.stderr)
        return 0
    return 2 if seen.wrong else 0


def _lines(folder: Path, seen: Seen, once: bool) -> Seen:
    shown, printed = (-1, ""), float("-inf")
    while True:
        now = (seen.history.lines, seen.state)
        ends = once or seen.run.over
        if ends or (now != shown and time.monotonic() - printed >= _LINE_EVERY_S):
            print(line(seen), flush=True)
            shown, printed = now, time.monotonic()
        if ends:
            return seen
        time.sleep(1)
        seen = look(folder)


def _screens(folder: Path, seen: Seen, once: bool) -> Seen:
    from rich.console import Console
    from rich.live import Live

    console = Console(highlight=False)
    if not (once or seen.run.over):
        with Live(console=console, screen=True, auto_refresh=False) as live:
            while not seen.run.over:
                live.update(screen(seen), refresh=True)
                time.sleep(1)
                seen = look(folder)
    console.print(screen(seen))
    return seen


def line(seen: Seen) -> str:
    """Return a run on one line."""
    told = (words if name == "speed" else f"{name} {words}" for name, words in seen.told())
    return " | ".join([time.strftime("%T"), seen.state, *told, *seen.machine()])


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
    for name, words in seen.told():
        rows.add_row(name, Text(words))
    if known.get("steps"):
        rows.add_row("", ProgressBar(known["steps"], known.get("step", 0), width=40))
    curve = [Text(row, style="cyan") for row in chart(seen.history.losses, columns() - 2)]
    hint = f"train {'why' if run.wrong else 'logs'} {run.run}"
    hint = hint if run.over else "Ctrl-C leaves, and the run continues; `train stop` ends it"
    what = Text(" · ".join(about), style="dim", no_wrap=True, overflow="ellipsis")
    machine = [Text(each, no_wrap=True) for each in seen.machine()]
    return Group(head, what, Text(), rows, *curve, Text(), *machine, Text(hint, style="dim"))


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
