"""The CUDA toolkit, beside whatever toolkits are there."""

from pyinfra_gpu.engine.settled import stage
from pyinfra_gpu.operations import cuda as operations
from pyinfra_gpu.spec import HostSpec


@stage("CUDA")
def cuda(wanted: HostSpec) -> None:
    """Install it, make it the one at /usr/local/cuda, and compile for the GPUs."""
    operations.installed(name="Install the CUDA toolkit", spec=wanted)
    operations.chosen(name="Set the cuda alternative", spec=wanted)
    operations.proven(name="Verify nvcc", spec=wanted)
