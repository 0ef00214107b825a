"""What happens where a build or a nightly cannot be had: the host fails, or its fallback comes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyinfra_gpu.engine import journal
from pyinfra_gpu.engine.steps import failed

if TYPE_CHECKING:
    from pyinfra.api.host import Host

    from pyinfra_gpu.spec import HostSpec


def given_up(host: Host, stage: str, spec: HostSpec, sentence: str) -> bool:
    """Fail the host; where data declares a fallback, say that instead, and go on with it."""
    fallback = spec.pytorch.full_fallback
    if fallback is None:
        return failed(host, stage, sentence)
    said = f"{sentence}; its fallback, torch {fallback}, takes its place"
    journal.warn(stage, said)
    host.log(said)
    return True
