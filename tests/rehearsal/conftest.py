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
from running import (
    CONVERGED,
    GPU_HOST,
    PROVEN,
    Deployer,
    Run,
    quietly,
    usual_offer,
    written_files,
)

from pyinfra_gpu_rehearsal import Lab, LabHost, available, gpus_available


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
        made.down(say=quietly, files=False)  # they go with the memory they are in


@pytest.fixture
def gpu1(lab: Lab) -> LabHost:
    """Return the first host as a bare machine."""
    return lab.fresh("gpu1")


@pytest.fixture(scope="session")
def deployer(lab: Lab, tmp_path_factory: pytest.TempPathFactory) -> Deployer:
    """Return what deploys to the two hosts, without the half-minute of compiling."""
    return Deployer(lab, tmp_path_factory.mktemp("runs"))


@pytest.fixture(scope="session")
def bare(lab: Lab, deployer: Deployer) -> tuple[Run, list[str]]:
    """Return what a dry run says of both hosts as bare machines, and those that it wrote to."""
    for host in lab.up(2, say=quietly):
        lab.fresh(host.name)
    before = {host.name: written_files(host) for host in lab.hosts()}
    run = deployer.dry()
    return run, [host.name for host in lab.hosts() if written_files(host) != before[host.name]]


@pytest.fixture(scope="session")
def first(bare: tuple[Run, list[str]], deployer: Deployer) -> Run:
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
        made.down(say=quietly, files=False)  # they go with the memory they are in


@pytest.fixture(scope="session")
def gpu_deployer(gpu_lab: Lab, tmp_path_factory: pytest.TempPathFactory) -> Deployer:
    """Return what deploys to the host with simulated GPUs, without the half-minute of proof."""
    return Deployer(gpu_lab, tmp_path_factory.mktemp("gpu-runs"), ("--data", "smoke=skip"))


@pytest.fixture(scope="session")
def gpu_first(gpu_lab: Lab, gpu_deployer: Deployer) -> Run:
    """Return the deploy that took the GPU host from bare to as declared; it is kept so."""
    usual_offer(gpu_lab)
    gpu_lab.fresh(GPU_HOST)
    run = gpu_deployer.cold().converge(limit=GPU_HOST)
    gpu_lab.snapshot(GPU_HOST, CONVERGED)
    return run


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
    """Return what makes the GPU host one that is as declared, its smoke test included."""
    gpu_converged()
    Deployer(gpu_lab, gpu_deployer.folder).converge(limit=GPU_HOST)
    gpu_lab.snapshot(GPU_HOST, PROVEN)

    def restored() -> LabHost:
        usual_offer(gpu_lab)
        return gpu_lab.restore(GPU_HOST, PROVEN)

    return restored
