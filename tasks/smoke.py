"""The proof."""

from pyinfra.api import deploy

from pyinfra_gpu.operations import smoke as operations
from pyinfra_gpu.privilege import as_root
from pyinfra_gpu.spec import HostSpec


@deploy("Smoke")
def smoke(wanted: HostSpec) -> None:
    """Train one step on all ranks and check the numbers, unless that was done and still holds."""
    operations.proven(name="Train one checked step", spec=wanted, **as_root(wanted))
