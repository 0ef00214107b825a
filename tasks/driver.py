"""NVIDIA's driver: from where it is declared to come from, of the declared branch, loaded."""

from pyinfra_gpu.engine.settled import stage
from pyinfra_gpu.operations import driver as packaged
from pyinfra_gpu.operations import driver_running
from pyinfra_gpu.spec import HostSpec


@stage("Driver")
def driver(wanted: HostSpec) -> None:
    """First whom to trust, then the packages, then what kernels have of them."""
    packaged.trusted(name="Trust NVIDIA's repository", spec=wanted)
    packaged.installed(name="Install the driver", spec=wanted)
    packaged.ready_for_boot(name="Make it ready for every boot", spec=wanted)
    driver_running.running(name="Load it", spec=wanted)
    driver_running.persistent(name="Keep the GPUs initialised", spec=wanted)
