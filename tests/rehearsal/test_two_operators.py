"""Two people, one host: one works on it, the other is told so and stops.

Two start at the same moment three times in CI; `PYINFRA_GPU_STARTS=50` does it fifty times (about
ten minutes).
"""

from __future__ import annotations

import json
import math
import os
import signal
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

import pytest
from running import INVENTORY, Deployer, without_smoke_test

from pyinfra_gpu.spec import system_files
from pyinfra_gpu_rehearsal import LabHost

pytestmark = pytest.mark.rehearsal

HOST = "gpu1"
STARTS = int(os.environ.get("PYINFRA_GPU_STARTS", "3"))
ONLY_LOOKING = (": pyinfra-gpu-probe", "pyinfra-gpu-lease")
PREFIX = "/opt/pyinfra-gpu"
FREE = f"flock -n {system_files.LEASE} true"
WRITTEN = ["environment: write training.env"]


@pytest.fixture
def host(proven: Callable[[str], LabHost]) -> LabHost:
    """A host on which one small thing is to be done."""
    found = proven(HOST)
    found.run(f"rm -f {PREFIX}/env/training.env")
    return found


@pytest.fixture
def other(host: LabHost) -> Iterator[None]:
    """Somebody else, who works on the host for a while."""
    folder = system_files.LEASE.rpartition("/")[0]
    take = (
        f'mkdir -p {folder}; exec 9>{system_files.LEASE}; flock 9; echo "bob@desk since 06:12" >&9'
    )
    host.run(f"systemd-run -q --unit=other sh -c '{take}; sleep 15'")
    while host.run(f"cat {system_files.LEASE} || true").stdout != "bob@desk since 06:12\n":
        time.sleep(0.2)
    yield
    host.run("systemctl stop other || true")


def test_the_second_is_told_who_works_there_and_has_written_nothing(
    deployer: Deployer, host: LabHost, other: None
) -> None:
    run = deployer.deploy(limit=HOST)
    assert run.code == 1
    (problem,) = run.problems(HOST)
    assert f"{HOST}: bob@desk has been working here since 06:12; run again when it has" in problem
    assert host.run(f"test ! -e {PREFIX}/env/training.env && echo gone").stdout == "gone\n"
    host.run("systemctl stop other")
    assert deployer.converge(limit=HOST).changed(HOST) == WRITTEN


def test_who_only_looks_does_not_ask(deployer: Deployer, host: LabHost, other: None) -> None:
    assert deployer.dry(limit=HOST).code == 0
    assert deployer.check(limit=HOST).code == 2
    assert host.run("systemctl is-active other").stdout == "active\n"


@dataclass(frozen=True)
class Command:
    """What one connection had done on the host by sudo, as the host's own log has it."""

    connection: str
    began: float  # seconds since the epoch
    ended: float
    text: str

    @property
    def acts(self) -> bool:
        """Whether it is neither a look nor the lease."""
        return not any(word in self.text for word in ONLY_LOOKING)


def log_of(host: LabHost, since: float) -> list[Command]:
    """Return what was done by sudo on the host, in the order in which it began."""
    host.run("journalctl --sync")
    since_then = f"--since=@{since:.6f} --output=json --quiet -t sudo"
    began: dict[str, tuple[float, str]] = {}
    connections: dict[str, str] = {}  # the log knows it while the process lives
    ended: dict[str, float] = {}
    for line in host.run(f"journalctl {since_then}").stdout.splitlines():
        entry = json.loads(line)
        at, pid = int(entry["__REALTIME_TIMESTAMP"]) / 1e6, entry["_PID"]
        said = str(entry["MESSAGE"])
        if session := entry.get("_SYSTEMD_SESSION"):
            connections[pid] = session
        if "COMMAND=" in said and "command continued" not in said:
            began[pid] = at, said.partition("COMMAND=")[2]
        elif "session closed" in said:
            ended[pid] = at
    commands = [
        Command(connections[pid], at, ended.get(pid, math.inf), text)
        for pid, (at, text) in began.items()
    ]
    return sorted(commands, key=lambda each: each.began)


