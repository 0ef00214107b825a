"""A build of torch that meets a fault: what was compiled counts, and is compiled once.

`make test` tries two of them, `make night` all. From the lab's stand-in, which has nothing of
PyTorch.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

import pytest
from building import BESIDE, BUILD, HOST, PREFIX, STEPS, Build, Builder, building
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


def controller_killed(trial: Trial) -> None:
    """Kill the run in the build, which goes on."""
    with trial.deploying("compile"):
        pass


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
    assert trial.phase() in ("plan", "fetch", "requirements", "configure", "compile")
    trial.host.run(f"mount -o remount,size=1g {BUILD}")


def memory(trial: Trial) -> None:
    """Kill a compiler as the kernel does where memory runs out; half as many go on."""
    with trial.deploying("compile", 30) as ended:
        # By the name of the compiler, and in this host's own namespace of processes alone.
        trial.host.run("for n in $(seq 3000); do pkill -KILL -x cc1 && break; done")
        said = ended()
    assert "memory ran out: the build goes on with 1 compilers side by side" in said


def second_operator(trial: Trial) -> None:
    with trial.deploying("compile", 30) as ended:
        trial.builder.converge(limit=HOST)
        first = ended()
    assert "No hosts remaining" not in first


def another_build(trial: Trial) -> None:
    """Ask for another build while one goes on: it is left alone, and waited for by nobody."""
    with trial.deploying("compile", 30):
        pass
    other = replace(trial.builder, data=(*trial.builder.data, 'pytorch_flags={"USE_UCC":"1"}'))
    refused = other.deploy(limit=HOST)
    assert refused.code == 1
    assert "another torch is being built here: compile" in refused.problems(HOST)[0]


def build_killed(trial: Trial) -> None:
    with trial.deploying("compile", 60) as ended:
        trial.host.run(f"systemctl kill --signal=KILL {UNIT}")
        said = " ".join(ended().split())
    assert "was killed in compile" in said


def cache_rotten(trial: Trial) -> None:
    """Spoil the wheel in the controller's cache: another host gets it from its builder again."""
    trial.builder.converge(limit=HOST)
    beside, builder = trial.builder.lab.fresh(BESIDE), trial.builder
    builder.converge()
    (wheel,) = builder.folder.glob("pyinfra-gpu/wheels/*/*.whl")
    wheel.write_bytes(wheel.read_bytes()[:-1] + b"?")
    beside.run(f"rm -rf {BUILD} {PREFIX}/venv/lib/python3*/site-packages/torch*")
    again = builder.converge()
    assert f"torch is built on {HOST}: waiting for its wheel" in again.output
    asked = "import torch; print(torch.library.unit_003(1))"
    assert beside.run(f"{PREFIX}/venv/bin/python -c '{asked}'").stdout == "4\n"


FAULTS: dict[str, Callable[[Trial], None]] = {
    "controller": controller_killed,
    "network": network_cut,
    "disk": disk_full,
    "memory": memory,
    "second-operator": second_operator,
    "another-build": another_build,
    "build-killed": build_killed,
    "cache": cache_rotten,
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
    began = time.time()
    trial.builder.converge(limit=HOST)
    older = f"find {BUILD}/source/build -name '*.o' ! -newermt @{began:.3f}"
    kept = len(trial.host.run(older).stdout.split())
    # One may have been cut off by each compiler that was at work.
    assert kept >= compiled - 2, (kept, compiled)
    assert trial.phase() == "prove"
    assert STEPS <= trial.finished() <= STEPS + 2
    assert trial.builder.converge(limit=HOST).changed(HOST) == []
    assert STEPS <= trial.finished() <= STEPS + 2


def test_a_folder_that_starts_no_programs_is_refused_before_anything_is_written(
    ready: Callable[[], Trial],
) -> None:
    trial = ready()
    trial.host.run(f"mount -t tmpfs -o noexec,mode=755,uid=1000 build {BUILD}")
    refused = trial.builder.deploy(limit=HOST)
    assert f"no program can be started below {BUILD}: it is mounted noexec" in (
        " ".join(refused.problems(HOST))
    )
    assert trial.host.run(f"ls {BUILD}").stdout == ""
