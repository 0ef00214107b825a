"""Refuse what cannot work, before the first write."""

from pyinfra_gpu.engine.settled import stage
from pyinfra_gpu.operations import preflight as operations
from pyinfra_gpu.spec import HostSpec


@stage("Preflight")
def preflight(wanted: HostSpec) -> None:
    """Fail this host with one sentence if it cannot become what is declared."""
    operations.ready(name="Check requirements", spec=wanted)
