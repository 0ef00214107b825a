"""The project's environment file and its torchrun wrapper."""

from pyinfra_gpu.engine.settled import stage
from pyinfra_gpu.operations import environment as operations
from pyinfra_gpu.spec import HostSpec


@stage("Environment")
def environment(wanted: HostSpec) -> None:
    """Write both files whole, and read the environment file back."""
    operations.project_files(name="Write the environment files", spec=wanted)
