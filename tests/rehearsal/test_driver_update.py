"""The story people keep this tool for: a driver update came in the night, and nothing starts."""

from __future__ import annotations

import textwrap
from collections.abc import Callable

import pytest
from drifts import PRELUDE, R580
from running import (
    GPU_HOST,
    PATIENCE_S,
    Deployer,
    OnlyDriver,
    break_dkms,
    busy_gpu,
    usual_offer,
)
from training import TICK, declare

from pyinfra_gpu_rehearsal import Lab, LabHost

pytestmark = pytest.mark.rehearsal

# unattended-upgrades is Python around apt; what it leaves in apt's history is its own command
# line. Here apt itself does the work, under that name.
UPGRADE = """
    rm -f /etc/apt/preferences.d/*nvidia* /etc/apt/apt.conf.d/52pyinfra-gpu-unattended-upgrades
    quiet apt-mark unhold $(apt-mark showhold)
    quiet apt-get update
    quiet apt-get -y -o Commandline::AsString=/usr/bin/unattended-upgrade dist-upgrade
"""


def test_an_unattended_driver_update_is_explained_and_repaired(
    gpu_lab: Lab, gpu_deployer: Deployer, gpu_proven: Callable[[], LabHost]
) -> None:
    host = gpu_proven()
    deployer = Deployer(gpu_lab, gpu_deployer.folder)  # with the smoke test
    assert host.run("cat /sys/module/nvidia/version").stdout.strip() == "580.95.05"
    assert "580.95.05" in host.run("nvidia-smi").stdout

    gpu_lab.nvidia.offer(*R580)
    host.run(PRELUDE + textwrap.dedent(UPGRADE), timeout=PATIENCE_S)
    broken = host.run("nvidia-smi", check=False)
    assert "Driver/library version mismatch" in broken.stdout + broken.stderr
    assert not host.run("ls /run/reboot-required", check=False).stdout

    checked = deployer.check(limit=GPU_HOST)
    assert checked.code == 2  # the pins are gone as well, and that is drift
    since = checked.deviations(GPU_HOST)["driver.module-differs"]["since"]
    assert "580.105.08" in str(since["change"])
    assert "unattended-upgrade" in str(since["by"])
    assert since["when"]

    assert "the driver" in checked.deviations(GPU_HOST)["smoke.unproven"]["found"]

    boot = host.boot_id()
    run = gpu_deployer.converge(limit=GPU_HOST)
    assert "580.95.05-1 -> 580.105.08-1" in " ".join(run.output.split())
    assert host.run("cat /sys/module/nvidia/version").stdout.strip() == "580.105.08"
    assert "580.105.08" in host.run("nvidia-smi").stdout
    assert host.boot_id() == boot  # nobody used the GPUs: the module was reloaded
    assert gpu_deployer.converge(limit=GPU_HOST).changed(GPU_HOST) == []


def test_a_job_on_the_gpu_and_a_training_run_are_waited_for_and_then_repaired(
    gpu_lab: Lab, gpu_deployer: Deployer, gpu_converged: Callable[[], LabHost]
) -> None:
    host = gpu_converged()
    train = declare(
        gpu_lab, host, {"tick": TICK | {"arguments": {"steps": 6000, "hold": "/dev/nvidia0"}}}
    )
    name = train.start("tick", "--gpus", "0")
    gpu_lab.nvidia.offer(*R580)
    other = "580.105.08"
    assert other not in host.run("modinfo -F version nvidia").stdout
    move = """
        quiet apt-get update
        force $(dpkg-query -W -f '${Package} ${Version}\\n' | awk -v v="$V" -v n=NEW-1 \
          '$2 == v && $1 !~ /pinning/ {print $1 "=" n}')
    """.replace("NEW", other)
    host.run(PRELUDE + textwrap.dedent(move), timeout=PATIENCE_S)
    run = gpu_deployer.deploy(limit=GPU_HOST)
    assert run.code == 0, run.output
    assert f"{name} is running; expected to go on" in " ".join(run.output.split())
    assert host.run("cat /sys/module/nvidia/version").stdout.strip() == "580.95.05"
    assert train.runs()[name]["state"] == "running"
    train("stop", name)
    with busy_gpu(host) as job:
        deployer = Deployer(gpu_lab, gpu_deployer.folder)
        run = deployer.deploy(limit=GPU_HOST)
        assert run.code == 1
        assert "pid" in " ".join(run.problems(GPU_HOST))
        assert host.run(f"systemctl is-active {job}", check=False).stdout.strip() == "active"
        waiting = deployer.check(limit=GPU_HOST)
        assert waiting.code == 3, waiting.answer
    boot = host.boot_id()
    gpu_deployer.converge(limit=GPU_HOST)
    assert host.run("cat /sys/module/nvidia/version").stdout.strip() == other
    assert gpu_deployer.converge(limit=GPU_HOST).changed(GPU_HOST) == []
    assert host.boot_id() == boot


