"""Throwaway hosts are real machines, with services, power, snapshots and faults of their own."""

from __future__ import annotations

import secrets
import shutil
import time
from pathlib import Path

import pytest
from reaching import answers, banner, ssh
from running import PATIENCE_S

from pyinfra_gpu_rehearsal import Lab, LabError, LabHost

pytestmark = pytest.mark.rehearsal


def test_up_makes_systems_that_run_without_a_failed_unit(lab: Lab) -> None:
    assert [host.name for host in lab.hosts()] == ["gpu1", "gpu2"]
    for host in lab.hosts():
        assert host.run("systemctl is-system-running").stdout == "running\n"
        assert host.run("cat /proc/1/comm; hostname").stdout == f"systemd\n{host.name}\n"


def test_ssh_enters_a_host_with_a_checked_key_and_sudo_needs_no_password(lab: Lab) -> None:
    done = ssh(lab, "gpu2", "id -un; hostname; sudo -n id -un")
    assert (done.returncode, done.stdout) == (0, "ubuntu\ngpu2\nroot\n"), done.stderr
    refused = ssh(lab, "gpu2", "true", "-o", "UserKnownHostsFile=/dev/null")
    assert refused.returncode == 255
    assert "Host key verification failed" in refused.stderr


def test_hosts_differ_in_everything_that_tells_machines_apart(lab: Lab) -> None:
    looks = "cat /proc/sys/kernel/random/boot_id /etc/machine-id /sys/class/net/eth0/address"
    one, two = (host.run(looks).stdout.split() for host in lab.hosts())
    assert len(set(one) | set(two)) == 6
    keys = [(h.folder / "own/etc/ssh/ssh_host_ed25519_key.pub").read_text() for h in lab.hosts()]
    assert keys[0].split()[1] != keys[1].split()[1]


def test_a_host_has_its_own_clock(gpu1: LabHost) -> None:
    outside = float(Path("/proc/uptime").read_text().split()[0])
    assert gpu1.boot_age() < min(300.0, outside)


def test_a_host_may_not_change_the_real_machine(gpu1: LabHost) -> None:
    for forbidden in (
        "sysctl -w kernel.pid_max=5000",
        "mknod /tmp/disk b 254 0",
        "date --set=2001-01-01",
        "echo 1 > /sys/kernel/mm/transparent_hugepage/enabled",
    ):
        assert gpu1.run(forbidden, check=False).returncode != 0, forbidden


def test_a_host_reaches_nothing_outside_the_lab(gpu1: LabHost) -> None:
    routes = gpu1.run("ip -4 route").stdout.splitlines()
    assert [route.split()[0] for route in routes] == [f"{gpu1.subnet.address(0)}/24"]
    assert gpu1.run("curl --max-time 5 http://192.0.2.1/", check=False).returncode == 7


def test_a_fresh_host_has_written_almost_nothing(lab: Lab, gpu1: LabHost) -> None:
    gpu1.run("touch /opt/mine /etc/mine")
    lab.fresh("gpu1")
    written = {p.relative_to(gpu1.upper) for p in gpu1.upper.rglob("*") if p.is_file()}
    outside_var = {str(p) for p in written if p.parts[0] != "var"}
    assert outside_var <= {"etc/machine-id", "etc/.pwd.lock"}


def test_sessions_are_counted_and_running_commands_directly_is_not_one(
    lab: Lab, gpu1: LabHost
) -> None:
    ssh(lab, "gpu1", "true")
    before = time.time()
    assert gpu1.ssh_sessions() == 1
    time.sleep(0.01)
    for _ in range(2):
        ssh(lab, "gpu1", "true")
    gpu1.run("true")
    assert (gpu1.ssh_sessions(), gpu1.ssh_sessions(before)) == (3, 2)


def test_a_command_on_a_host_fails_with_one_sentence(gpu1: LabHost) -> None:
    with pytest.raises(LabError, match=r"^gpu1: `ls /nowhere` failed \(exit 2\): .*nowhere"):
        gpu1.run("ls /nowhere")
    with pytest.raises(LabError, match=r"^gpu1: `sleep 9` failed \(exit 124\): no end after 0.3 s"):
        gpu1.run("sleep 9", timeout=0.3)
    assert gpu1.run("id -un; pwd", root=False).stdout == "ubuntu\n/home/ubuntu\n"


