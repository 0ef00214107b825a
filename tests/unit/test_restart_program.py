"""The program that judges whether a host is idle, and reboots it: with trees and stub programs."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parent / "fixtures" / "probe"))
from gpu_host import DATA
from nvidia_tree import (  # noqa: F401
    gpu_host_fixture,
    inhibitor,
    opened,
    package,
    session,
)
from probing import Tree, write

from pyinfra_gpu.engine.reboot import program
from pyinfra_gpu.facts.parse import Answer
from pyinfra_gpu.spec import resolve, system_files

REASON = "module 580.82.07 is loaded; 'quoted' & $odd"
BOOT = "11111111-2222-3333-4444-555555555555"
OTHER = "99999999-2222-3333-4444-555555555555"


@pytest.fixture(name="idle")
def idle_fixture(gpu_host: Tree) -> Tree:
    """A GPU host that nobody uses, on which reboots are written down and not done."""
    root = gpu_host.root
    shutil.rmtree(root / "proc/812")
    (root / "run/systemd/sessions/3").unlink()
    (root / "run/systemd/inhibit/1").unlink()
    write(root / "var/lib/dpkg/status", package("git", "1:2.39.5"))
    for name in ("date", "mkdir", "mv", "nohup", "sync", "tail"):
        (gpu_host.tools / name).symlink_to(str(shutil.which(name)))
    (gpu_host.tools / "sh").symlink_to("/bin/sh")
    gpu_host.tool("systemd-run", f'echo "systemd-run $*" >>{gpu_host.base}/begun')
    gpu_host.tool("systemctl", f'echo "systemctl $*" >>{gpu_host.base}/begun')
    return gpu_host


def restart(tree: Tree, policy: str = "if-idle", reason: str = REASON) -> dict[str, object]:
    data = {**DATA, "driver_reboot": policy, "prefix": "/opt/ours"}
    text = program(resolve(data, "ws1"), reason)
    asked = {"root": str(tree.root), "sbin": ""}
    done = subprocess.run(
        ["/usr/bin/python3", "-I", "-S", "-"],
        input=text.replace("{'policy'", f"{{**{asked!r}, 'policy'"),
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        cwd="/",
        env={"PATH": str(tree.tools)},
    )
    assert done.stderr == ""
    answer = Answer(done.stdout.splitlines())
    assert answer.whole, done.stdout
    told: dict[str, object] = json.loads(done.stdout.splitlines()[-2])
    assert told["done"] == answer.value(str, "done")
    return told


def begun(tree: Tree) -> str:
    file = tree.base / "begun"
    return file.read_text() if file.exists() else ""


def noted(tree: Tree) -> list[list[str]]:
    file = Path(f"{tree.root}{system_files.REBOOTS}")
    rows = file.read_text(encoding="utf-8").splitlines() if file.exists() else []
    return [row.split(" ", 2) for row in rows]


def test_an_idle_host_is_rebooted_and_keeps_why(idle: Tree) -> None:
    opened(idle, 401, "nv-hostengine", "/dev/nvidia0")
    fields = restart(idle)
    assert fields["done"] == "rebooting"
    assert fields["boot"] == BOOT
    assert begun(idle).endswith("systemctl reboot -i\n")
    ((at, boot, reason),) = noted(idle)
    assert (boot, reason) == (BOOT, REASON)
    assert int(at) > 1_700_000_000
    assert os.stat(f"{idle.root}{system_files.REBOOTS}").st_mode & 0o777 == 0o644  # noqa: PTH116


def test_where_no_timer_can_be_set_it_is_rebooted_nevertheless(idle: Tree) -> None:
    idle.tool("systemd-run", "exit 1")
    assert restart(idle)["done"] == "rebooting"
    subprocess.run(["sleep", "2"], check=True)
    assert begun(idle) == "systemctl reboot -i\n"


def locked(tree: Tree, kind: str = "POSIX", path: str = "var/lib/dpkg/lock-frontend") -> object:
    """Have the kernel tell that process 77 holds a lock on a file."""
    write(tree.root / "proc/77/comm", "apt-get\n")
    inode = write(tree.root / path, "").stat().st_ino
    return write(tree.root / "proc/locks", f"1: {kind}  ADVISORY  WRITE 77 fd:01:{inode} 0 EOF\n")


def flocked(tree: Tree) -> object:
    return locked(tree, "FLOCK", "opt/ours/.lock")


def half_configured(tree: Tree) -> object:
    status = package("curl", "1", "install ok half-configured")
    return write(tree.root / "var/lib/dpkg/status", status)


BUSY: dict[str, tuple[Callable[[Tree], object], str]] = {
    "a job": (lambda tree: opened(tree, 812, "python3", "/dev/nvidia0"), "python3"),
    "a person": (
        lambda tree: session(tree, "3", USER="a", UID="1000", CLASS="user", TTY="pts/0"),
        "a on pts/0",
    ),
    "an inhibitor": (
        lambda tree: inhibitor(tree, "1", WHAT="shutdown", MODE="block", WHO="backup"),
        "backup",
    ),
}
ALWAYS: dict[str, tuple[Callable[[Tree], object], str]] = {
    "dpkg": (locked, "pid 77 (apt-get)"),
    "half": (half_configured, "an installation that is not done (curl)"),
    "ours": (flocked, "pid 77, which works on /opt/ours/.lock"),
    "locks unseen": (
        lambda tree: (flocked(tree), (tree.root / "proc/locks").unlink()),
        "/proc/locks may not be read",
    ),
    "no packages": (lambda tree: write(tree.root / "var/lib/dpkg/status", ""), "is empty"),
    "no list": (lambda tree: (tree.root / "var/lib/dpkg/status").unlink(), "is empty or gone"),
}


@pytest.mark.parametrize("case", [*BUSY, *ALWAYS])
def test_a_host_that_is_in_use_is_not_rebooted(idle: Tree, case: str) -> None:
    make, key = {**BUSY, **ALWAYS}[case]
    make(idle)
    fields = restart(idle)
    assert fields["done"] == "busy"
    assert key in str(fields["against"])
    assert (begun(idle), noted(idle)) == ("", [])


@pytest.mark.parametrize("case", [*BUSY, *ALWAYS])
def test_always_does_not_look_who_is_there_but_lets_packages_finish(idle: Tree, case: str) -> None:
    make, _ = {**BUSY, **ALWAYS}[case]
    make(idle)
    wanted = "rebooting" if case in BUSY else "busy"
    assert restart(idle, "always")["done"] == wanted
    assert bool(begun(idle)) == (case in BUSY)


@pytest.mark.parametrize("policy", ["if-idle", "always"])
def test_what_one_reboot_did_not_cure_is_not_rebooted_for_again(idle: Tree, policy: str) -> None:
    boot = idle.root / "proc/sys/kernel/random/boot_id"
    assert restart(idle, policy)["done"] == "rebooting"
    assert restart(idle, policy)["done"] == "rebooting"  # it has not gone down
    boot.write_text(f"{OTHER}\n")
    before = begun(idle)
    fields = restart(idle, policy)
    assert fields["done"] == "again"
    assert fields["at"] == int(noted(idle)[-1][0])
    assert begun(idle) == before
    assert restart(idle, policy, "something else")["done"] == "rebooting"
    assert [row[2] for row in noted(idle)] == [REASON, REASON, "something else"]


def test_without_a_boot_id_or_a_place_for_the_record_nothing_is_begun(
    idle: Tree,
) -> None:
    write(idle.root / "var/lib/pyinfra-gpu", "in the way")
    assert "cannot be written" in str(restart(idle)["why"])
    (idle.root / "proc/sys/kernel/random/boot_id").unlink()
    assert "boot_id" in str(restart(idle)["why"])
    assert begun(idle) == ""


def test_the_record_does_not_grow_for_ever(idle: Tree) -> None:
    rows = "".join(f"{at} {OTHER} reason {at}\n" for at in range(200))
    write(Path(f"{idle.root}{system_files.REBOOTS}"), rows)
    assert restart(idle)["done"] == "rebooting"
    assert len(noted(idle)) == 50
