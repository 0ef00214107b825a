"""The golden table: which combination works, and which rule refuses the others.

Each row of compatibility_golden.csv is one host's data, and with `host = yes` what the host says
about itself; `expected` is "ok" or the id of the first rule that refuses. The verdicts were written
from the sources of stacks.yaml, not from the rules.
"""

from __future__ import annotations

import ast
import csv
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from pyinfra_gpu import spec as declared
from pyinfra_gpu.compatibility import RULES, HostFacts, check_host, check_spec, refusals, resolve
from pyinfra_gpu.spec import HostSpec, SpecError

TABLE = Path(__file__).with_name("compatibility_golden.csv")
SWITCHES = {"environment_dynamo", "rehearsal", "cuda_toolkit"}
LISTS = {"cuda_archs", "pytorch_archs"}
NUMBERS = {"gpu_count", "driver_branch", "smoke_ranks"}
VERDICT = ("expected", "why")
HOST_FIELDS = {
    "host", "host_python", "host_gcc", "host_machine", "host_driver", "host_capabilities",
    "host_open", "host_glibc", "host_distribution",
}  # fmt: skip

Row = dict[str, str]


def table() -> list[Row]:
    with TABLE.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def name_of(row: Row) -> str:
    given = [f"{key}={value}" for key, value in row.items() if value and key not in VERDICT]
    return f"{' '.join(given) or 'the default'} -> {row['expected']}"


ROWS = table()


def data_of(row: Row) -> dict[str, object]:
    """Return the row's data as an inventory would give it."""
    data: dict[str, object] = {}
    for key, value in row.items():
        if not value or key in VERDICT or key in HOST_FIELDS:
            continue
        if key in SWITCHES:
            data[key] = value == "True"
        elif key in LISTS:
            data[key] = value.split()
        else:
            data[key] = int(value) if key in NUMBERS else value
    return data


def facts_of(row: Row) -> HostFacts:
    """Return what the row's host says; an empty field is that of an ordinary host."""

    def said(field: str, otherwise: str) -> str | None:
        value = row[f"host_{field}"] or otherwise
        return None if value == "none" else value

    gcc, open_modules = said("gcc", "13"), row["host_open"]
    return HostFacts(
        python=said("python", "3.12.3"),
        gcc=None if gcc is None else int(gcc),
        architecture=row["host_machine"] or "x86_64",
        driver_loaded=said("driver", "580.95.05"),
        compute_capabilities=tuple(filter(None, row["host_capabilities"].split("+"))),
        open_modules={"": None, "yes": True, "no": False}[open_modules],
        glibc=said("glibc", "2.39"),
        distribution=row["host_distribution"] or None,
        due=frozenset({"driver", "toolkit"}),
    )


def verdicts(row: Row, data: dict[str, object]) -> Iterator[tuple[str, str]]:
    """Yield (rule id, sentence) of every refusal of the row, with its data replaced by `data`."""
    spec = unchecked(data)
    yield from refusals(spec)
    if row["host"]:
        yield from refusals(spec, facts_of(row))


def unchecked(data: dict[str, object]) -> HostSpec:
    """Return the spec of `data` without judging it."""
    return declared.resolve(data, "lab-1")


def fix_of(sentence: str) -> dict[str, object]:
    """Return the (key, value) pairs a sentence says to set."""
    fix = sentence.rpartition("; fix: ")[2].split(", or ")[0]
    return {
        key: ast.literal_eval(value)
        for key, value in re.findall(r"(?:set |and )(\w+) = ('[^']*'|\[[^]]*\]|\w+)", fix)
    }


@pytest.mark.parametrize("verdict", ["ok", *(rule.id for rule in RULES)])
def test_each_combination_gets_the_verdict_of_the_golden_table(verdict: str) -> None:
    wrong = {}
    for row in (row for row in ROWS if row["expected"] == verdict):
        found = next((rule for rule, _ in verdicts(row, data_of(row))), "ok")
        if found != verdict:
            wrong[name_of(row)] = found
    assert wrong == {}


@pytest.mark.parametrize("rule", [rule.id for rule in RULES])
def test_each_refusal_is_one_sentence_with_a_change_of_data_that_settles_it(rule: str) -> None:
    for row in (row for row in ROWS if row["expected"] == rule):
        data = data_of(row)
        sentence = next(verdicts(row, data))[1]
        assert re.match(r"host lab-1: \w+ = \S+ .*; allowed: .*; fix: .", sentence)
        assert "\n" not in sentence
        fix = fix_of(sentence)
        if fix:
            assert rule not in [again for again, _ in verdicts(row, data | fix)], sentence
        else:  # nothing to set: then what to do on the host
            assert re.search(r"; fix: (install|use|set it to|no change of data helps)", sentence), (
                sentence
            )


def test_most_refusals_are_settled_by_one_change_after_which_nothing_else_refuses() -> None:
    refused = [row for row in ROWS if row["expected"] != "ok"]
    settled = 0
    for row in refused:
        data = data_of(row)
        fix = fix_of(next(verdicts(row, data))[1])
        settled += bool(fix) and not list(verdicts(row, data | fix))
    assert settled / len(refused) > 0.9


def test_the_golden_table_has_at_least_200_combinations_and_none_twice() -> None:
    inputs = [tuple(v for k, v in row.items() if k not in VERDICT) for row in ROWS]
    assert len(set(inputs)) == len(inputs) >= 200


@pytest.mark.parametrize("rule", [rule.id for rule in RULES])
def test_every_rule_refuses_somewhere_and_has_a_near_miss_that_passes(rule: str) -> None:
    """A near miss differs from a refused row in one field only."""
    columns = [column for column in ROWS[0] if column not in VERDICT]
    refused = [row for row in ROWS if row["expected"] == rule]
    passed = [row for row in ROWS if row["expected"] == "ok"]
    assert refused
    assert any(
        sum(no[column] != yes[column] for column in columns) == 1
        for no in refused
        for yes in passed
    )


def test_the_golden_table_expects_only_rules_that_exist() -> None:
    assert {row["expected"] for row in ROWS} == {"ok", *(rule.id for rule in RULES)}


def test_check_spec_raises_the_first_refusal_and_check_host_returns_each_once() -> None:
    spec = unchecked({"gpu_model": "V100"})
    with pytest.raises(SpecError) as caught:
        check_spec(spec)
    assert str(caught.value) == next(refusals(spec))[1]
    facts = HostFacts(
        python="3.9.2",
        gcc=16,
        architecture="x86_64",
        driver_loaded=None,
        compute_capabilities=("12.0", "12.0"),
        open_modules=None,
    )
    sentences = check_host(resolve({}, "lab-1"), facts)
    assert len(sentences) == len(set(sentences)) == 2
    assert "Python 3.9.2" in sentences[0]
    assert "gcc 16" in sentences[1]
