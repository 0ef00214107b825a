"""Why a command of ours failed on a host: the line that says it and what to do, in one sentence."""

from __future__ import annotations

from collections.abc import Sequence

from pyinfra_gpu.text import shortened

_LONGEST_LINE = 300  # characters
_LATEST = 400  # lines: a build prints thousands, and says at its end why it stopped


def explain_lines(lines: Sequence[str], *, said_by: str = "") -> str | None:
    """Return the cause, the line that shows it and what to do; None where none is known.

    + lines: what the command printed
    + said_by: who printed them, for a person who reads the line in our sentence; "" = it shows

    The catalogue is read at the first call: a run in which nothing fails never needs it.
    """
    from pyinfra_gpu.diagnosis.matcher import explain

    found = explain("\n".join(lines[-_LATEST:])).findings
    root = next((each for each in found if each.kind == "root"), None)
    if root is None:
        return None
    said = shortened(root.evidence, _LONGEST_LINE)
    if said_by:
        said = f"{said_by}: {said}"
    cause = f"{root.clause} ({said})" if root.clause else said
    return f"{cause}; {root.remedy or root.fix[0]}"