def interleaved(commands: list[Command]) -> list[Command]:
    """Return what acted after another connection's first act began and before its last ended."""
    spans: dict[str, tuple[float, float]] = {}
    acts = [each for each in commands if each.acts]
    for each in acts:
        first, last = spans.get(each.connection, (each.began, each.ended))
        spans[each.connection] = min(first, each.began), max(last, each.ended)
    return [
        each
        for each in acts
        for connection, (first, last) in spans.items()
        if connection != each.connection and each.began < last and each.ended > first
    ]


def operators(deployer: Deployer) -> list[Deployer]:
    """Return two people's, who want something different of the host each."""
    return [
        replace(
            without_smoke_test(deployer),
            data=(*deployer.data, f'environment_variables={{"OPERATOR": "{number}"}}'),
        )
        for number in range(2)
    ]


def test_of_two_that_start_together_none_writes_between_the_others_acts(
    deployer: Deployer, host: LabHost
) -> None:
    both, refused = operators(deployer), 0
    for number in range(1, STARTS + 1):
        host.run(f"rm -f {PREFIX}/env/training.env {PREFIX}/bin/torchrun")
        started = time.time()
        with ThreadPoolExecutor(2) as pool:
            runs = list(pool.map(lambda each: each.deploy(limit=HOST), both))
        codes = sorted(run.code for run in runs)
        assert codes in ([0, 0], [0, 1]), [run.output for run in runs]
        stopped = [problem for run in runs if run.code for problem in run.problems(HOST)]
        assert len(stopped) == codes[1]
        assert all("has been working here since" in problem for problem in stopped)
        assert interleaved(log_of(host, started)) == []
        refused += codes[1]
        seconds = ", ".join(f"{run.seconds:.1f} s" for run in runs)
        print(f"start {number}: {codes[1]} refused; {seconds}", flush=True)
    assert refused
    assert host.run(FREE).returncode == 0


def test_one_machine_by_two_names_is_refused_before_anything_is_written(
    deployer: Deployer, host: LabHost
) -> None:
    """It waited for itself once, for an hour, and all other hosts with it."""
    inventory = deployer.folder / "two_names.py"
    inventory.write_text(
        "import runpy\n"
        f"_made = runpy.run_path({INVENTORY!r})\n"
        f"_host = dict([*_made['gpu'], *_made['cpu']])[{HOST!r}]\n"
        "_group = 'gpu' if 'gpu_count' in _host else 'cpu'\n"
        "globals()[_group] = [('one', _host), ('two', _host)]\n"
    )
    run = deployer.run("-y", inventory=str(inventory))
    assert run.code == 1
    assert "one: is the same machine as two" in run.output
    assert "two: is the same machine as one" in run.output
    assert host.run(f"test ! -e {PREFIX}/env/training.env && echo gone").stdout == "gone\n"


def test_acts_of_two_that_overlap_would_be_seen() -> None:
    def did(connection: str, began: float, ended: float, text: str = "sh write.sh") -> Command:
        return Command(connection, began, ended, text)

    one = [did("1", 0, 1), did("1", 4, 5)]
    looks = did("2", 2, 3, "sh -c ': pyinfra-gpu-probe; ...'")
    assert interleaved([*one, looks, did("2", 5, 6)]) == []
    assert interleaved([*one, did("2", 2, 3)]) == [did("2", 2, 3)]


def test_a_run_that_is_killed_gives_the_host_back(deployer: Deployer, host: LabHost) -> None:
    host.run(f"rm -rf {PREFIX}/tools")  # uv is installed under another lock, which is held
    host.run(f"systemd-run -q --unit=slow flock {PREFIX}/.lock sleep 600")
    run = deployer.start(limit=HOST)
    while (
        "pyinfra inventories/rehearsal.py deploy.py"
        not in host.run(f"cat {system_files.LEASE} 2>/dev/null || true").stdout
    ):
        assert run.poll() is None, run.communicate()[0]
        time.sleep(0.3)
    run.send_signal(signal.SIGKILL)
    run.communicate()
    limit = time.monotonic() + 20
    while host.run(f"{FREE} && echo free || true").stdout != "free\n":
        assert time.monotonic() < limit
        time.sleep(0.2)
    host.run("systemctl stop slow")
    deployer.converge(limit=HOST)
