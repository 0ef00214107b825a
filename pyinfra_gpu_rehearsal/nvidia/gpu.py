"""The controls of a host's simulated GPUs: what a test does to the machine, not through it."""

from __future__ import annotations

import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from pyinfra_gpu_rehearsal.errors import LabError
from pyinfra_gpu_rehearsal.nvidia.hardware import MOK_LIST, SECURE_BOOT, write_secure_boot
from pyinfra_gpu_rehearsal.nvidia.kernels import newer_release
from pyinfra_gpu_rehearsal.nvidia.machines import Machine

if TYPE_CHECKING:
    from pyinfra_gpu_rehearsal.host import LabHost

FAILS = "/etc/rehearsal/dkms-fails"


class GpuControls:
    """The simulated GPUs of HOST."""

    def __init__(self, host: LabHost, machine: Machine) -> None:
        self.host = host
        self.machine = machine

    def loaded(self) -> str | None:
        """Return the version of the loaded driver, None where none is loaded."""
        said = self.host.run("cat /sys/module/nvidia/version", check=False).stdout.strip()
        return said or None

    def nouveau(self) -> bool:
        """Tell whether the free driver has the cards."""
        return self.host.run("test -d /sys/module/nouveau", check=False).returncode == 0

    @contextmanager
    def busy(self, index: int = 0) -> Iterator[str]:
        """Let a process of the host's user hold card INDEX, and yield the name of its unit.

        It is ended by its unit. Raises LabError where the card has no driver.
        """
        device = f"/dev/nvidia{index}"
        if self.host.run(f"test -e {device}", check=False).returncode:
            raise LabError(f"{self.host.name} has no {device}: load the driver first")
        unit = f"rehearsal-busy-{secrets.token_hex(4)}.service"
        # Returns when `sleep` itself runs, which finds the card open as its standard input.
        self.host.run(
            f"systemd-run --quiet --collect --unit={unit} --uid=ubuntu --service-type=exec"
            f" --property=StandardInput=file:{device} sleep infinity"
        )
        try:
            yield unit
        finally:
            if self.host.is_on():
                self.host.run(f"systemctl stop {unit}", check=False)

    def secure_boot(self, on: bool, enrolled: bool = False) -> None:
        """Set whether Secure Boot is on and the machine's own key enrolled, now and from now on."""
        firmware = self.host.folder / "hardware/firmware"
        write_secure_boot(firmware, on=on, enrolled=enrolled)
        for name in (SECURE_BOOT, MOK_LIST):
            path = firmware / name
            variable = f"/sys/firmware/{name}"
            command = f"rm -f {variable}"
            if path.exists():
                octal = "".join(f"\\{byte:03o}" for byte in path.read_bytes())
                command = f"printf '{octal}' >{variable}"
            if self.host.is_on():
                self.host.run(command)

    def break_dkms(self, on: bool = True) -> None:
        """Let every build of the driver's modules fail, or work again."""
        command = f"mkdir -p /etc/rehearsal; touch {FAILS}" if on else f"rm -f {FAILS}"
        self.host.run(command)

    def kernel_update(self) -> tuple[str, str]:
        """Return the packages of a newer kernel: its image and its headers."""
        release = newer_release(self.host.run("uname -r").stdout.strip())
        return f"linux-image-{release}", f"linux-headers-{release}"

    def remove_card(self, number: int) -> None:
        """Let the card NUMBER (from 0) fall off the bus for good.

        Raises LabError where there is no such card.
        """
        addresses = self.machine.addresses()
        if not 0 <= number < len(addresses):
            raise LabError(f"{self.host.name} has cards 0 to {len(addresses) - 1}, not {number}")
        address = addresses[number]
        shutil.rmtree(self.host.folder / "hardware/pci" / address, ignore_errors=True)
        if self.host.is_on():
            self.host.run(f"rm -rf /sys/bus/pci/devices/{address}")
