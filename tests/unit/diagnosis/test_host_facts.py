"""The host decides between two readings of one message."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from diagnosis.small_catalogue import explained

from pyinfra_gpu.diagnosis.host_facts import facts_of
from pyinfra_gpu.diagnosis.matcher import diagnose
from pyinfra_gpu.facts.fields import Unknown
from pyinfra_gpu.facts.libcuda import CacheEntry
from pyinfra_gpu.facts.parse import parse
from pyinfra_gpu.facts.record import Record
from pyinfra_gpu.on_host.diagnosis.host_facts import Condition, HostFacts
from pyinfra_gpu.on_host.diagnosis.log import Source

PROBES = Path(__file__).parents[1] / "fixtures" / "probe"
ERROR_803 = (
    "RuntimeError: Unexpected error from cudaGetDeviceCount(). Error 803:"
    " system has unsupported display driver / cuda driver combination"
)


def record(name: str) -> Record:
    return parse((PROBES / f"{name}.txt").read_text().splitlines())


@pytest.mark.parametrize(
    ("facts", "cause"),
    [
        (HostFacts(compat_on_path=True), "compat is on the path"),
        (
            HostFacts(compat_on_path=True, driver_version="1", library_version="2"),
            "compat is on the path",
        ),
        (HostFacts(driver_version="580.95.05", library_version="580.105.08"), "the module is old"),
        (
            HostFacts(driver_version="580.95.05", library_version="580.95.05"),
            "libcuda does not fit",
        ),
        (HostFacts(driver_version="580.95.05"), "libcuda does not fit"),
        (HostFacts(), "libcuda does not fit"),
    ],
)
def test_a_reading_is_taken_only_if_the_host_is_known_to_say_so(
    facts: HostFacts, cause: str
) -> None:
    assert explained(ERROR_803, facts=facts).findings[0].cause == cause


def test_error_803_of_the_real_catalogue_has_both_readings() -> None:
    def why(facts: HostFacts | None) -> str:
        (finding,) = diagnose([Source(ERROR_803)], facts).findings
        assert finding.id == "CUDA-01"
        return finding.cause

    compat = why(HostFacts(compat_on_path=True))
    differs = why(HostFacts(driver_version="580.95.05", library_version="580.105.08"))
    assert "`compat`" in compat
    assert "another version" in differs
    assert why(None) not in (compat, differs)


@pytest.mark.parametrize(
    ("condition", "facts", "holds"),
    [
        (Condition("secure_boot", True), HostFacts(secure_boot=True), True),
        (Condition("secure_boot", True), HostFacts(secure_boot=False), False),
        (Condition("secure_boot", False), HostFacts(), False),
        (Condition("shm_mib", "< 1024"), HostFacts(shm_mib=64), True),
        (Condition("shm_mib", "< 1024"), HostFacts(shm_mib=1024), False),
        (Condition("shm_mib", ">= 1024"), HostFacts(shm_mib=1024), True),
        (Condition("shm_mib", ">= 1024"), HostFacts(), False),
        (Condition("gpu", "RTX 50"), HostFacts(gpus=("RTX 5090",)), True),
        (Condition("gpu", "RTX 50"), HostFacts(gpus=("H100",)), False),
        (
            Condition("library_differs", True),
            HostFacts(driver_version="1", library_version="2"),
            True,
        ),
    ],
)
def test_what_is_not_known_does_not_hold(
    condition: Condition, facts: HostFacts, holds: bool
) -> None:
    assert condition.holds(facts) is holds


def test_a_healthy_host_as_the_probe_sees_it() -> None:
    facts = facts_of(record("ubuntu2404-2x-rtx5090"))
    assert facts.driver_loaded is True
    assert facts.driver_version == facts.library_version
    assert facts.library_differs is False
    assert facts.compat_on_path is False
    assert facts.nouveau is False
    assert facts.gpus == ("RTX 5090",)


def test_hosts_that_are_not_healthy() -> None:
    assert facts_of(record("ubuntu2404-rtx5080-nouveau")).nouveau is True
    assert facts_of(record("ubuntu2204-rtxpro6000-secureboot")).secure_boot is True


def test_what_the_probe_could_not_tell_is_not_known() -> None:
    assert facts_of(record("no-probe")) == HostFacts()
    assert facts_of(record("truncated")).compat_on_path is None


def test_the_first_library_in_the_linkers_cache_is_the_one_that_is_taken() -> None:
    host = record("ubuntu2404-2x-rtx5090")
    own = CacheEntry(
        name="libcuda.so.1", path="/usr/lib/libcuda.so.1", real="/usr/lib/libcuda.so.580.1"
    )
    compat = replace(own, path="/usr/local/cuda-13/compat/libcuda.so.1")

    def with_cache(*cache: CacheEntry) -> bool | None:
        libcuda = replace(host.libcuda, cache=cache)
        return facts_of(replace(host, libcuda=libcuda)).compat_on_path

    assert with_cache(compat, own) is True
    assert with_cache(own, compat) is False
    unknown = replace(host.libcuda, cache=Unknown("no ldconfig"))
    assert facts_of(replace(host, libcuda=unknown)).compat_on_path is None


def test_a_torch_without_cuda_is_told_from_one_that_could_not_be_read() -> None:
    host = record("ubuntu2404-2x-rtx5090")

    def torch_cuda(version: str | None, cuda: str | Unknown | None) -> bool | None:
        torch = replace(host.torch, version=version, cuda=cuda)
        return facts_of(replace(host, torch=torch)).torch_cuda

    assert torch_cuda("2.13.0", "13.0") is True
    assert torch_cuda("2.13.0+cpu", None) is False
    assert torch_cuda("2.13.0", Unknown("no permission")) is None
    assert torch_cuda(None, None) is None
