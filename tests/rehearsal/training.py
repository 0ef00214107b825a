"""The launcher of one throwaway host, called as its owner does."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from running import ON_HOST

from pyinfra_gpu.spec.presets import resolved
from pyinfra_gpu_rehearsal import Lab, LabHost

PREFIX = "/opt/pyinfra-gpu"
CHECKOUT = f"{PREFIX}/training/training"
RUNS = f"{PREFIX}/state/runs"
TOLD = f"{PREFIX}/state/told"
PATIENCE_S = 120
GRACE_S, RETRY_S = 2, 8
PAUSE_S = 1.0  # a call takes a third of a second of a processor
TICK: Mapping[str, Any] = {
    "file": "tick.py",
    "launch": "python",
    "arguments": {"steps": 600, "seconds": 0.1},
}


@dataclass
class Training:
    """A launcher that is called: (words, exit code) -> what it said."""

    lab: Lab
    host: LabHost

    def __call__(self, *words: str, code: int | None = 0) -> str:
        """Call it over SSH and return what it said."""
        command = ["ssh", "-F", str(self.lab.ssh_config), self.host.name, f"{PREFIX}/bin/train"]
        done = subprocess.run(
            [*command, *words],
            capture_output=True,
            text=True,
            stdin=subprocess.DEVNULL,
            timeout=PATIENCE_S,
            check=False,
        )
        assert code is None or done.returncode == code, (words, done.stdout, done.stderr)
        return done.stdout + done.stderr

    def start(self, *words: str) -> str:
        """Start a run and return its name."""
        said = self("start", "--unproven", *words)
        return next(line for line in said.splitlines() if not line.startswith("warning")).split()[0]

    def runs(self) -> dict[str, dict[str, Any]]:
        """Return the runs by their names."""
        return {each["run"]: each for each in json.loads(self("list", "--json"))["runs"]}

    def until(self, what: Callable[[dict[str, dict[str, Any]]], object]) -> dict[str, Any]:
        """Wait until something is so of the runs."""
        deadline = time.monotonic() + PATIENCE_S
        while not what(runs := self.runs()):
            assert time.monotonic() < deadline, runs
            time.sleep(PAUSE_S)
        return runs

    def processes(self) -> list[str]:
        """What the owner's user manager has in its slice of programs, and every other tick."""
        group = "/sys/fs/cgroup/user.slice/user-1000.slice/user@1000.service/app.slice"
        said = self.host.run(
            f"cat {group}/*train*/cgroup.procs 2>/dev/null; pgrep -f '[t]ick.py|[t]rain.py'",
            check=False,
        )
        return said.stdout.split()

    def locks(self) -> list[str]:
        """Devices and places in the queue that are taken."""
        words = "grep -o '@pyinfra-gpu/.*' /proc/net/unix"
        return self.host.run(words, check=False).stdout.split()

    def left(self) -> list[str]:
        """Return what is left of all runs, when it had time to end."""
        deadline = time.monotonic() + PATIENCE_S
        while self.processes() and time.monotonic() < deadline:
            time.sleep(0.5)
        return [*self.processes(), *self.locks()]

    def end_all(self) -> None:
        for name, run in self.runs().items():
            if run["state"] != "ended":
                self("stop", name, code=None)
        assert self.left() == []

    def kill(self, pattern: str) -> None:
        self.host.run(f"pkill -KILL -o -f '{pattern}'")


def declare(lab: Lab, host: LabHost, presets: Mapping[str, Any]) -> Training:
    """Have a deployed host know these presets beside its own, and tell a file how runs go."""
    host.put(ON_HOST / "tick.py", f"{CHECKOUT}/tick.py")
    path, unit = f"{PREFIX}/train/site.json", f"{PREFIX}/train/pyinfra-gpu-train@.service"
    site = json.loads(host.run(f"cat {path}").stdout)
    known = {**site["presets"], **presets}
    site["presets"] = {name: resolved(known, name) for name in known}
    site |= {"stop_grace_s": GRACE_S, "retry_wait_s": RETRY_S}
    site["notify"] = ["/bin/sh", "-c", f"cat >> {TOLD}"]
    host.run(f"cat >{path}", stdin=json.dumps(site))
    reload = "systemctl --machine=ubuntu@ --user daemon-reload"
    times = (
        f"s/^TimeoutStopSec=.*/TimeoutStopSec={GRACE_S}/; s/^RestartSec=.*/RestartSec={RETRY_S}/"
    )
    host.run(f"sed -i '{times}' {unit}; {reload} || true")
    return Training(lab, host)
