"""Our own reboot against hosts that are slow, that linger, and that never come back."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from gpu_host import GpuHost
from pyinfra.api.exceptions import ConnectError
from pyinfra.connectors.util import CommandOutput, OutputLine

from pyinfra_gpu.engine import reboot
from pyinfra_gpu.on_host.probe.look import FIRST_LINE, LAST_LINE

BEFORE, AFTER = "3d235e2e-1d37-47dd-ab61-25ad81ad7603", "77777777-1d37-47dd-ab61-25ad81ad7603"


REBOOTING: dict[str, object] = {"done": "rebooting", "boot": BEFORE}


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


class Connector:
    def __init__(self, host: StubHost) -> None:
        self.host = host
        self.client: Any = self

    def close(self) -> None:
        self.host.closed += 1

    def disconnect(self) -> None:
        pass

    def connect(self) -> None:
        if not self.host.reachable():
            raise ConnectError("refused")


class StubHost:
    """Goes down `lingers` seconds after it was told to, and is up again at `back`."""

    def __init__(self, clock: Clock, *, lingers: float = 3, back: float | None = 20) -> None:
        self.clock, self.lingers, self.back = clock, lingers, back
        self.name = "gpu1"
        self.connector_data: dict[str, Any] = {"sudo_askpass_path": "/tmp/old"}
        self.current_op_global_arguments: dict[str, Any] = {"_sudo": True, "_sudo_password": "x"}
        self.connector = Connector(self)
        self.connected = True
        self.told: float | None = None
        self.refuses = False
        self.answer = REBOOTING
        self.asked: list[str] = []
        self.commands: list[str] = []
        self.logged: list[str] = []
        self.closed = 0

    def reachable(self) -> bool:
        if self.told is None or self.clock.now < self.told + self.lingers:
            return True
        return self.back is not None and self.clock.now >= self.told + self.back

    def boot_id(self) -> str:
        gone = self.told is not None and self.clock.now >= self.told + self.lingers
        return AFTER if gone else BEFORE

    def run_shell_command(self, command: Any, **arguments: Any) -> tuple[bool, CommandOutput]:
        text = str(command.get_raw_value())
        self.commands.append(text)
        if not self.reachable():
            raise OSError("gone")
        if "boot_id" in text:
            return True, CommandOutput([OutputLine("stdout", self.boot_id())])
        if "pyinfra-gpu-restart" in text:
            self.asked.append(str(arguments["_stdin"]))
            if self.refuses:
                return False, CommandOutput([])
            if self.answer == REBOOTING:
                self.told = self.clock.now
            lines = [FIRST_LINE, json.dumps(self.answer), LAST_LINE]
            return True, CommandOutput([OutputLine("stdout", line) for line in lines])
        return True, CommandOutput([])

    def log(self, text: str, **_: Any) -> None:
        self.logged.append(text)

    def log_styled(self, text: str, **_: Any) -> None:
        self.logged.append(text)


class State:
    print_output = print_input = False


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Iterator[Clock]:
    clock = Clock()
    monkeypatch.setattr(reboot, "time", clock)
    monkeypatch.setattr(reboot, "forget", lambda: None)
    monkeypatch.setattr(reboot, "failed", lambda host, stage, text: bool(host.log(text)))
    yield clock


def restart(host: StubHost, wait: int = 900) -> bool:
    spec = GpuHost(data={**GpuHost().data, "driver_reboot_wait_s": wait}).spec()
    why = "nouveau is bound to the GPUs; loading it failed (busy)"
    return reboot.restart(State(), host, "driver", spec, why, "nouveau is bound to the GPUs")  # type: ignore[arg-type]


@pytest.mark.parametrize("lingers", [0.1, 3, 9, 30, 60])
@pytest.mark.parametrize("back", [61, 75, 300, 600])
def test_it_is_back_when_its_boot_id_differs(clock: Clock, lingers: float, back: float) -> None:
    host = StubHost(clock, lingers=lingers, back=back)
    assert restart(host)
    assert clock.now >= back
    assert clock.now <= back + 10
    assert len(host.asked) == 1
    assert host.connected


def test_while_it_is_waited_for_all_of_the_old_connection_goes(
    clock: Clock,
) -> None:
    host = StubHost(clock, back=100)
    assert restart(host)
    assert host.connector_data["sudo_askpass_path"] is None
    assert host.closed
    assert "waiting up to 900 s" in host.logged[0]


@pytest.mark.parametrize("host", [{"back": None}, {"lingers": 10_000}], ids=["back", "down"])
def test_one_that_never_comes_back_or_goes_down_is_given_up_with_a_remedy(
    clock: Clock, host: dict[str, Any]
) -> None:
    stub = StubHost(clock, **host)
    assert not restart(stub, wait=60)
    assert 60 <= clock.now <= 70
    assert len(stub.asked) == 1
    assert "console" in stub.logged[-1]


def test_never_twice_in_a_run(clock: Clock) -> None:
    host = StubHost(clock)
    assert restart(host)
    told = host.told
    assert not restart(host)
    assert host.told == told
    assert "did not help" in host.logged[-1]


ANSWERS: dict[str, tuple[dict[str, object], str]] = {
    "busy with a job": ({"against": ["pid 812 (python3)"]}, "in use by pid 812 (python3): run"),
    "busy with many": ({"against": ["a", "b", "c", "d", "e"]}, "in use by a, b, c, d: run"),
    "busy, who knows": ({"against": 7}, "in use by "),
    "again": ({}, "one reboot for that did not help"),
    "refused": ({"why": "it does not tell its boot_id"}, "does not tell its boot_id"),
    "odd": ({}, "it did not answer ("),
}


@pytest.mark.parametrize("case", ANSWERS)
def test_a_host_on_which_something_stands_against_it_is_not_waited_for(
    clock: Clock, case: str
) -> None:
    told, words = ANSWERS[case]
    host = StubHost(clock)
    host.answer = {**told, "done": case.split()[0].rstrip(",")}
    assert not restart(host)
    assert clock.now == 0
    assert words in host.logged[-1]
    assert (
        "a reboot is required (nouveau is bound to the GPUs; loading it failed (busy)), and "
        in host.logged[-1]
    )


def test_the_host_is_told_the_reason_in_words_that_are_the_same_every_night(clock: Clock) -> None:
    host = StubHost(clock)
    assert restart(host)
    assert "'reason': 'nouveau is bound to the GPUs'" in host.asked[0]
    assert not [command for command in host.commands if "systemctl reboot" in command]


def test_the_machine_that_runs_this_is_never_rebooted(clock: Clock) -> None:
    host = StubHost(clock)
    host.name = "@local"
    host.connector = object()  # type: ignore[assignment]
    assert not restart(host)
    assert host.commands == []
