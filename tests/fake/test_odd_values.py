"""What single values of a host broke before: each ended the look at it, or took all the time."""

from __future__ import annotations

import time

import pytest
from fake_host import FakeHost

from pyinfra_gpu.facts.parse import parse
from pyinfra_gpu.packages.apt import versions
from pyinfra_gpu.report.check.judge import judge


@pytest.mark.parametrize("version", ["3.11.2+", "3.14.0rc1", "g++ 4:12.2.0-3", "²", "9" * 5000])
@pytest.mark.parametrize("key", ["torch.python", "driver.loaded"])
def test_a_version_that_no_comparison_can_read_is_judged(key: str, version: str) -> None:
    host = FakeHost(plain={key: version})
    told = judge(host.spec(), parse(host.probe_lines()))
    assert told.stages


@pytest.mark.parametrize(
    ("left", "right", "order"),
    [
        ("²:1", "1:1", -1),
        ("1" + "0" * 5000, "9" * 5000, 1),
        ("0001", "1", 0),
        ("1.010", "1.9", 1),
        ("9" * 5000 + ":1", "1:1", -1),
    ],
)
def test_versions_of_many_or_odd_digits_have_an_order(left: str, right: str, order: int) -> None:
    assert versions.compare(left, right) == order


def test_20000_paths_are_gone_through_once() -> None:
    lines = FakeHost().probe_lines()
    kept = [line for line in lines if line.split(" ")[0] not in ("layout.stat", "layout.asked")]
    paths = [f"/opt/{number}" for number in range(9_999)]
    rows = [*(f"layout.stat =41ed 0 root 4096 {path}" for path in paths), "layout.stat ."]
    rows += [*(f"layout.asked ={path}" for path in paths), "layout.asked ."]
    began = time.process_time()
    record = parse([*kept[:-1], *rows, kept[-1]])
    assert time.process_time() - began < 2
    assert record.layout.entry("/opt/9998").kind == "dir"  # type: ignore[union-attr]
