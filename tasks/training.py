"""The training repository at its pinned commit."""

from pyinfra_gpu.engine.settled import stage
from pyinfra_gpu.operations import launcher
from pyinfra_gpu.operations import training as operations
from pyinfra_gpu.spec import HostSpec


@stage("Training")
def training(wanted: HostSpec) -> None:
    """Check it out, install what it needs around our torch, then what starts runs of it."""
    operations.checkout(name="Check out the training repository", spec=wanted)
    operations.requirements(name="Install its requirements", spec=wanted)
    launcher.installed(name="Install the train launcher", spec=wanted)
