"""Whatever a host says: nothing raises, and no control byte comes out.

Answers and documents that are almost right, or not at all, through all readers, judges and
renderers: 2,000 of them, always the same ones.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable, Iterator
from typing import Any

import fake_host
import pytest
from fake_host import FakeHost
from gpu_host import GpuHost
from verdicts import document, stamp

from pyinfra_gpu.diagnosis.explained import Explained, explained
from pyinfra_gpu.facts.fields import Unknown
from pyinfra_gpu.facts.parse import parse
from pyinfra_gpu.facts.verdict import Stamp, Verdict
from pyinfra_gpu.report import smoke as smoke_report
from pyinfra_gpu.report.check.answer import Answer, judge
from pyinfra_gpu.report.check.cli import render
from pyinfra_gpu.report.html.page import page
from pyinfra_gpu.report.screen import printed

CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")

ODD_TEXTS = (
    "\x1b[2J\x1b]0;x\x07", "\x00", "\x9b31m", "\u202e", "\u2028", "\r", "\n", "\ufeff", "",
    "../../etc/shadow", "-", "=", "?", ".", "{{7*7}}", "<script>", "580.95.05", "²", "१२", "\ud800",
    "a" * 999, "9" * 5000, "1." * 3000, "+", "2.13.0+cpu and 2",
)  # fmt: skip
ODD_VALUES: tuple[Any, ...] = (
    *ODD_TEXTS, None, True, False, 0, -1, 1, 2**63, 2**64 + 1, 10**400, 0.5, -0.0, 1e308, 1e-320,
    float("nan"), float("inf"), [], {}, [[]], [None], {"a": {}}, {"": ""},
)  # fmt: skip


def odd(fuzz: random.Random, value: Any, depth: int = 0) -> Any:
    """Return a value that is almost this one: one place in it is something else."""
    if depth and fuzz.random() < 0.25:
        return fuzz.choice(ODD_VALUES)
    if isinstance(value, dict) and value:
        key = fuzz.choice(list(value))
        changed = dict(value)
        kind = fuzz.random()
        if kind < 0.1:
            del changed[key]
        elif kind < 0.15:
            changed[fuzz.choice(ODD_TEXTS)] = changed.pop(key)
        else:
            changed[key] = odd(fuzz, value[key], depth + 1)
        return changed
    if isinstance(value, list) and value:
        place = fuzz.randrange(len(value))
        return [*value[:place], odd(fuzz, value[place], depth + 1), *value[place + 1 :]]
    if isinstance(value, str) and value and fuzz.random() < 0.5:
        place = fuzz.randrange(len(value))
        return value[:place] + fuzz.choice(ODD_TEXTS) + value[place + fuzz.randrange(2) :]
    return fuzz.choice(ODD_VALUES)


def harmless(text: str) -> None:
    """Nothing that a terminal would obey, and nothing that cannot be written."""
    assert not CONTROL.search(text), repr(CONTROL.search(text))
    text.encode("utf-8")


@pytest.fixture
def fuzz() -> random.Random:
    return random.Random(0)


FAILED = {
    "id": "S3.allreduce",
    "sentence": "ws1: rank 1 ended",
    "rank": 1,
    "log": "/x/log",
    "tail": ["RuntimeError: CUDA error: no kernel image is available"],
}
FORMS: dict[str, tuple[Any, Any]] = {
    "a stamp": (Stamp, stamp(across=["ws1", "ws2"])),
    "a verdict that failed": (Verdict, document(status="fail", failed=FAILED)),
}


@pytest.mark.parametrize("name", FORMS)
def test_documents(name: str, fuzz: random.Random) -> None:
    form, value = FORMS[name]
    record = FakeHost().record()
    for number in range(100):
        found = form.read(json.dumps(odd(fuzz, value), ensure_ascii=number % 2 == 0))
        if isinstance(found, Unknown):
            assert 0 < len(found.reason) <= 200
            harmless(found.reason)
        elif isinstance(found, Verdict):
            reported = explained(found, record) if number % 10 == 0 else Explained(found)
            harmless(printed(smoke_report.blocks({"ws1": reported})))


def answers(fuzz: random.Random, lines: list[str], count: int) -> Iterator[list[str]]:
    """Yield so many answers that are almost this one."""
    whole = json.loads(lines[1])
    for _ in range(count):
        made, owner = dict(whole), json.loads(whole["owner"])
        for _ in range(fuzz.choice((1, 1, 1, 3, 20))):
            half = fuzz.choice((made, owner))
            deep: Any = fuzz.choice(ODD_VALUES)
            for _ in range(fuzz.choice((0, 0, 1, 5, 60))):
                deep = fuzz.choice(([deep], {"?": deep}))
            key = fuzz.choice(list(half))
            half[key] = fuzz.choice((odd(fuzz, half[key]), whole[fuzz.choice([*whole])], deep))
        if made.get("owner") == whole["owner"]:
            made["owner"] = json.dumps(owner)
        yield [lines[0], json.dumps(made), *lines[2:]]


HOSTS: dict[str, Callable[[], FakeHost]] = {"cpu": FakeHost, "gpu": GpuHost}


@pytest.mark.parametrize("kind", HOSTS)
def test_answers_of_the_probe(kind: str, fuzz: random.Random) -> None:
    host = HOSTS[kind]()
    spec = host.spec()
    for number, lines in enumerate(answers(fuzz, host.probe_lines(), 20)):
        record = parse(lines)
        if number % 5:
            continue
        reported = judge(spec, record)
        answer = Answer(inventory="lab.py", checked="now", seconds=1.0, hosts=(reported,))
        harmless(render(answer))
        harmless(json.dumps(answer.as_json()))
        if number % 10 == 0:
            harmless(page(answer))


@pytest.mark.timeout(300)  # what goes back and forth in a value would take hours
@pytest.mark.parametrize("pattern", ["a ", "` '\"", "\x1b[", "9./"])
def test_values_that_are_long_take_no_longer_than_reading_them(pattern: str) -> None:
    """2 MiB, as much as a look may bring, in values of every key."""
    host = GpuHost()
    made = host.answer()
    long = (pattern * 30_000)[: (1 << 20) // len(made)]
    odd = {key: [long] if isinstance(value, list) else long for key, value in made.items()}
    odd |= {"owner": json.dumps(dict.fromkeys(json.loads(made["owner"]), long))}
    answer = Answer(
        inventory="lab.py",
        checked="now",
        seconds=1.0,
        hosts=(judge(host.spec(), parse(fake_host.lines(odd))),),
    )
    harmless(render(answer))
    harmless(page(answer))