@pytest.mark.night
def test_a_module_that_cannot_be_built_is_said_with_its_reason_and_built_by_the_next_run(
    gpu_lab: Lab, gpu_deployer: Deployer
) -> None:
    """The module's package stays half configured (iF), what depends on it unconfigured (iU)."""
    usual_offer(gpu_lab)
    host = gpu_lab.fresh(GPU_HOST)
    deployer = OnlyDriver(gpu_lab, gpu_deployer.folder)
    break_dkms(host)
    for run in (deployer.deploy(limit=GPU_HOST), deployer.deploy(limit=GPU_HOST)):
        assert run.code == 1
        problem = " ".join(run.problems(GPU_HOST))
        assert "Bad return status for module build" in problem, run.output
        states = host.run("dpkg -l nvidia-kernel-open-dkms nvidia-driver-cuda").stdout.split("\n")
        assert [line[:2] for line in states if "nvidia-" in line] == ["iU", "iF"]
    break_dkms(host, False)
    deployer.converge(limit=GPU_HOST)
    assert host.run("cat /sys/module/nvidia/version").stdout.strip() == "580.95.05"
    assert deployer.converge(limit=GPU_HOST).changed(GPU_HOST) == []

    # dpkg has unpacked newer packages then, which takes them off hold; what follows is not reached.
    held = host.run("apt-mark showhold").stdout
    assert "nvidia-kernel-open-dkms" in held
    gpu_lab.nvidia.offer(*R580)
    break_dkms(host)
    words = ("--data", f"driver_version={R580[-1]}")
    failed = OnlyDriver(gpu_lab, gpu_deployer.folder, words).deploy(limit=GPU_HOST)
    assert failed.code == 1, failed.output
    assert f"{R580[-1]}-1" in host.run("dpkg -l libcuda1").stdout
    assert host.run("apt-mark showhold").stdout == held


# dpkg(1) calls it half-installed and reinst-required; it lasts for the blink of an eye, which a
# power cut meets now and then. The version that is recorded is the new one already.
CUT_OFF = r"""
    quiet apt-get update
    cd "$(mktemp -d)"
    quiet apt-get -q download libcuda1=NEW-1
    quiet dpkg --force-all --unpack libcuda1_*.deb
    sed -i '/^Package: libcuda1$/,/^$/s/^Status: .*/Status: install reinstreq half-installed/' \
      /var/lib/dpkg/status
"""


@pytest.mark.night
def test_a_package_that_was_cut_off_while_it_was_unpacked_is_unpacked_again(
    gpu_lab: Lab, gpu_deployer: Deployer, gpu_converged: Callable[[], LabHost]
) -> None:
    host, newest = gpu_converged(), R580[-1]
    gpu_lab.nvidia.offer(*R580)
    host.run(PRELUDE + textwrap.dedent(CUT_OFF).replace("NEW", newest), timeout=PATIENCE_S)
    assert host.run("dpkg -l libcuda1").stdout.splitlines()[-1].startswith("iHR")
    words = ("--data", f"driver_version={newest}")
    deployer = OnlyDriver(gpu_lab, gpu_deployer.folder, words)
    deployer.converge(limit=GPU_HOST)
    assert host.run("dpkg -l libcuda1").stdout.splitlines()[-1].startswith("hi ")
    assert host.run("cat /sys/module/nvidia/version").stdout.strip() == newest
    assert deployer.converge(limit=GPU_HOST).changed(GPU_HOST) == []
