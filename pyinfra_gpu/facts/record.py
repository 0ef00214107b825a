"""Everything the probe tells about a host, in one frozen record, and the fact that fetches it."""

from __future__ import annotations

from dataclasses import dataclass

from pyinfra.api import StringCommand

from pyinfra_gpu.facts import (
    cuda,
    driver,
    environment,
    gpus,
    kernel,
    launcher,
    layout,
    libcuda,
    nvidia,
    packages,
    power,
    pytorch_build,
    smoke,
    storage,
    system,
    training,
)
from pyinfra_gpu.facts import pytorch as torch
from pyinfra_gpu.facts.cuda import CudaRecord
from pyinfra_gpu.facts.driver import DriverRecord
from pyinfra_gpu.facts.environment import EnvironmentRecord
from pyinfra_gpu.facts.fields import Fields, Jsonable, Unknown
from pyinfra_gpu.facts.gpus import GpusRecord, PciGpu
from pyinfra_gpu.facts.kernel import KernelRecord
from pyinfra_gpu.facts.launcher import LauncherRecord
from pyinfra_gpu.facts.layout import Entry, LayoutRecord
from pyinfra_gpu.facts.libcuda import CacheEntry, LibcudaRecord, Link
from pyinfra_gpu.facts.nvidia import NvidiaPackage, NvidiaRecord
from pyinfra_gpu.facts.packages import PackagesRecord
from pyinfra_gpu.facts.power import PowerRecord
from pyinfra_gpu.facts.probe import ProbeFact
from pyinfra_gpu.facts.pytorch import TorchRecord
from pyinfra_gpu.facts.pytorch_build import BuildRecord
from pyinfra_gpu.facts.smoke import SmokeRecord
from pyinfra_gpu.facts.storage import StorageRecord
from pyinfra_gpu.facts.system import SystemRecord
from pyinfra_gpu.facts.training import TrainingRecord

__all__ = [
    "BuildRecord",
    "CacheEntry",
    "CudaRecord",
    "DriverRecord",
    "Entry",
    "EnvironmentRecord",
    "GpusRecord",
    "KernelRecord",
    "LauncherRecord",
    "LayoutRecord",
    "LibcudaRecord",
    "Link",
    "NvidiaPackage",
    "NvidiaRecord",
    "PackagesRecord",
    "PciGpu",
    "PowerRecord",
    "Record",
    "RecordFact",
    "SmokeRecord",
    "StorageRecord",
    "SystemRecord",
    "TorchRecord",
    "TrainingRecord",
    "Unknown",
    "from_fields",
]


@dataclass(frozen=True, kw_only=True, slots=True)
class Record(Jsonable):
    """A host as one look saw it, one part per concern.

    In any field `None` means "it is not there" and `Unknown(reason)` "the host would not tell".
    """

    system: SystemRecord
    gpus: GpusRecord
    driver: DriverRecord
    kernel: KernelRecord
    packages: PackagesRecord
    nvidia: NvidiaRecord
    cuda: CudaRecord
    libcuda: LibcudaRecord
    power: PowerRecord
    storage: StorageRecord
    layout: LayoutRecord
    torch: TorchRecord
    build: BuildRecord
    environment: EnvironmentRecord
    training: TrainingRecord
    launcher: LauncherRecord
    smoke: SmokeRecord


class RecordFact(ProbeFact[Record]):
    """The whole record, for operations: `host.get_fact(RecordFact, _stdin=text_of(request))`."""

    def command(self) -> StringCommand:
        """Run the program that comes on standard input.

        sudo writes every command line into the host's log; 30 KB a look would bury the rest.
        All of it is read before any of it runs, so that no program in it can eat the others.
        """
        return StringCommand(": pyinfra-gpu-probe;", 'eval "$(cat)"')

    def read(self, fields: Fields) -> Record:
        """All concerns of the probe's answer."""
        return from_fields(fields)


def from_fields(fields: Fields) -> Record:
    """The record, one concern after the other; never raises, whatever the fields hold."""
    return Record(
        system=system.parse(fields),
        gpus=gpus.parse(fields),
        driver=driver.parse(fields),
        kernel=kernel.parse(fields),
        packages=packages.parse(fields),
        nvidia=nvidia.parse(fields),
        cuda=cuda.parse(fields),
        libcuda=libcuda.parse(fields),
        power=power.parse(fields),
        storage=storage.parse(fields),
        layout=layout.parse(fields),
        torch=torch.parse(fields),
        build=pytorch_build.parse(fields),
        environment=environment.parse(fields),
        training=training.parse(fields),
        launcher=launcher.parse(fields),
        smoke=smoke.parse(fields),
    )
