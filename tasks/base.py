"""What every later stage stands on."""

from pyinfra.api import deploy

from pyinfra_gpu.operations import layout, packages
from pyinfra_gpu.spec import HostSpec


@deploy("Base")
def base(wanted: HostSpec) -> None:
    """Install the few distribution packages the stages need, make our directories."""
    packages.present(name="Install what the stages need", spec=wanted)
    layout.directories(name="Make the directories", spec=wanted)
