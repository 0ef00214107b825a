"""Throwaway hosts are real machines, keep to themselves, and leave nothing behind."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from pyinfra_gpu_rehearsal import Lab, LabError, LabHost, inventory
from pyinfra_gpu_rehearsal.commands import run
from pyinfra_gpu_rehearsal.ground import remove_tree
from pyinfra_gpu_rehearsal.network import Subnet, link_exists
from pyinfra_gpu_rehearsal.state import LabRecord, Machine

pytestmark = pytest.mark.rehearsal


def quietly(_: str) -> None:
    """Say nothing."""


def record_of(lab: Lab) -> LabRecord:
    record = LabRecord.load(lab.directory)
    assert record is not None
    return record


def ssh(lab: Lab, host: str, command: str, *options: str) -> subprocess.CompletedProcess[str]:
    words = ["ssh", "-F", str(lab.ssh_config), *options, host, command]
    return subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)


def loop_devices() -> str:
    return run(["losetup", "--list", "--output", "BACK-FILE"], purpose="losetup").stdout


def banner(host: LabHost, timeout: float = 5) -> bytes:
    """Return the first bytes a host's SSH server says."""
    with socket.create_connection((host.address, host.port), timeout=timeout) as connection:
        return connection.recv(4)


def answers(host: LabHost) -> bool:
    try:
        return banner(host) == b"SSH-"
    except OSError:
        return False


@pytest.fixture
def gpu1(lab: Lab) -> LabHost:
    """Return the first host as a bare machine."""
    return lab.fresh("gpu1")


@pytest.fixture
def other_directory(tmp_path: Path, training_folder: Path) -> Iterator[Path]:
    """Return a folder for a second lab, which is removed whatever the test did."""
    directory = tmp_path / ".rehearsal"
    yield directory
    Lab(directory).down(say=quietly)


# -- what a host is


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
    assert gpu1.boot_age() < min(20.0, outside)


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
    gpu1.run("DEBIAN_FRONTEND=noninteractive apt-get install -y python3-venv git", timeout=120)
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
    gpu1.run(f"/opt/venv/bin/pip install --quiet {trusted} uv==0.13.8", timeout=120)
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


# -- power


def test_a_reboot_keeps_files_and_changes_the_boot_id(gpu1: LabHost) -> None:
    before = gpu1.boot_id()
    gpu1.run("echo kept > /opt/kept; sleep 1.2")
    gpu1.reboot()
    assert gpu1.boot_id() != before
    assert gpu1.run("cat /opt/kept").stdout == "kept\n"
    assert gpu1.boot_age() < 20


def test_a_reboot_ordered_over_ssh_brings_the_host_back(lab: Lab, gpu1: LabHost) -> None:
    before = gpu1.boot_id()
    assert ssh(lab, "gpu1", "sudo systemctl reboot").returncode in (0, 255)
    deadline = time.monotonic() + 20
    after = before
    while after == before and time.monotonic() < deadline:
        after = ssh(lab, "gpu1", "cat /proc/sys/kernel/random/boot_id").stdout.strip() or before
    assert after != before


def test_a_power_cut_is_abrupt_and_keeps_what_was_written(lab: Lab, gpu1: LabHost) -> None:
    gpu1.run(
        "echo kept > /opt/kept;"
        "systemd-run --quiet sh -c 'trap \"echo told > /opt/told\" TERM; sleep 60 & wait'"
    )
    started = time.monotonic()
    gpu1.power_off()
    assert time.monotonic() - started < 2
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

    gpu1.network("delay", 100)
    try:
        # There and back for the connection, and there again or back for the first word.
        assert 200 <= min(milliseconds() for _ in range(3)) < 600
        # Large packets too: work put off between interfaces of one machine must be done.
        gpu1.run(f"curl --fail --silent --output /dev/null {lab.index_url}uv/{uv_wheel(lab)}")
    finally:
        gpu1.network("restore")
    assert min(milliseconds() for _ in range(3)) < 200
    with pytest.raises(LabError, match=r"^a delay of 0 ms is not possible: 1 to 5000 are"):
        gpu1.network("delay", 0)


