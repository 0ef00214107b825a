"""The reboot, where it is hard: behind a jump host, with a sudo password, on a slow machine."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from running import BOUND, GPU_HOST, ON_HOST, PATIENCE_S, PROJECT, usual_offer

from pyinfra_gpu_rehearsal import Lab, LabHost, inventory

pytestmark = pytest.mark.rehearsal

PASSWORD = "correct horse"
JUMP = "gpu2"  # a host without GPUs
SLOW = "slow-to-stop.service"  # sshd goes on answering while this unit takes its time to stop


@pytest.fixture
def host(gpu_lab: Lab) -> LabHost:
    """A bare GPU host whose sudo asks for a password, and beside it one to jump from."""
    gpu_lab.up(2, say=lambda text: None)
    usual_offer(gpu_lab)
    found = gpu_lab.fresh(GPU_HOST)
    found.run(f"echo 'ubuntu:{PASSWORD}' | chpasswd")
    found.run("echo 'ubuntu ALL=(ALL) ALL' > /etc/sudoers.d/ubuntu")
    found.put(ON_HOST / SLOW, f"/run/systemd/system/{SLOW}")
    found.run(f"systemctl daemon-reload; systemctl start {SLOW}")
    return found


@pytest.fixture
def home(gpu_lab: Lab, host: LabHost, tmp_path: Path) -> Path:
    """A user's home: an ssh config that reaches the host by way of the other, and an inventory."""
    ssh = tmp_path / ".ssh"
    ssh.mkdir(mode=0o700)
    known = gpu_lab.ssh_config.read_text(encoding="utf-8")
    settings = (
        f"Host behind\n  ProxyJump {JUMP}\n  HostName {host.address}\n"
        f"  User ubuntu\n  IdentityFile {gpu_lab.directory}/id_ed25519\n"
        f"  UserKnownHostsFile {gpu_lab.directory}/known_hosts\n  StrictHostKeyChecking yes\n"
    )
    (ssh / "config").write_text(settings + known)
    declared = dict(inventory(gpu_lab.directory))[GPU_HOST]
    gpu = {key: value for key, value in declared.items() if not key.startswith("ssh_")}
    data = {**gpu, "rehearsal": True, "pytorch_version": "2.13.0", "pytorch_build": "cpu"}
    less = {"preflight_min_disk_gib": 1, "preflight_min_ram_gib": 1, "_sudo_password": PASSWORD}
    (tmp_path / "inventory.py").write_text(f"gpu = [('behind', {data | less!r})]\n")
    return tmp_path


def deployed(home: Path, *words: str) -> tuple[int, dict[str, Any]]:
    """Deploy the driver as a user in this home does; return the exit code and the host's report."""
    report = home / "report.json"
    pyinfra = str(Path(sys.executable).parent / "pyinfra")
    only = ["-y", *words, str(home / "inventory.py"), "tests/rehearsal/only_driver.py"]
    settings = {"PYINFRA_PROGRESS": "off", "PYINFRA_GPU_REPORT": str(report)}
    done = subprocess.run(
        [pyinfra, *only],
        cwd=PROJECT,
        env={**os.environ, "HOME": str(home), **settings},
        capture_output=True,
        stdin=subprocess.DEVNULL,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    print(done.stdout, done.stderr)
    assert PASSWORD not in done.stdout + done.stderr
    return done.returncode, dict(json.loads(report.read_text())["hosts"]["behind"])


def test_a_slow_host_behind_a_jump_host_with_a_sudo_password_is_rebooted_once(
    host: LabHost, home: Path
) -> None:
    """nouveau holds the cards: only a reboot helps, one is enough, and `never` refuses it."""
    assert host.run(BOUND).stdout.split() == ["nouveau"] * 2
    boot = host.boot_id()
    code, never = deployed(home, "--data", "driver_reboot=never")
    assert code == 1
    assert "reboot" in " ".join(each["problem"] or "" for each in never["stages"])
    assert host.boot_id() == boot
    code, run = deployed(home)
    assert (code, run["status"]) == (0, "changed")
    assert host.run("cat /sys/module/nvidia/version").stdout.strip() == "580.95.05"
    assert host.run("last -x reboot").stdout.count("system boot") == 2  # power on, and one reboot
    code, again = deployed(home)
    assert (code, [each["changed"] for each in again["stages"] if each["changed"]]) == (0, [])
