"""Runs of hosts as text: one table, or what each launcher printed, equal answers once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from pyinfra_gpu.on_host.train.listing import Style, loss_words, speed_words, step_words, table
from pyinfra_gpu.report.train.answer import HostRuns, Run, TrainAnswer, Why
from pyinfra_gpu.text import WIDTH, one_line

_HEAD = ("host", "run", "state", "step", "loss", "tokens/s")


def render(answer: TrainAnswer, style: Style = lambda text, word: text, width: int = WIDTH) -> str:
    """Return what is on, and each host's newest run."""
    rows = [row for host in answer.hosts for row in _rows(host)]
    lines = [*table(_HEAD, rows, width, style)] if rows else []
    for host in answer.hosts:
        if failed := [run for run in host.runs[:-1] if run.unresolved]:
            count = f"{len(failed)} older run{'s' if len(failed) > 1 else ''} failed on {host.name}"
            typed = f"pyinfra-gpu train {answer.inventory} why --limit {host.name} {failed[-1].run}"
            lines.append(f"{count}: `{typed}`")
    unasked = [f"{host.name}: {host.reason}" for host in answer.hosts if host.reason is not None]
    lines += [f"! {text}" for text in (*unasked, *answer.reasons)]
    on = sum(run.on for host in answer.hosts for run in host.runs)
    silent = f", {len(unasked)} did not answer" if unasked else ""
    summary = f"{len(answer.hosts)} host{'s' if len(answer.hosts) != 1 else ''}{silent}"
    summary += f": {on} run{'s' if on != 1 else ''} on; exit code {answer.exit_code}"
    return "\n".join([*lines, *[""] * bool(lines), summary])


def shown(host: HostRuns) -> tuple[Run, ...]:
    """Return the runs that are on, and the newest one."""
    return (*(run for run in host.runs[:-1] if run.on), *host.runs[-1:])


def _rows(host: HostRuns) -> Iterator[tuple[str, ...]]:
    runs = shown(host)
    if not runs and host.reason is None:
        yield host.name, "no training declared" if host.absent else "none yet", "", "", "", ""
    for run in runs:
        rate = run.last.tokens_per_second if run.last and run.on else None
        speed = "" if rate is None else f"{rate:,.0f}"
        last = run.last.model_dump() if run.last else {}
        yield host.name, run.run, run.outcome, step_words(last), loss_words(last), speed


def told_of(run: Run) -> list[str]:
    """Return what the last step of a run says, in words."""
    last = run.last.model_dump() if run.last else {}
    step, loss = step_words(last), loss_words(last)
    parts = [f"step {step}" if step else "", f"loss {loss}" if loss else "", speed_words(last)]
    return [each for each in parts if each]


def printed(answer: TrainAnswer) -> str:
    """Return what the launchers printed, the same answer of several hosts once."""
    follows = _consequences(answer)
    blocks: dict[tuple[str, ...], list[str]] = {}
    named = len(answer.hosts) > 1
    for host in answer.hosts:
        said = [*host.lines]
        if host.explained is not None:
            said = _explained(host.explained, follows.get(host.name))
        said += [f"! {host.reason}"] if host.reason else []
        named = named or not host.ok or host.reason is not None
        blocks.setdefault(tuple(said), []).append(host.name)
    told = []
    for said_, names in blocks.items():
        head = [f"{', '.join(names)}:"] if named else []
        told.append("\n".join([*head, *said_]))
    return "\n\n".join([*told, *(f"! {reason}" for reason in answer.reasons)])


def _explained(told: Why, elsewhere: str | None) -> list[str]:
    if elsewhere:
        return [one_line(f"{told.what}; {elsewhere}")]
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
