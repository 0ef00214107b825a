"""What a log means, by this project's own catalogue. The matching itself also runs on hosts."""

from __future__ import annotations

from collections.abc import Sequence

from pyinfra_gpu.diagnosis.bundled import catalogue
from pyinfra_gpu.on_host.diagnosis import matcher
from pyinfra_gpu.on_host.diagnosis.entries import Catalogue
from pyinfra_gpu.on_host.diagnosis.host_facts import HostFacts
from pyinfra_gpu.on_host.diagnosis.log import Source
from pyinfra_gpu.on_host.diagnosis.matcher import Diagnosis


def explain(text: str) -> Diagnosis:
    """Return what one log, from anywhere, means."""
    return diagnose([Source(text)])


def diagnose(
    sources: Sequence[Source], facts: HostFacts | None = None, known: Catalogue | None = None
) -> Diagnosis:
    """Return what the files that a run left mean, together.

    + sources: in the order in which they are to be believed where two say equally much
    + facts: of the host they come from, which decide between two readings of a message
    + known: the catalogue to use; the package's own if None
    """
    return matcher.diagnose(sources, known or catalogue(), facts)
