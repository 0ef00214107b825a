"""The commands of a run, numbered on the host; and a gate at which each of them can be held.

sshd on the host hands whatever it is asked to run, each file transfer included, to a program of
ours (on_host/gate.sh). So the product is the one that users have, nothing in it knows of this, and
a boundary is where it really is: after one request to the host has ended, before the next begins.
"""

from __future__ import annotations

import re
import time
from dataclasses import dataclass
from pathlib import Path

from running import ON_HOST

from pyinfra_gpu_rehearsal import LabHost
from tests.forked import Process

PLACE = "/var/lib/gate"
_PROGRAM, _SETTINGS = "/usr/local/lib/gate.sh", "/etc/ssh/sshd_config.d/10-gate.conf"
_POLL_S = 0.02
# In the names of files that pyinfra makes, a random word of each run's own.
_RANDOM_WORD = re.compile(r"pyinfra-[\w-]{8,}|\b[0-9a-f]{32,64}\b|\b\d{6,}\.\d+\b")
_SUDO = re.compile(r"^sudo -H -n (?:-u \S+ )?sh -c ")
_ONE_LINE = re.compile(r"""sh -c 'eval "\$\(printf %b "\$1"\)"' sh '([^']*)'""")
_QUOTES = re.compile(r"['\"]{2,}|^['\"]|['\"]$")


@dataclass(frozen=True)
class Command:
    """One request of a run to its host.

    + number: from 1, in the order in which they came
    + text: what sshd was asked to run
    + at: when, in seconds since the epoch
    """

    number: int
    text: str
    at: float

    @property
    def words(self) -> str:
        """Return its last line for a person to recognise it; the arguments of a program of ours."""
        return _QUOTES.sub("", _SUDO.sub("", self.text.splitlines()[-1])).strip()

    @property
    def likeness(self) -> str:
        """Return what two runs have in common that send the same command."""
        return _RANDOM_WORD.sub("*", self.text)


class Gate:
    """The gate of one host, which outlasts its reboots and is gone with its files."""

    def __init__(self, host: LabHost) -> None:
        self.host = host
        self._folder = host.upper / PLACE[1:]

    def install(self) -> None:
        """Let every command of new connections come through here; from 1 on, none is held."""
        self.host.put(ON_HOST / "gate.sh", _PROGRAM)
        self.host.put(ON_HOST / "gate.conf", _SETTINGS)
        self.host.run(f"chmod 755 {_PROGRAM}; systemctl reload ssh")
        self.renumber()

    def remove(self) -> None:
        """Leave the host as it was before."""
        self.host.run(f"rm -rf {PLACE} {_PROGRAM} {_SETTINGS}; systemctl reload ssh")

    def renumber(self, *, hold: int | None = None) -> None:
        """Begin with 1 again. Nothing may wait at the gate.

        + hold: the number from which on commands wait, None = none does
        """
        parts = f"{PLACE}/taken {PLACE}/commands {PLACE}/go"
        held = f"; echo {hold} >{PLACE}/hold" if hold is not None else ""
        self.host.run(f"rm -rf {PLACE}; mkdir -p {parts}{held}; chmod 777 {PLACE} {parts}")

    def open(self) -> None:
        """Hold nothing that comes from now on; what waits, waits on."""
        self.host.run(f"rm -f {PLACE}/hold")

    def decide(self, number: int, *, run: bool) -> None:
        """Let the command NUMBER, which waits, begin; or end it without a trace."""
        # Whole, or not there: what waits reads it at once.
        word, file = "run" if run else "end", f"{PLACE}/go/{number}"
        self.host.run(f"echo {word} >{PLACE}/decided && mv {PLACE}/decided {file}")

    def commands(self) -> list[Command]:
        """Return what came since the last time that they were numbered."""
        paths = [path for path in self._folder.glob("commands/*") if path.name.isdecimal()]
        return [self._read(path) for path in sorted(paths, key=lambda path: int(path.name))]

    def wait_for(self, number: int, process: Process, seconds: float) -> Command | None:
        """Return the command NUMBER as soon as it has come; None where the run ends before.

        Raises TimeoutError where it takes longer than SECONDS.
        """
        path = self._folder / "commands" / str(number)
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            ended = process.poll() is not None
            if path.exists():
                return self._read(path)
            if ended:
                return None
            time.sleep(_POLL_S)
        raise TimeoutError(f"command {number} did not come within {seconds:g} s")

    @staticmethod
    def _read(path: Path) -> Command:
        text = path.read_text(encoding="utf-8", errors="replace").rstrip("\n")
        return Command(int(path.name), _decoded(text), path.stat().st_mtime)


def _decoded(text: str) -> str:
    """Return a command as it was before `transport.one_line` made one line of it."""
    if not (coded := _ONE_LINE.fullmatch(text)):
        return text
    return re.sub(r"\\0([0-7]{3})", lambda found: chr(int(found[1], 8)), coded[1])
