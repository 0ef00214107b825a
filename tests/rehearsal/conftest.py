"""Throwaway hosts for the tests in this folder, and the states in which tests want to find them.

A lab is made once a session. A state is deployed for real, once, where the first test asks for it,
and kept as a snapshot of the hosts; every other test that asks is given the snapshot back, which
takes as long as a boot.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from boundaries import Numbered, fresh_deploy, undisturbed
from forking import forking
from lane_queue import FromQueue, Queue
from lanes import LaneError, Measuring, Test, Weights, lane_and_total, lane_of, units_of
from running import (
    CONVERGED,
    GPU_HOST,
    PROVEN,
    Bare,
    Deployer,
    Run,
    quietly,
    usual_offer,
    written_files,
)

from pyinfra_gpu_rehearsal import Lab, LabHost, available, gpus_available
from tests.processor import Clock, clock_of


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add `--lane N/M`, one of M shares for M processes beside one another, and the measuring."""
    parser.addoption("--lane", metavar="N/M", help="run the N-th of M balanced shares of the tests")
    parser.addoption("--queue", metavar="FILE", help="take them, unit by unit, from a queue of all")
    parser.addoption("--measure-lanes", action="store_true", help="run them and write lanes.json")


def pytest_configure(config: pytest.Config) -> None:
    """Begin to measure where that is asked for."""
    if config.getoption("--measure-lanes", default=False):
        config.pluginmanager.register(LaneTimes(Measuring(Weights.load()), clock_of(config)))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keep the tests of the lane alone, or have it take them from the queue."""
    lane, queue = (
        config.getoption("--lane", default=None),
        config.getoption("--queue", default=None),
    )
    if lane is None:
        return
    names = {item.nodeid: frozenset(getattr(item, "fixturenames", ())) for item in items}
    tests = [Test(id=id_, fixtures=fixtures) for id_, fixtures in names.items()]
    try:
        if queue is not None:
            weights, of = Weights.load(), lane_and_total(lane)
            shared = Queue(Path(queue), *of, units_of(tests, weights), weights)
            config.pluginmanager.register(FromQueue(shared, weights.unit))
            return
        kept = lane_of(lane, tests)
    except LaneError as error:
        raise pytest.UsageError(str(error)) from error
    config.hook.pytest_deselected(items=[item for item in items if item.nodeid not in kept])
    items[:] = [item for item in items if item.nodeid in kept]


class LaneTimes:
    """Writes lanes.json from what each test and each fixture of the session took of a processor."""

    def __init__(self, measuring: Measuring, clock: Clock) -> None:
        self.measuring = measuring
        self.clock = clock
        self.test = ""

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(
        self, fixturedef: pytest.FixtureDef[object], request: pytest.FixtureRequest
    ) -> Iterator[None]:
        """Take the time of a fixture of the session; those it stands on are set up already."""
        before = self.clock.seconds() if fixturedef.scope == "session" else 0.0
        yield
        if fixturedef.scope == "session":
            seconds = self.clock.seconds() - before
            self.measuring.add_fixture(self.test, fixturedef.argname, seconds)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        """Take the time of a test: set-up, call and tear-down."""
        self.test, before = item.nodeid, self.clock.seconds()
        result = yield
        self.measuring.add(item.nodeid, self.clock.seconds() - before)
        return result

    def pytest_sessionfinish(self) -> None:
        """Write what was measured."""
        self.measuring.save()


def require(why_not: str | None) -> None:
    """Skip the tests that need hosts where none can be made; in CI that is a failure."""
    if why_not is not None and "CI" in os.environ:
        pytest.fail(f"in CI these tests must run, and {why_not}")
    if why_not is not None:
        pytest.skip(why_not)


@pytest.fixture(scope="session")
def training_folder() -> Path:
    """Return the folder that is served as the training repository."""
    return Path(__file__).parents[2] / "examples/tiny-gpt"


# -- two hosts without GPU


@pytest.fixture(scope="session")
def lab(tmp_path_factory: pytest.TempPathFactory, training_folder: Path) -> Iterator[Lab]:
    """Return a lab with two hosts, gpu1 and gpu2, that are ready; skip where none can be made."""
    require(available())
    made = Lab(tmp_path_factory.mktemp("lab") / ".rehearsal", training=training_folder)
    try:
        made.up(2, say=quietly)
        yield made
    finally:
        made.down(say=quietly)


@pytest.fixture
def gpu1(lab: Lab) -> LabHost:
    """Return the first host as a bare machine."""
    return lab.fresh("gpu1")


@pytest.fixture(scope="session")
def deployer(lab: Lab, tmp_path_factory: pytest.TempPathFactory) -> Deployer:
    """Return what deploys to the two hosts, without the half-minute of compiling."""
    return Deployer(lab, tmp_path_factory.mktemp("runs"))


@pytest.fixture(scope="session")
def bare(lab: Lab, deployer: Deployer) -> Bare:
    """Return what a dry run says of both hosts as bare machines, and whether it wrote to one."""
    for host in lab.up(2, say=quietly):
        lab.fresh(host.name)
    before = {host.name: written_files(host) for host in lab.hosts()}
    run = deployer.dry()
    unwritten = {host.name: written_files(host) == before[host.name] for host in lab.hosts()}
    return Bare(run, unwritten)


@pytest.fixture(scope="session")
def first(bare: Bare, deployer: Deployer) -> Run:
    """Return the deploy that took both hosts from bare to proven."""
    return deployer.cold().deploy()


@pytest.fixture(scope="session")
def proven(first: Run, lab: Lab) -> Callable[[str], LabHost]:
    """Return what makes a host, by its name, one that is as declared and proven."""
    assert first.code == 0, first.output
    for host in lab.hosts():
        lab.snapshot(host.name, PROVEN)
    return lambda name: lab.restore(name, PROVEN)


# -- one host with two simulated GPUs


@pytest.fixture(scope="session")
def gpu_lab(tmp_path_factory: pytest.TempPathFactory, training_folder: Path) -> Iterator[Lab]:
    """Return a lab with one host that has two simulated RTX 5090s; skip where none can be made."""
    require(available() or gpus_available())
    made = Lab(tmp_path_factory.mktemp("gpu-lab") / ".rehearsal", training=training_folder)
    try:
        made.up(1, machine="2x RTX 5090", say=quietly)
        yield made
    finally:
        made.down(say=quietly)


@pytest.fixture(scope="session")
def gpu_deployer(gpu_lab: Lab, tmp_path_factory: pytest.TempPathFactory) -> Deployer:
    """Return what deploys to the host with simulated GPUs, without the half-minute of proof."""
    return Deployer(gpu_lab, tmp_path_factory.mktemp("gpu-runs"), ("--data", "smoke=skip"))


@pytest.fixture(scope="session")
def gpu_numbered(gpu_lab: Lab, gpu_deployer: Deployer) -> tuple[Run, Numbered]:
    """Return the deploy that took the GPU host from bare to as declared, and its commands.

    The host is kept as it then was.
    """
    run, commands = undisturbed(fresh_deploy(gpu_lab, gpu_deployer.cold()))
    assert run.code == 0, run.output
    gpu_lab.snapshot(GPU_HOST, CONVERGED)
    return run, commands


@pytest.fixture(scope="session")
def gpu_first(gpu_numbered: tuple[Run, Numbered]) -> Run:
    """Return the deploy that took the GPU host from bare to as declared; it is kept so."""
    return gpu_numbered[0]


@pytest.fixture(scope="session")
def gpu_converged(gpu_first: Run, gpu_lab: Lab) -> Callable[[], LabHost]:
    """Return what makes the GPU host one that is as declared, but for the smoke test."""

    def restored() -> LabHost:
        usual_offer(gpu_lab)
        return gpu_lab.restore(GPU_HOST, CONVERGED)

    return restored


@pytest.fixture(scope="session")
def gpu_proven(
    gpu_converged: Callable[[], LabHost], gpu_lab: Lab, gpu_deployer: Deployer
) -> Callable[[], LabHost]:
    """Return what makes the GPU host one that is as declared, its smoke test included.

    That is the one of a host without GPU, which starts for real there: here it runs in forks.
    """
    forking(gpu_converged())
    Deployer(gpu_lab, gpu_deployer.folder).converge(limit=GPU_HOST)
    gpu_lab.snapshot(GPU_HOST, PROVEN)

    def restored() -> LabHost:
        usual_offer(gpu_lab)
        return gpu_lab.restore(GPU_HOST, PROVEN)

    return restored
