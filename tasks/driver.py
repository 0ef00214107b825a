"""NVIDIA's driver: from where it is declared to come from, of the declared branch, loaded."""

from pyinfra_gpu.engine.settled import stage
from pyinfra_gpu.operations import driver as packaged
from pyinfra_gpu.operations import driver_running
from pyinfra_gpu.spec import HostSpec


@stage("Driver")
def driver(wanted: HostSpec) -> None:
    """First whom to trust, then the packages, then what kernels have of them."""
    packaged.trusted(name="Add NVIDIA's apt repository", spec=wanted)
    packaged.installed(name="Install the driver", spec=wanted)
    packaged.ready_for_boot(name="Build modules and update the initramfs", spec=wanted)
    driver_running.running(name="Load the kernel module", spec=wanted)
    driver_running.persistent(name="Enable nvidia-persistenced", spec=wanted)
