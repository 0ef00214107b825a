"""Throwaway hosts are real machines, with services, power, snapshots and faults of their own."""

from __future__ import annotations

import secrets
import shutil
from pathlib import Path

import pytest
from reaching import answers, banner, ssh
from running import PATIENCE_S

from pyinfra_gpu_rehearsal import Lab, LabError, LabHost
from pyinfra_gpu_rehearsal.git_repository import publish

pytestmark = pytest.mark.rehearsal


def test_hosts_are_systems_that_differ_in_all_that_tells_machines_apart(lab: Lab) -> None:
    assert [host.name for host in lab.hosts()] == ["gpu1", "gpu2"]
    for host in lab.hosts():
        assert host.run("systemctl is-system-running").stdout == "running\n"
        assert host.run("cat /proc/1/comm; hostname").stdout == f"systemd\n{host.name}\n"
    looks = "cat /proc/sys/kernel/random/boot_id /etc/machine-id /sys/class/net/eth0/address"
    one, two = (host.run(looks).stdout.split() for host in lab.hosts())
    assert len(set(one) | set(two)) == 6


def test_ssh_enters_a_host_with_a_checked_key_and_sudo_needs_no_password(lab: Lab) -> None:
    host = lab.host("gpu2")
    before = host.ssh_sessions()
    done = ssh(lab, "gpu2", "id -un; hostname; sudo -n id -un")
    assert (done.returncode, done.stdout) == (0, "ubuntu\ngpu2\nroot\n"), done.stderr
    assert host.ssh_sessions() - before == 1
    refused = ssh(lab, "gpu2", "true", "-o", "UserKnownHostsFile=/dev/null")
    assert refused.returncode == 255
    assert "Host key verification failed" in refused.stderr


def test_a_host_keeps_to_itself_and_a_command_fails_with_one_sentence(gpu1: LabHost) -> None:
    for forbidden in (
        "sysctl -w kernel.pid_max=5000",
        "mknod /tmp/disk b 254 0",
        "date --set=2001-01-01",
        "echo 1 > /sys/kernel/mm/transparent_hugepage/enabled",
    ):
        assert gpu1.run(forbidden, check=False).returncode != 0, forbidden
    routes = gpu1.run("ip -4 route").stdout.splitlines()
    assert [route.split()[0] for route in routes] == [f"{gpu1.subnet.address(0)}/24"]
    written = {str(p.relative_to(gpu1.upper)) for p in gpu1.upper.rglob("*") if p.is_file()}
    assert {path for path in written if not path.startswith("var/")} <= {
        "etc/machine-id",
        "etc/.pwd.lock",
    }
    with pytest.raises(LabError, match=r"^gpu1: `ls /nowhere` failed \(exit 2\): .*nowhere"):
        gpu1.run("ls /nowhere")
    with pytest.raises(LabError, match=r"^gpu1: `sleep 9` failed \(exit 124\): no end after 0.3 s"):
        gpu1.run("sleep 9", timeout=0.3)
    assert gpu1.run("id -un; pwd", root=False).stdout == "ubuntu\n/home/ubuntu\n"


def test_packages_wheels_and_the_repository_are_served(
    lab: Lab, gpu1: LabHost, training_folder: Path, tmp_path: Path
) -> None:
    gpu1.run("apt-get update -o APT::Update::Error-Mode=any")
    install = "DEBIAN_FRONTEND=noninteractive apt-get install -y python3-venv git"
    gpu1.run(f"{install} && dpkg --audit && apt-get check", timeout=PATIENCE_S)
    gpu1.run(f"git clone --quiet {lab.git_url} /opt/trainer")
    cloned = gpu1.run("git -C /opt/trainer rev-parse HEAD; cat /opt/trainer/train.py").stdout
    assert cloned == f"{lab.git_commit}\n{(training_folder / 'train.py').read_text()}"
    trusted = f"--index-url {lab.index_url} --trusted-host {gpu1.subnet.address(1)}"
    gpu1.run("python3 -m venv /opt/venv")
    gpu1.run(f"/opt/venv/bin/pip install --quiet {trusted} uv==0.13.8", timeout=PATIENCE_S)
    plan = f"/opt/venv/bin/uv pip install --python /opt/venv --dry-run {trusted}"
    resolved = gpu1.run(f"{plan.replace('--trusted-host', '--allow-insecure-host')} torch")
    assert "torch==2.13.0+cpu" in resolved.stderr
    # The commit depends on the files alone.
    copy = shutil.copytree(training_folder, tmp_path / training_folder.name)
    assert publish(copy, tmp_path / "one.git") == lab.git_commit


