"""What cannot be built is one sentence that names key, value, host and remedy, each time.

By where it is known: in the inventory, or on the host before anything is written there.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from built_host import TORCH_COMMIT, built_host
from fake_host import FakeHost, FakeRun
from gpu_host import GpuHost
from proven_host import proven_host

from pyinfra_gpu.errors import SpecError
from pyinfra_gpu.stages.preflight import findings as preflight

SOURCE: dict[str, object] = {
    "gpu_model": "RTX 5090", "pytorch_source": "source",
    "pytorch_git_url": "https://github.com/pytorch/pytorch", "pytorch_commit": TORCH_COMMIT,
}  # fmt: skip

INVENTORY: dict[str, tuple[list[FakeHost], str]] = {
    "a builder that is not in the group": (
        [built_host(data={"pytorch_builder": "@fake/ws9"})],
        "host @fake/ws1: pytorch_builder = '@fake/ws9' is no host of this inventory",
    ),
    "a builder that builds nothing": (
        [built_host(data={"pytorch_builder": "@fake/ws2"}), FakeHost(name="ws2")],
        "host @fake/ws1: pytorch_builder = '@fake/ws2' is no host of this inventory that declares",
    ),
}


@pytest.mark.parametrize("what", INVENTORY)
def test_an_inventory_that_cannot_be_built_is_refused_before_any_host_is_contacted(
    what: str,
) -> None:
    hosts, begins = INVENTORY[what]
    with pytest.raises(SpecError) as refused:
        FakeRun(*hosts).prepare()
    assert str(refused.value).startswith(begins)
    assert "fix: " in str(refused.value)


FREE = {"storage.free_mib": 20480}  # 20 GiB
WHEEL = {"torch.version": "2.14.1+cu130", "torch.git_version": "cf30"}


def gpu(data: dict[str, object] | None = None, reported: dict[str, Any] | None = None) -> GpuHost:
    """Return a GPU host with a published torch, which is to build one now."""
    declared = {**SOURCE, "preflight_min_ram_gib": 1, **(data or {})}
    none = {"build.state": None, "build.wheel": None, "build.stamp": None}
    return proven_host(data=declared, reported={**WHEEL, **none, **(reported or {})})


HOSTS: dict[str, tuple[FakeHost, list[str]]] = {
    "too little disk, though a torch is there": (
        gpu(reported=FREE),
        ["20 GiB free at /opt/pyinfra-gpu/build", "50 GiB", "`pytorch_builder`", "`prefix`"],
    ),
    "too little disk on a bare host": (
        FakeHost(
            data={**built_host().data, "preflight_min_disk_gib": 60}, reported=FREE, bare=True
        ),
        ["20 GiB free at /opt/pyinfra-gpu;", "60 GiB", "`preflight_min_disk_gib`"],
    ),
    "a folder that starts no programs": (
        built_host(reported={"storage.noexec": "/opt"}),
        ["/opt is mounted noexec", "another `prefix`", "remount,exec /opt"],
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", HOSTS)
def test_a_host_that_cannot_build_is_refused_before_anything_is_written(what: str) -> None:
    host, expected = HOSTS[what]
    found = preflight.judge(host.spec(), host.record())
    (sentence,) = [each.sentence("ws1") for each in found if each.stops]
    assert sentence.startswith("ws1: ")
    assert [text for text in expected if text not in sentence] == [], sentence


def no_obstacle(host: FakeHost) -> bool:
    return preflight.judge(host.spec(), host.record()) == []


def test_a_host_that_only_gets_a_wheel_or_has_begun_needs_no_more_room() -> None:
    assert no_obstacle(gpu())
    assert no_obstacle(gpu(data={"pytorch_builder": "ws2"}, reported=FREE))
    begun = built_host(reported=FREE, state="compile ended")
    assert no_obstacle(begun)
    assert not no_obstacle(replace(begun, reported={**begun.reported, "build.state": None}))
