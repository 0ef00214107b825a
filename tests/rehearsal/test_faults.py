"""One of two hosts is in trouble: it fails with one sentence, and the other is finished."""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Iterator

import pytest
from running import Deployer

from pyinfra_gpu_rehearsal import Lab, LabHost

pytestmark = pytest.mark.rehearsal

PREFIX = "/opt/pyinfra-gpu"


@pytest.fixture(scope="module")
def deployer(lab: Lab, tmp_path_factory: pytest.TempPathFactory) -> Deployer:
    lab.up(2, say=lambda text: None)
    return Deployer(lab, tmp_path_factory.mktemp("faults"))


@pytest.fixture(scope="module")
def finished(deployer: Deployer, lab: Lab) -> LabHost:
    """gpu1, completely deployed: the host that must not suffer from gpu2's trouble."""
    deployer.converge(limit="gpu1")
    return lab.host("gpu1")


@pytest.fixture
def troubled(finished: LabHost, lab: Lab) -> Iterator[LabHost]:
    """gpu2, bare again; and gpu1 given something to do, so that finishing it can be seen."""
    lab.fresh("gpu2")
    finished.run(f"rm -f {PREFIX}/env/training.env")
    host = lab.host("gpu2")
    yield host
    host.network("restore")
    host.free_disk()
    lab.fresh("gpu2")


def _one_failed_the_other_finished(deployer: Deployer, words: str, seconds: float = 60) -> None:
    run = deployer.run("-y", timeout=seconds)
    assert run.code == 1, run.output
    assert run.status("gpu1") == "changed"
    assert run.changed("gpu1") == ["environment: training.env"]
    assert "Traceback" not in run.output
    if run.status("gpu2") == "unreachable":
        assert words in run.output
        return
    assert run.status("gpu2") == "failed"
    assert len(run.problems("gpu2")) == 1
    assert words in run.problems("gpu2")[0]
    assert "\n" not in run.problems("gpu2")[0]


def test_an_unreachable_host(deployer: Deployer, troubled: LabHost) -> None:
    troubled.network("cut")
    _one_failed_the_other_finished(deployer, "Could not connect")


def test_a_host_whose_disk_is_full(deployer: Deployer, troubled: LabHost) -> None:
    troubled.fill_disk()
    _one_failed_the_other_finished(deployer, "GiB free at")


def test_a_host_whose_apt_is_in_use(deployer: Deployer, troubled: LabHost) -> None:
    lock = (
        "import fcntl, time; f = open('/var/lib/dpkg/lock-frontend', 'w');"
        " fcntl.lockf(f, fcntl.LOCK_EX); time.sleep(120)"
    )
    troubled.run(f'systemd-run --unit held -q python3 -c "{lock}"')
    time.sleep(0.5)
    deployer_short = ("--data", "preflight_apt_wait_s=2")
    run = deployer.run("-y", *deployer_short, timeout=120)
    assert run.code == 1, run.output
    assert run.status("gpu1") == "changed"
    assert "apt is in use by pid" in run.problems("gpu2")[0]
    assert troubled.run("systemctl is-active held").stdout == "active\n"  # never killed


def test_a_changed_host_key_is_refused(deployer: Deployer, troubled: LabHost) -> None:
    change = (
        "rm /etc/ssh/ssh_host_*; ssh-keygen -q -t ed25519 -N '' -f /etc/ssh/ssh_host_ed25519_key"
    )
    troubled.run(f"{change}; systemctl restart ssh")
    _one_failed_the_other_finished(deployer, "does not match")


def _wait_for(host: LabHost, command: str, process: subprocess.Popen[str], seconds: float) -> None:
    """Wait until a command succeeds on the host while the run is still going."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if host.run(command, check=False).returncode == 0:
            return
        if process.poll() is not None:
            output = process.stdout.read() if process.stdout else ""
            raise AssertionError(f"the run ended before {command!r} came true:\n{output}")
        time.sleep(0.05)
    raise AssertionError(f"{command!r} did not come true in {seconds} s")


IN_TORCH_INSTALL = f"test -e {PREFIX}/venv/.pyinfra-gpu-installing"
IN_SMOKE_TEST = "pgrep -f smoke_test.pyz"


@pytest.mark.parametrize("moment", [IN_TORCH_INSTALL, IN_SMOKE_TEST], ids=["install", "smoke"])
@pytest.mark.parametrize("how", ["controller killed", "power cut"])
def test_a_run_that_was_cut_off_is_finished_by_the_next(
    moment: str, how: str, deployer: Deployer, lab: Lab
) -> None:
    host = lab.host("gpu2")
    if moment == IN_TORCH_INSTALL:
        lab.fresh("gpu2")
    else:
        deployer.converge(limit="gpu2")
        host.run(f"rm {PREFIX}/smoke/stamp.json")
    process = deployer.start(limit="gpu2")
    try:
        _wait_for(host, moment, process, 120)
        if how == "power cut":
            host.power_off()
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
    if how == "power cut":
        host.power_on()
        host.wait_ready()
    deployer.converge(limit="gpu2")
    assert deployer.converge(limit="gpu2").changed("gpu2") == []


def test_ctrl_c_ends_a_run_at_once_even_while_a_command_on_the_host_hangs(
    deployer: Deployer, lab: Lab
) -> None:
    host = lab.host("gpu2")
    lab.fresh("gpu2")
    process = deployer.start(limit="gpu2")
    try:
        _wait_for(host, f"{IN_TORCH_INSTALL} && pkill -STOP -x uv", process, 120)
        process.send_signal(signal.SIGINT)
        output, _ = process.communicate(timeout=20)
    finally:
        process.kill()
        host.run("pkill -CONT -x uv", check=False)
    assert process.returncode == 130, output
    assert "interrupted: a command that was begun goes on on its host" in output
    assert "CUT OFF" in output
    assert "FAILED" not in output
    deployer.converge(limit="gpu2")
    assert deployer.converge(limit="gpu2").changed("gpu2") == []


def test_a_network_that_dies_in_the_middle_ends_the_host_not_the_run(
    deployer: Deployer, troubled: LabHost
) -> None:
    process = deployer.start()
    try:
        _wait_for(troubled, IN_TORCH_INSTALL, process, 120)
        troubled.network("cut")
        output, _ = process.communicate(timeout=90)  # TCP_USER_TIMEOUT is 20 s
    finally:
        process.kill()
        process.wait()
    assert process.returncode == 1
    assert "gpu2: install torch 2.13.0+cpu" in output
    assert "the connection was lost" in output
    assert "Traceback" not in output
    troubled.network("restore")
    deployer.converge()
    assert deployer.converge(limit="gpu2").changed("gpu2") == []
