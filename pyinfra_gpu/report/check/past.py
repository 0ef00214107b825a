"""What earlier checks of an inventory said, kept on this machine; small, and never in the way."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from pyinfra_gpu.facts import document
from pyinfra_gpu.report.check.answer import Answer, Verdict

KEPT = 100
"""So many checks of an inventory are kept; older ones are dropped."""

_LONGEST_LINE = 4 << 20  # bytes; a host takes about forty


class Past(BaseModel):
    """One earlier check: when (UTC), its verdict, and that of each host it looked at."""

    model_config = ConfigDict(frozen=True, strict=True, extra="ignore")
    when: str
    verdict: Verdict
    hosts: dict[str, Verdict]


def file_for(inventory: str) -> Path:
    """Return the file that keeps this inventory's checks, below the user's state directory."""
    state = os.environ.get("XDG_STATE_HOME") or str(Path("~/.local/state").expanduser())
    path = Path(inventory)
    name = str(path.resolve()) if path.exists() else inventory
    digest = hashlib.sha256(name.encode()).hexdigest()[:10]
    return Path(state) / "pyinfra-gpu" / "checks" / f"{path.stem[:40]}-{digest}.jsonl"


def remember(answer: Answer, file: Path) -> None:
    """Add one check that looked at hosts to the file, and drop the oldest beyond `KEPT`.

    Raises OSError where the file cannot be written.
    """
    if not answer.hosts:
        return
    hosts = {host.name: host.verdict for host in answer.hosts}
    line = json.dumps({"when": answer.checked, "verdict": answer.verdict, "hosts": hosts})
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # two checks at once must not lose one another's line
        lines = file.read_text(encoding="utf-8").splitlines() if file.exists() else []
        temporary = file.with_suffix(".new")
        temporary.write_text("\n".join([*lines, line][-KEPT:]) + "\n", encoding="utf-8")
        temporary.replace(file)


def earlier(file: Path) -> list[Past]:
    """Return the checks that are kept, oldest first, without lines that are damaged."""
    try:
        lines = file.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return []
    checks = (document.read(Past, line, limit=_LONGEST_LINE) for line in lines)
    return [each for each in checks if isinstance(each, Past)]
