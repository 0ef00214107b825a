"""One moment of a run for a terminal, usually of 80 x 24: few colours, and nothing that jumps.

Whatever a log, a record or a driver wrote is a `Text`, which rich takes literally.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence

from rich.console import Group, RenderableType
from rich.text import Text

from ...terminal import shortened
from .. import words
from ..record import Run
from .machine import Gpu, Memory
from .state import Seen

WIDTH, HEIGHT = 80, 24
_LABEL = 9  # columns before what is told
_METER = 12  # of a GPU
_CHART_ROWS = 5
_NARROW = 66  # columns that a GPU takes on one line
_MOST_GPUS = 8
_QUIET_S = 10.0
"""Without a step for less than that, nothing is said of it: it would change every second."""

_STATES = {
    "queued": ("waits for its GPUs", "yellow"),
    "starting": ("starting", "cyan"),
    "running": ("running", "green"),
    "waiting": ("waits to go on", "yellow"),
    "stopping": ("stopping", "yellow"),
}
_OUTCOMES = {
    "finished": ("finished", "green"),
    "failed": ("failed", "bold red"),
    "stopped": ("stopped", "yellow"),
    "lost": ("lost", "bold red"),
}
_ALARM = {"too hot": "bold red", "power brake": "bold red", "slowed down": "bold red"}


def screen(seen: Seen, width: int = WIDTH, height: int = HEIGHT) -> RenderableType:
    """Return the whole screen, at most 24 lines; the curve takes what is left.

    Where that is too low the empty lines and the curve go first, then what the machine does.

    + width, height: columns and lines of the terminal
    """
    height = min(HEIGHT, height)
    above, below = [*_head(seen, width), Text(), *_steps(seen, width)], list(_machine(seen, width))
    below[:0] = [Text()] if below else []
    foot = [*_remarks(seen), Text(_hint(seen, width), style="dim")]
    room = height - len(above) - len(below) - len(foot) - 1
    if len(curve := list(_curve(seen, max(0, min(_CHART_ROWS, room)), width))) < room:
        above += [Text()] if seen.history.has_loss else []
    lines = [*above, _value(seen), *curve] if seen.history.has_loss else above
    lines = [*lines, *below]
    if len(lines) + len(foot) > height:
        loss = [_value(seen)] if seen.history.has_loss else []
        lines = [*_head(seen, width), *loss, *_steps(seen, width), *below]
        foot = foot[-max(1, height // 8) :]
        lines = [each for each in lines if each.plain][: max(0, height - len(foot))]
    if len(lines) + len(foot) < height:
        lines.append(Text())
    for each in (*lines, *foot):
        each.no_wrap, each.overflow = True, "ellipsis"
    return Group(*lines, *foot)


def status(seen: Seen) -> tuple[str, str]:
    """Return the run's state in a word or two, and its style."""
    run, last = seen.run, seen.run.last
    if run.cut_off:
        return "lost: the host was started anew", "bold red"
    if run.state == "ended" and last is not None:
        return _OUTCOMES.get(last.outcome, ("ended", "yellow"))
    if (waited := seen.history.stalled(seen.now)) is not None and run.state == "running":
        return f"stalled: no step for {words.duration(waited)}", "bold red"
    return _STATES.get(run.state, ("state unknown", "yellow"))


def _head(seen: Seen, width: int) -> Iterator[Text]:
    word, style = status(seen)
    since = f" · {words.duration(seen.elapsed)}" if seen.elapsed is not None else ""
    line = Text(name := seen.run.name, style="bold")
    if (left := width - len(name) - len(word) - len(since)) >= 2:
        line.append(" " * left)
    else:
        yield line
        line = Text()
    line.append(word, style=style)
    line.append(since, style="dim")
    yield line
    yield Text(about(seen.run, width), style="dim")


