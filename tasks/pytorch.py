"""A virtual environment with the declared torch."""

from pyinfra_gpu.engine.settled import stage
from pyinfra_gpu.operations import pytorch as operations
from pyinfra_gpu.operations import pytorch_build
from pyinfra_gpu.spec import HostSpec


@stage("PyTorch")
def pytorch(wanted: HostSpec) -> None:
    """First uv, then the environment, then torch itself, built before where data says so."""
    operations.installer(name="Install uv", spec=wanted)
    operations.virtual_environment(name="Create the virtual environment", spec=wanted)
    pytorch_build.built(name="Build torch", spec=wanted)
    operations.wheel(name="Install torch", spec=wanted)
