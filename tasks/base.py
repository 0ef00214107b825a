"""What every later stage stands on."""

from pyinfra_gpu.engine.settled import stage
from pyinfra_gpu.operations import layout, packages
from pyinfra_gpu.spec import HostSpec


@stage("Base")
def base(wanted: HostSpec) -> None:
    """Install the few distribution packages the stages need, make our directories."""
    packages.present(name="Install distribution packages", spec=wanted)
    layout.directories(name="Create directories", spec=wanted)