def about(run: Run, width: int = WIDTH) -> str:
    """Return where and what it is, in one line of so many columns."""
    last = run.last
    parts = [
        run.host,
        f"preset {run.preset}" if run.preset else "",
        *(f"{name}={value}" for name, value in run.overrides.items()),
        f"{run.nproc} ranks" if run.nproc and run.nproc > 1 else "",
        f"commit {run.commit[:9]}{' and changes' if run.dirty else ''}" if run.commit else "",
        f"attempt {last.number}" if last and last.number > 1 else "",
        "unproven host" if run.unproven else "",
    ]
    return shortened(" · ".join(part for part in parts if part), width)


def _steps(seen: Seen, width: int) -> Iterator[Text]:
    known = seen.history.last
    if "step" not in known and not seen.history.has_loss:
        yield from _unknown(seen)
        return
    step, steps = known.get("step"), known.get("steps")
    if step is not None:
        yield _labelled("step", Text(_counted(known)))
        if steps:
            yield _bar(step / steps, max(min(20, width - 19), width - 36))
    if times := _times(seen):
        yield _labelled("time", Text(times))
    if speed := speeds(known):
        yield _labelled("speed", Text(speed))
    if seen.checkpoint:
        name, when = seen.checkpoint
        age = f", {words.duration(max(0.0, seen.now - when))} ago" if not seen.over else ""
        yield _labelled("saved", Text(f"{name}{age}"))


def _unknown(seen: Seen) -> Iterator[Text]:
    yield _labelled("step", Text("none seen yet" if seen.last_line is None else _UNREAD, "dim"))
    if seen.last_line is not None:
        yield _labelled("log", Text(seen.last_line.text, "italic"))


_UNREAD = "not told in a form that is known here; the last line is"


def _counted(known: dict[str, float]) -> str:
    step, steps, epoch = known["step"], known.get("steps"), known.get("epoch")
    within = f"epoch {epoch:,.0f}, " if epoch is not None else ""
    return f"{within}{step:,.0f}" + (f" of {steps:,.0f}" if steps else "")


def _bar(part: float, columns: int) -> Text:
    part = max(0.0, min(1.0, part))
    full = round(part * columns)
    line = Text(" " * _LABEL)
    line.append("━" * full, style="green").append("━" * (columns - full), style="bright_black")
    return line.append(f"  {part:6.1%}".replace("%", " %"))


def _times(seen: Seen) -> str:
    known, parts = seen.history.last, []
    still = seen.over or seen.history.stalled(seen.now) is not None
    left = None if still else seen.history.left()
    if left is not None:
        until = time.strftime("%H:%M", time.localtime(seen.now + left))
        parts.append(f"{words.duration(left)} left, until {until}")
    each = known.get("seconds") or seen.history.pace()
    if each:
        parts.append(f"{words.step_time(each)} a step")
    since = seen.now - (seen.history.newest or seen.now)
    if since >= _QUIET_S and not seen.over:
        parts.append(f"last step {words.duration(since)} ago")
    return " · ".join(parts)


def speeds(known: dict[str, float]) -> str:
    """Return what the log says of speed; nothing is computed in its place."""
    parts = []
    if (tokens := known.get("tokens_per_second")) is not None:
        parts.append(f"{words.rate(tokens)} tokens/s")
    if (tokens := known.get("tokens_per_second_per_gpu")) is not None:
        parts.append(f"{words.rate(tokens)} tokens/s a GPU")
    if (mfu := known.get("mfu")) is not None:
        parts.append(f"MFU {mfu:.1f} %")
    return " · ".join(parts)


def _value(seen: Seen) -> Text:
    history = seen.history
    if history.not_finite:
        step, word = history.not_finite
        at = f" since step {step:,}" if step is not None else ""
        return _labelled("loss", Text(f"{words.no_number(word)}{at}", "bold red"))
    return _labelled("loss", Text(words.loss(history.last["loss"]), "bold"))


