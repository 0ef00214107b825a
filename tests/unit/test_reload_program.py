"""The program that exchanges the driver's module puts back what it stopped, whatever ends it."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

import pytest

from pyinfra_gpu import on_host
from pyinfra_gpu.stages.driver.findings import SERVICES

MODULES = ("nvidia", "nvidia_modeset", "nvidia_drm", "nvidia_uvm")
RUNNING = ("nvidia-persistenced", "nvidia-dcgm", "nvidia-fabricmanager")


@dataclass
class Desk:
    """A host whose programs note what they are asked; modprobe does what $base/behave says."""

    base: Path

    def __post_init__(self) -> None:
        self.tools.mkdir()
        for name in ("rm", "mkdir", "sleep", "cat", "sed"):
            (self.tools / name).symlink_to(str(shutil.which(name)))
        for module in MODULES:
            (self.base / "sys/module" / module).mkdir(parents=True)
        (self.tools / "sh").symlink_to("/bin/sh")
        running = "|".join(RUNNING)
        self.tool(
            "systemctl",
            f"case $1 in is-active) case $3 in {running}) exit 0 ;; esac; exit 3 ;; esac\n"
            f'echo "systemctl $*" >>{self.base}/log',
        )
        self.behave("")
        self.tool(
            "modprobe",
            f'echo "modprobe $*" >>{self.base}/log\n. {self.base}/behave\n'
            f'case $1 in -r) rm -rf "{self.base}/sys/module/$2" ;;\n'
            f'*) mkdir -p "{self.base}/sys/module/$1" ;; esac',
        )

    @property
    def tools(self) -> Path:
        return self.base / "tools"

    def tool(self, name: str, text: str) -> None:
        (self.tools / name).write_text(f"#!/bin/sh\n{text}\n")
        (self.tools / name).chmod(0o755)

    def behave(self, text: str) -> None:
        (self.base / "behave").write_text(f"{text}\n")

    def start(self) -> subprocess.Popen[str]:
        command = on_host.program("driver/reload_module.sh", *SERVICES.values())
        return subprocess.Popen(
            ["/bin/sh", "-c", f"exec {command}"],
            env={"PATH": f"{self.tools}:{os.defpath}", "PG_ROOT": str(self.base)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # `make test &`
        )

    def log(self) -> list[str]:
        file = self.base / "log"
        return file.read_text().splitlines() if file.exists() else []

    def reached(self, row: str) -> None:
        limit = time.monotonic() + 20
        while row not in self.log():
            assert time.monotonic() < limit, self.log()
            time.sleep(0.02)

    def is_as_before(self) -> None:
        """Every service that ran was started again, after the modules were there."""
        assert self.log()[-1] == f"systemctl start {' '.join(RUNNING)}"
        assert {path.name for path in (self.base / "sys/module").iterdir()} == set(MODULES)


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path)


def test_the_module_is_exchanged_and_everything_runs_again(desk: Desk) -> None:
    assert desk.start().wait(20) == 0
    assert desk.log()[0] == f"systemctl stop {' '.join(RUNNING)}"
    assert "modprobe -r nvidia" in desk.log()
    desk.is_as_before()


@pytest.mark.parametrize("module", ["nvidia_uvm", "nvidia"])
def test_a_module_that_does_not_go_is_an_error_and_everything_runs_again(
    desk: Desk, module: str
) -> None:
    desk.behave(f'[ "$*" != "-r {module}" ] || exit 1')
    assert desk.start().wait(20) == 1
    desk.is_as_before()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_who_ends_it_ends_no_service(desk: Desk, number: signal.Signals) -> None:
    until = f"until [ -e {desk.base}/told ]; do sleep 0.1; done"
    desk.behave(f'[ "$*" != "-r nvidia" ] || {until}')
    process = desk.start()
    desk.reached("modprobe -r nvidia")
    process.send_signal(number)
    (desk.base / "told").touch()
    assert process.wait(20) == 1
    desk.is_as_before()


def test_a_lost_connection_ends_no_service(desk: Desk) -> None:
    """Nobody reads any more what it prints: who writes then is ended by SIGPIPE."""
    desk.behave('[ "$*" != "-r nvidia_drm" ] || { sleep 1; echo "modprobe: a word" >&2; exit 1; }')
    process = desk.start()
    desk.reached("modprobe -r nvidia_drm")
    assert process.stdout
    process.stdout.close()
    assert process.wait(20) == 1
    desk.is_as_before()
