"""Throwaway hosts for the tests in this folder: two, made once, in a folder of their own."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from running import Deployer

from pyinfra_gpu_rehearsal import Lab, available, gpus_available


def quietly(_: str) -> None:
    """Take the place of print where a test does not look at what a lab says."""


@pytest.fixture(scope="session")
def training_folder() -> Path:
    """Return the folder that is served as the training repository."""
    return Path(__file__).parents[2] / "examples/tiny-gpt"


@pytest.fixture(scope="session")
def lab(tmp_path_factory: pytest.TempPathFactory, training_folder: Path) -> Iterator[Lab]:
    """Return a lab with two hosts, gpu1 and gpu2, that are ready; skip where none can be made."""
    why_not = available()
    if why_not is not None and "CI" in os.environ:
        pytest.fail(f"in CI these tests must run, and {why_not}")
    if why_not is not None:
        pytest.skip(why_not)
    made = Lab(tmp_path_factory.mktemp("lab") / ".rehearsal", training=training_folder)
    try:
        made.up(2, say=quietly)
        yield made
    finally:
        made.down(say=quietly)


@pytest.fixture(scope="session")
def gpu_lab(tmp_path_factory: pytest.TempPathFactory, training_folder: Path) -> Iterator[Lab]:
    """Return a lab with one host that has two simulated RTX 5090s; skip where none can be made."""
    why_not = available() or gpus_available()
    if why_not is not None and "CI" in os.environ:
        pytest.fail(f"in CI these tests must run, and {why_not}")
    if why_not is not None:
        pytest.skip(why_not)
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
