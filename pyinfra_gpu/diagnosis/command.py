"""Why a command of ours failed on a host: the line that says it and what to do, in one sentence."""

from __future__ import annotations

from collections.abc import Sequence

from pyinfra_gpu.text import shortened

_LONGEST_LINE = 300  # characters
_LATEST = 400  # lines: a build prints thousands, and says at its end why it stopped


def explain_lines(lines: Sequence[str]) -> str | None:
    """Return the line that shows the cause and what to do, None where nothing known explains it.

    + lines: what the command printed

    The catalogue is read at the first call: a run in which nothing fails never needs it.
    """
    from pyinfra_gpu.diagnosis.matcher import explain

    found = explain("\n".join(lines[-_LATEST:])).findings
    root = next((each for each in found if each.kind == "root"), None)
    if root is None:
        return None
    return f"{shortened(root.evidence, _LONGEST_LINE)}; {root.remedy or root.fix[0]}"
