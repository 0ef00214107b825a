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
    silent = [f"{host.name}: {host.reason}" for host in answer.hosts if host.reason is not None]
    lines += [f"! {text}" for text in (*silent, *answer.reasons)]
    on = sum(run.on for host in answer.hosts for run in host.runs)
    summary = f"{len(answer.hosts)} host{'s' if len(answer.hosts) != 1 else ''}"
    summary += f", {len(silent)} did not answer" if silent else ""
    summary += f": {on} run{'s' if on != 1 else ''} on; exit code {answer.exit_code}"
    return "\n".join([*lines, *[""] * bool(lines), summary])


def _rows(host: HostRuns) -> Iterator[tuple[str, ...]]:
    if not host.shown and host.reason is None:
        yield host.name, "no training declared" if host.absent else "none yet", "", "", "", ""
    for run in host.shown:
        last = run.last.model_dump() if run.last else {}
        rate = last.get("tokens_per_second") if run.on else None
        speed = "" if rate is None else f"{rate:,.0f}"
        yield host.name, run.run, run.outcome, step_words(last), loss_words(last), speed


def told_of(run: Run) -> list[str]:
    """Return what the last step of a run says, in words."""
    last = run.last.model_dump() if run.last else {}
    step, loss = step_words(last), loss_words(last)
    parts = [f"step {step}" if step else "", f"loss {loss}" if loss else "", speed_words(last)]
    return [each for each in parts if each]


def printed(answer: TrainAnswer) -> str:
    """Return what the launchers printed, the same answer of several hosts once."""
    elsewhere = _consequences(answer)
    blocks: dict[tuple[str, ...], list[str]] = {}
    named = len(answer.hosts) > 1 or any(not host.ok or host.reason for host in answer.hosts)
    for host in answer.hosts:
        told, said = host.explained, [*host.lines]
        if told is not None:
            text = f"{told.what}; {elsewhere[host.name]}" if host.name in elsewhere else told.text
            said = [indented(line) for line in text.splitlines() or [told.what]]
        said += [f"! {host.reason}"] if host.reason else []
        blocks.setdefault(tuple(said), []).append(host.name)
    texts = [
        "\n".join([*([f"{', '.join(names)}:"] if named else []), *said])
        for said, names in blocks.items()
    ]
    return "\n\n".join([*texts, *(f"! {reason}" for reason in answer.reasons)])


def indented(line: str) -> str:
    """Return a line of a host's as text, with the blanks before it."""
    return " " * (len(line) - len(line.lstrip(" "))) + one_line(line)


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
