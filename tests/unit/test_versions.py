"""What a host runs, as reports show it, from recorded answers of the probe."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

sys.path.append(str(Path(__file__).parent / "fixtures" / "probe"))
from recorded import NAMES, record

from pyinfra_gpu.facts.fields import Unknown
from pyinfra_gpu.report.check.answer import versions


@pytest.mark.parametrize("name", NAMES)
def test_every_host_has_the_same_names_and_plain_values(name: str) -> None:
    reported, host = versions(record(name)), record("ubuntu2404-2x-rtx5090")
    assert json.loads(json.dumps(reported)) == reported
    whole = versions(host)
    assert list(reported) == list(whole)
    assert whole["gpus"] == ["RTX 5090", "RTX 5090"]
    assert (whole["driver_loaded"], whole["driver_modules"]) == (host.driver.loaded, "open")


@pytest.mark.parametrize(
    ("libcuda", "expected"),
    [
        ("/usr/lib/x86_64-linux-gnu/libcuda.so.580.95.05", "580.95.05"),
        ("/usr/local/cuda-13.0/compat/libcuda.so.580.82.07", "580.82.07"),
        ("/opt/odd/libcuda.so.1", "/opt/odd/libcuda.so.1"),
        (None, None),
        (Unknown("ldconfig is not there"), {"unknown": "ldconfig is not there"}),
    ],
)
def test_libcuda_is_told_by_its_version(libcuda: Any, expected: object) -> None:
    host = record("ubuntu2404-2x-rtx5090")
    assert versions(replace(host, driver=replace(host.driver, libcuda=libcuda)))["libcuda"] == (
        expected
    )


def test_a_gpu_of_a_model_unknown_to_us_keeps_its_number() -> None:
    host = record("ubuntu2404-2x-rtx5090")
    assert not isinstance(host.gpus.devices, Unknown)
    odd = tuple(replace(gpu, pci_id="10de:ffff") for gpu in host.gpus.devices)
    reported = versions(replace(host, gpus=replace(host.gpus, devices=odd)))
    assert reported["gpus"] == ["NVIDIA 10de:ffff"] * 2
