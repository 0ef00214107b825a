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
    tmp_path: Path, *states: str, download: str = 'touch "${2%%=*}.deb"', configured: int = 0
) -> tuple[list[str], int]:
    """Run the program where dpkg knows packages in these states.

    + download: what apt-get does
    + configured: how `dpkg --configure` ends
    Returns the calls of dpkg and apt-get, and how it ended.
    """
    fails = f"case $2 in --configure) exit {configured};; esac"
    fakes = {
        "dpkg-query": f"cat <<'END'\n{chr(10).join(states)}\nEND",
        "apt-get": f'echo "apt-get $*" >>{tmp_path}/calls; shift; {download}',
        "dpkg": f'echo "dpkg $*" >>{tmp_path}/calls; {fails}',
    }
    for name, text in fakes.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{text}\n")
        (tmp_path / name).chmod(0o755)
    state = tmp_path / "state"
    state.mkdir()
    command = program("packages/apt/finish.sh", str(state))
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
    fetched, unpacked, configured = calls
    assert fetched == "apt-get -q download libcuda1:amd64=580-1"
    assert unpacked == "dpkg --force-confold --unpack libcuda1:amd64.deb"
    assert (configured, status) == (CONFIGURE, 0)


def test_what_somebody_removes_is_not_brought_back(tmp_path: Path) -> None:
    assert run(tmp_path, "rHR|libcuda1:amd64=580-1", "pHR|x=1") == ([CONFIGURE], 0)


def test_one_that_is_on_offer_no_longer_keeps_no_other_from_it(tmp_path: Path) -> None:
    gone = 'case $2 in gone*) echo "E: no such version" >&2; exit 100;; esac; touch "${2%%=*}.deb"'
    calls, status = run(tmp_path, "iHR|gone=1", "iHR|here=2", download=gone, configured=1)
    assert "dpkg --force-confold --unpack here.deb" in calls
    assert (calls[-1], status) == (CONFIGURE, 1)


def test_where_none_can_be_fetched_the_rest_is_set_up(tmp_path: Path) -> None:
    calls, status = run(tmp_path, "iHR|gone=1", download="exit 100", configured=1)
    assert calls == ["apt-get -q download gone=1", CONFIGURE]
    assert status == 1
