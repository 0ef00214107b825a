"""When torch is fetched while the driver is installed, and when that is left alone."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from fake_host import FakeHost
from gpu_host import DATA, GpuHost, GpuRun, bare_gpu_host
from pyinfra.api.exceptions import PyinfraError

from pyinfra_gpu.drift import pytorch
from pyinfra_gpu.drift.finding import Id
from pyinfra_gpu.engine import meanwhile as engine
from pyinfra_gpu.engine.journal import Journal
from pyinfra_gpu.engine.transport import LastingCommand
from pyinfra_gpu.facts.parse import parse
from tasks.pytorch import meanwhile
from tasks.pytorch import pytorch as torch_task

BEGIN = "Meanwhile | Begin to fetch torch"
UNLOCKED = {**DATA, "pytorch_lock": "ignore"}


def noted(host: GpuHost) -> bool:
    record = parse(host.probe_lines())
    found = pytorch.judge(host.spec(), record)
    return Id.PYTORCH_FETCHED_MEANWHILE in {each.id for each in found}


def disk(free_kib: int) -> dict[str, str]:
    return {"storage.free": f"/dev/sda1 264212084 1 {free_kib} 11% /"}


GIB = 1 << 20  # in KiB
LEFT_ALONE: dict[str, FakeHost] = {
    "all is there": GpuHost(),
    "the driver is there": GpuHost(bare=True),
    "torch is there": bare_gpu_host(bare=False),
    "a host without GPU": FakeHost(bare=True),
    "torch is a nightly": bare_gpu_host(
        data={**DATA, "pytorch_source": "nightly", "pytorch_version": "2.16.0.dev20261120"}
    ),
    "the driver is somebody's": bare_gpu_host(data={**DATA, "driver_source": "present"}),
    "a folder on the host": bare_gpu_host(data={**DATA, "pytorch_wheels": "/srv/wheels"}),
    "a lock is missing": bare_gpu_host(data={**DATA, "pytorch_lock": "required"}),
    "the package manager was interrupted": bare_gpu_host(
        lists={"packages.half_configured": ["dkms"]}
    ),
    "somebody uses the package manager": bare_gpu_host(plain={"packages.lock": "unattended-upgr"}),
    "an installation goes on": bare_gpu_host(plain={"torch.installing": "1"}),
    "room for one of them": bare_gpu_host(plain=disk(20 * GIB)),
    "room that is not told": bare_gpu_host(plain={"storage.free": "?no df"}),
    "a uv that is not told": bare_gpu_host(plain={"torch.uv": "?no permission"}),
}


@pytest.mark.parametrize("why", LEFT_ALONE)
def test_nothing_is_fetched_beforehand(why: str) -> None:
    run = GpuRun(LEFT_ALONE[why], tasks=(meanwhile,)).prepare()
    assert run.changing("ws1") == []
    assert run.looks("ws1") == 1
    assert run.execute().commands("ws1") == []


def test_a_bare_host_begins_to_fetch_and_a_plan_does_not() -> None:
    host = bare_gpu_host()
    assert noted(host)
    run = GpuRun(host, tasks=(meanwhile,)).prepare()
    assert run.changing("ws1") == [BEGIN]
    assert run.commands("ws1") == []


class Program:
    """What stands at the other end of a program that lasts."""

    def __init__(self, *lines: str) -> None:
        self.command = ""
        self.lines: Iterator[str] = iter(lines)
        self.closed = False

    def start(self, host: object, command: str, *, seconds: float) -> Program:
        self.command = command
        return self

    def line(self, seconds: float) -> str | None:
        return next(self.lines, None)

    def say(self, data: bytes) -> bool:
        return False

    def close(self) -> None:
        self.closed = True


def executed(
    program: Any, monkeypatch: pytest.MonkeyPatch, **changes: Any
) -> tuple[GpuRun, list[str]]:
    """Run both stages on a bare host, at which nothing changes; return also what was said."""
    monkeypatch.setattr(engine, "start", program.start)
    run = GpuRun(bare_gpu_host(data=UNLOCKED, **changes), GpuHost(name="ws2"), tasks=(meanwhile,))
    run.tasks = (meanwhile, torch_task)
    said: list[str] = []
    run.prepare()
    for host in run.state.inventory:
        monkeypatch.setattr(host, "log", lambda text, *_, **__: said.append(text))
    return run.execute(), said


def test_it_works_as_the_owner_with_what_the_stage_installs_by(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    program = Program()
    run, said = executed(program, monkeypatch)
    brought = [each for each in run.executed("ws1") if "sh -c" in each]
    assert any("directories.sh" in each for each in brought)
    assert any("installer.sh" in each for each in brought)
    assert "pyinfra-gpu/tools/bin/uv pip install" in program.command
    assert "torch==2.14.1" in program.command
    assert "--target" in program.command
    assert "torch 2.14.1+cu130 is fetched from now on" in said


def test_what_a_power_cut_left_of_it_is_removed_where_torch_is_installed() -> None:
    host = GpuHost(data=UNLOCKED, plain={"torch.installing": "1"})
    run = GpuRun(host, GpuHost(name="ws2"), tasks=(torch_task,)).prepare().execute()
    (install,) = [each for each in run.executed("ws1") if "--dry-run" in each]
    assert install.index("meanwhile_left.sh") < install.index("uv pip install")


def test_what_it_brought_is_told_in_the_stages_that_find_it_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(engine, "start", Program().start)
    run = GpuRun(bare_gpu_host(data=UNLOCKED), GpuHost(name="ws2"), tasks=(meanwhile,))
    journal = Journal(lambda state, journal: None)
    run.state.add_callback_handler(journal)  # type: ignore[no-untyped-call]
    run.prepare().execute()
    told = journal.entries["@fake/ws1"]
    assert "no uv" in told["pytorch"].found
    assert told["layout"].actions
    assert not any(entry.findings for entry in journal.of("@fake/ws2"))


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        (
            ["pyinfra-gpu-meanwhile begun", "", "pyinfra-gpu-meanwhile done 212"],
            "was fetched in 212 s, 212 s of them beside other work",
        ),
        (
            ["pyinfra-gpu-meanwhile said error: No space left", "pyinfra-gpu-meanwhile failed 3"],
            "was not fetched beside other work (",
        ),
        (["pyinfra-gpu-meanwhile failed 14400"], "(it was ended after 14400 s): it is fetched now"),
        (["pyinfra-gpu-meanwhile begun"], "(the connection broke or it was ended)"),
        (["pyinfra-gpu-meanwhile failed no flock"], "(no flock): it is fetched now"),
        (["x"] * 3000, "(it says too much): it is fetched now"),
    ],
)
def test_how_it_ended_is_said_and_the_stage_does_what_it_always_does(
    lines: list[str], expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = Program(*lines)
    host = bare_gpu_host(data=UNLOCKED)
    monkeypatch.setattr(engine, "start", program.start)
    said: list[str] = []
    state = GpuRun(host, tasks=()).state
    connected = state.inventory.get_host("@fake/ws1")
    monkeypatch.setattr(connected, "log", lambda text, *_, **__: said.append(text))
    connected.connector_data[engine._KEY] = program
    assert engine.wait(state, connected, host.spec())
    assert expected in said[-1]
    assert engine._KEY not in connected.connector_data


@pytest.mark.parametrize("error", [OSError("gone"), PyinfraError("no")])
def test_where_no_program_begins_that_is_said(
    error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Broken:
        def start(self, *_: object, **__: object) -> LastingCommand:
            raise error

    _, said = executed(Broken(), monkeypatch)
    assert f"torch 2.14.1+cu130 is not fetched yet: no program began ({error})" in said


def test_a_uv_that_cannot_be_had_is_said_and_fails_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    program = Program()
    monkeypatch.setattr(engine, "start", program.start)
    host = bare_gpu_host(data=UNLOCKED, responses={"installer.sh": {"success": False}})
    run = GpuRun(host, GpuHost(name="ws2"), tasks=(meanwhile,)).prepare().execute()
    assert run.failed() == set()
    assert program.command == ""
