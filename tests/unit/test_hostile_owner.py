"""An owner who puts anything in the place of anything: root is not moved, and does not wait."""

from __future__ import annotations

import fcntl
import os
import stat
import subprocess
from collections.abc import Iterator
from itertools import product

import hostile
import pytest
from hostile import FILES, KINDS, NOBODY, OWNER, PROGRAMS, THEIRS, Place

from pyinfra_gpu.engine import steps, write
from pyinfra_gpu.engine.privilege import as_root
from pyinfra_gpu.engine.write import File
from pyinfra_gpu.facts.fields import Unknown
from pyinfra_gpu.facts.parse import parse
from pyinfra_gpu.facts.probe import asked_by
from pyinfra_gpu.facts.record import Record
from pyinfra_gpu.on_host import program
from pyinfra_gpu.stages.finding import Id
from pyinfra_gpu.stages.layout import findings as layout
from pyinfra_gpu.stages.layout.operations import command as directories
from tests.night import by_night

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can be led astray")

DEADLINE_S = 60
"""Of a look; what takes long here is a machine that does something else."""


@pytest.fixture(name="place")
def place_fixture() -> Iterator[Place]:
    """A prefix that is not furnished yet."""
    with hostile.place() as made:
        yield made


def writes(made: Place) -> list[File]:
    """The files that a run writes below the prefix."""
    return [
        File(path=str(made.prefix / "bin/torchrun"), content=b"#!/bin/sh\n", mode="0755"),
        File(
            path=str(made.prefix / "env/training.env"), content=b"A=1\n", mode="0600", owner=OWNER
        ),
        File(path=str(made.prefix / "smoke/smoke_test.pyz"), content=b"PK" * 100_000),
        File(path=str(made.prefix / "smoke/stamp.json"), content=b"{}"),
    ]


def deploy(made: Place, seen: Record | None = None) -> list[str]:
    """Do as root what a run does below the prefix; return what was refused.

    + seen: what a look has brought, where there was one; else it is looked at here
    """
    wanted = made.spec()
    reported = []
    commands = [(directories(wanted, seen or made.look()), "")]
    commands += [(write.command(each, as_root(wanted)), write.sent(each)) for each in writes(made)]
    uses = ("files/root_only.sh", "files/set_aside.sh")
    commands.append((program("pytorch/place.sh", wanted.paths.venv, "1", OWNER, uses=uses), ""))
    for command, text in commands:
        done = made.run(command, text)
        if done.returncode:
            reported.append(done.stderr)
    return reported


def harmless(made: Place, before: list[tuple[object, ...]]) -> None:
    """Nothing outside has changed, and nothing that was planted ran as root."""
    assert made.state_outside() == before
    assert "0" not in made.ran_as()


PLACES = {
    "files": (*PROGRAMS, *FILES, *THEIRS, ".lock"),
    "directories": ("tools", "bin", "env", "smoke", "proofs", "venv", "cache", "training", "state"),
    "the prefix": ("",),
}


FEW = {"state/verdict.json", "bin/torchrun", "venv"}
"""Where a crowd is put: it takes seconds to make one."""


CASES = list(product(KINDS, PLACES, ("now", "given away")))
ALWAYS = [case for number, case in enumerate(CASES) if number % 5 == 3]
"""Each kind once, in places that take turns."""


@pytest.mark.parametrize(("kind", "what", "given"), by_night(CASES, ALWAYS))
def test_whatever_the_owner_puts_there_leads_root_nowhere(
    place: Place, kind: str, what: str, given: str
) -> None:
    """What the owner can exchange is exchanged; what only root can, an owner cannot."""
    given_away = given == "given away"
    place.furnish(given_away=given_away)
    names = FEW & {*PLACES[what]} if "100,000" in kind else PLACES[what]
    for path in (place.prefix / name for name in names):
        if os.path.lexists(path) and path.parent.stat().st_uid == NOBODY:
            hostile.replace(place, path, kind)
    before = place.state_outside()
    record = place.look(DEADLINE_S)
    harmless(place, before)
    if given_away:
        assert isinstance(record.smoke.stamp, Unknown) or record.smoke.stamp is None
    deploy(place, record)
    harmless(place, before)


