"""The runs of all hosts as one table, 80 columns wide."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from pyinfra_gpu.on_host.train import words
from pyinfra_gpu.report.train.answer import HostRuns, Run, TrainAnswer
from pyinfra_gpu.text import WIDTH, cut, one_line, wrapped

Style = Callable[[str, str], str]
"""Colours a word after what it says."""

_HEAD = ("host", "run", "state", "step", "loss", "tokens/s")
_STATE = 2
_WORDS = {"nan": "NaN", "inf": "inf", "-inf": "-inf"}


def render(answer: TrainAnswer, style: Style = lambda text, word: text) -> str:
    """Return the table, what could not be told, and one line that sums up."""
    rows = [row for host in answer.hosts for row in _rows(host)]
    lines = list(_table([_HEAD, *rows], style)) if rows else []
    unasked = [(host.name, host.reason) for host in answer.hosts if host.reason is not None]
    lines += [""] if lines and unasked else []
    for name, reason in unasked:
        lines += wrapped(f"{name}: {reason}", "! ", "  ", whole_words=True)
    for reason in answer.reasons:
        lines += wrapped(reason, "! ", "  ", whole_words=True)
    return "\n".join([*lines, *([""] if lines else []), summary(answer)])


def summary(answer: TrainAnswer) -> str:
    """Return how many hosts have how many runs on, in one line."""
    on = sum(run.on for host in answer.hosts for run in host.runs)
    count, asked = len(answer.hosts), sum(host.reason is None for host in answer.hosts)
    hosts = f"{count} host{'s' if count != 1 else ''}"
    silent = f", {count - asked} did not answer" if asked < count else ""
    return f"{hosts}{silent}: {on} run{'s' if on != 1 else ''} on; exit code {answer.exit_code}"


def printed(answer: TrainAnswer) -> str:
    """Return what each launcher printed, below its host's name where there are several."""
    blocks = []
    for host in answer.hosts:
        reason = wrapped(host.reason, "! ", "  ", whole_words=True) if host.reason else []
        told = [
            one_line(line) if not line.startswith(" ") else _indented(line) for line in host.lines
        ]
        head = [f"{host.name}:"] if len(answer.hosts) > 1 else []
        blocks.append("\n".join([*head, *told, *reason]))
    blocks += ["\n".join(wrapped(reason, "! ", "  ")) for reason in answer.reasons]
    return "\n\n".join(blocks)


def _indented(line: str) -> str:
    return " " * (len(line) - len(line.lstrip(" "))) + one_line(line)


def shown(host: HostRuns) -> tuple[Run, ...]:
    """Return the runs that are on, and the newest one whatever became of it."""
    on = tuple(run for run in host.runs if run.on)
    newest = host.runs[-1:]
    return on if newest and newest[0].on else (*on, *newest)


def told_of(run: Run) -> list[str]:
    """Return its step, its loss and its speed in words, as far as they are known."""
    last = run.last
    if last is None:
        return []
    parts = [f"step {_of(last.step, last.steps)}"] if last.step is not None else []
    parts += [f"loss {_loss(run)}"] if _loss(run) else []
    if last.tokens_per_second is not None:
        parts.append(f"{words.rate(last.tokens_per_second)} tokens/s")
    return [*parts, f"MFU {last.mfu:.1f} %"] if last.mfu is not None else parts


def _rows(host: HostRuns) -> Iterator[tuple[str, ...]]:
    runs = shown(host)
    if not runs and host.reason is None:
        yield host.name, "no training declared" if host.absent else "none yet", "", "", "", ""
    for run in runs:
        last = run.last
        yield (
            host.name,
            run.run,
            run.outcome,
            "" if last is None or last.step is None else _of(last.step, last.steps),
            _loss(run),
            ""
            if last is None or last.tokens_per_second is None
            else _speed(run, last.tokens_per_second),
        )


def _of(step: int, steps: int | None) -> str:
    return f"{step:,}/{steps:,}" if steps else f"{step:,}"


def _loss(run: Run) -> str:
    if run.last is None:
        return ""
    if run.last.not_finite:
        return _WORDS[run.last.not_finite]
    return "" if run.last.loss is None else words.loss(run.last.loss)


def _speed(run: Run, rate: float) -> str:
    return words.rate(rate) if run.on else ""


def _table(rows: Sequence[Sequence[str]], style: Style) -> Iterator[str]:
    """Yield the rows; columns that the terminal has no room for are left out from the right."""
    widths = [max(len(one_line(row[column])) for row in rows) for column in range(len(_HEAD))]
    while sum(widths) + 2 * (len(widths) - 1) > WIDTH and len(widths) > _STATE + 1:
        widths.pop()
    for row in rows:
        cells = [one_line(cell).ljust(width) for cell, width in zip(row, widths, strict=False)]
        line = cut("  ".join(cells))
        word = one_line(row[_STATE])
        start = sum(widths[:_STATE]) + 2 * _STATE
        if row is not rows[0] and word and line[start:].startswith(word):
            line = line[:start] + style(word, word) + line[start + len(word) :]
        yield line
