"""Why a command of ours failed on a host, in one sentence."""

from __future__ import annotations

from collections.abc import Sequence

from pyinfra_gpu.text import shortened

_LONGEST_LINE = 300  # characters
_LATEST = 400  # lines: a build prints thousands, and says at its end why it stopped


def explain_lines(lines: Sequence[str], *, said_by: str = "") -> str | None:
    """Return the cause, the line that shows it and the first step; None where none is known.

    + lines: what the command printed
    + said_by: the program that printed them, where the line does not show it

    The catalogue is read at the first call: a run in which nothing fails never needs it.
    """
    from pyinfra_gpu.diagnosis.catalogue import catalogue
    from pyinfra_gpu.on_host.diagnosis.explain import explain

    found = explain({said_by: "\n".join(lines[-_LATEST:])}, catalogue()).found
    if not found:
        return None
    said = shortened(found[0].line, _LONGEST_LINE)
    said = f"{said_by}: {said}" if said_by else said
    return f"{found[0].short.rstrip('.')} ({said}). {found[0].fix[0]}"
