"""How much memory the build takes: of its own control group, without what only caches files."""

from __future__ import annotations

import re
from pathlib import Path

_GROUPS = Path("/sys/fs/cgroup")
_OWN = Path("/proc/self/cgroup")


def used_mib(groups: Path = _GROUPS, own: Path = _OWN) -> int | None:
    """Return the MiB in use by all processes of this one's group; None where it cannot be told.

    + groups: where the kernel shows control groups; own: which of them this process is in
    """
    try:
        path = re.search(r"^0::/(.*)$", own.read_text(encoding="ascii"), re.MULTILINE)
        stat = (groups / (path[1] if path else "") / "memory.stat").read_text(encoding="ascii")
    except (OSError, ValueError):
        return None
    found = re.search(r"^anon (\d+)$", stat, re.MULTILINE)
    return int(found[1]) >> 20 if found else None
