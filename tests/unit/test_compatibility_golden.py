"""The golden table: which combination works, and which rule refuses the others.

Each row of compatibility_golden.csv is one host's data, and with `host = yes` what the host says
about itself; `expected` is "ok" or the id of the first rule that refuses. The verdicts were written
from the sources of stacks.yaml, not from the rules. Each rule has a row that it refuses and a near
miss, which differs in one field and passes.
"""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from pyinfra_gpu import spec as declared
from pyinfra_gpu.compatibility import RULES, HostFacts, Refusal, refusals

TABLE = Path(__file__).with_name("compatibility_golden.csv")
SWITCHES = {"environment_dynamo", "rehearsal", "cuda_toolkit"}
LISTS = {"cuda_archs", "pytorch_archs"}
NUMBERS = {"gpu_count", "driver_branch"}
OF_HOST = {
    f"host_{fact}"
    for fact in (
        "python",
        "gcc",
        "machine",
        "driver",
        "capabilities",
        "open",
        "glibc",
        "distribution",
    )
}

Row = dict[str, str]

with TABLE.open(newline="", encoding="utf-8") as file:
    ROWS = list(csv.DictReader(file))


def name_of(row: Row) -> str:
    given = [f"{key}={value}" for key, value in row.items() if value and key != "why"]
    return " ".join(given)


def data_of(row: Row) -> dict[str, object]:
    """Return the row's data as an inventory would give it."""
    data: dict[str, object] = {}
    for key, value in row.items():
        if not value or key in ("expected", "why", "host") or key in OF_HOST:
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
        value = row.get(f"host_{field}") or otherwise
        return None if value == "none" else value

    gcc = said("gcc", "13")
    return HostFacts(
        python=said("python", "3.12.3"),
        gcc=None if gcc is None else int(gcc),
        architecture=row["host_machine"] or "x86_64",
        driver_loaded=said("driver", "580.95.05"),
        compute_capabilities=tuple(filter(None, row["host_capabilities"].split("+"))),
        open_modules={"": None, "yes": True, "no": False}[row["host_open"]],
        glibc=said("glibc", "2.39"),
        distribution=row["host_distribution"] or None,
        due=frozenset({"driver", "toolkit"}),
    )


def verdicts(row: Row) -> list[Refusal]:
    spec = declared.resolve(data_of(row), "lab-1")
    by_data = list(refusals(spec))
    return [*by_data, *(refusals(spec, facts_of(row)) if row["host"] else ())]


@pytest.mark.parametrize("row", ROWS, ids=name_of)
def test_each_combination_gets_the_verdict_of_the_golden_table(row: Row) -> None:
    found = verdicts(row)
    assert (found[0].rule if found else "ok") == row["expected"], row["why"]
    for refusal in found:
        assert refusal.sentence.startswith("host lab-1: ")
        assert refusal.found
        assert refusal.allowed
        assert refusal.remedy


@pytest.mark.parametrize("rule", RULES)
def test_every_rule_refuses_somewhere_and_has_a_near_miss_that_passes(rule: str) -> None:
    columns = [column for column in ROWS[0] if column not in ("expected", "why")]
    refused = [row for row in ROWS if row["expected"] == rule]
    passed = [row for row in ROWS if row["expected"] == "ok"]
    assert any(
        sum(no[column] != yes[column] for column in columns) == 1
        for no in refused
        for yes in passed
    )
