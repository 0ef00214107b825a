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
from pyinfra_gpu.facts.answer import Answer
from pyinfra_gpu.facts.cuda import CudaRecord
from pyinfra_gpu.facts.driver import DriverRecord
from pyinfra_gpu.facts.environment import EnvironmentRecord
from pyinfra_gpu.facts.fields import Jsonable, Unknown
from pyinfra_gpu.facts.gpus import GpusRecord, PciGpu
from pyinfra_gpu.facts.kernel import KernelRecord
from pyinfra_gpu.facts.launcher import LauncherRecord
from pyinfra_gpu.facts.layout import Entry, LayoutRecord
from pyinfra_gpu.facts.libcuda import CacheEntry, LibcudaRecord, Link
from pyinfra_gpu.facts.nvidia import NvidiaPackage, NvidiaRecord
from pyinfra_gpu.facts.packages import PackagesRecord
from pyinfra_gpu.facts.power import PowerRecord
from pyinfra_gpu.facts.probe import BOOTSTRAP, ProbeFact
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
    "from_answer",
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

        sudo writes every command line into the host's log; 40 KB a look would bury the rest.
        """
        return StringCommand(": pyinfra-gpu-probe;", BOOTSTRAP)

    def read(self, answer: Answer) -> Record:
        """All concerns of what a host answered."""
        return from_answer(answer)


def from_answer(answer: Answer) -> Record:
    """The record, one concern after the other; never raises, whatever was answered."""
    return Record(
        system=system.parse(answer),
        gpus=gpus.parse(answer),
        driver=driver.parse(answer),
        kernel=kernel.parse(answer),
        packages=packages.parse(answer),
        nvidia=nvidia.parse(answer),
        cuda=cuda.parse(answer),
        libcuda=libcuda.parse(answer),
        power=power.parse(answer),
        storage=storage.parse(answer),
        layout=layout.parse(answer),
        torch=torch.parse(answer),
        build=pytorch_build.parse(answer),
        environment=environment.parse(answer),
        training=training.parse(answer),
        launcher=launcher.parse(answer),
        smoke=smoke.parse(answer),
    )