# -- services


def test_debian_packages_install_for_real(lab: Lab, gpu1: LabHost, training_folder: Path) -> None:
    update = gpu1.run("apt-get update -o APT::Update::Error-Mode=any")
    assert f"{lab.url}/debian bookworm" in update.stdout or "InRelease" in update.stdout
    gpu1.run(
        "DEBIAN_FRONTEND=noninteractive apt-get install -y python3-venv git", timeout=PATIENCE_S
    )
    gpu1.run("python3 -m venv /opt/venv && /opt/venv/bin/python -m pip --version")
    gpu1.run("dpkg --audit && apt-get check")
    # The training repository, with the git just installed.
    gpu1.run(f"git clone --quiet {lab.git_url} /opt/trainer")
    cloned = gpu1.run("git -C /opt/trainer rev-parse HEAD; cat /opt/trainer/train.py").stdout
    assert cloned == f"{lab.git_commit}\n{(training_folder / 'train.py').read_text()}"
    # Whoever stands for the lab later need not know which folder it serves.
    assert Lab(lab.directory).git_url == lab.git_url
    # The wheels, with the pip just installed.
    trusted = f"--index-url {lab.index_url} --trusted-host {gpu1.subnet.address(1)}"
    gpu1.run(f"/opt/venv/bin/pip install --quiet {trusted} uv==0.13.8", timeout=PATIENCE_S)
    assert gpu1.run("/opt/venv/bin/uv --version").stdout.startswith("uv 0.13.8")
    plan = f"/opt/venv/bin/uv pip install --python /opt/venv --dry-run {trusted}"
    resolved = gpu1.run(f"{plan.replace('--trusted-host', '--allow-insecure-host')} torch")
    assert "torch==2.13.0+cpu" in resolved.stderr


def test_the_training_commit_depends_on_the_files_alone(
    lab: Lab, training_folder: Path, tmp_path: Path
) -> None:
    from pyinfra_gpu_rehearsal.git_repository import publish

    copy = tmp_path / training_folder.name
    shutil.copytree(training_folder, copy)
    (copy / "__pycache__").mkdir(exist_ok=True)
    (copy / "__pycache__/train.pyc").write_bytes(b"\0")
    assert publish(copy, tmp_path / "one.git") == lab.git_commit
    (copy / "train.py").write_text("print('another step')\n")
    assert publish(copy, tmp_path / "one.git") != lab.git_commit


# -- snapshots


def test_a_host_comes_back_to_its_snapshot_in_the_same_boot(lab: Lab, gpu1: LabHost) -> None:
    gpu1.run("echo one >/opt/file; echo kept >/opt/kept; rm /etc/issue; mv /etc/skel /etc/moved")
    boot = gpu1.boot_id()
    name = f"one-{secrets.token_hex(4)}"
    lab.snapshot("gpu1", name)
    assert gpu1.boot_id() == boot
    assert gpu1.run("cat /opt/file").stdout == "one\n"
    gpu1.run("echo two >/opt/file; rm /opt/kept; touch /opt/new /etc/issue")
    gpu1.reboot()
    assert gpu1.boot_id() != boot
    lab.snapshot("gpu1", f"{name}-later")
    lab.restore("gpu1", name)
    assert gpu1.boot_id() == boot
    assert gpu1.run("cat /opt/file /opt/kept; ls /opt").stdout.split() == [
        *("one", "kept", "file", "kept"),
    ]
    assert gpu1.run("ls /etc/issue /etc/skel", check=False).stdout == ""
    assert gpu1.run("systemctl is-system-running").stdout == "running\n"
    lab.restore("gpu1", f"{name}-later")
    assert gpu1.run("cat /opt/file; ls /opt").stdout.split() == ["two", "file", "new"]
    gpu1.reboot()
    assert gpu1.boot_id() != boot
    lab.fresh("gpu1")
    assert gpu1.run("ls /opt").stdout == ""
    assert gpu1.boot_id() != boot


