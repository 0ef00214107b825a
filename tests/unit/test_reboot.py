"""Our own reboot against hosts that are slow, linger, are used, or never come back."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from gpu_host import GpuHost
from pyinfra.api.exceptions import ConnectError
from pyinfra.connectors.util import CommandOutput, OutputLine

from pyinfra_gpu.engine import reboot
from pyinfra_gpu.on_host import program

BEFORE, AFTER = "3d235e2e-1d37-47dd-ab61-25ad81ad7603", "77777777-1d37-47dd-ab61-25ad81ad7603"


SEEN: list[Any] = []  # what the next look brings


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
        self.reported: float | None = None
        self.refuses = False
        self.commands: list[str] = []
        self.logged: list[str] = []
        self.closed = 0

    def reachable(self) -> bool:
        if self.reported is None or self.clock.now < self.reported + self.lingers:
            return True
        return self.back is not None and self.clock.now >= self.reported + self.back

    def boot_id(self) -> str:
        gone = self.reported is not None and self.clock.now >= self.reported + self.lingers
        return AFTER if gone else BEFORE

    def run_shell_command(self, command: Any, **arguments: Any) -> tuple[bool, CommandOutput]:
        text = str(command.get_raw_value())
        self.commands.append(text)
        if not self.reachable():
            raise OSError("gone")
        if "reboot.sh" in text:
            if self.refuses:
                return False, CommandOutput([OutputLine("stderr", "No space left on device")])
            self.reported = self.clock.now
            return True, CommandOutput([OutputLine("stdout", BEFORE)])
        if "boot_id" in text:
            return True, CommandOutput([OutputLine("stdout", self.boot_id())])
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
    monkeypatch.setattr(reboot, "look", lambda spec: SEEN[0])
    yield clock


def restart(host: StubHost, wait: int = 900, policy: str = "if-idle", **seen: Any) -> bool:
    """Reboot it; `seen` are facts of its last look, by PART_FIELD."""
    reported = {name.replace("_", ".", 1): value for name, value in seen.items()}
    data = {**GpuHost().data, "driver_reboot_wait_s": wait, "driver_reboot": policy}
    found = GpuHost(data=data, reported=reported)
    spec, SEEN[:] = found.spec(), [found.record()]
    why = "nouveau is bound to the GPUs; loading it failed (busy)"
    obstacle = reboot.restart(State(), host, spec, why, "nouveau is bound to the GPUs")  # type: ignore[arg-type]
    host.log(obstacle or "done")
    return obstacle is None


@pytest.mark.parametrize("lingers", [0.1, 3, 9, 30, 60])
@pytest.mark.parametrize("back", [61, 75, 300, 600])
def test_it_is_back_when_its_boot_id_differs(clock: Clock, lingers: float, back: float) -> None:
    host = StubHost(clock, lingers=lingers, back=back)
    assert restart(host)
    assert clock.now >= back
    assert clock.now <= back + 10
    assert len([each for each in host.commands if "reboot.sh" in each]) == 1
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
    assert len([each for each in stub.commands if "reboot.sh" in each]) == 1
    assert "console" in stub.logged[-1]


def test_never_twice_in_a_run(clock: Clock) -> None:
    host = StubHost(clock)
    assert restart(host)
    reported = host.reported
    assert not restart(host)
    assert host.reported == reported
    assert "did not help" in host.logged[-1]


BUSY = {
    "driver_users": (["pid 812 (python3)", "pid 401 (nv-hostengine)"], "pid 812 (python3)"),
    "power_sessions": (["alice on pts/0"], "alice on pts/0"),
    "power_inhibitors": (["backup: nightly dump"], "backup: nightly dump"),
}
ALWAYS = {
    "packages_lock_holder": ("pid 9 (apt)", "pid 9 (apt)"),
    "packages_half_configured": (["curl"], "curl, which is not fully installed"),
}
UNTOLD = dict.fromkeys((*BUSY, *ALWAYS), ("?no permission", "no permission"))


@pytest.mark.parametrize(
    ("fact", "case", "policy"),
    [
        *(
            (fact, case, "if-idle")
            for table in (BUSY, ALWAYS, UNTOLD)
            for fact, case in table.items()
        ),
        *((fact, case, "always") for fact, case in ALWAYS.items()),
    ],
)
def test_a_host_that_is_used_is_not_rebooted(
    clock: Clock, fact: str, case: Any, policy: str
) -> None:
    value, who = case
    host = StubHost(clock)
    assert not restart(host, policy=policy, **{fact: value})
    assert (clock.now, host.commands) == (0, [])
    required = "a reboot is required (nouveau is bound to the GPUs; loading it failed (busy)), and "
    assert f"{required}it is in use by {who}: run again" in host.logged[-1]


@pytest.mark.parametrize("fact", BUSY)
def test_always_does_not_look_who_is_there(clock: Clock, fact: str) -> None:
    assert restart(StubHost(clock), policy="always", **{fact: BUSY[fact][0]})


def test_one_that_cannot_note_why_is_not_waited_for(clock: Clock) -> None:
    host = StubHost(clock)
    host.refuses = True
    assert not restart(host)
    assert clock.now == 0
    assert "it cannot be begun (A file s" in host.logged[-1]


REASON = "module 580.82.07 is loaded; 'quoted' & $odd"


def test_the_host_keeps_why_it_is_rebooted_and_is_not_rebooted_without(tmp_path: Path) -> None:
    notes, begun = tmp_path / "lib/reboots", tmp_path / "begun"
    (tmp_path / "systemctl").write_text(f'#!/bin/sh\necho "$*" >{begun}\n')
    (tmp_path / "setsid").write_text('#!/bin/sh\nexec "$@"\n')
    (tmp_path / "sleep").write_text("#!/bin/sh\n")
    for name in ("systemctl", "setsid", "sleep"):
        (tmp_path / name).chmod(0o755)

    def rebooted(place: Path) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["sh", "-c", program("driver/reboot.sh", str(place), REASON)],
            env={"PATH": f"{tmp_path}:/usr/bin:/bin"},
            capture_output=True, text=True, check=False,
        )  # fmt: skip

    assert rebooted(tmp_path / "sleep/reboots").returncode
    notes.parent.mkdir()
    notes.write_text("".join(f"{at} {AFTER} reason {at}\n" for at in range(200)))
    boot = Path("/proc/sys/kernel/random/boot_id").read_text()
    assert rebooted(notes).stdout == boot
    rows = notes.read_text().splitlines()
    assert (len(rows), rows[0], rows[-1].split(" ", 1)[1]) == (
        *(50, f"151 {AFTER} reason 151"), f"{boot.strip()} {REASON}",
    )  # fmt: skip
    limit = time.monotonic() + 20
    while not begun.exists() and time.monotonic() < limit:
        time.sleep(0.02)
    assert begun.read_text() == "reboot -i\n"


def test_the_machine_that_runs_this_is_never_rebooted(clock: Clock) -> None:
    host = StubHost(clock)
    host.name = "@local"
    host.connector = object()  # type: ignore[assignment]
    assert not restart(host)
    assert host.commands == []
