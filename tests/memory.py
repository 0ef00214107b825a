"""A folder in memory for the files of the tests, hosts included: they make and remove thousands."""

from __future__ import annotations

import subprocess
from pathlib import Path

GIB = 16
"""Memory that must be free for it; two labs take about half of that."""


def mount(place: Path) -> bool:
    """Put memory in the place of a folder; return False where that cannot be done.

    It says that it is as large as a disk with room for a driver, a toolkit and torch.
    """
    known = dict(line.split(":") for line in Path("/proc/meminfo").read_text().splitlines())
    if int(known["MemAvailable"].split()[0]) >> 20 < GIB:
        return False
    words = ["mount", "-t", "tmpfs", "-o", "size=64g,mode=0700", "tmpfs", str(place)]
    return subprocess.run(words, capture_output=True, check=False).returncode == 0
