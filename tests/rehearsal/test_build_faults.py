"""A build of torch that meets a fault: what was compiled counts, and is compiled once.

By night. From the lab's stand-in, which has nothing of
PyTorch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

import pytest
from building import BUILD, HOST, STEPS, Build, Builder, building, hits
from running import Deployer, quietly, until

from pyinfra_gpu.drift.pytorch_build import UNIT
from pyinfra_gpu_rehearsal import Lab
from pyinfra_gpu_rehearsal.stand_in.serving import Served, serve_stand_in

pytestmark = [pytest.mark.rehearsal, pytest.mark.night]

READY = "ready-to-build"  # a snapshot: all but torch is there
NUMBERS = iter(range(1000))


@dataclass
class Trial(Build):
    """One build, on a host that has everything else.

    + builder: declares a build that nobody made yet
    """

    builder: Builder

    @contextmanager
    def deploying(self, phase: str, objects: int = 0) -> Iterator[Callable[[], str]]:
        """Deploy until the build is in a phase; yield what ends the run and returns its output."""
        run = self.builder.start(limit=HOST)
        until(lambda: self.reached(phase, objects) or run.poll() is not None, 120)
        assert run.poll() is None, run.communicate()[0]
        yield lambda: run.communicate(timeout=300)[0]
        run.kill()
        run.communicate()


def network_cut(trial: Trial) -> None:
    with trial.deploying("compile", 30) as ended:
        trial.host.network("cut")
        try:
            said = " ".join(ended().split())
        finally:
            trial.host.network("restore")
    trial.host.run("flock --wait 60 /run/pyinfra-gpu/lease true")  # of the run that was cut off
    assert "it goes on there, and the next run follows it" in said


def disk_full(trial: Trial) -> None:
    """Fill the disk of the build while it compiles; the run says so, and room is made."""
    trial.host.run(f"mount -t tmpfs -o size=24m,mode=755,uid=1000 build {BUILD}")
    refused = trial.builder.deploy(limit=HOST)
    (problem,) = refused.problems(HOST)
    assert "o space left" in problem, problem
    assert trial.phase() in ("plan", "fetch", "requirements", "compile")
    trial.host.run(f"mount -o remount,size=1g {BUILD}")


def memory(trial: Trial) -> None:
    """Kill a compiler as the kernel does where memory runs out; half as many go on."""
    with trial.deploying("compile", 30) as ended:
        # By the name of the compiler, and in this host's own namespace of processes alone.
        trial.host.run("for n in $(seq 3000); do pkill -KILL -x cc1 && break; done")
        said = ended()
    assert "memory ran out: it goes on with 1 compilers side by side" in said


def build_killed(trial: Trial) -> None:
    with trial.deploying("compile", 60) as ended:
        trial.host.run(f"systemctl kill --signal=KILL {UNIT}")
        said = " ".join(ended().split())
    assert "was killed in compile" in said


FAULTS: dict[str, Callable[[Trial], None]] = {
    "network": network_cut,
    "disk": disk_full,
    "memory": memory,
    "build-killed": build_killed,
}


@pytest.fixture(scope="module")
def served(lab: Lab) -> Served:
    return serve_stand_in(lab, "faults", say=quietly)


@pytest.fixture(scope="module")
def ready(lab: Lab, deployer: Deployer, served: Served) -> Callable[[], Trial]:
    """Return what makes a host on which nothing but torch is missing, and a build of its own."""
    builder = building(lab, deployer.folder / "faults", served)
    builder.folder.mkdir()
    lab.fresh(HOST)
    run = builder.start(limit=HOST)
    trial = Trial(lab.host(HOST), builder)
    until(lambda: bool(trial.phase()) or run.poll() is not None, 240)
    trial.host.run(f"systemctl stop {UNIT}")
    run.communicate()
    trial.host.run(f"rm -rf {BUILD}/*")
    lab.snapshot(HOST, READY)
    return lambda: Trial(lab.restore(HOST, READY), builder)


@pytest.mark.parametrize("fault", FAULTS)
def test_a_build_that_meets_a_fault_is_finished_by_the_next_run(
    fault: str, ready: Callable[[], Trial]
) -> None:
    trial = ready()
    # A run that finds the wheel in its cache builds nothing.
    cache = trial.builder.folder / f"cache-{next(NUMBERS)}"
    cache.mkdir()
    trial.builder = replace(trial.builder, folder=cache)
    FAULTS[fault](trial)
    compiled = trial.compiled()
    trial.builder.converge(limit=HOST)
    if fault == "build-killed":  # of the others it went on, or had no room to keep anything
        # One may have been cut off by each compiler that was at work.
        assert hits(trial.host) >= compiled - 2
    assert trial.phase() == "prove"
    assert STEPS <= trial.finished() <= STEPS + 2
    assert trial.builder.converge(limit=HOST).changed(HOST) == []
    assert STEPS <= trial.finished() <= STEPS + 2
