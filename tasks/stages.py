"""This lab's policy: what each stage is composed of, in the order in which it is done."""

import pyinfra_gpu.operations.cuda
import pyinfra_gpu.operations.driver
import pyinfra_gpu.operations.driver_running
import pyinfra_gpu.operations.environment
import pyinfra_gpu.operations.launcher
import pyinfra_gpu.operations.layout
import pyinfra_gpu.operations.libcuda
import pyinfra_gpu.operations.packages
import pyinfra_gpu.operations.preflight
import pyinfra_gpu.operations.pytorch
import pyinfra_gpu.operations.pytorch_build
import pyinfra_gpu.operations.smoke
import pyinfra_gpu.operations.smoke_across
import pyinfra_gpu.operations.training
from pyinfra_gpu.engine.stage import stage
from pyinfra_gpu.spec import HostSpec

of = pyinfra_gpu.operations


@stage("Preflight")
def preflight(wanted: HostSpec) -> None:
    """Refuse with one sentence, before the first write, what cannot become as declared."""
    of.preflight.ready(name="Check requirements", spec=wanted)


@stage("Driver")
def driver(wanted: HostSpec) -> None:
    """First whom to trust, then the packages, then what kernels have of them."""
    of.driver.trusted(name="Add NVIDIA's apt repository", spec=wanted)
    of.driver.installed(name="Install the driver", spec=wanted)
    of.driver.ready_for_boot(name="Build modules and update the initramfs", spec=wanted)
    of.driver_running.running(name="Load the kernel module", spec=wanted)
    of.driver_running.persistent(name="Enable nvidia-persistenced", spec=wanted)


@stage("Base")
def base(wanted: HostSpec) -> None:
    """Install the few distribution packages that later stages need, make our directories."""
    of.packages.present(name="Install distribution packages", spec=wanted)
    of.layout.directories(name="Create directories", spec=wanted)


@stage("CUDA")
def cuda(wanted: HostSpec) -> None:
    """Install the toolkit beside others, choose it for /usr/local/cuda, compile for the GPUs."""
    of.cuda.installed(name="Install the CUDA toolkit", spec=wanted)
    of.cuda.chosen(name="Set the cuda alternative", spec=wanted)
    of.cuda.proven(name="Verify nvcc", spec=wanted)


@stage("libcuda")
def libcuda(wanted: HostSpec) -> None:
    """Repair the links and the linker's cache, then load the library from two programs."""
    of.libcuda.linked(name="Update libcuda links and cache", spec=wanted)
    of.libcuda.proven(name="Verify that libcuda loads", spec=wanted)


@stage("PyTorch")
def pytorch(wanted: HostSpec) -> None:
    """First uv, then the environment, then torch itself, built before where data says so."""
    of.pytorch.installer(name="Install uv", spec=wanted)
    of.pytorch.virtual_environment(name="Create the virtual environment", spec=wanted)
    of.pytorch_build.built(name="Build torch", spec=wanted)
    of.pytorch.wheel(name="Install torch", spec=wanted)


@stage("Environment")
def environment(wanted: HostSpec) -> None:
    """Write the environment file and the torchrun wrapper, and read the file back."""
    of.environment.project_files(name="Write the environment files", spec=wanted)


@stage("Training")
def training(wanted: HostSpec) -> None:
    """Check the repository out, install what it needs around our torch, then the launcher."""
    of.training.checkout(name="Check out the training repository", spec=wanted)
    of.training.requirements(name="Install its requirements", spec=wanted)
    of.launcher.installed(name="Install the train launcher", spec=wanted)


@stage("Smoke")
def smoke(wanted: HostSpec) -> None:
    """Train one step on all ranks and check the numbers, unless that was done and still holds;
    then, where data says so, one step on all hosts of a group together.
    """
    of.smoke.proven(name="Run the smoke test", spec=wanted)
    of.smoke_across.proven(name="Run the multi-node smoke test", spec=wanted)
