"""Why a command of ours failed on a host, in one sentence."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pyinfra_gpu.text import shortened

if TYPE_CHECKING:
    from pyinfra_gpu.facts.record import Record

_LONGEST_LINE = 300  # characters
_LATEST = 400  # lines: a build prints thousands, and says at its end why it stopped


def explain_lines(
    lines: Sequence[str], *, said_by: str = "", record: Record | None = None
) -> str | None:
    """Return the cause, the line that shows it and the first step; None where none is known.

    + lines: what the command printed
    + said_by: the program that printed them, where the line does not show it
    + record: of the host, which decides between two readings of a message

    The catalogue is read at the first call: a run in which nothing fails never needs it.
    """
    from pyinfra_gpu.diagnosis.catalogue import catalogue
    from pyinfra_gpu.diagnosis.host_facts import facts_of
    from pyinfra_gpu.on_host.diagnosis.explain import explain

    facts = facts_of(record) if record else None
    found = explain({said_by: "\n".join(lines[-_LATEST:])}, catalogue(), facts).found
    if not found:
        return None
    said = shortened(found[0].line, _LONGEST_LINE)
    said = f"{said_by}: {said}" if said_by else said
    return f"{found[0].short.rstrip('.')} ({said}). {found[0].fix[0]}"
