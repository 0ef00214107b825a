"""Throwaway hosts are real machines, with services, power, snapshots and faults of their own."""

from __future__ import annotations

import secrets
from pathlib import Path

import pytest
from reaching import answers, banner

from pyinfra_gpu_rehearsal import Lab, LabError, LabHost

pytestmark = pytest.mark.rehearsal


def test_hosts_are_systems_that_differ_in_all_that_tells_machines_apart(lab: Lab) -> None:
    assert [host.name for host in lab.hosts()] == ["gpu1", "gpu2"]
    for host in lab.hosts():
        assert host.run("systemctl is-system-running").stdout == "running\n"
        assert host.run("cat /proc/1/comm; hostname").stdout == f"systemd\n{host.name}\n"
    looks = "cat /proc/sys/kernel/random/boot_id /etc/machine-id /sys/class/net/eth0/address"
    one, two = (host.run(looks).stdout.split() for host in lab.hosts())
    assert len(set(one) | set(two)) == 6


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
