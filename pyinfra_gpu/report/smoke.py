"""The smoke test as a person reads it: its figures, or what failed, why and what to do.

Pure: from verdicts, as the host wrote them, to lines at most 80 columns wide. A verdict may be of
another version, or half of one: what is not there is left out.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator, Mapping
from typing import Any

from pyinfra_gpu.diagnosis.advice import advice
from pyinfra_gpu.diagnosis.evidence import measured_by_the_test

WIDTH = 80
MOST_LINES = 24
"""For one host: a terminal's height. What does not fit is on the host, and in the JSON report."""

_OTHERS_SHOWN = 3
"""Failed checks beside the one that counts."""
_WORD = re.compile(r"""(?:[^\s'"]|'[^']*'|"[^"]*"|['"])+""")
_GATE = {
    "rehearsal-1gpu": "one GPU is declared, and what one can prove is proven: the two-GPU gate is"
    " not satisfied, since two ranks shared that GPU",
    "rehearsal-cpu": "no GPU was used: this proves nothing about GPUs",
}


def lines(name: str, verdict: Mapping[str, Any] | None) -> list[str]:
    """Return what to show of a host's own test; empty where there was none."""
    if not verdict:
        return []
    if verdict.get("status") in ("pass", "warn"):
        return _bounded([*_head(name, verdict), *_figures(verdict), *_warnings(verdict)])
    return _bounded([*_head(name, verdict), *_failure(verdict)])


def across_lines(hosts: Mapping[str, Mapping[str, Any] | None]) -> list[str]:
    """Return what to show of the step across hosts (host -> what it has to say of it).

    All hosts of a group say the same of a step that passed, and of a failed one mostly: what is
    said twice is shown once.
    """
    shown: dict[str, list[str]] = {}
    for name, value in hosts.items():
        if value:
            text = "\n".join(_across_passed(value) if "failed" not in value else _failed(value))
            shown.setdefault(text, []).append(name)
    told: list[str] = []
    for text, names in shown.items():
        told += ["", f"{', '.join(names)}: {text.splitlines()[0]}", *text.splitlines()[1:]]
    return [line for each in told for line in (_wrapped(each, "", "  ") if each else [""])]


def _across_passed(value: Mapping[str, Any]) -> Iterator[str]:
    first, *others = across_figures(value)
    yield first
    yield from (f"  {each}" for each in others)


def across_figures(value: Mapping[str, Any]) -> Iterator[str]:
    """Yield what a stamp says of a step across hosts that passed, a sentence each."""
    hosts = _texts(value, "hosts")
    yield (
        f"step across {len(hosts)} hosts PASS ({value.get('mode')}), {value.get('ranks')} ranks,"
        f" {_seconds(value)}, {value.get('finished', '')}"
    )
    if isinstance(reduced := value.get("all_reduce"), Mapping):
        yield f"{_all_reduce(reduced)}, every element exact on all ranks"
    if (ratio := _number(value.get("taylor_ratio"))) is not None:
        yield f"one training step: {ratio:.3f} of the drop its gradient predicts"


def _failed(value: Mapping[str, Any]) -> Iterator[str]:
    hosts = ", ".join(_texts(value, "hosts"))
    status = str(value.get("status", "unknown")).upper()
    yield f"step across {hosts} {status} ({value.get('mode')}), {_seconds(value)}"
    yield from _failure(value)


def _head(name: str, verdict: Mapping[str, Any]) -> list[str]:
    checks = _checks(verdict)
    passed = sum(check.get("status") == "pass" for check in checks)
    status = {"warn": "PASS, degraded"}.get(
        str(verdict.get("status")), str(verdict.get("status", "unknown")).upper()
    )
    head = (
        f"{name}: smoke test {status} ({verdict.get('mode')}),"
        f" {passed} of {len(checks)} checks passed in {_seconds(verdict)},"
        f" {verdict.get('finished', 'unfinished')}"
    )
    return _wrapped(head, "", "  ")


# -- a pass


def _figures(verdict: Mapping[str, Any]) -> list[str]:
    return [line for text in figures(verdict) for line in _wrapped(text, "  ", "    ")]


def figures(verdict: Mapping[str, Any]) -> list[str]:
    """Return a test's figures, a sentence each, as far as it came."""
    metrics = verdict.get("metrics")
    metrics = metrics if isinstance(metrics, Mapping) else {}
    texts = [*_gpus(verdict), *_bandwidth(verdict, metrics), *_step(metrics)]
    texts += [*_precision(metrics), *_stages(verdict)]
    if gate := _GATE.get(str(verdict.get("mode"))):
        texts.append(gate)
    return texts


def _gpus(verdict: Mapping[str, Any]) -> Iterator[str]:
    names = [str(gpu.get("name")) for gpu in _objects(verdict, "gpus")]
    if names:
        counted = ", ".join(f"{names.count(name)} x {name}" for name in dict.fromkeys(names))
        yield f"{len(_objects(verdict, 'ranks'))} ranks on {counted}"