def test_a_full_disk_refuses_writes_below_opt_and_nothing_else(gpu1: LabHost) -> None:
    gpu1.run("mkdir /opt/ours; echo kept > /opt/ours/kept")
    gpu1.fill_disk()
    full = gpu1.run("echo more > /opt/ours/more", check=False)
    assert "No space left on device" in full.stderr
    assert gpu1.run("cat /opt/ours/kept; df --output=avail /opt").stdout.split() == [
        "kept",
        "Avail",
        "0",
    ]
    gpu1.run("echo fine > /root/fine; systemctl is-system-running")
    gpu1.free_disk()
    gpu1.run("echo more > /opt/ours/more")
    assert str(gpu1.folder) not in loop_devices()


# -- coming and going


def test_a_second_up_is_quick_and_changes_nothing(lab: Lab) -> None:
    before = [host.boot_id() for host in lab.hosts()]
    said: list[str] = []
    started = time.monotonic()
    lab.up(2, say=said.append)
    assert time.monotonic() - started < 2
    assert [host.boot_id() for host in lab.hosts()] == before
    assert said == []


def test_up_switches_on_a_host_that_is_off_and_keeps_its_files(lab: Lab, gpu1: LabHost) -> None:
    gpu1.run("echo kept > /opt/kept")
    gpu1.power_off()
    lab.up(1, say=quietly)
    assert [host.name for host in lab.hosts()] == ["gpu1", "gpu2"]
    assert gpu1.run("cat /opt/kept").stdout == "kept\n"


def test_the_inventory_names_the_hosts_that_are_up(lab: Lab, tmp_path: Path) -> None:
    hosts = dict(inventory(lab.directory))
    assert list(hosts) == ["gpu1", "gpu2"]
    assert hosts["gpu2"]["ssh_hostname"] == lab.host("gpu2").address
    assert Path(str(hosts["gpu2"]["ssh_key"])).stat().st_mode & 0o077 == 0
    with pytest.raises(LabError, match=r"^no throwaway hosts are up: make them with"):
        inventory(tmp_path)
    with pytest.raises(LabError, match=r"^there is no host 'gpu9': there are gpu1, gpu2$"):
        lab.host("gpu9")


def test_two_labs_at_once_do_not_touch_each_other(lab: Lab, other_directory: Path) -> None:
    other = Lab(other_directory)
    other.up(1, say=quietly)
    assert other.host("gpu1").where != lab.host("gpu1").where
    assert ssh(other, "gpu1", "hostname").stdout == "gpu1\n"
    other.host("gpu1").run("touch /opt/other")
    other.down(say=quietly)
    assert lab.host("gpu1").run("ls /opt/other", check=False).returncode == 2
    assert ssh(lab, "gpu1", "hostname").stdout == "gpu1\n"


def processes_of(record: LabRecord) -> dict[int, tuple[str, str]]:
    """Return the processes of a lab: id -> start time and network namespace."""
    found: dict[int, tuple[str, str]] = {}
    for folder, _, _ in os.walk(record.group):
        for word in Path(folder, "cgroup.procs").read_text().split():
            try:
                started = Path("/proc", word, "stat").read_text().rsplit(")", 1)[1].split()[19]
                found[int(word)] = (started, str(Path("/proc", word, "ns/net").readlink()))
            except OSError:
                continue
    return found


def traces(record: LabRecord, directory: Path, before: dict[int, tuple[str, str]]) -> list[str]:
    """Return what is left of a lab and its processes BEFORE; mounts in any namespace included."""
    left: list[str] = []
    own = str(Path("/proc/self/ns/net").readlink())
    namespaces = {namespace for _, namespace in before.values()} - {own}
    for process in Path("/proc").glob("[0-9]*"):
        try:
            state, *rest = (process / "stat").read_text().rsplit(")", 1)[1].split()
            if state == "Z":
                continue
            known = before.get(int(process.name))
            if known is not None and known[0] == rest[18]:
                left.append(f"process {process.name}")
            if str((process / "ns/net").readlink()) in namespaces:
                left.append(f"network namespace of process {process.name}")
            if str(directory) in (process / "mountinfo").read_text():
                left.append(f"mount in process {process.name}")
        except OSError:
            continue
    subnet = Subnet(lab_id=record.lab_id, number=0)
    left += [subnet.link] if link_exists(subnet.link) else []
    left += [record.group] if Path(record.group).exists() else []
    left += [str(directory)] if directory.exists() else []
    left += [f"{record.lab_id} on the list"] if record.lab_id in Machine().labs() else []
    return left


