"""This lab's policy: what each stage is composed of, in the order in which it is done."""

from pyinfra_gpu import operations
from pyinfra_gpu.engine.converge import stage
from pyinfra_gpu.spec import HostSpec


@stage("Preflight")
def preflight(wanted: HostSpec) -> None:
    """Refuse with one sentence, before the first write, what cannot become as declared."""
    operations.preflight.ready(name="Check requirements", spec=wanted)


@stage("Driver")
def driver(wanted: HostSpec) -> None:
    """First whom to trust, then the packages, then what kernels have of them."""
    operations.driver.trusted(name="Add NVIDIA's apt repository", spec=wanted)
    operations.driver.installed(name="Install the driver", spec=wanted)
    operations.driver.running(name="Load the kernel module", spec=wanted)
    operations.driver.persistent(name="Enable nvidia-persistenced", spec=wanted)


@stage("Base")
def base(wanted: HostSpec) -> None:
    """Install the few distribution packages that later stages need, make our directories, and
    check the repository out: a wrong address is to be known before gigabytes are fetched.
    """
    operations.packages.present(name="Install distribution packages", spec=wanted)
    operations.layout.directories(name="Create directories", spec=wanted)
    operations.training.checkout(name="Check out the training repository", spec=wanted)


@stage("CUDA")
def cuda(wanted: HostSpec) -> None:
    """Install the toolkit beside others, choose it for /usr/local/cuda, compile for the GPUs."""
    operations.cuda.installed(name="Install the CUDA toolkit", spec=wanted)
    operations.cuda.chosen(name="Set the cuda alternative", spec=wanted)
    operations.cuda.proven(name="Verify nvcc", spec=wanted)


@stage("libcuda")
def libcuda(wanted: HostSpec) -> None:
    """Repair the links and the linker's cache, then load the library from two programs."""
    operations.libcuda.linked(name="Update libcuda links and cache", spec=wanted)
    operations.libcuda.proven(name="Verify that libcuda loads", spec=wanted)


@stage("PyTorch")
def pytorch(wanted: HostSpec) -> None:
    """First uv, then the environment, then torch itself, built before where data says so."""
    operations.pytorch.installer(name="Install uv", spec=wanted)
    operations.pytorch.virtual_environment(name="Create the virtual environment", spec=wanted)
    operations.pytorch_build.built(name="Build torch", spec=wanted)
    operations.pytorch.wheel(name="Install torch", spec=wanted)


@stage("Environment")
def environment(wanted: HostSpec) -> None:
    """Write the environment file and the torchrun wrapper, and read the file back."""
    operations.environment.project_files(name="Write the environment files", spec=wanted)


@stage("Training")
def training(wanted: HostSpec) -> None:
    """Install what the repository needs around our torch, then the launcher."""
    operations.training.requirements(name="Install its requirements", spec=wanted)
    operations.launcher.installed(name="Install the train launcher", spec=wanted)


@stage("Smoke")
def smoke(wanted: HostSpec) -> None:
    """Train one step on all ranks and check the numbers, unless that was done and still holds;
    then, where data says so, one step on all hosts of a group together.
    """
    operations.smoke.proven(name="Run the smoke test", spec=wanted)
    operations.smoke.proven_across(name="Run the multi-node smoke test", spec=wanted)
