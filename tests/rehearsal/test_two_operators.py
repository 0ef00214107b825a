"""Two people, one host: one works on it, the other is told so and stops."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
from running import Deployer, until, without_smoke_test

from pyinfra_gpu.spec import system_files
from pyinfra_gpu_rehearsal import LabHost

pytestmark = pytest.mark.rehearsal

HOST = "gpu1"
PREFIX = "/opt/pyinfra-gpu"
FREE = f"flock -n {system_files.LEASE} true"
WRITTEN = [f"environment: write {PREFIX}/env/training.env"]


@pytest.fixture
def host(proven: Callable[[str], LabHost]) -> LabHost:
    """A host on which one small thing is to be done."""
    found = proven(HOST)
    found.run(f"rm -f {PREFIX}/env/training.env")
    return found


def holder(host: LabHost) -> str:
    return host.run(f"cat {system_files.LEASE} 2>/dev/null || true").stdout


def written(host: LabHost) -> bool:
    return host.run(f"test -e {PREFIX}/env/training.env", check=False).returncode == 0


@pytest.fixture
def other(host: LabHost) -> Iterator[None]:
    """Somebody else, who works on the host for a while."""
    folder = system_files.LEASE.rpartition("/")[0]
    take = (
        f'mkdir -p {folder}; exec 9>{system_files.LEASE}; flock 9; echo "bob@desk since 06:12" >&9'
    )
    host.run(f"systemd-run -q --unit=other sh -c '{take}; sleep 600'")
    until(lambda: holder(host) == "bob@desk since 06:12\n")
    yield
    host.run("systemctl stop other || true")


def test_the_second_is_told_who_works_there_and_has_written_nothing(
    deployer: Deployer, host: LabHost, other: None
) -> None:
    assert deployer.check(limit=HOST).code == 2  # who only looks does not ask
    run = deployer.deploy(limit=HOST)
    assert run.code == 1
    (problem,) = run.problems(HOST)
    assert f"{HOST}: bob@desk has been working here since 06:12; run again when it has" in problem
    assert not written(host)
    host.run("systemctl stop other")
    assert deployer.converge(limit=HOST).changed(HOST) == WRITTEN


def test_of_two_that_start_together_each_is_finished_or_told_of_the_other(
    deployer: Deployer, host: LabHost
) -> None:
    both = [
        replace(
            without_smoke_test(deployer),
            data=(*deployer.data, f'environment_variables={{"OPERATOR": "{number}"}}'),
        )
        for number in range(2)
    ]
    with ThreadPoolExecutor(2) as pool:
        runs = list(pool.map(lambda each: each.deploy(limit=HOST), both))
    codes = sorted(run.code for run in runs)
    assert codes in ([0, 0], [0, 1]), [run.output for run in runs]
    stopped = [problem for run in runs if run.code for problem in run.problems(HOST)]
    assert len(stopped) == codes[1]
    assert all("has been working here since" in problem for problem in stopped)
    assert host.run(FREE).returncode == 0


def test_a_run_that_is_killed_gives_the_host_back(deployer: Deployer, host: LabHost) -> None:
    host.run(f"rm -rf {PREFIX}/tools")  # uv is installed under another lock, which is held
    host.run(f"systemd-run -q --unit=slow flock {PREFIX}/.lock sleep 600")
    run = deployer.start(limit=HOST)
    ours = "pyinfra inventories/rehearsal.py deploy.py"
    until(lambda: ours in holder(host) or run.poll() is not None)
    run.send_signal(signal.SIGKILL)
    run.communicate()
    until(lambda: host.run(FREE, check=False).returncode == 0)
    host.run("systemctl stop slow")
    deployer.converge(limit=HOST)
