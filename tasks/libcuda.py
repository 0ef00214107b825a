"""The driver's library, as programs find it."""

from pyinfra_gpu.engine.settled import stage
from pyinfra_gpu.operations import libcuda as operations
from pyinfra_gpu.spec import HostSpec


@stage("libcuda")
def libcuda(wanted: HostSpec) -> None:
    """Repair the links and the linker's cache, then load the library from two programs."""
    operations.linked(name="Update libcuda links and cache", spec=wanted)
    operations.proven(name="Verify that libcuda loads", spec=wanted)
