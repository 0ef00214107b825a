"""Labs come and go: they keep to themselves, and leave nothing behind."""

from __future__ import annotations

import argparse
import io
import os
import secrets
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import redirect_stdout, suppress
from pathlib import Path

import pytest
from reaching import answers, ssh
from running import PATIENCE_S, quietly, until

from pyinfra_gpu_rehearsal import Lab, LabError, LabHost, inventory
from pyinfra_gpu_rehearsal.cli import run_command
from pyinfra_gpu_rehearsal.network import Subnet, link_exists
from pyinfra_gpu_rehearsal.placing import labs
from pyinfra_gpu_rehearsal.state import LabRecord

pytestmark = pytest.mark.rehearsal


def record_of(lab: Lab) -> LabRecord:
    record = LabRecord.load(lab.directory)
    assert record is not None
    return record


@pytest.fixture
def other_directory(tmp_path: Path, training_folder: Path) -> Iterator[Path]:
    """Return a folder for a second lab, which is removed whatever the test did."""
    directory = tmp_path / ".rehearsal"
    yield directory
    Lab(directory).down(say=quietly)


def test_a_second_up_is_quick_and_changes_nothing(lab: Lab) -> None:
    before = [host.boot_id() for host in lab.hosts()]
    said: list[str] = []
    lab.up(2, say=said.append)
    assert [host.boot_id() for host in lab.hosts()] == before
    assert said == []


def test_what_is_switched_off_keeps_its_files_and_leaves_nothing_running(
    other_directory: Path,
) -> None:
    lab = Lab(other_directory)
    (host,) = lab.up(1, say=quietly)
    host.run("echo kept > /opt/kept")
    before, group = host.boot_id(), Path(record_of(lab).group)
    lab.off(say=quietly)
    assert lab.hosts() == [] and not group.exists()
    assert record_of(lab).lab_id not in labs()
    (host,) = lab.up(1, say=quietly)
    assert host.run("cat /opt/kept").stdout == "kept\n"
    assert host.boot_id() != before


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
    assert other.host("gpu1").address != lab.host("gpu1").address
    assert ssh(other, "gpu1", "hostname").stdout == "gpu1\n"
    other.host("gpu1").run("touch /opt/other")
    other.down(say=quietly)
    assert lab.host("gpu1").run("ls /opt/other", check=False).returncode == 2
    assert ssh(lab, "gpu1", "hostname").stdout == "gpu1\n"


def processes_of(record: LabRecord) -> set[str]:
    """Return the processes of a lab, each by its number and when it started."""
    found = set()
    for folder, _, _ in os.walk(record.group):
        for number in Path(folder, "cgroup.procs").read_text().split():
            with suppress(OSError):
                found.add(identity(Path("/proc", number)))
    return found


def identity(process: Path) -> str:
    return f"{process.name} {(process / 'stat').read_text().rsplit(')', 1)[1].split()[19]}"


def traces(record: LabRecord, directory: Path, before: set[str]) -> list[str]:
    """Return what is left of a lab and its processes BEFORE; mounts in any namespace included."""
    left: list[str] = []
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if (process / "stat").read_text().rsplit(")", 1)[1].split()[0] == "Z":
                continue
            left += [f"process {process.name}"] if identity(process) in before else []
            mounts = (process / "mountinfo").read_text()
            left += [f"mount in process {process.name}"] if str(directory) in mounts else []
    link = Subnet(lab_id=record.lab_id, number=0).link
    left += [link] if link_exists(link) else []
    left += [str(path) for path in (Path(record.group), directory) if path.exists()]
    left += [f"{record.lab_id} on the list"] if record.lab_id in labs() else []
    return left


def test_down_leaves_nothing_behind(other_directory: Path) -> None:
    other = Lab(other_directory)
    other.up(2, say=quietly)
    other.host("gpu1").network("cut")
    other.host("gpu2").fill_disk()
    record = record_of(other)
    processes = processes_of(record)
    assert len(processes) > 10
    assert traces(record, other_directory, processes) != []
    other.down(say=quietly)
    assert traces(record, other_directory, processes) == []
    assert other.hosts() == []


def test_leftovers_of_a_killed_up_are_cleaned_by_the_next(other_directory: Path) -> None:
    moment = (
        other_directory / "hosts/gpu1/console.log"
    )  # what it has just written when it is killed
    command = [sys.executable, "-m", "pyinfra_gpu_rehearsal", "--directory", str(other_directory)]
    victim = subprocess.Popen([*command, "up", "2"], stdout=subprocess.DEVNULL)
    try:
        until(lambda: moment.exists() or victim.poll() is not None, PATIENCE_S, every=0.001)
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


# -- the command line


def rehearsal(lab: Lab, *words: str) -> str:
    """Run a command of the command line in this process, and return what it printed."""
    printed = io.StringIO()
    with redirect_stdout(printed):
        words = ("--directory", str(lab.directory), *words)
        assert run_command(argparse.ArgumentParser(), words) == 0
    return printed.getvalue()


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
    snapshot = f"told-{secrets.token_hex(4)}"
    rehearsal(lab, "snapshot", "gpu1", snapshot)
    rehearsal(lab, "fresh", "gpu1")
    assert gpu1.run("ls /opt").stdout == ""
    rehearsal(lab, "restore", "gpu1", snapshot)
    assert gpu1.run("cat /opt/x").stdout == "x\n"


def test_the_command_line_shows_the_hosts_and_how_to_enter_them(lab: Lab) -> None:
    command = [sys.executable, "-m", "pyinfra_gpu_rehearsal", "--directory", str(lab.directory)]
    listed = subprocess.run([*command, "list"], capture_output=True, text=True, check=True).stdout
    head, one, two = listed.splitlines()
    assert head.split()[:3] == ["name", "address", "state"]
    assert one.split()[:3] == ["gpu1", lab.host("gpu1").address, "running"]
    assert two.endswith(f"ssh -F {lab.ssh_config} gpu2")
    wrong = subprocess.run(
        [*command, "reboot", "gpu7"], capture_output=True, text=True, check=False
    )
    assert (wrong.returncode, wrong.stdout) == (1, "")
    assert wrong.stderr == "there is no host 'gpu7': there are gpu1, gpu2\n"