def _curve(seen: Seen, rows: int, width: int) -> Iterator[Text]:
    """The loss so far, with the two values at its side that it is drawn between."""
    columns = max(8, width - 20)
    points = words.resampled(seen.history.losses.points, columns)
    if len(points) < 2 or not rows:
        return
    low, high = words.bounds(points)
    edges = {0: high, rows - 1: low} if rows > 1 else {}
    for number, row in enumerate(words.chart(points, columns, rows)):
        line = Text(" " * _LABEL).append(row, style="cyan")
        edge = edges.get(number)
        yield line.append(f" {words.loss(edge)}" if edge is not None else "", style="dim")


def _machine(seen: Seen, width: int) -> Iterator[Text]:
    if seen.over:
        return  # what the GPUs do now is not of this run
    if isinstance(seen.gpus, str):
        yield _labelled("GPU", Text(f"not known: {seen.gpus}", "yellow"))
    elif not seen.run.gpus:
        yield _labelled("GPU", Text("none: this run is on the CPU", "dim"))
    else:
        yield from _gpus(seen.gpus, width)
    if seen.memory:
        yield _memory(seen.memory, width)


def _gpus(gpus: Sequence[Gpu], width: int) -> Iterator[Text]:
    for gpu in gpus[:_MOST_GPUS]:
        busy = gpu.used_percent
        line = Text(f"GPU {gpu.index}".ljust(_LABEL), style="dim")
        line.append_text(_meter(None if busy is None else busy / 100, width))
        line.append("     –" if busy is None else f" {busy:3.0f} %")  # noqa: RUF001
        line.append(f"  {_of(gpu.memory_mib, gpu.memory_total_mib)} GiB")
        if width < _NARROW:
            yield line
            line = Text(" " * (_LABEL - 2))
        line.append(f"  {_told(gpu.celsius)} °C  {_told(gpu.watts)}")
        line.append(f"/{_told(gpu.watts_limit)} W")
        line.append(f"  {gpu.throttled}", style=_ALARM.get(gpu.throttled, "yellow"))
        yield line
    if len(gpus) > _MOST_GPUS:
        yield _labelled("", Text(f"and {len(gpus) - _MOST_GPUS} more", "dim"))


def _memory(memory: Memory, width: int) -> Text:
    part = memory.used_mib / memory.total_mib if memory.total_mib else None
    line = Text("RAM".ljust(_LABEL), style="dim").append_text(_meter(part, width))
    percent = "     –" if part is None else f" {part * 100:3.0f} %"  # noqa: RUF001
    return line.append(f"{percent}  {_of(memory.used_mib, memory.total_mib)} GiB")


def _meter(part: float | None, width: int) -> Text:
    if width < _NARROW:
        return Text()  # the figures say it, and need the room
    full = round(max(0.0, min(1.0, part or 0.0)) * _METER)
    line = Text(style="default").append("━" * full, style="blue")
    return line.append("━" * (_METER - full), style="bright_black")


def _of(used: float | None, total: float | None) -> str:
    shown = [words.gib(each) if each is not None else "–" for each in (used, total)]  # noqa: RUF001
    return f"{shown[0]:>5} /{shown[1]:>6}"


def _told(value: float | None) -> str:
    return f"{value:3.0f}" if value is not None else "  –"  # noqa: RUF001


def _remarks(seen: Seen) -> Iterator[Text]:
    if seen.run.waits:
        yield _labelled("waits", Text(seen.run.waits.removeprefix("it waits ")))
    if seen.warning:
        whose = f"rank {seen.warning.rank}" if seen.warning.rank is not None else ""
        at = " ".join(part for part in (seen.warning.at, whose) if part)
        line = Text("warning".ljust(_LABEL), style="yellow").append(f"{at}  ", style="dim")
        yield line.append(seen.warning.text, style="default")


def _hint(seen: Seen, width: int) -> str:
    name = seen.run.name
    if seen.over:
        return f"train why {name}" if seen.run.failed else f"train logs {name}"
    goes_on = ", and the run goes on" if width >= _NARROW else ""
    return f"Ctrl-C leaves{goes_on}; `train stop` ends it"


def _labelled(label: str, text: Text) -> Text:
    return Text(label.ljust(_LABEL), style="dim").append_text(
        Text.assemble((text.plain, text.style or "default"))
    )
