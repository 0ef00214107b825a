"""The smoke tests of a run's hosts: of a few in full, of many what they have in common once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from pyinfra_gpu.diagnosis.explained import Explained
from pyinfra_gpu.facts.verdict import Verdict, finite
from pyinfra_gpu.host_names import FEW, brief
from pyinfra_gpu.report import smoke
from pyinfra_gpu.report.fleet import alike, said_once
from pyinfra_gpu.text import wrapped

_MORE = "each host's own figures: -v, or the JSON report"


def lines(hosts: Mapping[str, Explained | None], *, whole: bool = False) -> list[str]:
    """Return what to show of the hosts' own tests, an empty line before each.

    + hosts: host -> its test, None where it had none; in the order in which they are shown
    + whole: each in full, however many there are
    """
    tests = {name: test for name, test in hosts.items() if test is not None}
    shown: list[str] = []
    passed: dict[str, Verdict] = {}
    failed: dict[str, Explained] = {}
    for name, test in tests.items():
        verdict = test.verdict
        if whole or len(tests) <= FEW or not isinstance(verdict, Verdict):
            shown += _apart(_contained(name, test))
        elif verdict.passed:
            passed[name] = verdict
        else:
            failed[name] = test
    return [*shown, *_failures(failed), *_passes(passed)]


def _contained(name: str, test: Explained) -> list[str]:
    """Return a test's lines; what a host told must not keep the others' tests away."""
    try:
        return smoke.lines(name, test)
    except Exception as error:
        return wrapped(f"{name}: its smoke test cannot be shown ({error!r})", "! ", "  ")


def _apart(block: Sequence[str]) -> list[str]:
    return ["", *block] if block else []


def _failures(tests: Mapping[str, Explained]) -> list[str]:
    """Return each failure once, in full for the first of the hosts that it is the same on."""
    blocks = {name: _contained(name, test) for name, test in tests.items()}
    shown: list[str] = []
    for first, *others in alike(blocks, lambda name: _without_head(name, blocks[name])):
        shown += _apart(blocks[first])
        if others:
            shown += wrapped(f"the same on {brief(others)}", "  ", "    ", whole_words=True)
    return shown


def _without_head(name: str, block: Sequence[str]) -> tuple[str, ...]:
    """Return a block without its own name, seconds and time, which stand before the failure."""
    start = next((at for at, line in enumerate(block) if line.startswith("  FAIL ")), 0)
    return tuple(line.replace(name, "") for line in block[start:])


def _passes(tests: Mapping[str, Verdict]) -> list[str]:
    """Return a block for the hosts that passed in the same way, with the range of their figures."""
    shown: list[str] = []
    for names in alike(tests, lambda name: _way(tests[name])):
        verdicts = [tests[name] for name in names]
        shown += ["", *_pass(names, verdicts)]
        warned = ((name, text) for name in names for text in smoke.warnings(tests[name]))
        for text, hosts in said_once(warned):
            line = f"WARN {brief(hosts)}: {text}"
            shown += wrapped(line, "  ", "    ", whole_words=True)
    return [*shown, f"  {_MORE}"] if shown else []


def _way(verdict: Verdict) -> tuple[str, str, int, int]:
    passed = len(verdict.having("pass"))
    return verdict.status, verdict.mode, passed, len(verdict.checks)


def _pass(names: Sequence[str], verdicts: Sequence[Verdict]) -> Iterator[str]:
    status, mode, passed, checks = _way(verdicts[0])
    seconds = _range([verdict.duration_s for verdict in verdicts])
    degraded = ", degraded" if status == "warn" else ""
    yield from wrapped(
        f"{brief(names)}: smoke test PASS{degraded} ({mode}), {passed} of {checks} checks passed"
        f" in {seconds} s",
        "",
        "  ",
        whole_words=True,
    )
    rates = [finite(verdict.metrics.allreduce_busbw_gb_s) for verdict in verdicts]
    if known := [rate for rate in rates if rate is not None]:
        yield from wrapped(f"all-reduce: {_range(known)} GB/s bus bandwidth", "  ", "    ")
    if gate := smoke.GATE.get(mode):
        yield from wrapped(gate, "  ", "    ")


def _range(values: Sequence[float]) -> str:
    low, high = min(values), max(values)
    return f"{low:.1f}" if f"{low:.1f}" == f"{high:.1f}" else f"{low:.1f} to {high:.1f}"
