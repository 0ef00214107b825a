"""When operations ask for the host's lease, and what they do where another run had it."""

from __future__ import annotations

from typing import Any

import pytest
from gpu_host import GpuHost, GpuRun

from pyinfra_gpu.engine import lease
from pyinfra_gpu.packages.apt import files
from tasks.driver import driver

DRIFTED = {"texts": {files.UNATTENDED: None}}


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Whether each operation wanted the lease; it is had at once."""
    wants: list[bool] = []

    def ensure(state: object, host: object, spec: object, *, wanted: bool) -> bool:
        wants.append(wanted)
        return False

    monkeypatch.setattr(lease, "ensure", ensure)
    return wants


def run(*hosts: GpuHost) -> GpuRun:
    return GpuRun(*hosts, tasks=(driver,))


def test_a_run_with_nothing_to_do_wants_no_lease(asked: list[bool]) -> None:
    run(GpuHost()).prepare().execute()
    assert asked
    assert not any(asked)


def test_only_what_writes_wants_it(asked: list[bool]) -> None:
    run(GpuHost(**DRIFTED), GpuHost(name="ws2")).prepare().execute()  # type: ignore[arg-type]
    assert sum(asked) >= 1
    assert not all(asked)


def test_a_host_that_is_refused_wants_none(asked: list[bool]) -> None:
    made = run(GpuHost(plain={"driver.loaded": "?no permission"}), GpuHost(name="ws2"))
    made.prepare().execute()
    assert made.failed() == {"ws1"}
    assert not any(asked)


def test_who_waited_looks_again_before_it_writes(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the other run has done meanwhile is not done once more."""
    hosts = {"ws1": GpuHost(**DRIFTED), "ws2": GpuHost(name="ws2")}  # type: ignore[arg-type]
    made = run(*hosts.values()).prepare()

    def ensure(state: Any, host: Any, spec: object, *, wanted: bool) -> bool:
        if wanted:
            answers = {"pyinfra-gpu-probe": {"stdout": GpuHost().probe_lines()}}
            host.connector.data["fake_responses"].update(answers)
        return wanted

    monkeypatch.setattr(lease, "ensure", ensure)
    before = made.looks("ws1")
    made.execute()
    assert made.failed() == set()
    assert made.executed("ws1") == []
    assert made.looks("ws1") == before + 2


def test_who_does_not_get_it_is_refused_with_whom_to_ask(monkeypatch: pytest.MonkeyPatch) -> None:
    def ensure(state: Any, host: Any, spec: object, *, wanted: bool) -> bool:
        if wanted:
            raise lease.LeaseError("bob@desk works on it")
        return False

    monkeypatch.setattr(lease, "ensure", ensure)
    made = run(GpuHost(**DRIFTED), GpuHost(name="ws2")).prepare().execute()  # type: ignore[arg-type]
    assert made.failed() == {"ws1"}
    assert made.executed("ws1") == []
