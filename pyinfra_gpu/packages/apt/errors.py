"""What apt says when it cannot go on, in one clause that tells key, network and server apart."""

from __future__ import annotations

import re
from collections.abc import Sequence

from pyinfra_gpu.packages.lines import last, shortened

_CAUSES = (
    (r"EXPKEYSIG|EXPSIG|[Ee]xpired", "its key or signature has expired"),
    (r"NO_PUBKEY|Missing key", "it is signed by another key than the pinned one"),
    (
        r"not signed|invalid signature|signatures? (were|was) invalid|BADSIG|SHA1 is not considered"
        r"|[Ss]ignature verification",
        "its signature by the pinned key cannot be verified",
    ),
    (r"Hash Sum mismatch|[Uu]nexpected size|hash", "what it sends has another hash than it lists"),
    (r"\b404\b|Not Found|File not found", "404: what it lists, or the repository, is not there"),
    (r"\b[45]\d\d\b +[A-Z]", "its server refuses to answer"),
    (
        r"[Cc]ould not (resolve|connect)|Temporary failure|timed out|[Cc]onnection (refused|failed)"
        r"|Unable to connect|No route|unreachable",
        "the host does not reach it",
    ),
    (r"No space left", "no disk space is left"),
    (r"Could not get lock|Unable to (acquire|lock)", "another apt is at work"),
)
_ERROR = re.compile(r"(?:E|Err|W|dpkg)[: ]")


def cause(lines: Sequence[str]) -> str:
    """Return why apt could not fetch something: a clause, with apt's own line behind it."""
    told = [line.strip() for line in lines if _ERROR.match(line.strip())] or list(lines)
    for pattern, meaning in _CAUSES:
        for line in told:
            if re.search(pattern, line):
                return f"{meaning} (apt: {shortened(_without_preface(line))})"
    return f"apt says: {last(told)}"


def _without_preface(line: str) -> str:
    """Leave away what apt says before the error itself: that old lists will be used."""
    return re.sub(r"^.*GPG error: (?=\S)", "", line)


def failure(lines: Sequence[str]) -> str:
    """Return why an installation failed: our guard's reason, the package, or apt's last word."""
    for pattern in (r"E: pyinfra-gpu: ", r"dpkg: error processing ", r"E: (?!Sub-process|Failure)"):
        for line in lines:
            if re.match(pattern, line.strip()):
                return shortened(line.strip())
    return last([line for line in lines if line.strip()])
