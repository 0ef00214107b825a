"""What the probe tells of people and locks that stand against a restart."""

from __future__ import annotations

import os
import pwd
import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parent / "fixtures" / "probe"))
from nvidia_tree import gpu_host_fixture, inhibitor, look, session  # noqa: F401
from probing import Tree, tree_fixture, write  # noqa: F401

from pyinfra_gpu.facts.record import Reboot
from pyinfra_gpu.spec import system_files

BOOT = "11111111-2222-3333-4444-555555555555"
ME = pwd.getpwuid(os.geteuid()).pw_name
PERSON = {"UID": "1000", "USER": "bob", "CLASS": "user", "STATE": "active"}

# what logind notes beside PERSON -> who is told to be there
SESSIONS: list[tuple[dict[str, str], tuple[str, ...]]] = [
    ({"TTY": "pts/4", "TYPE": "tty"}, ("bob on pts/4",)),
    ({"TTY": "tty1", "SEAT": "seat0"}, ("bob on tty1",)),
    ({"DISPLAY": ":0", "TYPE": "x11"}, ("bob on :0",)),
    ({"TYPE": "wayland", "SEAT": "seat0", "TTY": "tty2"}, ("bob on tty2",)),
    ({"TYPE": "wayland", "SEAT": "seat0"}, ("bob on seat0",)),
    ({"TYPE": "wayland"}, ("bob on wayland",)),
    ({"TYPE": "tty", "REMOTE": "1", "SERVICE": "sshd"}, ()),
    ({"CLASS": "greeter", "TTY": "tty1"}, ()),
    ({"CLASS": "background", "TTY": ""}, ()),
    ({"CLASS": "manager"}, ()),
    ({"CLASS": "user-early", "TTY": "tty1"}, ("bob on tty1",)),
    ({"TTY": "pts/4", "STATE": "closing"}, ()),
    ({"USER": "", "TTY": "pts/4"}, ("1000 on pts/4",)),
    ({"CLASS": "", "TTY": "pts/4"}, ()),
]


@pytest.mark.parametrize(("noted", "told"), SESSIONS)
def test_people_at_a_terminal_or_a_display_are_told(
    gpu_host: Tree, noted: dict[str, str], told: tuple[str, ...]
) -> None:
    (gpu_host.root / "run/systemd/sessions/3").unlink()
    session(gpu_host, "c1", **{**PERSON, **noted})
    session(gpu_host, "c1.ref", TTY="pts/9", **PERSON)
    assert look(gpu_host).power.sessions == told


def test_a_session_of_which_logind_knows_no_terminal_has_its_users_one(
    gpu_host: Tree,
) -> None:
    """As on systems without utmp: the connection of a person at work looks like ours."""
    (gpu_host.root / "run/systemd/sessions/3").unlink()
    uid = os.geteuid()
    session(gpu_host, "4", USER=ME, UID=str(uid), CLASS="user", TYPE="tty", REMOTE="1")
    session(gpu_host, "5", USER="bob", UID=str(uid + 1), CLASS="user", TYPE="tty", REMOTE="1")
    assert look(gpu_host).power.sessions == ()
    write(gpu_host.root / "dev/pts/ptmx", "")
    write(gpu_host.root / "dev/pts/7", "")
    assert look(gpu_host).power.sessions == (f"{ME} on pts/7",)


def test_without_logind_whoever_has_a_terminal_counts(gpu_host: Tree) -> None:
    (gpu_host.root / "run/systemd/sessions/3").unlink()
    (gpu_host.root / "run/systemd/sessions").rmdir()
    assert look(gpu_host).power.sessions == ()
    write(gpu_host.root / "dev/pts/0", "")
    assert look(gpu_host).power.sessions == (f"{ME} on pts/0",)


LOCKS: list[tuple[dict[str, str], tuple[str, ...]]] = [
    ({}, ("job: nightly dump",)),
    ({"WHAT": "sleep:shutdown:idle"}, ("job: nightly dump",)),
    ({"WHAT": "sleep:idle"}, ()),
    ({"MODE": "delay"}, ()),
    ({"MODE": "block-weak"}, ()),
    ({"WHY": ""}, ("job",)),
    (
        {"WHY": r"\"caf\303\251\" \\ \033[0m\n\xff"},
        ('job: "caf\N{LATIN SMALL LETTER E WITH ACUTE}" \\ ?[0m?\\xff',),
    ),
    ({"WHY": "a=b \\x27c\\x27"}, ("job: a=b 'c'",)),
]


@pytest.mark.parametrize(("changes", "told"), LOCKS)
def test_locks_that_block_a_shutdown_are_told(
    gpu_host: Tree, changes: dict[str, str], told: tuple[str, ...]
) -> None:
    noted = {"WHAT": "shutdown", "MODE": "block", "WHO": "job", "WHY": "nightly dump", **changes}
    inhibitor(gpu_host, "1", **noted)
    inhibitor(gpu_host, "1.ref", **noted)
    assert look(gpu_host).power.inhibitors == told


def test_the_reboots_that_were_asked_for_are_told(gpu_host: Tree) -> None:
    assert look(gpu_host).power.reboots == ()
    first_line = f"1763777520 {BOOT} nouveau is bound to the GPUs; a 'b' \\ $c"
    text = f"{first_line}\nodd\n1763777521 {BOOT} two\n17"
    write(Path(f"{gpu_host.root}{system_files.REBOOTS}"), text)
    first = Reboot(at=1763777520, boot_id=BOOT, reason="nouveau is bound to the GPUs; a 'b' \\ $c")
    assert look(gpu_host).power.reboots == (
        first,
        Reboot(at=1763777521, boot_id=BOOT, reason="two"),
    )
