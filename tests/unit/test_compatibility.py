"""Which combination is refused, by which rule, and in which words: found, required, what to do.

The rows are in compatibility_golden.yaml.
"""
# ruff: noqa: E501 (sentences are tested whole)

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from pyinfra_gpu import spec as declared
from pyinfra_gpu.compatibility import HostFacts, check_host, refusals, resolve
from pyinfra_gpu.spec import SpecError
from pyinfra_gpu.stacks import catalogue

GOLDEN = Path(__file__).with_name("compatibility_golden.yaml")
ROWS = [
    (expected, row)
    for expected, rows in yaml.safe_load(GOLDEN.read_text(encoding="utf-8")).items()
    for row in rows
]

HOST: dict[str, Any] = {
    "python": "3.12.3",
    "gcc": 13,
    "architecture": "x86_64",
    "driver_loaded": "580.95.05",
    "compute_capabilities": (),
    "open_modules": None,
}


@pytest.mark.parametrize(("expected", "row"), ROWS, ids=map(str, ROWS))
def test_each_combination_gets_the_verdict_of_the_golden_table(
    expected: str, row: dict[str, Any]
) -> None:
    data = {key: value for key, value in row.items() if key != "host"}
    spec = declared.resolve(data, "lab-1")
    found = [*refusals(spec)]
    if "host" in row:
        facts = {**HOST, "due": ["driver", "toolkit"], **row["host"]}
        facts["compute_capabilities"] = tuple(facts["compute_capabilities"])
        facts["due"] = frozenset(facts["due"])
        found += refusals(spec, HostFacts(**facts))
    assert (found[0].found.partition(" = ")[0] if found else "ok") == expected
    assert all(all(refusal) for refusal in found)


@pytest.mark.parametrize("key", sorted({key for key, _ in ROWS} - {"ok"}))
def test_every_key_that_is_refused_has_a_near_miss_that_passes(key: str) -> None:
    def differ(one: dict[str, Any], other: dict[str, Any]) -> int:
        left, right = ({**each, **each.get("host", {})} for each in (one, other))
        return sum(left.get(key) != right.get(key) for key in ({*left, *right} - {"host"}))

    passed = [row for expected, row in ROWS if expected == "ok"]
    refused = [row for expected, row in ROWS if expected == key]
    assert any(differ(no, yes) == 1 for no in refused for yes in passed)


STACK = "and remove keys that change its versions"
BARE = {"driver_loaded": None, "due": frozenset({"driver", "toolkit"})}
DEBIAN_13 = {**BARE, "distribution": "debian 13"}

# (data, what the host shows; None where data alone shows it), and the sentence
SENTENCES: list[tuple[dict[str, object], dict[str, Any] | None, str]] = [
    (
        {"gpu_model": "RTX 5090", "pytorch_build": "cu126"},
        None,
        "pytorch_build = 'cu126' has no code for RTX 5090 (compute capability 12.0); allowed: compute capabilities 5.0, 6.0, 7.0, 7.5, 8.0, 8.6, 9.0 with it; fix: remove pytorch_build: the stack's own fits",
    ),
    (
        {"gpu_model": "GTX 1080 Ti", "driver_branch": 595, "driver_modules": "proprietary"},
        None,
        f"driver_branch = 595 is too new for GTX 1080 Ti (compute capability 6.1); allowed: branch 535 to 580 with GTX 1080 Ti (compute capability 6.1); fix: set stack = 'r580-cu126' or 'r550-cu126' {STACK}",
    ),
    (
        {},
        DEBIAN_13,
        f"driver_branch = 580 is too old for NVIDIA's repository for debian 13; allowed: branch 590 or newer with NVIDIA's repository for debian 13; fix: set stack = 'r595-cu132' {STACK}",
    ),
    (
        {},
        {"gcc": 16},
        "host_compiler = None leaves the host its own gcc 16, which is too new for CUDA 13.0; allowed: gcc 6 to 15 with CUDA 13.0; fix: set host_compiler = 'gcc-15'",
    ),
    (
        {},
        {"driver_loaded": "570.124.06"},
        "driver_branch = 580 is declared, but the loaded driver 570.124.06 is too old for CUDA 13.0; allowed: driver 580.65.06 or newer with CUDA 13.0; fix: install driver branch 580, 580.65.06 or newer, on the host and reboot it",
    ),
    (
        {"driver_modules": "proprietary"},
        {"compute_capabilities": ("10.0",), "open_modules": False},
        "driver_modules = 'proprietary' does not bring up the host's GPU of compute capability 10.0; allowed: 'open' for Blackwell and Grace; fix: set driver_modules = 'open'",
    ),
    (
        {"gpu_model": "RTX 5090"},
        {"compute_capabilities": ("12.0", "8.0")},
        "gpu_model = 'RTX 5090' is declared, which has compute capability 12.0, but the host has a GPU of 8.0; allowed: A100; fix: set gpu_model to what is in the host; with GPUs of several kinds set it to None, or take the others out",
    ),
    (
        {},
        {"architecture": "aarch64", "compute_capabilities": ("7.5",)},
        "pytorch_build = 'cu130' has no code for the host's GPU of compute capability 7.5 on aarch64; allowed: compute capabilities 8.0, 9.0, 10.0, 11.0, 12.0 with it; fix: no stack serves this host: leave it out of the inventory",
    ),
]


@pytest.mark.parametrize(("data", "found", "sentence"), SENTENCES)
def test_a_refusal_says_what_was_found_what_is_allowed_and_what_to_do(
    data: dict[str, object], found: dict[str, Any] | None, sentence: str
) -> None:
    try:
        first = check_host(resolve(data, "lab-1"), HostFacts(**{**HOST, **(found or {})}))[0]
        said = f"host lab-1: {first.found}; allowed: {first.allowed}; fix: {first.remedy}"
        assert found is not None
    except SpecError as error:
        said = str(error)
        assert found is None
    assert said == f"host lab-1: {sentence}"


@pytest.mark.parametrize("distribution", catalogue().repositories.releases)
def test_every_release_that_is_supported_has_a_stack_that_fits(distribution: str) -> None:
    facts = HostFacts(**{**HOST, **BARE, "distribution": distribution})
    stacks = [each.name for each in catalogue().stacks.values() if each.driver]
    assert any(check_host(resolve({"stack": name}, "h"), facts) == [] for name in stacks)
