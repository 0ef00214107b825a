"""One of two hosts is in trouble: it fails with one sentence, and the other is finished."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator

import pytest
from running import PATIENCE_S, Deployer, hold_apt, until, without_smoke_test

from pyinfra_gpu_rehearsal import LabHost
from tests.forked import Process
from tests.night import by_night

pytestmark = pytest.mark.rehearsal

PREFIX = "/opt/pyinfra-gpu"


@pytest.fixture(scope="module")
def finished(proven: Callable[[str], LabHost]) -> LabHost:
    """gpu1, completely deployed: the host that must not suffer from gpu2's trouble."""
    return proven("gpu1")


@pytest.fixture
def without_ours(proven: Callable[[str], LabHost]) -> LabHost:
    """gpu2 with the distribution's packages and nothing of ours: torch is installed next."""
    host = proven("gpu2")
    host.run(f"rm -rf {PREFIX}")
    return host


@pytest.fixture
def troubled(finished: LabHost, without_ours: LabHost) -> Iterator[LabHost]:
    """The same gpu2; and gpu1 given something to do, so that finishing it can be seen."""
    finished.run(f"rm -f {PREFIX}/env/training.env")
    yield without_ours
    without_ours.network("restore")
    without_ours.free_disk()


NEW_KEY = "rm /etc/ssh/ssh_host_*; ssh-keygen -q -t ed25519 -N '' -f /etc/ssh/ssh_host_ed25519_key"
TROUBLE: dict[str, tuple[Callable[[LabHost], object], str]] = {
    "the network is cut": (lambda host: host.network("cut"), "could not be reached"),
    "the disk is full": (LabHost.fill_disk, "0 MiB free at"),
    "the host key changed": (
        lambda host: host.run(f"{NEW_KEY}; systemctl restart ssh"),
        "is not the one in",
    ),
}


@pytest.mark.parametrize("what", by_night(TROUBLE, [*TROUBLE][:2]))
def test_of_one_host_it_is_said_in_one_sentence_and_the_other_is_finished(
    what: str, deployer: Deployer, troubled: LabHost
) -> None:
    act, words = TROUBLE[what]
    act(troubled)
    run = deployer.deploy()
    assert run.code == 1, run.output
    assert run.changed("gpu1") == [f"environment: write {PREFIX}/env/training.env"]
    assert "Traceback" not in run.output
    if run.status("gpu2") == "unreachable":
        assert words in run.output
        return
    assert run.status("gpu2") == "failed"
    (problem,) = run.problems("gpu2")
    assert words in problem
    assert "\n" not in problem


def test_a_host_whose_apt_is_in_use(deployer: Deployer, troubled: LabHost) -> None:
    troubled.run("apt-get remove -qq -y python3-venv")  # which needs apt to come back
    hold_apt(troubled, unit="held")
    run = deployer.deploy("--data", "preflight_apt_wait_s=2")
    assert run.code == 1, run.output
    assert run.status("gpu1") == "changed"
    assert "apt is in use by pid" in run.problems("gpu2")[0]
    assert troubled.run("systemctl is-active held").stdout == "active\n"  # never killed


def _wait_for(host: LabHost, command: str, process: Process) -> None:
    """Wait until a command succeeds on the host while the run is still going."""

    def ended_or_true() -> bool:
        assert process.poll() is None, f"before {command!r} came true: {process.communicate()[0]}"
        return host.run(command, check=False).returncode == 0

    until(ended_or_true, PATIENCE_S, every=0.2)


IN_TORCH_INSTALL = f"test -e {PREFIX}/venv/.pyinfra-gpu-installing"
IN_SMOKE_TEST = "pgrep -f smoke_test.pyz"
STAMP = f"{PREFIX}/smoke/stamp.json"
MOMENTS = {"install": IN_TORCH_INSTALL, "smoke": IN_SMOKE_TEST}
CUT_OFF = [
    ("install", "power cut"),
    ("smoke", "controller killed"),
    ("install", "controller killed"),
    ("smoke", "power cut"),
]


@pytest.mark.parametrize(("moment", "how"), by_night(CUT_OFF, CUT_OFF[:2]))
def test_a_run_that_was_cut_off_is_finished_by_the_next(
    moment: str, how: str, deployer: Deployer, proven: Callable[[str], LabHost]
) -> None:
    host = proven("gpu2")
    host.run(f"rm -rf {PREFIX if moment == 'install' else STAMP}")
    if moment == "install":
        deployer = without_smoke_test(deployer)
    process = deployer.start(limit="gpu2")
    try:
        _wait_for(host, MOMENTS[moment], process)
        if how == "power cut":
            host.power_off()
    finally:
        process.kill()
        process.communicate()
    if how == "power cut":
        host.power_on()
        host.wait_ready(PATIENCE_S)
    deployer.converge(limit="gpu2")
    assert deployer.converge(limit="gpu2").changed("gpu2") == []


def test_ctrl_c_ends_a_run_at_once_even_while_a_command_on_the_host_hangs(
    deployer: Deployer, proven: Callable[[str], LabHost]
) -> None:
    host = proven("gpu2")
    host.run(f"rm {PREFIX}/tools/bin/uv")  # it is installed under a lock, which is held
    host.run(f"systemd-run -q --unit=slow flock {PREFIX}/.lock sleep 600")
    process = deployer.cold().start(limit="gpu2")  # what a user's own Ctrl-C ends
    try:
        _wait_for(host, "pgrep -f '^flock -w'", process)
        process.send_signal(signal.SIGINT)
        output, _ = process.communicate(timeout=PATIENCE_S)
    finally:
        process.kill()
        host.run("systemctl stop slow", check=False)
    assert process.returncode == 130, output
    assert "interrupted: a command that was begun goes on on its host" in output
    assert "CUT OFF" in output
    assert "FAILED" not in output
    deployer.converge(limit="gpu2")
    assert deployer.converge(limit="gpu2").changed("gpu2") == []


@pytest.mark.night
def test_a_network_that_dies_in_the_middle_ends_the_host_not_the_run(
    deployer: Deployer, troubled: LabHost
) -> None:
    deployer = without_smoke_test(deployer)
    process = deployer.start()
    try:
        _wait_for(troubled, IN_TORCH_INSTALL, process)
        troubled.network("cut")
        output, _ = process.communicate(timeout=PATIENCE_S)  # TCP_USER_TIMEOUT is 20 s
    finally:
        process.kill()
        process.communicate()
    assert process.returncode == 1
    assert "gpu2: install torch 2.13.0+cpu" in output
    assert "the connection was lost" in output
    assert "Traceback" not in output
    troubled.network("restore")
    deployer.converge()
    assert deployer.converge(limit="gpu2").changed("gpu2") == []
