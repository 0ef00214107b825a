"""Control groups: where a lab's processes live, how they start and how they end.

Every process of a lab lives below one control group named after the lab's id. That is the whole
record needed for cleaning up: the namespaces, mounts and network interfaces of a lab are held by
these processes alone and vanish with them, however the lab was left.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pyinfra_gpu_rehearsal.commands import last_line, run, until
from pyinfra_gpu_rehearsal.errors import LabError

ENTER_GROUP = Path(__file__).parent / "on_host/enter_group.sh"


def process_comm(pid: int) -> str | None:
    """Return the command name of process PID, None where there is no such process."""
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return None


@dataclass(frozen=True, slots=True)
class Group:
    """One control group, made when first used."""

    path: Path

    def sub(self, name: str) -> Group:
        """Return the group NAME below this one."""
        return Group(self.path / name)

    def make(self) -> None:
        """Make the group and those above it."""
        try:
            self.path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise LabError(
                f"cannot make the control group {self.path}: {error.strerror}"
            ) from error

    def processes(self) -> list[int]:
        """Return the ids of the processes in this very group; dead ones do not count."""
        try:
            text = (self.path / "cgroup.procs").read_text()
        except OSError:
            return []
        return [int(word) for word in text.split() if word != "0"]

    def populated(self) -> bool:
        """Tell whether a process lives in this group or below it."""
        try:
            return "populated 1" in (self.path / "cgroup.events").read_text()
        except OSError:
            return False

    def kill(self, *, timeout: float = 10) -> None:
        """End every process in this group and below it at once, and wait until they are gone."""
        if not self.path.exists():
            return

        def ended() -> bool:
            if self.populated():
                self._kill_once()
            return not self.populated()

        if not until(ended, timeout):
            raise LabError(f"processes in {self.path} did not end within {timeout:g} s")

    def _kill_once(self) -> None:
        at_once = self.path / "cgroup.kill"
        if at_once.exists():
            at_once.write_text("1")
            return
        # Kernels before 5.14 have no cgroup.kill: one by one, again as long as new ones appear.
        for folder, _, _ in os.walk(self.path):
            for pid in Group(Path(folder)).processes():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)

    def remove(self) -> None:
        """End what lives in the group, then remove it and all groups below it.

        Raises LabError where they cannot be removed.
        """
        if not self.path.exists():
            return
        command = ["find", str(self.path), "-depth", "-type", "d", "-exec", "rmdir"]
        for _ in range(100):
            # Each time: what `start` left behind when it was killed may enter only now.
            self.kill()
            done = run([*command, "{}", ";"], purpose="", check=False)
            if not self.path.exists():
                return
            time.sleep(0.02)  # a killed process is still being taken down by the kernel
        raise LabError(f"cannot remove the control group {self.path}: {last_line(done.stderr)}")

    def start(self, command: Sequence[str | Path], *, log: Path, purpose: str) -> None:
        """Start COMMAND in this group, detached from the caller, its output appended to LOG."""
        self.make()
        words = ["sh", ENTER_GROUP, self.path, log, *command]
        run(words, purpose=purpose)

    def only_process(self, *, comm: str, purpose: str, timeout: float = 5) -> int:
        """Return the group's one process as soon as it runs COMM.

        Raises LabError where it does not within TIMEOUT seconds.
        """

        def only() -> int | None:
            found = self.processes()
            return found[0] if len(found) == 1 and process_comm(found[0]) == comm else None

        if (found := until(only, timeout, every=0.002)) is None:
            raise LabError(f"{purpose} failed: it did not start within {timeout:g} s")
        return found


def wait_until_ready(group: Group, log: Path, *, purpose: str, timeout: float = 10) -> None:
    """Wait until the program in GROUP has written "ready" to LOG, its output alone.

    Raises LabError, with LOG's last line, where it ends before or takes longer than TIMEOUT s.
    """

    def said() -> str:
        return log.read_text(errors="replace")

    until(lambda: "ready" in said().splitlines() or not group.populated(), timeout)
    if "ready" not in said().splitlines():
        raise LabError(f"{purpose} failed: {last_line(said())}")
