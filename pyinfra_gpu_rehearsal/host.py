"""One throwaway host: its power button, its faults and its GPUs."""

from __future__ import annotations

import secrets
import socket
import time
from pathlib import Path

from pyinfra_gpu_rehearsal import faults, network
from pyinfra_gpu_rehearsal.boot import button_command
from pyinfra_gpu_rehearsal.commands import last_line
from pyinfra_gpu_rehearsal.errors import LabError
from pyinfra_gpu_rehearsal.host_processes import HostProcesses
from pyinfra_gpu_rehearsal.nvidia.gpu import GpuControls


class LabHost(HostProcesses):
    """A throwaway host. Made by Lab; its files below `upper` are all that it ever wrote."""

    @property
    def gpu(self) -> GpuControls:
        """The controls of its simulated GPUs. Raises LabError where it has none."""
        if self.machine is None:
            raise LabError(f"{self.name} has no simulated GPU")
        return GpuControls(self, self.machine)

    # -- power

    def connect(self) -> None:
        """Make the host's network, which stays while the host is switched off and on."""
        purpose = f"making the network of {self.name}"
        self.network_holder.start(network.HOLDER, log=self.folder / "console.log", purpose=purpose)
        own = self.network_holder.only_process(comm="sleep", purpose=purpose)
        holder = self.bridge.only_process(comm="sleep", purpose=purpose)
        network.set_up_host(self.subnet, self.name, self.last, holder=holder, host=own)

    def power_on(self) -> None:
        """Switch the host on; nothing happens where it is on. Does not wait: wait_ready()."""
        if self.is_on():
            return
        self.power.remove()
        holder = self.network_holder.only_process(
            comm="sleep", purpose=f"finding the network of {self.name}"
        )
        command = button_command(self.folder, self.power.path, self.name)
        self.power.sub("button").start(
            ["nsenter", f"--net=/proc/{holder}/ns/net", *command],
            log=self.folder / "console.log",
            purpose=f"switching {self.name} on",
        )

    def power_off(self) -> None:
        """Cut the host's power: every process ends at once, nothing is told or written."""
        self.power.kill()

    def reboot(self) -> None:
        """Let the host reboot in good order and wait until it is ready again."""
        before = self.pid()
        self.run("systemctl --no-block reboot")
        deadline = time.monotonic() + 120
        while self.pid() in (before, None):
            if time.monotonic() > deadline or not self.is_on():
                raise LabError(f"{self.name} did not come back from its reboot")
            time.sleep(0.02)
        self.wait_ready()

    def wipe(self) -> None:
        """Take away every file the host ever wrote; it must be off.

        They are moved aside and removed in the background: a gigabyte takes seconds to remove.
        """
        trash = self.folder / "trash"
        trash.mkdir(parents=True, exist_ok=True)
        for folder in (self.upper, self.folder / "work"):
            if folder.exists():
                folder.rename(trash / secrets.token_hex(4))
            folder.mkdir()
            folder.chmod(0o755)
        log = self.folder / "console.log"
        command: list[str | Path] = ["sh", "-c", 'nice rm -rf -- "$1"/*', "sh", trash]
        self.group.sub("trash").start(command, log=log, purpose=f"emptying {self.name}")

    def wait_ready(self, timeout: float = 60) -> None:
        """Wait until the host has booted without a failed unit and answers SSH.

        Raises LabError after TIMEOUT seconds, or at once where the host does not boot.
        """
        deadline = time.monotonic() + timeout
        state = "off"
        while time.monotonic() < deadline:
            if not self.is_on():
                said = last_line((self.folder / "console.log").read_text(errors="replace"))
                raise LabError(f"{self.name} did not boot: {said}")
            state = self._system_state(deadline - time.monotonic())
            if state == "running" and self._answers_ssh():
                return
            if state == "degraded":
                failed = self.run("systemctl --failed --plain --no-legend", check=False).stdout
                if self._only_gpu_units(failed) and self._answers_ssh():
                    return
                raise LabError(f"{self.name} booted with a failed unit: {failed.strip()}")
            time.sleep(0.03)
        raise LabError(f"{self.name} was not ready after {timeout:g} s (its state: {state})")

    def _system_state(self, timeout: float) -> str:
        if self.pid() is None:
            return "booting"
        try:
            said = self.run("systemctl is-system-running --wait", check=False, timeout=timeout)
        except LabError:
            return "booting"
        return said.stdout.strip() or "booting"

    def _only_gpu_units(self, failed: str) -> bool:
        """Tell whether only the driver's own units FAILED, as they do while it is not loaded."""
        return self.machine is not None and all(
            line.startswith("nvidia-") for line in failed.splitlines()
        )

    def _answers_ssh(self) -> bool:
        try:
            with socket.create_connection((self.address, self.port), timeout=1) as connection:
                return connection.recv(4) == b"SSH-"
        except OSError:
            return False

    # -- faults

    def network(self, what: str, ms: int = 0) -> None:
        """Break or restore the host's network.

        + what: "cut" (silence: no answer, no refusal), "restore", or "delay".
        + ms: with "delay", the milliseconds each packet takes in each direction.
        """
        faults.change_network(self, what, ms)

    def fill_disk(self) -> None:
        """Put a full file system under the host's /opt; what is there can still be read."""
        faults.fill_disk(self)

    def free_disk(self) -> None:
        """Take the full file system away again."""
        faults.free_disk(self)
