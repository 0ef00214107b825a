"""Labs come and go: they keep to themselves, and leave nothing behind."""

from __future__ import annotations

import io
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import redirect_stdout, suppress
from pathlib import Path

import pytest
from reaching import ssh
from running import PATIENCE_S, quietly, until

from pyinfra_gpu.cli import main
from pyinfra_gpu_rehearsal import Lab, LabError, LabHost, inventory
from pyinfra_gpu_rehearsal.control_group import lab_group, labs
from pyinfra_gpu_rehearsal.lab import LabRecord
from pyinfra_gpu_rehearsal.network import Subnet, link_exists

pytestmark = pytest.mark.rehearsal


@pytest.fixture
def other(tmp_path: Path, training_folder: Path) -> Iterator[Lab]:
    """Return a second lab, which is removed whatever the test did."""
    lab = Lab(tmp_path / ".rehearsal", training=training_folder)
    yield lab
    lab.down(say=quietly)


def identity(process: Path) -> str:
    return f"{process.name} {(process / 'stat').read_text().rsplit(')', 1)[1].split()[19]}"


class Traces:
    """What there is of a lab; it is known by what it was when it ran."""

    def __init__(self, lab: Lab) -> None:
        record = LabRecord.load(lab.directory)
        assert record is not None
        self.lab_id, self.directory = record.lab_id, lab.directory
        self.group = lab_group(record.lab_id).path
        self.processes = set()
        for path in self.group.rglob("cgroup.procs"):
            for number in path.read_text().split():
                with suppress(OSError):
                    self.processes.add(identity(Path("/proc", number)))

    def left(self) -> list[str]:
        """Return what is left; mounts in any namespace included."""
        left: list[str] = []
        for process in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                if (process / "stat").read_text().rsplit(")", 1)[1].split()[0] == "Z":
                    continue
                left += [f"process {process.name}"] if identity(process) in self.processes else []
                mounted = str(self.directory) in (process / "mountinfo").read_text()
                left += [f"mount in process {process.name}"] if mounted else []
        link = Subnet(lab_id=self.lab_id, number=0).link
        left += [link] if link_exists(link) else []
        left += [str(path) for path in (self.group, self.directory) if path.exists()]
        return [*left, *(["on the list"] if self.lab_id in labs() else [])]


def test_a_second_up_changes_nothing_and_the_inventory_names_the_hosts(
    lab: Lab, tmp_path: Path
) -> None:
    before = [host.boot_id() for host in lab.hosts()]
    said: list[str] = []
    lab.up(2, say=said.append)
    assert ([host.boot_id() for host in lab.hosts()], said) == (before, [])
    hosts = dict(inventory(lab.directory))
    assert list(hosts) == ["gpu1", "gpu2"]
    assert hosts["gpu2"]["ssh_hostname"] == lab.host("gpu2").address
    assert Path(str(hosts["gpu2"]["ssh_key"])).stat().st_mode & 0o077 == 0
    with pytest.raises(LabError, match=r"^no throwaway hosts are up: make them with"):
        inventory(tmp_path)
    with pytest.raises(LabError, match=r"^there is no host 'gpu9': there are gpu1, gpu2$"):
        lab.host("gpu9")


def test_a_lab_beside_another_keeps_to_itself_and_down_leaves_nothing_of_it(
    lab: Lab, other: Lab
) -> None:
    (host,) = other.up(1, say=quietly)
    assert host.address != lab.host("gpu1").address
    assert ssh(other, "gpu1", "hostname").stdout == "gpu1\n"
    host.run("touch /opt/other")
    host.network("cut")
    host.fill_disk()
    traces = Traces(other)
    assert len(traces.processes) > 5
    assert traces.left() != []
    other.down(say=quietly)
    assert (traces.left(), other.hosts()) == ([], [])
    assert lab.host("gpu1").run("ls /opt/other", check=False).returncode == 2
    assert ssh(lab, "gpu1", "hostname").stdout == "gpu1\n"


def test_leftovers_of_a_killed_up_are_cleaned_by_the_next(other: Lab) -> None:
    moment = other.directory / "hosts/gpu1/console.log"  # what it has just written when killed
    program = Path(sys.executable).with_name("pyinfra-gpu")
    words = [program, "rehearsal", "--directory", other.directory, "up", "1"]
    victim = subprocess.Popen(words, stdout=subprocess.DEVNULL)
    try:
        until(lambda: moment.exists() or victim.poll() is not None, PATIENCE_S, every=0.001)
    finally:
        victim.send_signal(signal.SIGKILL)
        victim.wait()
    first = Traces(other)
    (host,) = other.up(1, say=quietly)
    assert host.run("systemctl is-system-running").stdout == "running\n"
    assert Traces(other).lab_id == first.lab_id
    other.down(say=quietly)
    assert first.left() == []


def test_a_lab_whose_folder_was_removed_is_cleaned_by_the_next_up(
    lab: Lab, other: Lab, tmp_path: Path
) -> None:
    other.up(1, say=quietly)
    traces = Traces(other)
    other.directory.rename(tmp_path / "moved away")
    lab.up(2, say=quietly)
    assert traces.left() == []


# -- the command line


def rehearsal(lab: Lab, *words: str, code: int = 0) -> str:
    """Run a command of the command line in this process, and return what it printed."""
    printed = io.StringIO()
    with redirect_stdout(printed):
        assert main(["rehearsal", "--directory", str(lab.directory), *words]) == code
    return printed.getvalue()


def test_each_command_of_the_command_line_does_what_it_says(
    lab: Lab, gpu1: LabHost, capsys: pytest.CaptureFixture[str]
) -> None:
    gpu1.run("echo x > /opt/x")
    rehearsal(lab, "power-off", "gpu1")
    assert not gpu1.is_on()
    one, two = rehearsal(lab, "list").splitlines()
    assert one.split()[:3] == ["gpu1", gpu1.address, "off"]
    assert two.split()[2] == "running"
    assert two.endswith(f"no GPU: ssh -F {lab.ssh_config} gpu2")
    rehearsal(lab, "up", "1")
    assert gpu1.run("cat /opt/x").stdout == "x\n"
    rehearsal(lab, "fresh", "gpu1")
    assert gpu1.run("ls /opt").stdout == ""
    capsys.readouterr()
    assert rehearsal(lab, "fresh", "gpu7", code=1) == ""
    assert capsys.readouterr().err == "Error: there is no host 'gpu7': there are gpu1, gpu2\n"
