"""Debian 13: its repository of NVIDIA's begins with branch 590, and its dkms and apt are newer."""

from __future__ import annotations

from pathlib import Path

import pytest
from conftest import require
from running import LOADED, OnlyDriver, quietly

from pyinfra_gpu_rehearsal import Lab, available

pytestmark = [pytest.mark.rehearsal, pytest.mark.night]

EARLY = ("preflight.", "driver.", "libcuda.")


def test_a_host_with_debian_13_gets_the_driver_of_its_repository(
    tmp_path: Path, training_folder: Path
) -> None:
    require(available())
    lab = Lab(tmp_path / ".rehearsal", training=training_folder)
    try:
        (host,) = lab.up(1, machine="2x RTX 5090", release="debian13", say=quietly)
        assert "VERSION_CODENAME=trixie" in host.run("cat /etc/os-release").stdout
        deployer = OnlyDriver(lab, tmp_path)
        deployer.converge()
        assert host.run(LOADED).stdout.strip() == "595.71.05"
        assert "595.71.05, " in host.run("dkms status").stdout
        assert deployer.converge().changed(host.name) == []
        found = deployer.check().deviations(host.name)
        assert not [id_ for id_ in found if id_.startswith(EARLY)]
    finally:
        lab.down(say=quietly)
