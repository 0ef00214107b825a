"""From a host through pyinfra's own dry run to the verdict of a check."""

from __future__ import annotations

import pytest
from fake_host import FakeHost, FakeRun
from gpu_host import DRIVER_PACKAGES, FACTS, LIB, VERSION, GpuHost, logged
from proven_host import proven_host
from pyinfra.context import ctx_state

from pyinfra_gpu.report.check.answer import HostAnswer
from pyinfra_gpu.report.check.running import asked, hosts_of, look_at

PREFIX = "/opt/pyinfra-gpu"


def checked(*hosts: FakeHost) -> dict[str, HostAnswer]:
    """Look at these hosts as `check` does, and judge what is seen."""
    run = FakeRun(*hosts)
    with ctx_state.use(run.state):
        found = {host.name: asked(run.state, host, look_at) for host in run.state.inventory}
    return {answer.name.removeprefix("@fake/"): answer for answer in hosts_of(found)}


def test_a_drift_is_named_beside_hosts_that_have_none() -> None:
    drifted = FakeHost(reported={"torch.damaged": ["torch/lib/libtorch_cpu.so"]})
    answers = checked(drifted, FakeHost(name="ws2"), FakeHost(name="ws3", bare=True))
    assert [each.id for each in answers["ws1"].deviations] == ["pytorch.files-damaged"]
    reported = answers["ws2"]
    assert (reported.verdict, reported.findings, reported.reason) == ("declared", (), None)
    assert reported.facts["os"] == "Debian GNU/Linux 12 (bookworm)"
    assert reported.facts["torch"] == "2.13.0+cpu"
    assert {each.id.stage for each in answers["ws3"].deviations} == {
        *("packages", "layout", "pytorch", "environment", "training", "smoke")
    }


@pytest.mark.parametrize(
    "host",
    [
        FakeHost(reported={"torch.uv": "?no permission"}),
        FakeHost(reported={"training.commit": "?git is not on this host"}),
        FakeHost(answers=False),
        proven_host(reported={"driver.loaded": "?no permission"}),
        proven_host(reported={"system.ram_mib": "?/proc is not there"}),
        proven_host(reported={"gpus.devices": "?"}),
    ],
)
def test_what_cannot_be_read_is_neither_drift_nor_as_declared(host: FakeHost) -> None:
    answer = checked(host)["ws1"]
    assert answer.verdict == "unknown"
    assert answer.reason


def test_files_that_there_was_no_time_to_compare_are_no_drift() -> None:
    """A check called it drift each night, and each deploy, which reads for longer, as declared."""
    answer = checked(FakeHost(reported={"torch.touched": 5562}))["ws1"]
    assert (answer.verdict, answer.findings) == ("unknown", ())
    assert "5562 files changed since the test passed" in str(answer.reason)
    gone = {"torch.touched": 5562, "smoke.stamp": None}
    assert checked(FakeHost(reported=gone))["ws1"].verdict == "drift"


def test_a_host_that_cannot_become_what_is_declared_is_drift_with_the_reason() -> None:
    answer = checked(FakeHost(reported={"system.ram_mib": 1}))["ws1"]
    assert answer.verdict == "drift"
    (refused,) = answer.deviations
    assert refused.id == "preflight.memory-too-small"
    assert refused.next_run.startswith("stops here: ")
    assert "GiB of memory" in refused.found


NEW = "580.105.08"


def upgraded() -> GpuHost:
    """A GPU host whose driver was upgraded in the night, under the loaded module."""

    def rows(key: str) -> list[str]:
        return [row.replace(VERSION, NEW) for row in FACTS[key]]

    changed = ("nvidia.packages", "libcuda.cache", "libcuda.links")
    return proven_host(
        reported={
            "driver.on_disk": NEW,
            "driver.libcuda": f"{LIB}/libcuda.so.{NEW}",
            "driver.libml": f"{LIB}/libnvidia-ml.so.{NEW}",
            **{key: rows(key) for key in changed},
            "nvidia.history": [logged(name, f"{NEW}-1") for name in DRIVER_PACKAGES],
        },
    )


def test_a_driver_upgrade_in_the_night_is_a_restart_owed_and_explained() -> None:
    unheld = upgraded()
    unheld.name = "ws3"
    unheld.reported["nvidia.packages"] = [
        row.replace(" 1 1", " 0 1") for row in unheld.reported["nvidia.packages"]
    ]
    healthy = proven_host()
    healthy.name = "ws2"
    answers = checked(upgraded(), healthy, unheld)
    assert answers["ws1"].verdict == "restart", answers["ws1"].deviations
    found = {each.id: each for each in answers["ws1"].deviations}["driver.module-differs"]
    assert found.since is not None
    assert found.since.moment == "2026-11-21 06:12"
    assert found.since.who == "/usr/bin/unattended-upgrade"
    assert f"1.0-1 -> {NEW}-1" in found.since.what
    assert (answers["ws2"].verdict, answers["ws2"].deviations) == ("declared", ())
    assert answers["ws2"].facts["driver_loaded"] == answers["ws2"].facts["libcuda"] == VERSION
    assert answers["ws3"].verdict == "drift"
