"""The commands of a run, numbered on the host; and a gate at which each of them can be held.

sshd on the host hands whatever it is asked to run, each file transfer included, to a program of
ours (on_host/gate.sh). So the product is the one that users have, nothing in it knows of this, and
a boundary is where it really is: after one request to the host has ended, before the next begins.
"""

from __future__ import annotations

from running import ON_HOST, PATIENCE_S, until

from pyinfra_gpu_rehearsal import LabHost
from tests.forked import Process

PLACE = "/var/lib/gate"
_PROGRAM, _SETTINGS = "/usr/local/lib/gate.sh", "/etc/ssh/sshd_config.d/10-gate.conf"


class Gate:
    """The gate of one host, which outlasts its reboots and is gone with its files."""

    def __init__(self, host: LabHost) -> None:
        self.host = host

    def install(self, *, hold: int) -> None:
        """Let each command of new connections come through here, numbered from 1.

        + hold: the number from which on commands wait
        """
        self.host.put(ON_HOST / "gate.sh", _PROGRAM)
        self.host.put(ON_HOST / "gate.conf", _SETTINGS)
        parts = f"{PLACE}/taken {PLACE}/commands {PLACE}/go"
        self.host.run(
            f"chmod 755 {_PROGRAM}; systemctl reload ssh; mkdir -p {parts}"
            f"; echo {hold} >{PLACE}/hold; chmod 777 {PLACE} {parts}"
        )

    def open(self) -> None:
        """Hold nothing that comes from now on; what waits, waits on."""
        self.host.run(f"rm -f {PLACE}/hold")

    def decide(self, number: int, *, run: bool) -> None:
        """Let the command NUMBER, which waits, begin; or end it without a trace."""
        # Whole, or not there: what waits reads it at once.
        word, file = "run" if run else "end", f"{PLACE}/go/{number}"
        self.host.run(f"echo {word} >{PLACE}/decided && mv {PLACE}/decided {file}")

    def wait_for(self, number: int, process: Process) -> str | None:
        """Return the command NUMBER as soon as it has come; None where the run ends before."""
        path = self.host.upper / PLACE[1:] / "commands" / str(number)
        until(lambda: path.exists() or process.poll() is not None, PATIENCE_S, every=0.02)
        return path.read_text(errors="replace") if path.exists() else None
