"""`pyinfra-gpu collect` from the command line, over hosts that answer what a test says."""

from __future__ import annotations

from pathlib import Path

import pytest

from pyinfra_gpu.cli import main


def test_what_would_be_asked_is_printed_and_nothing_is_asked(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["collect", "nowhere.py", "--commands"]) == 0
    out = capsys.readouterr().out
    assert "nvidia-smi -q" in out
    assert "dkms status" in out
    assert max(map(len, out.splitlines())) <= 80


def test_a_file_that_is_no_archive_is_one_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = tmp_path / "other.tar.gz"
    other.write_bytes(b"no")
    assert main(["collect", str(other), "--fixture"]) == 1
    assert "is no archive of `pyinfra-gpu collect`" in " ".join(capsys.readouterr().err.split())


def test_an_inventory_that_is_not_there_is_one_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["collect", "inventories/none.py"]) == 1
    assert "inventories/none.py" in " ".join(capsys.readouterr().err.split())
