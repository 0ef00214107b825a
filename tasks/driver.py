"""NVIDIA's driver: from its own repository, of the declared branch, loaded."""

from pyinfra.api import deploy

from pyinfra_gpu.engine.privilege import as_root
from pyinfra_gpu.operations import driver_modules as driver_kernel
from pyinfra_gpu.operations import driver_packages as packages
from pyinfra_gpu.operations import driver_repository as repository
from pyinfra_gpu.operations import driver_running
from pyinfra_gpu.spec import HostSpec


@deploy("Driver")
def driver(wanted: HostSpec) -> None:
    """First whom apt may trust, then the packages, then what kernels have of them."""
    repository.trusted(name="Trust NVIDIA's repository", spec=wanted, **as_root(wanted))
    packages.pinned(name="Pin the driver", spec=wanted, **as_root(wanted))
    packages.installed(name="Install the driver", spec=wanted, **as_root(wanted))
    driver_kernel.settled(name="Settle it for every boot", spec=wanted, **as_root(wanted))
    driver_running.running(name="Load it", spec=wanted, **as_root(wanted))
    driver_running.persistent(name="Keep the GPUs initialised", spec=wanted, **as_root(wanted))
