"""One look per host and phase: the record every operation reads.

pyinfra 3 runs a fact's command each time it is asked. Our record is asked for by every operation,
so it is kept here, for one host and one phase (prepare or execute), and dropped as soon as one of
our operations hands pyinfra a command: what a command did must be seen, never assumed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyinfra import host, logger, state

from pyinfra_gpu.engine.privilege import as_root
from pyinfra_gpu.facts.probe import ProbeRequest, text_of
from pyinfra_gpu.facts.record import Record, RecordFact
from pyinfra_gpu.packages.needed import needed

if TYPE_CHECKING:
    from pyinfra_gpu.spec import HostSpec

_KEY = "pyinfra_gpu_record"  # connector_data is pyinfra's own per-host scratch space


def look(spec: HostSpec) -> Record | None:
    """Return what this host looks like now, with at most one SSH channel per phase.

    + spec: says which paths and packages to look at

    None when the host did not answer; pyinfra has then logged why, and the caller must refuse.
    """
    phase = state.current_stage
    memo = host.connector_data.get(_KEY)
    if memo is not None and memo[0] == phase:
        record: Record = memo[1]
        return record
    request = ProbeRequest.for_spec(spec, packages=needed(spec))
    try:
        fresh = host.get_fact(
            RecordFact, _stdin=text_of(request), _ignore_errors=True, **as_root(spec)
        )
    except EOFError:  # pyinfra asks for a sudo password, and there is no terminal to ask at
        host.log_styled("sudo asks for a password there", fg="red", log_func=logger.error)
        return None
    if fresh is not None:
        host.connector_data[_KEY] = (phase, fresh)
    return fresh


def forget() -> None:
    """Drop this host's record; the next `look` asks the host again."""
    host.connector_data.pop(_KEY, None)
