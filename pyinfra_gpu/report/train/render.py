"""Runs of hosts as text: one table, or what each launcher printed, equal answers once."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from pyinfra_gpu.on_host.train.watch import loss_words, no_number
from pyinfra_gpu.report.train.answer import HostRuns, Run, TrainAnswer, Why
from pyinfra_gpu.text import WIDTH, cut, one_line, paragraph, wrapped

Style = Callable[[str, str], str]
"""Colours a text after what a word says."""
_HEAD = ("host", "run", "state", "step", "loss", "tokens/s")


def render(answer: TrainAnswer, style: Style = lambda text, word: text, width: int = WIDTH) -> str:
    """Return what is on, and each host's newest run."""
    rows = [row for host in answer.hosts for row in _rows(host)]
    lines = [*_table(rows, style, width)]
    for host in answer.hosts:
        if failed := host.failed_before:
            count = f"{len(failed)} older run{'s' if len(failed) > 1 else ''} failed on {host.name}"
            typed = f"pyinfra-gpu train {answer.inventory} why --limit {host.name} {failed[-1].run}"
            lines += paragraph(f"{count}: `{typed}`", "", "  ", width=width)
    unasked = [f"{host.name}: {host.reason}" for host in answer.hosts if host.reason is not None]
    lines += [""] if lines and unasked else []
    for text in (*unasked, *answer.reasons):
        lines += paragraph(text, "! ", "  ", width=width)
    return "\n".join([*lines, *[""] * bool(lines), *wrapped(_summary(answer), width=width)])


def _summary(answer: TrainAnswer) -> str:
    on = sum(run.on for host in answer.hosts for run in host.runs)
    count = len(answer.hosts)
    silent = sum(host.reason is not None and not host.runs for host in answer.hosts)
    told = f", {silent} did not answer" if silent else ""
    hosts = f"{count} host{'s' if count != 1 else ''}{told}"
    return f"{hosts}: {on} run{'s' if on != 1 else ''} on; exit code {answer.exit_code}"


def shown(host: HostRuns) -> tuple[Run, ...]:
    """Return the runs that are on, and the newest one."""
    on = tuple(run for run in host.runs if run.on)
    newest = host.runs[-1:]
    return on if newest and newest[0].on else (*on, *newest)


def _rows(host: HostRuns) -> Iterator[tuple[str, ...]]:
    runs = shown(host)
    if not runs and host.reason is None:
        yield host.name, "no training declared" if host.absent else "none yet", "", "", "", ""
    for run in runs:
        rate = run.last.tokens_per_second if run.last and run.on else None
        speed = "" if rate is None else f"{rate:,.0f}"
        yield host.name, run.run, run.outcome, _step(run), _loss(run), speed


def _table(rows: list[tuple[str, ...]], style: Style, width: int) -> Iterator[str]:
    """Yield a table, or where the terminal is too narrow for it, lines of each row."""
    if not rows:
        return
    widths = [max(map(len, column)) for column in zip(_HEAD, *rows, strict=True)]
    fits = sum(widths) + 2 * (len(widths) - 1) <= width
    for row in (_HEAD, *rows) if fits else rows:
        cells = [cell.ljust(size) for cell, size in zip(row, widths, strict=True)]
        word = row[2]
        if fits:
            cells[2] = cells[2].replace(word, style(word, word)) if row is not _HEAD else cells[2]
            yield "  ".join(cells).rstrip()
            continue
        yield from wrapped(f"{row[0]} {row[1]}", "", "  ", width=width)
        told = (f"{name} {cell}" for name, cell in zip(_HEAD[3:], row[3:], strict=True) if cell)
        if word:
            yield f"  {style(word, word)}"
            yield from (cut(f"  {each}", width) for each in told)


def _step(run: Run) -> str:
    if run.last is None or run.last.step is None:
        return ""
    return f"{run.last.step:,}" + (f"/{run.last.steps:,}" if run.last.steps else "")


def _loss(run: Run) -> str:
    if run.last is None:
        return ""
    if run.last.not_finite:
        return no_number(run.last.not_finite)
    return "" if run.last.loss is None else loss_words(run.last.loss)


def told_of(run: Run) -> list[str]:
    """Return what the last step of a run says, in words."""
    last = run.last
    if last is None:
        return []
    parts = [f"step {_step(run)}"] * (last.step is not None) + [f"loss {_loss(run)}"] * bool(
        _loss(run)
    )
    if last.tokens_per_second is not None:
        parts.append(f"{last.tokens_per_second:,.0f} tokens/s")
    return [*parts, f"MFU {last.mfu:.1f} %"] if last.mfu is not None else parts


def printed(answer: TrainAnswer, width: int = WIDTH) -> str:
    """Return what the launchers printed, the same answer of several hosts once."""
    follows = _consequences(answer)
    blocks: dict[tuple[str, ...], list[str]] = {}
    named = len(answer.hosts) > 1
    for host in answer.hosts:
        said = [line for each in host.lines for line in _whole(each, host.ok, width)]
        if host.explained is not None:
            said = _explained(host.explained, follows.get(host.name, ""), width)
        if host.reason:
            said += paragraph(host.reason, "! ", "  ", width=width)
        named = named or not host.ok or host.reason is not None
        blocks.setdefault(tuple(said), []).append(host.name)
    told = []
    for said_, names in blocks.items():
        head = wrapped(f"{', '.join(names)}:", width=width, whole_words=True) if named else []
        told.append("\n".join([*head, *said_]))
    told += ["\n".join(paragraph(reason, "! ", "  ", width=width)) for reason in answer.reasons]
    return "\n\n".join(told)


def _whole(line: str, ok: bool, width: int) -> list[str]:
    """Return a line as it is; a refusal or a warning as lines of the terminal's width."""
    if ok and not line.startswith("warning: "):
        return [line]
    before = " " * min(len(line) - len(line.lstrip(" ")), width // 2)
    return paragraph(line, before, f"{before}  ", width=width)


def _explained(told: Why, elsewhere: str, width: int) -> list[str]:
    if elsewhere:
        return wrapped(f"{told.what}; {elsewhere}", width=width)
    lines = told.text.splitlines() or [told.what]
    return [" " * (len(line) - len(line.lstrip(" "))) + one_line(line) for line in lines]


def _consequences(answer: TrainAnswer) -> Mapping[str, str]:
    """Return host -> where the cause is, of a run of several hosts that ended elsewhere first."""
    runs: dict[str, list[tuple[float, str, Why]]] = {}
    for host in answer.hosts:
        told = host.explained
        if told is not None and told.across and told.ended:
            runs.setdefault(told.run, []).append((told.ended, host.name, told))
    found: dict[str, str] = {}
    for ends in runs.values():
        _, first, why = min(ends, key=lambda each: each[0])
        text = f"the ranks of {first} failed first, and the cause is told there"
        if why.outcome == "stopped":
            text = f"it was stopped on {first}, and its ranks here lost those"
        others = (name for _, name, told in ends if name != first and told.outcome != "stopped")
        found |= dict.fromkeys(others, text)
    return found
