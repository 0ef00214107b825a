"""The initramfs is made anew, and what a wrong clock dated is no longer newer than it."""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path

from pyinfra_gpu.on_host import program


def test_only_what_is_dated_in_the_future_gets_another_date(tmp_path: Path) -> None:
    for name, text in (("dkms.conf", ""), ("ours.conf", "blacklist nouveau\n"), ("a.txt", "")):
        (tmp_path / name).write_text(text)
        os.utime(tmp_path / name, (1e9, 1e9))
    tomorrow = time.time() + 86400
    for name in ("ours.conf", "a.txt"):
        os.utime(tmp_path / name, (tomorrow, tomorrow))
    tool = tmp_path / "update-initramfs"
    tool.write_text(f'#!/bin/sh\necho "$*" >{tmp_path}/called\n')
    tool.chmod(0o755)
    done = subprocess.run(
        ["sh", "-c", program("driver/initramfs.sh", str(tmp_path))],
        env={"PATH": f"{tmp_path}:{os.environ['PATH']}"},
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stdout == f"{tmp_path}/ours.conf was dated in the future\n"
    assert (tmp_path / "called").read_text() == "-u -k all\n"
    assert abs((tmp_path / "ours.conf").stat().st_mtime - time.time()) < 60
    assert (tmp_path / "ours.conf").read_text() == "blacklist nouveau\n"
    assert (tmp_path / "dkms.conf").stat().st_mtime == 1e9
    assert (tmp_path / "a.txt").stat().st_mtime == tomorrow