def test_a_snapshot_that_cannot_be_is_refused(lab: Lab, gpu1: LabHost) -> None:
    name = f"once-{secrets.token_hex(4)}"
    lab.snapshot("gpu1", name)
    with pytest.raises(LabError, match=f"^gpu1 has a snapshot '{name}' already$"):
        lab.snapshot("gpu1", name)
    assert gpu1.is_on()
    with pytest.raises(LabError, match=r"^a snapshot cannot be called '\.\./x': use small letters"):
        lab.snapshot("gpu1", "../x")
    with pytest.raises(LabError, match=r"^gpu2 has no snapshot 'never': it has"):
        lab.restore("gpu2", "never")
    assert lab.host("gpu2").is_on()


# -- power


def test_a_reboot_keeps_files_and_changes_the_boot_id(gpu1: LabHost) -> None:
    before = gpu1.boot_id()
    gpu1.run("echo kept > /opt/kept; sleep 1.2")
    gpu1.reboot()
    assert gpu1.boot_id() != before
    assert gpu1.run("cat /opt/kept").stdout == "kept\n"
    assert gpu1.boot_age() < 300


def test_a_reboot_ordered_over_ssh_brings_the_host_back(lab: Lab, gpu1: LabHost) -> None:
    before = gpu1.boot_id()
    assert ssh(lab, "gpu1", "sudo systemctl reboot").returncode in (0, 255)
    deadline = time.monotonic() + PATIENCE_S
    after = before
    while after == before and time.monotonic() < deadline:
        after = ssh(lab, "gpu1", "cat /proc/sys/kernel/random/boot_id").stdout.strip() or before
    assert after != before


def test_a_power_cut_is_abrupt_and_keeps_what_was_written(lab: Lab, gpu1: LabHost) -> None:
    gpu1.run(
        "echo kept > /opt/kept;"
        "systemd-run --quiet sh -c 'trap \"echo told > /opt/told\" TERM; sleep 60 & wait'"
    )
    gpu1.power_off()
    assert not gpu1.is_on()
    assert [host.name for host in lab.hosts()] == ["gpu2"]
    assert not answers(gpu1)
    with pytest.raises(LabError, match=r"^gpu1 is off: .*power-on gpu1"):
        gpu1.run("true")
    gpu1.power_on()
    gpu1.wait_ready()
    assert gpu1.run("ls /opt").stdout == "kept\n"


# -- faults


def test_a_cut_network_is_silent_and_can_be_restored(gpu1: LabHost) -> None:
    gpu1.network("cut")
    with pytest.raises(TimeoutError):
        banner(gpu1, timeout=1.5)
    gpu1.network("restore")
    assert answers(gpu1)


def uv_wheel(lab: Lab) -> str:
    return next(path.name for path in (lab.directory / "www/simple/uv").glob("*.whl"))


def test_a_delayed_network_takes_that_long_in_each_direction(lab: Lab, gpu1: LabHost) -> None:
    def milliseconds() -> float:
        started = time.monotonic()
        assert banner(gpu1) == b"SSH-"
        return (time.monotonic() - started) * 1000

    with pytest.raises(LabError, match=r"^a delay of 0 ms is not possible: 1 to 5000 are"):
        gpu1.network("delay", 0)
    try:
        gpu1.network("delay", 100)
    except LabError as error:  # not every kernel has it
        assert "needs the kernel's netem, failed" in str(error)
        return
    try:
        # There and back for the connection, and there again or back for the first word.
        assert min(milliseconds() for _ in range(10)) >= 200
        # Large packets too: work put off between interfaces of one machine must be done.
        gpu1.run(f"curl --fail --silent --output /dev/null {lab.index_url}uv/{uv_wheel(lab)}")
    finally:
        gpu1.network("restore")
    assert min(milliseconds() for _ in range(10)) < 200


def test_a_full_disk_refuses_writes_below_opt_and_nothing_else(gpu1: LabHost) -> None:
    gpu1.run("mkdir /opt/ours; echo kept > /opt/ours/kept")
    gpu1.fill_disk()
    full = gpu1.run("cp /etc/passwd /opt/ours/more", check=False)
    assert "No space left on device" in full.stderr
    assert gpu1.run("cat /opt/ours/kept; df --output=avail /opt").stdout.split() == [
        "kept",
        "Avail",
        "0",
    ]
    gpu1.run("echo fine > /root/fine; systemctl is-system-running")
    gpu1.free_disk()
    gpu1.run("echo more > /opt/ours/more")