@pytest.mark.parametrize("given_away", [False, True], ids=["now", "given away"])
def test_the_owners_programs_run_as_the_owner_and_as_nobody_else(
    place: Place, given_away: bool
) -> None:
    place.furnish(given_away=given_away)
    record = place.look()
    assert record.torch.uv == "0.13.8"
    assert place.ran_as() == {str(NOBODY)}


def test_a_proof_that_is_not_roots_counts_no_more_while_somebody_uses_the_gpus(
    place: Place,
) -> None:
    """The list of who has them open took the place of what stands where."""
    place.furnish(given_away=False)
    proof, root = place.prefix / "proofs/libcuda.json", place.base / "root"
    proof.write_text("{}\n")
    os.chown(proof, NOBODY, NOBODY)
    (root / "proc/7/fd").mkdir(parents=True)
    (root / "proc/7/fd/3").symlink_to("/dev/nvidia0")
    (root / "dev").mkdir()
    (root / "dev/nvidia0").touch()
    asked = asked_by(place.spec(), root=str(root), libcuda_proof=str(proof)) | {"nvidia": True}
    record = parse(place.looked(asked).splitlines())
    assert record.driver.users == ("pid 7",)
    assert record.libcuda.proof == Unknown(f"{proof} is not a file of root's")


def test_root_takes_no_lock_that_somebody_else_can_exchange(place: Place) -> None:
    """flock(1) makes the file where there is none: through a link, wherever that leads."""
    place.furnish(given_away=True)
    (place.prefix / ".lock").unlink()
    (place.prefix / ".lock").symlink_to(place.outside / "nologin")
    before = place.state_outside()
    done = place.run(steps.locked("id -u", str(place.prefix / ".lock"), "1", 1))
    assert done.stderr == f"somebody else than root can change {place.prefix}\n"
    harmless(place, before)
    place.run(directories(place.spec(), place.look()))
    done = place.run(steps.locked("id -u", str(place.prefix / ".lock"), "1", 1))
    assert (done.returncode, done.stdout) == (0, "0\n")
    harmless(place, before)


def test_nobody_but_root_and_the_owner_can_hold_the_lock(place: Place) -> None:
    """Whoever can open a file can lock it: a read-only open of anybody's stalled each deploy."""
    place.furnish(given_away=False)
    lock = place.prefix / ".lock"
    lock.chmod(0o644)
    with lock.open() as opened:
        assert {each.id for each in layout.judge(place.spec(), place.look())} == {
            Id.LAYOUT_DIRECTORY_DIFFERS
        }
        place.run(directories(place.spec(), place.look()))
        assert layout.judge(place.spec(), place.look()) == []
        fcntl.flock(opened, fcntl.LOCK_EX)  # opened while it was open to all: another file now
        there = lock.stat()
        assert (there.st_uid, there.st_gid, stat.S_IMODE(there.st_mode)) == (0, NOBODY, 0o640)
        for identity, code in ((NOBODY, 0), (NOBODY - 1, 2)):
            words = f"setpriv --reuid {identity} --regid {identity} --clear-groups"
            taken = place.run(f"{words} {steps.locked('id -u', str(lock), '', 1)}")
            assert (taken.returncode, bool(taken.stdout)) == (code, code == 0), taken.stderr


def test_who_holds_the_lock_is_told(place: Place) -> None:
    place.furnish(given_away=False)
    lock = place.prefix / ".lock"
    with subprocess.Popen(["flock", lock, "-c", "echo; read _"], stdin=-1, stdout=-1) as holder:
        assert holder.stdout is not None
        holder.stdout.readline()
        done = place.run(steps.locked("id -u", str(lock), "1", 1))
        holder.communicate(b"\n")
    assert (done.returncode, done.stdout) == (75, "")
    reported = done.stderr.splitlines()[-1]
    assert reported.startswith(f"{steps._HELD}{lock} is held by pid {holder.pid} flock")
    done = place.run(steps.locked("id -u", str(lock), "1", 1))
    assert (done.returncode, done.stdout) == (0, "0\n")


