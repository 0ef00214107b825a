"""The shell programs that make links to libcuda and to the CUDA toolkit."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from pyinfra_gpu.on_host import program


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder, beside programs that write down how they were called, and own `packaged`."""
    (tmp_path / "bin").mkdir()
    for name, code in {
        "ldconfig": "exit 0",
        "update-alternatives": "[ $1 = --install ] || [ -e registered ]",
        "dpkg-query": "case $2 in */packaged) exit 0 ;; esac; exit 1",
    }.items():
        path = tmp_path / "bin" / name
        path.write_text(f"#!/bin/sh\necho {name} $* >>called\n{code}\n")
        path.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:{os.environ['PATH']}")
    return tmp_path


def called(folder: Path, command: str) -> list[str]:
    subprocess.run(["sh", "-c", command], cwd=folder, check=False)
    return (folder / "called").read_text().splitlines()


def test_links_are_made_between_two_runs_of_ldconfig(folder: Path) -> None:
    (folder / "libcuda.so.1").touch()
    wrong, astray = folder / "wrong", folder / "astray"
    wrong.symlink_to("nowhere")
    astray.symlink_to("/etc/alternatives/pyinfra-gpu-of-nothing")
    pairs = (str(wrong), "libcuda.so.1", str(astray), "libcuda.so.1")
    command = program("libcuda/links.sh", f"{folder}/libcuda.so.1", *pairs)
    assert called(folder, command) == ["ldconfig", "ldconfig"]
    assert wrong.readlink() == astray.readlink() == Path("libcuda.so.1")


def test_what_is_in_the_way_is_kept_where_ldconfig_does_not_take_it_up(folder: Path) -> None:
    for name in ("mine", "packaged"):
        (folder / name).symlink_to("x")
    called(folder, program("libcuda/set_aside.sh", f"{folder}/mine", f"{folder}/packaged"))
    assert (folder / "packaged").is_symlink()
    assert not (folder / "mine").is_symlink()
    assert next(folder.glob("before-pyinfra-gpu.mine.*")).is_symlink()


@pytest.mark.parametrize("registered", [True, False])
def test_a_toolkit_is_chosen_by_update_alternatives_alone(folder: Path, registered: bool) -> None:
    if registered:
        (folder / "registered").touch()
    (folder / "cuda").symlink_to("mine")
    uses = ("files/set_aside.sh",)
    command = program(
        "cuda/choose.sh", f"{folder}/cuda", "/usr/local/cuda-13.0", "130", "1", uses=uses
    )
    setting = "update-alternatives --set cuda /usr/local/cuda-13.0"
    adding = f"update-alternatives --install {folder}/cuda cuda /usr/local/cuda-13.0 130"
    assert called(folder, command) == ([setting] if registered else [setting, adding, setting])
    assert (folder / "cuda.before-pyinfra-gpu").readlink() == Path("mine")
    assert not (folder / "cuda").is_symlink()