def test_a_host_comes_back_to_its_snapshot_in_the_same_boot(lab: Lab, gpu1: LabHost) -> None:
    gpu1.run("echo one >/opt/file; echo kept >/opt/kept; rm /etc/issue; mv /etc/skel /etc/moved")
    boot = gpu1.boot_id()
    name = f"one-{secrets.token_hex(4)}"
    lab.snapshot("gpu1", name)
    assert gpu1.boot_id() == boot
    gpu1.run("echo two >/opt/file; rm /opt/kept; touch /opt/new /etc/issue")
    gpu1.reboot()
    assert gpu1.boot_id() != boot
    lab.snapshot("gpu1", f"{name}-later")
    lab.restore("gpu1", name)
    assert gpu1.boot_id() == boot
    shown = gpu1.run("cat /opt/file /opt/kept; ls /opt").stdout.split()
    assert shown == ["one", "kept", "file", "kept"]
    assert gpu1.run("ls /etc/issue /etc/skel", check=False).stdout == ""
    assert gpu1.run("systemctl is-system-running").stdout == "running\n"
    lab.restore("gpu1", f"{name}-later")
    assert gpu1.run("cat /opt/file; ls /opt").stdout.split() == ["two", "file", "new"]
    with pytest.raises(LabError, match=f"^gpu1 has a snapshot '{name}' already$"):
        lab.snapshot("gpu1", name)
    with pytest.raises(LabError, match=r"^a snapshot cannot be called '\.\./x': use small letters"):
        lab.snapshot("gpu1", "../x")
    with pytest.raises(LabError, match=r"^gpu2 has no snapshot 'never': it has"):
        lab.restore("gpu2", "never")


def test_a_power_cut_is_abrupt_and_what_was_written_is_there_in_another_boot(
    lab: Lab, gpu1: LabHost
) -> None:
    gpu1.run(
        "echo kept > /opt/kept;"
        "systemd-run --quiet sh -c 'trap \"echo told > /opt/told\" TERM; sleep 60 & wait'"
    )
    before = gpu1.boot_id()
    gpu1.power_off()
    assert not gpu1.is_on()
    assert [host.name for host in lab.hosts()] == ["gpu2"]
    with pytest.raises(LabError, match=r"^gpu1 is off: .*rehearsal up"):
        gpu1.run("true")
    lab.up(1, say=print)
    assert [host.name for host in lab.hosts()] == ["gpu1", "gpu2"]
    assert gpu1.run("ls /opt").stdout == "kept\n"
    assert gpu1.boot_id() != before
    uptime = float(gpu1.run("cat /proc/uptime").stdout.split()[0])
    assert uptime < float(Path("/proc/uptime").read_text().split()[0])


def test_a_cut_network_is_silent_and_can_be_restored(gpu1: LabHost) -> None:
    gpu1.network("cut")
    with pytest.raises(TimeoutError):
        banner(gpu1, timeout=1.5)
    gpu1.network("restore")
    assert answers(gpu1)


def test_a_full_disk_refuses_writes_below_opt_and_nothing_else(gpu1: LabHost) -> None:
    gpu1.run("mkdir /opt/ours; echo kept > /opt/ours/kept")
    gpu1.fill_disk()
    full = gpu1.run("cp /etc/passwd /opt/ours/more", check=False)
    assert "No space left on device" in full.stderr
    said = gpu1.run("cat /opt/ours/kept; df --output=avail /opt; echo fine > /root/fine").stdout
    assert said.split() == ["kept", "Avail", "0"]
    gpu1.free_disk()
    gpu1.run("echo more > /opt/ours/more")
