"""What findings say: since which action, what is expected, and what the next run will do."""

from __future__ import annotations

from typing import Any

import pytest
from fake_host import FakeHost, entry
from gpu_host import FACTS, KERNEL, logged
from proven_host import proven_host
from test_check import checked, upgraded

from pyinfra_gpu.packages.model import PackageChange
from pyinfra_gpu.stages.driver import findings as driver
from pyinfra_gpu.stages.host import judged
from pyinfra_gpu.stages.pytorch import findings as pytorch

PREFIX = "/opt/pyinfra-gpu"


@pytest.mark.parametrize(
    "name", ["nvidia-container-toolkit", "nvidia-settings-common", "libnvidia-container1"]
)
def test_other_packages_of_nvidia_do_not_explain_the_driver(name: str) -> None:
    host = upgraded()
    host.reported["nvidia.history"] += [logged(name, "1.0-2", when="2026-11-21T09:00:00")]
    found = {each.id: each for each in checked(host)["ws1"].deviations}["driver.module-differs"]
    assert found.since is not None
    assert (found.since.name, found.since.when[:10]) == ("libcuda1", "2026-11-21")
    assert found.since.new == "580.105.08-1"


def change(name: str) -> PackageChange:
    return PackageChange(
        when="2026-11-21T09:00:00", action="Install", name=name, old=None, new="1", by=None,
        command=None,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("name", "explains"),
    [
        ("linux-image-7.9.9-amd64", False),
        ("gcc-12-base", False),
        (f"linux-image-{KERNEL}", True),
        ("dkms", True),
    ],
)
def test_a_module_that_is_not_built_has_to_do_with_its_own_kernel(
    name: str, explains: bool
) -> None:
    host = proven_host(reported={"kernel.modules": {KERNEL: "570.1.1"}})
    found = judged(driver, host.spec(), host.record(), [change(name)])
    (unbuilt,) = [each for each in found if each.id == "driver.module-not-built"]
    assert (unbuilt.since is not None) is explains


@pytest.mark.parametrize(("name", "explains"), [("python3-yaml", False), ("python3.11", True)])
def test_a_broken_environment_has_to_do_with_its_interpreter(name: str, explains: bool) -> None:
    host = FakeHost(reported={"torch.python_problem": "No such file or directory"})
    record = host.record()
    (broken, *_) = judged(pytorch, host.spec(), record, [change(name)])
    assert (broken.since is not None) is explains


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        (None, f"{PREFIX}/bin/torchrun"),
        (entry("dir", "0755"), f"a file at {PREFIX}/bin/torchrun"),
        (entry("file", "0644"), "mode 0755"),
        (entry("file", "0755", "eve"), "owner root"),
    ],
)
def test_what_is_expected_of_the_wrapper_is_said(row: dict[str, Any] | None, expected: str) -> None:
    (found,) = checked(FakeHost(entries={f"{PREFIX}/bin/torchrun": row}))["ws1"].deviations
    assert found.expected == expected


def actions(host: FakeHost) -> dict[str, str]:
    return {each.id: each.action for each in checked(host)["ws1"].deviations}


def with_stamp_of(before: FakeHost, after: FakeHost) -> FakeHost:
    after.reported["smoke.stamp"] = before.answer()["smoke.stamp"]
    return after


def test_the_plan_promises_the_test_that_another_host_owes() -> None:
    moved = FakeHost(reported={"gpus.devices": FACTS["gpus.devices"]})
    assert (
        actions(with_stamp_of(FakeHost(), moved)).get("smoke.unproven")
        == "run the smoke test, 2 ranks"
    )
    assert actions(FakeHost(reported={"smoke.stamp": None})) == {
        "smoke.unproven": "run the smoke test, 2 ranks"
    }
