"""pyinfra's own command line over 25 hosts: with nothing to do it fits one screen."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests import forked

SCREEN = 24
INVENTORY = """
import sys
sys.path[:0] = [{folder!r}]
from fake_host import FakeHost, FakeRun
_hosts = [FakeHost(name=f"gpu{{number}}") for number in range(1, {size} + 1)]
for host in _hosts[:{lacking}]:
    host.reported = {{"packages.installed": {{"git": "1:2.39.5"}}}}
gpu = [(f"@fake/{{host.name}}", FakeRun._data(host)) for host in _hosts]
gpu += {more}
"""
DEAD = [("dead1", {"ssh_hostname": "127.0.0.1", "ssh_port": 1, "stack": "cpu-torch2.13"})]


def pyinfra(
    tmp_path: Path, *options: str, size: int = 25, lacking: int = 0, more: object = ()
) -> tuple[int, list[str]]:
    """Run the deploy as a person does, without a terminal; return its code and its lines."""
    fleet = tmp_path / "fleet.py"
    folder = str(Path(__file__).parent)
    fleet.write_text(
        INVENTORY.format(folder=folder, size=size, lacking=lacking, more=list(more))  # type: ignore[call-overload]
    )
    known = {**os.environ, "PYINFRA_PROGRESS": "off", "HOME": str(tmp_path)}
    command = ["pyinfra", *options, str(fleet), "deploy.py"]
    done = forked.run(command, known, 300, together=True)
    return done.returncode, done.stdout.splitlines()


@pytest.mark.parametrize("option", ["-y", "--dry"])
def test_25_hosts_with_nothing_to_do_fit_one_screen(option: str, tmp_path: Path) -> None:
    code, lines = pyinfra(tmp_path, option)
    assert code == 0, lines
    assert len(lines) <= SCREEN, lines
    assert max(map(len, lines)) <= 80
    assert "25 hosts as declared: @fake/gpu1 to @fake/gpu25" in lines


def test_with_v_pyinfra_says_of_each_operation_and_host_what_it_says(tmp_path: Path) -> None:
    _, lines = pyinfra(tmp_path, "-y", "-v", size=2)
    assert sum("No changes" in line for line in lines) > 40
    assert any("torch 2.13.0+cpu" in line for line in lines)


def test_only_operations_that_change_something_are_lines(tmp_path: Path) -> None:
    """The fake hosts still lack the packages afterwards, so this operation fails on both."""
    code, lines = pyinfra(tmp_path, "-y", size=6, lacking=2)
    assert code == 1
    started = [line for line in lines if line.startswith("--> Starting operation")]
    assert [line.strip() for line in started] == [
        "--> Starting operation: Base | Install distribution packages"
    ]
    assert not any("@fake/gpu3]" in line for line in lines)
    assert "2 hosts FAILED: @fake/gpu1, @fake/gpu2" in lines
    assert "4 hosts as declared: @fake/gpu3 to @fake/gpu6" in lines


def test_a_dry_run_without_a_terminal_tells_of_a_host_that_is_not_there(tmp_path: Path) -> None:
    code, lines = pyinfra(tmp_path, "--dry", size=2, more=DEAD)
    text = "\n".join(lines)
    assert code == 1
    assert "EOFError" not in text
    assert "dead1  UNREACHABLE" in text
    assert "2 hosts as declared: @fake/gpu1, @fake/gpu2" in text
