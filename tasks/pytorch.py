"""A virtual environment with the declared torch."""

from pyinfra.api import deploy

from pyinfra_gpu.operations import layout, packages
from pyinfra_gpu.operations import torch as operations
from pyinfra_gpu.privilege import as_root
from pyinfra_gpu.spec import HostSpec


@deploy("PyTorch")
def pytorch(wanted: HostSpec) -> None:
    """Packages and directories it stands on, then uv, the environment, torch itself."""
    packages.present(name="Install what the stages need", spec=wanted, **as_root(wanted))
    layout.directories(name="Make the directories", spec=wanted, **as_root(wanted))
    operations.installer(name="Install uv", spec=wanted)
    operations.virtual_environment(name="Make the virtual environment", spec=wanted)
    operations.wheel(name="Install torch", spec=wanted)