def _bandwidth(verdict: Mapping[str, Any], metrics: Mapping[str, Any]) -> Iterator[str]:
    """One line: how fast, over what, by which way."""
    bus = _number(metrics.get("allreduce_busbw_gb_s"))
    if bus is not None:
        size = _number(metrics.get("allreduce_bytes"))
        payload = f" of {size / 2**20:g} MiB" if size else ""
        reduced = f"all-reduce{payload}: {bus:.1f} GB/s bus bandwidth{_exact(verdict)}"
        yield "; ".join([reduced, *_links(metrics)])
        return
    sizes = [each for each in _objects(metrics, "allreduce") if each.get("kind") == "float32"]
    if sizes:
        largest = max(sizes, key=lambda each: _number(each.get("bytes")) or 0)
        ranks = len(_objects(verdict, "ranks"))
        yield f"{_all_reduce(largest, ranks)}{_exact(verdict)}"


def _all_reduce(entry: Mapping[str, Any], ranks: int = 0) -> str:
    size, rate = _number(entry.get("bytes")) or 0.0, _number(entry.get("mb_per_s")) or 0.0
    among = f" among {ranks} ranks" if ranks else ""
    return f"all-reduce of {size / 2**20:g} MiB{among}: {rate:.0f} MB/s"


def _links(metrics: Mapping[str, Any]) -> Iterator[str]:
    links = metrics.get("link")
    seen = [each for each in links.values() if isinstance(each, Mapping)] if isinstance(
        links, Mapping
    ) else []  # fmt: skip
    texts = [
        f"PCIe gen {each.get('gen')} x{each.get('width')}"
        for each in seen
        if each.get("gen") and each.get("width")
    ]
    if texts:
        yield f"link under load {', '.join(dict.fromkeys(texts))}"
    ways = metrics.get("transport")
    if isinstance(ways, Mapping) and ways:
        yield f"transport {', '.join(map(str, ways))}"


def _exact(verdict: Mapping[str, Any]) -> str:
    good = any(
        check.get("id") == "S4.allreduce_exact" and check.get("status") == "pass"
        for check in _checks(verdict)
    )
    return ", every element exact" if good else ""


def _step(metrics: Mapping[str, Any]) -> Iterator[str]:
    before, after = _number(metrics.get("loss0")), _number(metrics.get("loss1"))
    ratio = _number(metrics.get("taylor_ratio"))
    if before is not None and after is not None and ratio is not None:
        yield (
            f"one training step: loss {before:.4f} -> {after:.4f},"
            f" {ratio:.3f} of the drop its gradient predicts"
        )


def _precision(metrics: Mapping[str, Any]) -> Iterator[str]:
    formats = metrics.get("precision")
    if not isinstance(formats, Mapping) or not formats:
        return
    by_status: dict[str, list[str]] = {}
    for name, entry in formats.items():
        status = entry.get("status") if isinstance(entry, Mapping) else entry
        by_status.setdefault(str(status), []).append(str(name))
    told = "; ".join(f"{', '.join(names)} {status}" for status, names in by_status.items())
    best = metrics.get("precision_best")
    fallback = f"; fall back to {best}" if best and set(by_status) != {"native"} else ""
    yield f"number formats: {told}{fallback}"


def _stages(verdict: Mapping[str, Any]) -> Iterator[str]:
    stages = _objects(verdict, "stages")
    times = [(each.get("id"), _number(each.get("seconds"))) for each in stages]
    told = [f"{name} {seconds:.1f}" for name, seconds in times if seconds is not None]
    if told:
        yield f"seconds by stage: {', '.join(told)}"


def _warnings(verdict: Mapping[str, Any]) -> list[str]:
    """Return each warning, and how many checks did not apply or could not be made."""
    told = []
    for check in _checks(verdict):
        if check.get("status") == "warn":
            text = _shortened(str(check.get("detail", "")), 3 * WIDTH)
            told += _wrapped(f"WARN {check.get('id')}: {text}", "  ", "    ")
    skipped = [str(check.get("id")) for check in _checks(verdict) if check.get("status") == "skip"]
    if skipped:
        told += _wrapped(f"not made here: {', '.join(skipped)}", "  ", "    ")
    return told


# -- a failure


def _failure(verdict: Mapping[str, Any]) -> list[str]:
    """Return what failed, the line that shows it, why, what to do, and where the rest is."""
    failed = verdict.get("failed")
    failed = failed if isinstance(failed, Mapping) else {}
    bad = [each for each in _checks(verdict) if each.get("status") in ("fail", "unknown")]
    told = []
    if failed:
        told += _wrapped(f"FAIL {failed.get('id')}: {failed.get('sentence')}", "  ", "    ")
    for check in [each for each in bad if each.get("id") != failed.get("id")][:_OTHERS_SHOWN]:
        text = f"{str(check.get('status')).upper()} {check.get('id')}: {check.get('detail', '')}"
        told += _wrapped(_shortened(text, 2 * WIDTH), "  ", "    ")
    finding = root(verdict)
    where = _where(verdict)
    room = MOST_LINES - 2 - len(told) - len(where)
    if finding:
        told += _explained(finding, room)
    elif measured_by_the_test(verdict):  # the ranks' logs say nothing of it
        told += _steps(list(advice(str(failed.get("id")))), room)
    else:
        told += _tail(verdict, failed, room)
    return told + where


