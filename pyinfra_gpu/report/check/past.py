"""What earlier checks of an inventory said, kept on this machine."""

from __future__ import annotations

import hashlib
import os
from collections import deque
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from pyinfra_gpu.facts import document
from pyinfra_gpu.report.check.answer import Answer, Verdict

RECENT = 100
"""So many of the last checks of an inventory are read."""

_LONGEST_LINE = 4 << 20  # bytes; a host takes about forty


class Past(BaseModel):
    """One earlier check: when (UTC), its verdict, and that of each host it looked at."""

    model_config = ConfigDict(frozen=True, strict=True, extra="ignore")
    when: str
    verdict: Verdict
    hosts: dict[str, Verdict]


def file_for(inventory: str) -> Path:
    """Return the file that keeps this inventory's checks, below the user's state directory."""
    state = os.environ.get("XDG_STATE_HOME") or Path("~/.local/state").expanduser()
    path = Path(inventory)
    name = str(path.resolve()) if path.exists() else inventory
    digest = hashlib.sha256(name.encode()).hexdigest()[:10]
    return Path(state) / "pyinfra-gpu" / "checks" / f"{path.stem[:40]}-{digest}.jsonl"


def remember(answer: Answer, file: Path) -> None:
    """Add one check that looked at hosts to the file; OSError where that cannot be written."""
    if not answer.hosts:
        return
    hosts = {host.name: host.verdict for host in answer.hosts}
    kept = Past(when=answer.checked, verdict=answer.verdict, hosts=hosts)
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("ab", buffering=0) as lines:  # in one piece, whoever else checks just now
        lines.write(f"{kept.model_dump_json()}\n".encode())


def earlier(file: Path) -> list[Past]:
    """Return the last checks, oldest first, without lines that are damaged."""
    try:
        with file.open(encoding="utf-8", errors="replace") as kept:
            lines = deque(kept, maxlen=RECENT)
    except OSError:
        return []
    checks = (document.read(Past, line, limit=_LONGEST_LINE) for line in lines)
    return [each for each in checks if isinstance(each, Past)]