def test_down_leaves_nothing_behind(other_directory: Path) -> None:
    other = Lab(other_directory)
    other.up(2, say=quietly)
    other.host("gpu1").network("delay", 5)
    other.host("gpu2").fill_disk()
    record = record_of(other)
    processes = processes_of(record)
    assert len(processes) > 10
    assert traces(record, other_directory, processes) != []
    other.down(say=quietly)
    assert traces(record, other_directory, processes) == []
    assert str(other_directory) not in loop_devices()
    assert other.hosts() == []


@pytest.mark.parametrize(
    "moment",
    ["lab.json", "services.log", "hosts/gpu1/own", "hosts/gpu1/console.log", "ssh_config"],
)
def test_leftovers_of_a_killed_up_are_cleaned_by_the_next(
    other_directory: Path, moment: str
) -> None:
    command = [sys.executable, "-m", "pyinfra_gpu_rehearsal", "--directory", str(other_directory)]
    victim = subprocess.Popen([*command, "up", "2"], stdout=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + 60
        while not (other_directory / moment).exists():
            assert time.monotonic() < deadline and victim.poll() is None, moment
            time.sleep(0.001)
    finally:
        victim.send_signal(signal.SIGKILL)
        victim.wait()
    first = record_of(Lab(other_directory))
    processes = processes_of(first)
    hosts = Lab(other_directory).up(2, say=quietly)
    assert [host.run("systemctl is-system-running").stdout for host in hosts] == ["running\n"] * 2
    assert record_of(Lab(other_directory)).lab_id == first.lab_id
    Lab(other_directory).down(say=quietly)
    assert traces(first, other_directory, processes) == []


def test_a_lab_whose_folder_was_removed_is_cleaned_by_the_next_up(
    lab: Lab, other_directory: Path, tmp_path: Path
) -> None:
    Lab(other_directory).up(1, say=quietly)
    record = record_of(Lab(other_directory))
    processes = processes_of(record)
    other_directory.rename(tmp_path / "moved away")
    lab.up(2, say=quietly)
    assert traces(record, other_directory, processes) == []
    remove_tree(tmp_path / "moved away")  # without root, some of it is not this user's


# -- the command line


def rehearsal(lab: Lab, *words: str) -> str:
    command = [sys.executable, "-m", "pyinfra_gpu_rehearsal", "--directory", str(lab.directory)]
    done = subprocess.run([*command, *words], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_each_command_of_the_command_line_does_what_it_says(lab: Lab, gpu1: LabHost) -> None:
    rehearsal(lab, "network", "gpu1", "cut")
    assert not answers(gpu1)
    assert rehearsal(lab, "network", "gpu1", "restore")
    assert answers(gpu1)
    rehearsal(lab, "disk", "gpu1", "full")
    assert gpu1.run("echo x > /opt/x", check=False).returncode != 0
    rehearsal(lab, "disk", "gpu1", "free")
    gpu1.run("echo x > /opt/x")
    before = gpu1.boot_id()
    rehearsal(lab, "reboot", "gpu1")
    assert gpu1.boot_id() != before
    rehearsal(lab, "power-off", "gpu1")
    assert not gpu1.is_on()
    assert "off" in rehearsal(lab, "list").splitlines()[1].split()
    rehearsal(lab, "power-on", "gpu1")
    assert gpu1.run("cat /opt/x").stdout == "x\n"
    rehearsal(lab, "fresh", "gpu1")
    assert gpu1.run("ls /opt").stdout == ""


def test_the_command_line_shows_the_hosts_and_how_to_enter_them(lab: Lab) -> None:
    command = [sys.executable, "-m", "pyinfra_gpu_rehearsal", "--directory", str(lab.directory)]
    listed = subprocess.run([*command, "list"], capture_output=True, text=True, check=True).stdout
    head, one, two = listed.splitlines()
    assert head.split()[:3] == ["name", "address", "state"]
    assert one.split()[:3] == ["gpu1", lab.host("gpu1").where, "running"]
    assert two.endswith(f"ssh -F {lab.ssh_config} gpu2")
    wrong = subprocess.run(
        [*command, "reboot", "gpu7"], capture_output=True, text=True, check=False
    )
    assert (wrong.returncode, wrong.stdout) == (1, "")
    assert wrong.stderr == "there is no host 'gpu7': there are gpu1, gpu2\n"