def root(verdict: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return the finding that explains a failed test, None where nothing known does."""
    diagnosis = verdict.get("diagnosis")
    found = _objects(diagnosis, "findings") if isinstance(diagnosis, Mapping) else []
    return next((each for each in found if each.get("kind") == "root"), None)


def _explained(finding: Mapping[str, Any], room: int) -> list[str]:
    """Return the line that shows it, why it happens, and as many steps as there is room for."""
    cause = str(finding.get("cause", "")).replace("`", "")
    told = _wrapped(f"seen: {_shortened(str(finding.get('evidence', '')), 140)}", "  ", "    ")
    told += _wrapped(f"why ({finding.get('id')}): {_shortened(cause, 300)}", "  ", "    ")
    return told + _steps(_texts(finding, "fix"), room - len(told))


def _steps(steps: list[str], room: int) -> list[str]:
    told: list[str] = []
    for number, text in enumerate(steps, 1):
        step = _do(number, text)
        if number > 1 and len(told) + len(step) >= room:
            more = len(steps) - number + 1
            told.append(f"  and {more} more step{'s' if more > 1 else ''}, in the JSON report")
            break
        told += step
    return told


def _do(number: int, text: str) -> list[str]:
    """Return one step; a command stands on a line of its own, to be copied."""
    told: list[str] = []
    words = ""
    for place, part in enumerate(text.split("`")):
        inside = words.count("(") > words.count(")")
        if place % 2 and " " in part and not inside:
            told += _wrapped(words.strip(" ,;:"), "     ", "     ")
            told += _command(part, "     ")
            words = ""
        else:
            words += part
    if words.strip(" ,.;:"):
        told += _wrapped(words.strip(" ,;:"), "     ", "     ")
    return [f"  {number}. {told[0].strip()}", *told[1:]] if told else []


def _tail(verdict: Mapping[str, Any], failed: Mapping[str, Any], room: int) -> list[str]:
    """Return the last lines where nothing known explains the failure; the last one whole."""
    diagnosis = verdict.get("diagnosis")
    tail = _texts(failed, "tail")
    if not tail and isinstance(diagnosis, Mapping):
        tail = _texts(diagnosis, "tail")
    tail = [line for line in tail if line.strip(" ^~|")]  # Python underlines with these
    if not tail:
        return []
    known = ["  no known failure explains it; the last lines:"] if diagnosis else []
    last = _wrapped(_shortened(tail[-1], 4 * WIDTH), "  | ", "  |   ")
    before = tail[-max(1, min(10, room - len(last))) : -1]
    return known + [f"  | {line}"[:WIDTH] for line in before] + last


def _where(verdict: Mapping[str, Any]) -> list[str]:
    told = [f"  all there is: {verdict['logs']} there"] if verdict.get("logs") else []
    if verdict.get("rerun_command"):
        told.append("  again, by hand there:")
        told += _command(str(verdict["rerun_command"]), "    ")
    return told


def _command(command: str, indent: str) -> list[str]:
    """Return a command over as many lines as it needs, which a shell takes as one."""
    lines = [""]
    for word in _WORD.findall(command):
        # The quoted parts of a word stay together; two columns are for the backslash.
        if lines[-1] and len(indent) + len(lines[-1]) + 1 + len(word) + 2 > WIDTH:
            lines.append("")
        lines[-1] += f" {word}" if lines[-1] else word
    return [f"{indent}{line} \\" for line in lines[:-1]] + [f"{indent}{lines[-1]}"]


# -- small things


def _checks(verdict: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return _objects(verdict, "checks")


def _objects(owner: Mapping[str, Any], name: str) -> list[Mapping[str, Any]]:
    """Return the objects of a list, nothing where there is no such list."""
    found = owner.get(name)
    return [
        each for each in (found if isinstance(found, list) else ()) if isinstance(each, Mapping)
    ]


def _texts(owner: Mapping[str, Any], name: str) -> list[str]:
    found = owner.get(name)
    return [str(each) for each in (found if isinstance(found, list | tuple | dict) else ())]


def _seconds(verdict: Mapping[str, Any]) -> str:
    seconds = _number(verdict.get("duration_s"))
    return f"{seconds or 0.0:.1f} s"


def _number(value: object) -> float | None:
    """Return a number; a verdict has "nan" and "inf" as text, which are none to show."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value)


def _shortened(text: str, limit: int) -> str:
    text = " ".join(text.split())
    return text if len(text) <= limit else f"{text[: limit - 3]}..."


def _wrapped(text: str, first: str, others: str) -> list[str]:
    return textwrap.wrap(
        text, WIDTH, initial_indent=first, subsequent_indent=others, break_on_hyphens=False
    )


def _bounded(told: list[str]) -> list[str]:
    if len(told) <= MOST_LINES:
        return told
    return [*told[: MOST_LINES - 1], "  ... the rest is in the JSON report and on the host"]
