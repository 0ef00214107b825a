"""The controls of a host's simulated GPUs: what a test does to the machine, not through it."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyinfra_gpu_rehearsal.host import LabHost


class GpuControls:
    """The simulated GPUs of HOST."""

    def __init__(self, host: LabHost) -> None:
        self.host = host

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
        unit = f"rehearsal-busy-{secrets.token_hex(4)}.service"
        # Returns when `sleep` itself runs, which finds the card open as its standard input.
        self.host.run(
            f"test -e /dev/nvidia{index} &&"
            f" systemd-run --quiet --collect --unit={unit} --uid=ubuntu --service-type=exec"
            f" --property=StandardInput=file:/dev/nvidia{index} sleep infinity"
        )
        try:
            yield unit
        finally:
            if self.host.is_on():
                self.host.run(f"systemctl stop {unit}", check=False)

    def break_dkms(self, on: bool = True) -> None:
        """Let every build of the driver's modules fail, or work again."""
        fails = "/etc/rehearsal/dkms-fails"
        self.host.run(f"mkdir -p /etc/rehearsal; touch {fails}" if on else f"rm -f {fails}")
