"""The programs of `on_host/packages`, with stand-ins for what they call."""

from __future__ import annotations

import base64
import hashlib
import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest
from private_apt import Package

from pyinfra_gpu import on_host


@dataclass
class Desk:
    """A folder with stand-ins for tools, and where programs of ours run."""

    root: Path

    def tool(self, name: str, text: str) -> Path:
        path = self.root / "tools" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"#!/bin/sh\n{text}\n")
        path.chmod(0o755)
        return path

    def run(self, name: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run a program of ours as it travels: as a command line."""
        return subprocess.run(
            ["/bin/sh", "-c", on_host.program(f"packages/apt/{name}", *arguments)],
            env={"PATH": f"{self.root}/tools:{os.environ['PATH']}", "TMPDIR": str(self.root)},
            cwd=self.root,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    @property
    def calls(self) -> list[str]:
        """What stand-ins have noted."""
        return (self.root / "calls").read_text().splitlines()


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path)


@pytest.mark.parametrize("value", ["two words", "$(touch evil)", "a'b\"c", "*"])
def test_a_value_is_an_argument_and_never_a_part_of_the_program(value: str, desk: Desk) -> None:
    desk.tool("apt-mark", "echo held")
    printing = desk.tool("printing", 'printf "<%s>" "$@"; echo')
    done = desk.run("simulate.sh", str(printing), value)
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
    desk.tool("apt-mark", 'echo "$@" >>calls; echo "a set on hold."')
    apt = desk.tool("apt", f"[ ! -e calls ] || exit 9; {text}")
    done = desk.run("transaction.sh", "", "", "a b:i386", str(apt))
    assert (done.returncode, done.stdout, desk.calls) == (status, "", ["hold a b:i386"])


def test_a_hold_that_cannot_be_put_back_is_a_failure(desk: Desk) -> None:
    """dpkg goes on behind an apt that was killed, and has the lock."""
    desk.tool("apt-mark", "echo 'E: Executing dpkg failed' >&2; exit 100")
    done = desk.run("transaction.sh", "", "", "a", str(desk.tool("apt", "")))
    assert (done.returncode, done.stderr) == (1, "E: Executing dpkg failed\n")


# What apt does with the two options of ours: hand them what it is about to do, as version 3 of its
# protocol has it (tests/rehearsal/test_bad_repository.py has apt itself do it).
AS_APT = """for option; do :; done
[ "$option" = DPkg::Tools::Options::/usr/bin/env::Version=3 ] || exit 9
while [ "$1" != -o ]; do shift; done
sh -c "${2#DPkg::Pre-Install-Pkgs::=}" <about
"""
NEW = "libcuda1 - - none < 580.95.05-1 amd64 same /var/cache/apt/archives/libcuda1.deb"
GONE = "yq 3.1.0-3 all none > - - none **REMOVE**"
DONE = "libcuda1 - - none < 580.95.05-1 amd64 same **CONFIGURE**"


@pytest.mark.parametrize(
    ("allowed", "rows", "code"),
    [
        ("libcuda1 580.95.05-1\nyq -\n", ("3", GONE, NEW, DONE), 0),
        ("libcuda1 580.95.05-1\n", ("3", GONE, NEW), 1),
        ("libcuda1 580.95.05-10\n", ("3", NEW), 1),
        ("libcuda1 580x95x05-1\n", ("3", NEW), 1),
        ("yq 3.1.0-3\n", ("3", GONE), 1),
        ("", ("3", DONE), 0),
        ("libcuda1 580.95.05-1\n", ("4", NEW), 1),
    ],
)
def test_the_guard_lets_through_what_was_simulated_and_nothing_else(
    allowed: str, rows: tuple[str, ...], code: int, desk: Desk
) -> None:
    version, *about = rows
    reported = f"VERSION {version}", "APT::Architecture=amd64", "Dir=/", "", *about, ""
    (desk.root / "about").write_text("\n".join(reported))
    apt = desk.tool("apt", AS_APT)
    done = desk.run("transaction.sh", on_host.text("packages/apt/guard.sh"), allowed, "", str(apt))
    assert (done.returncode, bool(done.stderr)) == (code, bool(code))


KEY = b"\0not text\n" * 20  # more than a line of base64
HELPER = Path("/usr/lib/apt/apt-helper")


@pytest.mark.skipif(
    not HELPER.exists() or shutil.which("dpkg-deb") is None, reason="no apt and dpkg here"
)
@pytest.mark.parametrize("right", [True, False], ids=["its digest", "another digest"])
def test_a_keyring_is_printed_only_out_of_a_package_of_its_digest(right: bool, desk: Desk) -> None:
    root, deb = desk.root / "package", desk.root / "k.deb"
    for folder in ("DEBIAN", "usr"):
        (root / folder).mkdir(parents=True)
    (root / "DEBIAN/control").write_text(Package("k", "1").stanza())
    (root / "usr/k.gpg").write_bytes(KEY)
    subprocess.run(["dpkg-deb", "-b", str(root), str(deb)], check=True, capture_output=True)
    digest = hashlib.sha256(deb.read_bytes()).hexdigest() if right else "0" * 64
    done = desk.run("keyring.sh", f"file://{deb}", f"SHA256:{digest}", "usr/k.gpg")
    assert (done.returncode == 0) is right
    assert done.stdout == (f"{base64.b64encode(KEY).decode()}\n" if right else "")
    assert list(desk.root.glob("tmp.*")) == []


HELD = "E: Could not get lock /var/lib/apt/lists/lock. It is held by process 4711 (apt-get)"


@pytest.mark.parametrize(
    ("script", "seconds", "reported"),
    [
        ('echo "$LC_ALL $1"; echo oops >&2; exit 100', 10, ("C update\noops\n", 100, 1)),
        (f"[ -e free ] || {{ >free; echo '{HELD}' >&2; exit 1; }}; echo x", 9, ("x\n", 0, 2)),
        (f"echo '{HELD}' >&2; exit 100", 0, (f"{HELD}\n", 100, 1)),
        (f"echo '{HELD}' >&2; exit 100", 1, (f"{HELD}\n", 100, 2)),
    ],
    ids=["it fails", "another fetches the lists", "at once", "for too long"],
)
def test_another_fetch_of_the_lists_is_waited_for_as_long_as_declared(
    script: str, seconds: int, reported: tuple[str, int, int], desk: Desk
) -> None:
    fetch = desk.tool("fetch", f"echo x >>calls\n{script}")
    done = desk.run("update.sh", str(seconds), str(fetch), "update")
    assert (done.stdout, done.returncode, len(desk.calls)) == reported


# --- what an interrupted installation left

CONFIGURE = "dpkg --force-confold --configure -a"
SOUND = ("ii |git=1", "rc |old=1", "un |never=")


def finished(
    desk: Desk,
    *states: str,
    download: str = 'touch "${2%%=*}.deb"',
    configured: int = 0,
    dkms: str | None = None,
) -> tuple[list[str], bool]:
    """Finish where dpkg knows packages in these states; return the calls, and whether it failed.

    + download: what apt-get does
    + configured: how `dpkg --configure` ends
    + dkms: what `dkms status` says of a kernel; None: it is not on this host
    """
    noting = f'echo "${{0##*/}} $*" >>{desk.root}/calls'
    desk.tool("dpkg-query", f"cat <<'END'\n{chr(10).join(states)}\nEND")
    desk.tool("apt-get", f"{noting}; shift; {download}")
    desk.tool("dpkg", f"{noting}; case $2 in --configure) exit {configured};; esac")
    if dkms is not None:
        case = "'status -m nvidia -v 580.1 -k 6.8.0 -a x86_64'"
        desk.tool("dkms", f"case $* in {case}) echo '{dkms}';; esac")
    (desk.root / "state").mkdir()
    done = desk.run("finish.sh", f"{desk.root}/state", f"{desk.root}/dkms-tree")
    assert [*(desk.root / "state").iterdir()] == []
    return desk.calls, done.returncode != 0


@pytest.mark.parametrize("state", ["iU ", "iF ", "it ", "ii "])
def test_what_is_unpacked_is_set_up_and_fetched_by_nobody(desk: Desk, state: str) -> None:
    assert finished(desk, *SOUND, f"{state}|libcuda1:amd64=580-1") == ([CONFIGURE], False)


@pytest.mark.parametrize("state", ["iHR", "iH ", "iUR", "hHR"])
def test_what_was_cut_off_is_unpacked_again_at_its_own_version(desk: Desk, state: str) -> None:
    calls, failed = finished(desk, *SOUND, f"{state}|libcuda1:amd64=580-1")
    fetched = "apt-get -q download libcuda1:amd64=580-1"
    assert calls == [fetched, "dpkg --force-confold --unpack libcuda1:amd64.deb", CONFIGURE]
    assert not failed


def test_what_somebody_removes_is_not_brought_back(desk: Desk) -> None:
    assert finished(desk, "rHR|libcuda1:amd64=580-1", "pHR|x=1") == ([CONFIGURE], False)


@pytest.mark.parametrize("others", [(), ("iHR|here=2",)])
def test_one_that_is_on_offer_no_longer_keeps_no_other_from_it(
    desk: Desk, others: tuple[str, ...]
) -> None:
    gone = 'case $2 in gone*) echo "E: no such version" >&2; exit 100;; esac; touch "${2%%=*}.deb"'
    calls, failed = finished(desk, "iHR|gone=1", *others, download=gone, configured=1)
    assert ("dpkg --force-confold --unpack here.deb" in calls) is bool(others)
    assert (calls[-1], failed) == (CONFIGURE, True)


def modules(desk: Desk) -> tuple[Path, list[Path]]:
    """Make what DKMS keeps, with a kernel's folder as a build leaves it that was cut off.

    Returns that folder, and files that have to stay whatever it says of that kernel.
    """
    tree, source = desk.root / "dkms-tree/nvidia/580.1", desk.root / "src/nvidia-580.1"
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
    desk: Desk,
) -> None:
    """Else its `remove` passes over it, and its `add` says each time that it is there already."""
    half, kept = modules(desk)
    reported = finished(desk, "iF |dkms=1", configured=1, dkms="nvidia/580.1: added")
    assert reported == ([CONFIGURE, CONFIGURE], True)
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
    desk: Desk, configured: int, dkms: str | None
) -> None:
    half, _ = modules(desk)
    reported = finished(desk, "iU |git=1", configured=configured, dkms=dkms)
    assert reported == ([CONFIGURE], bool(configured))
    assert half.exists()
