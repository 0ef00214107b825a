"""What an interrupted installation left is finished, also what was cut off in unpacking."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from pyinfra_gpu.on_host import program

CONFIGURE = "dpkg --force-confold --configure -a"
SOUND = ("ii |git=1", "rc |old=1", "un |never=")


def run(
    tmp_path: Path,
    *states: str,
    download: str = 'touch "${2%%=*}.deb"',
    configured: int = 0,
    dkms: str | None = None,
) -> tuple[list[str], int]:
    """Run the program where dpkg knows packages in these states.

    + download: what apt-get does
    + configured: how `dpkg --configure` ends
    + dkms: what `dkms status` says of a kernel; None: it is not on this host
    Returns the calls of dpkg and apt-get, and how it ended.
    """
    fails = f"case $2 in --configure) exit {configured};; esac"
    fakes = {
        "dpkg-query": f"cat <<'END'\n{chr(10).join(states)}\nEND",
        "apt-mark": f'echo "apt-mark $*" >>{tmp_path}/calls',
        "apt-get": f'echo "apt-get $*" >>{tmp_path}/calls; shift; {download}',
        "dpkg": f'echo "dpkg $*" >>{tmp_path}/calls; {fails}',
    }
    if dkms is not None:
        fakes["dkms"] = (
            f"case $* in 'status -m nvidia -v 580.1 -k 6.8.0 -a x86_64') echo '{dkms}';; esac"
        )
    for name, text in fakes.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{text}\n")
        (tmp_path / name).chmod(0o755)
    state = tmp_path / "state"
    state.mkdir()
    arguments = (str(state), str(tmp_path / "dkms-tree"))
    command = program("packages/apt/finish.sh", *arguments)
    path = f"{tmp_path}:{os.environ['PATH']}"
    done = subprocess.run(["sh", "-c", command], env={"PATH": path}, check=False, timeout=60)
    assert list(state.iterdir()) == []
    return (tmp_path / "calls").read_text().splitlines(), done.returncode


@pytest.mark.parametrize("state", ["iU ", "iF ", "iW ", "it ", "ii "])
def test_what_is_unpacked_is_set_up_and_fetched_by_nobody(tmp_path: Path, state: str) -> None:
    assert run(tmp_path, *SOUND, f"{state}|libcuda1:amd64=580-1") == ([CONFIGURE], 0)


@pytest.mark.parametrize("state", ["iHR", "iH ", "iUR", "hHR"])
def test_what_was_cut_off_is_unpacked_again_at_its_own_version(tmp_path: Path, state: str) -> None:
    calls, status = run(tmp_path, *SOUND, f"{state}|libcuda1:amd64=580-1")
    fetched, unpacked, configured, *held = calls
    assert held == (["apt-mark hold libcuda1:amd64"] if state[0] == "h" else [])
    assert fetched == "apt-get -q download libcuda1:amd64=580-1"
    assert unpacked == "dpkg --force-confold --unpack libcuda1:amd64.deb"
    assert (configured, status) == (CONFIGURE, 0)


def test_what_somebody_removes_is_not_brought_back(tmp_path: Path) -> None:
    assert run(tmp_path, "rHR|libcuda1:amd64=580-1", "pHR|x=1") == ([CONFIGURE], 0)


@pytest.mark.parametrize("others", [(), ("iHR|here=2",)])
def test_one_that_is_on_offer_no_longer_keeps_no_other_from_it(
    tmp_path: Path, others: tuple[str, ...]
) -> None:
    gone = 'case $2 in gone*) echo "E: no such version" >&2; exit 100;; esac; touch "${2%%=*}.deb"'
    calls, status = run(tmp_path, "iHR|gone=1", *others, download=gone, configured=1)
    assert ("dpkg --force-confold --unpack here.deb" in calls) is bool(others)
    assert calls[-1] == CONFIGURE
    assert status != 0


def modules(tmp_path: Path) -> tuple[Path, list[Path]]:
    """Make what DKMS keeps, with a kernel's folder as a build leaves it that was cut off.

    Returns that folder, and files that have to stay whatever it says of that kernel.
    """
    tree, source = tmp_path / "dkms-tree/nvidia/580.1", tmp_path / "src/nvidia-580.1"
    half = tree / "6.8.0/x86_64"
    kept = [
        source / "6.8.0/x86_64/nvidia.c",
        tree / "build/x86_64/make.log",
        tree.parent / "original_module/6.8.0/x86_64/nvidia.ko",
        tree.parent / "mine/6.8.0/x86_64/file",
    ]
    for file in (half / "log/make.log", *kept):
        file.parent.mkdir(parents=True)
        file.write_text("x")
    (tree / "source").symlink_to(source)
    return half, kept


def test_what_dkms_has_half_built_is_forgotten_where_a_package_cannot_be_set_up(
    tmp_path: Path,
) -> None:
    """Else its `remove` passes over it, and its `add` says each time that it is there already."""
    half, kept = modules(tmp_path)
    calls, status = run(tmp_path, "iF |dkms=1", configured=1, dkms="nvidia/580.1: added")
    assert (calls, status) == ([CONFIGURE, CONFIGURE], 1)
    assert not half.parent.exists()
    assert all(file.exists() for file in kept)


@pytest.mark.parametrize(
    ("configured", "dkms"),
    [
        (1, "nvidia/580.1, 6.8.0, x86_64: built"),
        (1, "nvidia/580.1, 6.8.0, x86_64: installed"),
        (0, "nvidia/580.1: added"),
        (1, None),
    ],
)
def test_what_dkms_has_built_stays_and_all_where_packages_are_set_up_or_it_is_not_there(
    tmp_path: Path, configured: int, dkms: str | None
) -> None:
    half, _ = modules(tmp_path)
    calls, status = run(tmp_path, "iU |git=1", configured=configured, dkms=dkms)
    assert (calls, bool(status)) == ([CONFIGURE], bool(configured))
    assert half.exists()
