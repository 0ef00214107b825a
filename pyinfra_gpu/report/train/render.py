"""The runs of all hosts as one table, and what their launchers printed, as wide as it is read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from pyinfra_gpu.on_host.train import words
from pyinfra_gpu.on_host.train.calling import Caller
from pyinfra_gpu.on_host.train.explanation import Explanation
from pyinfra_gpu.on_host.train.table import Style, table
from pyinfra_gpu.report.train.answer import HostRuns, Run, TrainAnswer
from pyinfra_gpu.text import WIDTH, command, one_line, paragraph, wrapped

_HEAD = ("host", "run", "state", "step", "loss", "tokens/s")
_STATE = 2
_COMMAND = "  pyinfra-gpu train "  # what a launcher says to be typed next
_WORDS = {"nan": "NaN", "inf": "inf", "-inf": "-inf"}


def render(answer: TrainAnswer, style: Style = lambda text, word: text, width: int = WIDTH) -> str:
    """Return the table, what could not be told, and one line that sums up.

    + width: columns of the terminal
    """
    rows = [row for host in answer.hosts for row in _rows(host)]
    lines = [*table(_HEAD, rows, width, state=_STATE, style=style)] if rows else []
    unasked = [f"{host.name}: {host.reason}" for host in answer.hosts if host.reason is not None]
    for text in filter(None, (_before(host, answer) for host in answer.hosts)):
        lines += paragraph(text, "", "  ", width=width)
    lines += [""] if lines and unasked else []
    for text in (*unasked, *answer.reasons):
        lines += paragraph(text, "! ", "  ", width=width)
    last = wrapped(summary(answer), width=width)
    return "\n".join([*lines, *([""] if lines else []), *last])


def _before(host: HostRuns, answer: TrainAnswer) -> str:
    """Say which failed runs a newer one hides, and how the newest of them is explained."""
    failed = host.failed_before
    if not failed:
        return ""
    typed = Caller(inventory=answer.inventory, chosen=("--limit", host.name))
    count = f"{len(failed)} older run{'s' if len(failed) > 1 else ''} failed on {host.name}"
    return f"{count}: `{typed.typed(['why', failed[-1].run])}`"


def summary(answer: TrainAnswer) -> str:
    """Return how many hosts have how many runs on, in one line."""
    on = sum(run.on for host in answer.hosts for run in host.runs)
    count, asked = len(answer.hosts), sum(map(_answered, answer.hosts))
    hosts = f"{count} host{'s' if count != 1 else ''}"
    silent = f", {count - asked} did not answer" if asked < count else ""
    return f"{hosts}{silent}: {on} run{'s' if on != 1 else ''} on; exit code {answer.exit_code}"


def _answered(host: HostRuns) -> bool:
    return host.reason is None or bool(host.runs)


def printed(answer: TrainAnswer, width: int = WIDTH) -> str:
    """Return what each launcher printed, below its host's name where there are several.

    A refusal always has the host's name: whoever reads it asked from elsewhere.
    """
    blocks = []
    follows = consequences(answer)
    for host in answer.hosts:
        if not host.ok:
            said = [line for each in host.lines for line in _folded(each, width)]
        elif host.explained is not None:
            said = _explained(host.explained, follows.get(host.name), width)
        else:
            said = [line for each in host.lines for line in _whole(each, width)]
        if host.reason:
            said += paragraph(host.reason, "! ", "  ", width=width)
        named = len(answer.hosts) > 1 or not host.ok or host.reason
        blocks.append("\n".join([*([f"{host.name}:"] if named else []), *said]))
    blocks += ["\n".join(paragraph(reason, "! ", "  ", width=width)) for reason in answer.reasons]
    return "\n\n".join(blocks)


def consequences(answer: TrainAnswer) -> Mapping[str, str]:
    """Return host -> what happened on another one first, of runs that several have together."""
    runs: dict[str, list[HostRuns]] = {}
    for host in answer.hosts:
        if host.explained is not None and host.explained.across and host.explained.ended:
            runs.setdefault(host.explained.run, []).append(host)
    found: dict[str, str] = {}
    for hosts in runs.values():
        first = min(hosts, key=_how_late)
        if first.explained is not None and not first.explained.secondary:
            others = (host for host in hosts if host is not first and not _stopped(host))
            found |= dict.fromkeys((host.name for host in others), _elsewhere(first))
    return found


def _stopped(host: HostRuns) -> bool:
    return host.explained is not None and host.explained.stopped


def _elsewhere(first: HostRuns) -> str:
    if _stopped(first):
        return f"it was stopped on {first.name}, and its ranks here lost those"
    return f"the ranks of {first.name} failed first, and the cause is told there"


def _how_late(host: HostRuns) -> tuple[bool, float]:
    """Return what is least for the host where the cause is: it knows one, and it failed first."""
    told = host.explained
    return (told is None or told.secondary, (told.ended if told else None) or float("inf"))


def _explained(told: Explanation, first: str | None, width: int) -> list[str]:
    if first is None:
        return told.screen(width).splitlines()
    return wrapped(f"{told.what}; {first}", width=width)


def indented(line: str) -> str:
    """Return a line of a host's without what a terminal would obey; its indentation is kept."""
    return " " * (len(line) - len(line.lstrip(" "))) + one_line(line)


def _whole(line: str, width: int) -> list[str]:
    """Return a line as it was printed; a warning of the launcher's, a sentence, as lines.

    A command that is longer than a line is one that a shell takes.
    """
    if line.startswith(_COMMAND) and len(line) > width:
        return command(line, _COMMAND[: -len(_COMMAND.lstrip())], width)
    return _folded(line, width) if line.startswith("warning: ") else [indented(line)]


def _folded(line: str, width: int) -> list[str]:
    before = " " * min(len(line) - len(line.lstrip(" ")), width // 2)
    return paragraph(line, before, f"{before}  ", width=width)


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
