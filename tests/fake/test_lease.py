"""When operations ask for the host's lease, and what they do where another run has it."""

from __future__ import annotations

from typing import Any

import pytest
from gpu_host import GpuHost, GpuRun

from pyinfra_gpu.engine import lease
from pyinfra_gpu.packages import files
from tasks.stages import driver

DRIFTED: dict[str, Any] = {"texts": {files.UNATTENDED: None}}


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The hosts whose lease was asked for; it is had at once."""
    names: list[str] = []

    def ensure(state: object, host: Any, spec: object) -> None:
        if lease.executing():
            names.append(host.name)

    monkeypatch.setattr(lease, "ensure", ensure)
    return names


def run(*hosts: GpuHost) -> GpuRun:
    return GpuRun(*hosts, tasks=(driver,))


def test_a_run_with_nothing_to_do_wants_no_lease(asked: list[str]) -> None:
    run(GpuHost()).prepare().execute()
    assert asked == []


def test_only_what_writes_wants_it(asked: list[str]) -> None:
    run(GpuHost(**DRIFTED), GpuHost(name="ws2")).prepare().execute()
    assert set(asked) == {"@fake/ws1"}


def test_a_host_that_is_refused_wants_none(asked: list[str]) -> None:
    made = run(GpuHost(reported={"driver.loaded": "?no permission"}), GpuHost(name="ws2"))
    made.prepare().execute()
    assert made.failed() == {"ws1"}
    assert asked == []


def test_who_does_not_get_it_is_refused_with_whom_to_ask(monkeypatch: pytest.MonkeyPatch) -> None:
    def ensure(state: Any, host: Any, spec: object) -> None:
        if lease.executing():
            raise lease.LeaseError("bob@desk has been working here")

    monkeypatch.setattr(lease, "ensure", ensure)
    made = run(GpuHost(**DRIFTED), GpuHost(name="ws2")).prepare().execute()
    assert made.failed() == {"ws1"}
    assert made.executed("ws1") == []
