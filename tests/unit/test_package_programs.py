"""The programs of `on_host/packages`, with stand-ins for what they call."""

from __future__ import annotations

import base64
import hashlib
import os
import shutil
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from private_apt import Package

from pyinfra_gpu import on_host

TOOLS = ("base64", "cat", "env", "grep", "mkdir", "mktemp", "mv", "rm", "sed", "sh", "sleep")


@dataclass
class Desk:
    """A folder with the tools a program may call, some of them replaced."""

    root: Path
    tools: Path = field(init=False)

    def __post_init__(self) -> None:
        self.tools = self.root / "tools"
        self.tools.mkdir()
        for name in TOOLS:
            (self.tools / name).symlink_to(str(shutil.which(name)))

    def tool(self, name: str, text: str) -> Path:
        path = self.tools / name
        path.unlink(missing_ok=True)
        path.write_text(f"#!/bin/sh\n{text}\n")
        path.chmod(0o755)
        return path

    def run(self, name: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run a program of ours as it travels: as a command line."""
        return subprocess.run(
            ["/bin/sh", "-c", on_host.program(f"packages/{name}", *arguments)],
            env={"PATH": str(self.tools), "LC_ALL": "C"},
            cwd=self.root,
            capture_output=True,
            text=True,
            timeout=30,
            check=False,
        )


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path)


@pytest.mark.parametrize("value", ["two words", "$(touch evil)", "a'b\"c", "*"])
def test_a_value_is_an_argument_and_never_a_part_of_the_program(value: str, desk: Desk) -> None:
    desk.tool("apt-mark", "echo held")
    printing = desk.tool("printing", 'printf "<%s>" "$@"; echo')
    done = desk.run("apt/simulate.sh", str(printing), value)
    assert done.stdout.splitlines() == [
        *(f"<{value}><--simulate>", "Hold held", f"<{value}><--print-uris>", "Done")
    ]
    assert not (desk.root / "evil").exists()


ENDS = {"well": ("exit 0", 0), "badly": ("exit 100", 100), "killed": ("kill -TERM $PPID", 1)}


@pytest.mark.parametrize("ends", ENDS)
def test_what_was_on_hold_is_on_hold_again_however_a_transaction_ends(
    ends: str, desk: Desk
) -> None:
    text, status = ENDS[ends]
    marked = desk.root / "marked"
    desk.tool("apt-mark", f'echo "$@" >>{marked}; echo "a set on hold."')
    apt = desk.tool("apt", f"[ ! -e {marked} ] || exit 9; {text}")
    done = desk.run("apt/transaction.sh", "", "", "a b:i386", str(apt))
    assert (done.returncode, done.stdout) == (status, "")
    assert marked.read_text() == "hold a b:i386\n"


def test_a_hold_that_cannot_be_put_back_is_a_failure(desk: Desk) -> None:
    """dpkg goes on behind an apt that was killed, and has the lock."""
    desk.tool("apt-mark", "echo 'E: Executing dpkg failed' >&2; exit 100")
    done = desk.run("apt/transaction.sh", "", "", "a", str(desk.tool("apt", "")))
    assert (done.returncode, done.stderr) == (1, "E: Executing dpkg failed\n")


KEY = b"\0not text\n" * 20  # more than a line of base64
HELPER = Path("/usr/lib/apt/apt-helper")


@pytest.mark.skipif(
    not HELPER.exists() or shutil.which("dpkg-deb") is None, reason="no apt and dpkg here"
)
@pytest.mark.parametrize("right", [True, False], ids=["its digest", "another digest"])
def test_a_keyring_is_printed_only_out_of_a_package_of_its_digest(
    right: bool, tmp_path: Path
) -> None:
    root, deb = tmp_path / "package", tmp_path / "k.deb"
    for folder in ("DEBIAN", "usr"):
        (root / folder).mkdir(parents=True)
    (root / "DEBIAN/control").write_text(Package("k", "1").stanza())
    (root / "usr/k.gpg").write_bytes(KEY)
    subprocess.run(["dpkg-deb", "-b", str(root), str(deb)], check=True, capture_output=True)
    digest = hashlib.sha256(deb.read_bytes()).hexdigest() if right else "0" * 64
    arguments = (f"file://{deb}", f"SHA256:{digest}", "usr/k.gpg")
    command = ["/bin/sh", "-c", on_host.program("packages/apt/keyring.sh", *arguments)]
    known = {**os.environ, "TMPDIR": str(tmp_path)}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=known)
    assert (done.returncode == 0) is right
    assert done.stdout == (f"{base64.b64encode(KEY).decode()}\n" if right else "")
    assert list(tmp_path.glob("tmp.*")) == []


HELD = "E: Could not get lock /var/lib/apt/lists/lock. It is held by process 4711 (apt-get)"


@pytest.mark.parametrize(
    ("script", "seconds", "told"),
    [
        ('echo "$LC_ALL $1"; echo oops >&2; exit 100', 10, ("C update\noops\n", 100, 1)),
        (f"[ -e free ] || {{ >free; echo '{HELD}' >&2; exit 1; }}; echo x", 9, ("x\n", 0, 2)),
        (f"echo '{HELD}' >&2; exit 100", 0, (f"{HELD}\n", 100, 1)),
        (f"echo '{HELD}' >&2; exit 100", 1, (f"{HELD}\n", 100, 2)),
    ],
    ids=["it fails", "another fetches the lists", "at once", "for too long"],
)
def test_another_fetch_of_the_lists_is_waited_for_as_long_as_declared(
    script: str, seconds: int, told: tuple[str, int, int], desk: Desk
) -> None:
    fetch = desk.tool("fetch", f"echo x >>calls\n{script}")
    done = desk.run("apt/update.sh", str(seconds), str(fetch), "update")
    calls = (desk.root / "calls").read_text().count("x")
    assert (done.stdout, done.returncode, calls) == told
