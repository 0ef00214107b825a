"""NVIDIA's driver: from where it is declared to come from, of the declared branch, loaded."""

from pyinfra_gpu.engine.settled import stage
from pyinfra_gpu.operations import (
    driver_modules,
    driver_packages,
    driver_repository,
    driver_running,
)
from pyinfra_gpu.spec import HostSpec


@stage("Driver")
def driver(wanted: HostSpec) -> None:
    """First whom to trust, then the packages, then what kernels have of them."""
    driver_repository.trusted(name="Trust NVIDIA's repository", spec=wanted)
    driver_packages.pinned(name="Pin the driver", spec=wanted)
    driver_packages.installed(name="Install the driver", spec=wanted)
    driver_modules.settled(name="Settle it for every boot", spec=wanted)
    driver_running.running(name="Load it", spec=wanted)
    driver_running.persistent(name="Keep the GPUs initialised", spec=wanted)