def test_a_prefix_that_was_given_away_is_taken_back_and_nothing_is_lost(place: Place) -> None:
    place.furnish(given_away=True)
    (place.prefix / "bin/mine").write_text("a script of the user's")
    (place.prefix / "training/training/notes").write_text("a person's work")
    (place.prefix / "cache/wheel").write_text("wheel")
    found = layout.judge(place.spec(), place.look())
    assert {each.id for each in found} == {Id.LAYOUT_DIRECTORY_DIFFERS}
    done = place.run(directories(place.spec(), place.look()))
    assert done.returncode == 0, done.stderr
    assert f"{place.prefix}/tools is kept as" in done.stdout
    assert layout.judge(place.spec(), place.look()) == []
    for name in ("", "tools", "bin", "env", "smoke"):
        there = (place.prefix / name).stat()
        assert (there.st_uid, stat.S_IMODE(there.st_mode)) == (0, 0o755), name
    for name in ("venv", "cache", "training", "state"):
        assert (place.prefix / name).stat().st_uid == NOBODY, name
    assert (place.prefix / "state/verdict.json").exists()
    assert list((place.prefix / "smoke").iterdir()) == []
    assert (place.prefix / "tools.before-pyinfra-gpu/bin/uv").exists()
    assert (place.prefix / "bin.before-pyinfra-gpu/mine").read_text() == "a script of the user's"
    assert (place.prefix / "training/training/notes").read_text() == "a person's work"
    assert (place.prefix / "cache/wheel").read_text() == "wheel"
    lock = (place.prefix / ".lock").stat()
    assert (lock.st_uid, stat.S_IMODE(lock.st_mode)) == (0, 0o640)
    again = place.run(directories(place.spec(), place.look()))
    assert (again.returncode, again.stdout) == (0, "")


def test_a_new_owner_gets_directories_of_their_own_and_the_old_ones_are_kept(place: Place) -> None:
    place.furnish(given_away=False)
    for name in ("cache", "training", "venv"):
        os.chown(place.prefix / name, 1, 1)
    (place.prefix / "training/notes").write_text("a person's work")
    done = place.run(directories(place.spec(), place.look()))
    assert done.returncode == 0, done.stderr
    assert (place.prefix / "training.before-pyinfra-gpu/notes").read_text() == "a person's work"
    assert list((place.prefix / "training").iterdir()) == []
    assert (place.prefix / "training").stat().st_uid == NOBODY
    assert (place.prefix / "venv.before-pyinfra-gpu/bin/python").exists()
    assert not (place.prefix / "venv").exists()
    assert not (place.prefix / "cache.before-pyinfra-gpu").exists()  # it was empty
    assert layout.judge(place.spec(), place.look()) == []


@pytest.mark.parametrize("name", ["bin", "state"])
def test_a_link_below_the_prefix_is_refused_with_a_sentence(place: Place, name: str) -> None:
    place.furnish(given_away=False)
    hostile.replace(place, place.prefix / name, "a link to a directory of root's")
    before = place.state_outside()
    assert [each.id for each in layout.judge(place.spec(), place.look()) if each.stops] == [
        Id.LAYOUT_DIRECTORY_DIFFERS
    ]
    done = place.run(directories(place.spec(), place.look()))
    assert done.stderr == f"{place.prefix}/{name} is a link: move it away\n"
    harmless(place, before)


def test_a_user_who_swaps_directories_as_fast_as_can_be_leads_root_nowhere(place: Place) -> None:
    before = place.state_outside()
    for number, name in enumerate(("bin", "env", "smoke", "tools", "cache")):
        place.prefix.rename(place.base / f"old{number}")
        place.prefix.mkdir()
        place.furnish(given_away=True)
        with hostile.swapping(place.prefix / name, place.outside):
            deploy(place)
        harmless(place, before)
    assert sorted(path.name for path in place.outside.iterdir()) == ["shadow"]


def test_a_prefix_whose_way_somebody_else_can_change_is_told(place: Place) -> None:
    place.furnish(given_away=False)
    assert place.look().layout.open is None
    os.chown(place.base, NOBODY, NOBODY)
    assert place.look().layout.open == str(place.base)
    os.chown(place.base, 0, 0)
    place.base.chmod(0o775)  # what an access list for somebody looks like, too
    assert place.look().layout.open == str(place.base)
    place.base.chmod(0o1777)
    assert place.look().layout.open == str(place.base)
    assert [text for text in deploy(place) if "somebody else than root can change" in text]
