"""Two people, one host: one works on it, the other is told so and waits, or stops."""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest
from running import Deployer

from pyinfra_gpu.spec import system_files
from pyinfra_gpu_rehearsal import LabHost

pytestmark = pytest.mark.rehearsal

HOST = "gpu1"
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


def test_the_second_waits_and_says_for_whom(deployer: Deployer, host: LabHost, other: None) -> None:
    run = deployer.deploy(limit=HOST)
    assert run.code == 0, run.output
    assert "bob@desk since 06:12 works here: waiting up to 3600 s" in run.output
    assert run.changed(HOST) == WRITTEN
    assert run.seconds > 5


def test_who_does_not_want_to_wait_stops_and_has_written_nothing(
    deployer: Deployer, host: LabHost, other: None
) -> None:
    hasty = replace(deployer, data=(*deployer.data, "lease_wait_s=0"))
    run = hasty.deploy(limit=HOST)
    assert run.code == 1
    (problem,) = run.problems(HOST)
    assert "bob@desk since 06:12 works on it: let that run end" in problem
    assert host.run(f"test ! -e {PREFIX}/env/training.env && echo gone").stdout == "gone\n"


def test_who_only_looks_does_not_ask(deployer: Deployer, host: LabHost, other: None) -> None:
    assert deployer.dry(limit=HOST).code == 0
    assert deployer.check(limit=HOST).code == 2
    assert host.run("systemctl is-active other").stdout == "active\n"


def test_two_that_start_together_both_end_well(deployer: Deployer, host: LabHost) -> None:
    for _ in range(3):
        host.run(f"rm -f {PREFIX}/env/training.env")
        both = [deployer.start(limit=HOST) for _ in range(2)]
        outputs = [run.communicate(timeout=600)[0] for run in both]
        assert [run.returncode for run in both] == [0, 0], outputs
    assert host.run(FREE).returncode == 0


def test_a_run_that_is_killed_gives_the_host_back(deployer: Deployer, host: LabHost) -> None:
    host.run(f"rm -rf {PREFIX}/tools")  # uv is installed under another lock, which is held
    host.run(f"systemd-run -q --unit=slow flock {PREFIX}/.lock sleep 600")
    run: subprocess.Popen[str] = deployer.start(limit=HOST)
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
