"""Runs as units of a user manager of systemd's, on this machine: that nothing is left of them.

The manager has a mount namespace, a network namespace and a control group of its own; no throwaway
host is made.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from conftest import require
from launcher_here import Here
from running import ON_HOST
from training import GRACE_S, PATIENCE_S, TICK, Runs

from pyinfra_gpu.compatibility import resolve
from pyinfra_gpu.drift import launcher_files
from pyinfra_gpu_rehearsal import available
from tests.night import by_night

pytestmark = pytest.mark.rehearsal

PRESETS = {
    "tick": TICK,
    "short": {**TICK, "arguments": {"steps": 2}},
    "stubborn": {**TICK, "arguments": {**TICK["arguments"], "stubborn": 1}},
    "ranks": {**TICK, "launch": "torchrun", "ranks": 2},
    "breaks": {
        **TICK,
        "arguments": {
            "steps": 2,
            "why": "urllib3.exceptions.IncompleteRead: IncompleteRead(7 bytes read, 13 expected)",
        },
    },
}
# The manager moves all that is in its root group: so that is a group of its own, and a namespace.
CONTAINED = """
mount -t cgroup2 cgroup2 /mnt
mkdir "/mnt/$1"
echo $$ >"/mnt/$1/cgroup.procs"
umount /mnt
exec unshare --cgroup --mount --net sh -ec "$2" sh "$3"
"""
MANAGER = """
mount --make-rprivate /
umount -l /sys/fs/cgroup
mount -t cgroup2 cgroup2 /sys/fs/cgroup
mount -t tmpfs tmpfs /run
mount -t tmpfs tmpfs /var/lib/systemd
mkdir -p /run/systemd/system /var/lib/systemd/linger
mkdir -m 700 -p /run/user/0
touch /var/lib/systemd/linger/root
ip link set lo up
export HOME="$1" XDG_RUNTIME_DIR=/run/user/0 XDG_CONFIG_HOME="$1/.config"
exec /lib/systemd/systemd --user
"""
REMOVED = 'mount -t cgroup2 cgroup2 /mnt && find "/mnt/$1" -depth -type d -exec rmdir {} +'


class Units(Runs, Here):
    """The launcher of a prefix whose runs are units, in a control group."""

    group: Path

    def __call__(self, *words: str, code: int | None = 0) -> str:
        done = self.train(*words)
        assert code is None or done.returncode == code, (words, done.stdout, done.stderr)
        return done.stdout + done.stderr

    def processes(self) -> dict[int, str]:
        """What runs have started, and their supervisors: pid -> command line."""
        found = {}
        for path in self.group.glob("**/*train*/**/cgroup.procs"):
            for pid in path.read_text().split():
                with suppress(OSError):
                    line = Path(f"/proc/{pid}/cmdline").read_bytes()
                    found[int(pid)] = line.replace(b"\0", b" ").decode()
        return found

    def locks(self) -> list[str]:
        words = [*self.within, "grep", "-o", "@pyinfra-gpu/.*", "/proc/net/unix"]
        return subprocess.run(words, capture_output=True, text=True, check=False).stdout.split()


@pytest.fixture(scope="module")
def units(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Units]:
    require(available())
    folder, home = tmp_path_factory.mktemp("prefix"), tmp_path_factory.mktemp("home")
    name = f"launcher-{os.getpid()}"
    words = ["unshare", "--mount", "sh", "-ec", CONTAINED, "sh", name, MANAGER, str(home)]
    with subprocess.Popen(words, stderr=subprocess.DEVNULL) as manager:
        group = Path(f"/proc/{manager.pid}/root/sys/fs/cgroup")
        enter = ("nsenter", "--mount", "--net", "--cgroup", "--target", str(manager.pid))
        made = Units(folder)
        made.within = (*enter, "env", "XDG_RUNTIME_DIR=/run/user/0", f"HOME={home}")
        made.group = group
        try:
            asks = [*made.within, "systemctl", "--user", "is-system-running", "--wait"]
            deadline = time.monotonic() + PATIENCE_S
            while subprocess.run(asks, capture_output=True, check=False).returncode:
                assert time.monotonic() < deadline
                assert manager.poll() is None
                time.sleep(0.1)
            prepare(made)
            yield made
        finally:
            (group / "cgroup.kill").write_text("1")
    subprocess.run(["unshare", "--mount", "sh", "-c", REMOVED, "sh", name], check=True)


def prepare(made: Units) -> None:
    """Lay the units out, and what is trained."""
    data = {
        "stack": "cpu-torch2.13",
        "training_repo": "https://example.org/tiny.git",
        "training_commit": "0" * 40,
        "prefix": str(made.folder),
        "training_stop_grace_s": GRACE_S,
    }
    spec = resolve(data, "here")
    assert spec.training is not None
    for file in launcher_files.declared(spec, spec.training):
        if file.path.endswith(".service"):
            Path(file.path).write_bytes(file.content)
    made.site(presets=PRESETS, stop_grace_s=GRACE_S, retry_wait_s=3)
    shutil.copy(ON_HOST / "tick.py", made.folder / "checkout/tick.py")


@pytest.fixture
def train(units: Units) -> Iterator[Units]:
    """Return a launcher that has no run on, before and after."""
    yield units
    units.end_all()


@pytest.mark.parametrize(("preset", "said"), [("tick", "stopped"), ("stubborn", "by SIGKILL")])
def test_stop_leaves_nothing_behind_when_the_grace_is_over_at_the_latest(
    preset: str, said: str, train: Units
) -> None:
    name = train.start(preset)
    train.until(lambda runs: runs[name]["last"])
    assert said in train("stop")
    assert train.left() == []
    assert "has ended already: stopped" in train("stop", name, code=1)


# Who is killed -> (its command line, what becomes of the run, the rank that failed first).
KILLED = {
    "the agent": (r"\S*python -m torch.distributed.run", "failed", None),
    "a rank": (r"\S*python -u tick.py", "failed", 0),
    "the supervisor": (".*train supervise", "lost", None),
}


@pytest.mark.parametrize("who", by_night(KILLED, ("a rank", "the supervisor")))
def test_nothing_is_left_where_somebody_kills(who: str, train: Units) -> None:
    pattern, outcome, first = KILLED[who]
    name = train.start("ranks")
    train.until(lambda runs: runs[name]["last"])
    found = train.processes()
    os.kill(next(pid for pid in sorted(found) if re.match(pattern, found[pid])), signal.SIGKILL)
    assert train.left() == []
    (attempt,) = train.runs()[name]["attempts"]
    assert attempt["outcome"] == outcome
    if first is not None:
        assert attempt["first_failed_rank"] == first


def test_of_starts_one_gets_the_device_and_those_that_wait_keep_their_order(train: Units) -> None:
    name = train.start("tick")
    assert f"the CPU is taken by {name}" in train("start", "tick", "--unproven", code=1)
    waiting = [train.start("short", "--queue") for _ in range(2)]
    assert [train.runs()[each]["state"] for each in waiting] == ["queued"] * 2
    train("stop", name)
    runs = train.until(lambda runs: all(runs[each]["state"] == "ended" for each in waiting))
    first, second = (runs[each]["attempts"][0] for each in waiting)
    assert first["ended"] <= second["started"]


def test_a_failed_attempt_leaves_nothing_for_the_next_one_and_holds_nothing(train: Units) -> None:
    name = train.start("breaks", "--retries", "2")
    waits = train.until(lambda runs: runs[name]["state"] == "waiting")[name]["waits"]
    assert train.locks() == []
    assert "retry 1 of 2, after download-broke-off" in waits["for"]
    run = train.until(lambda runs: runs[name]["state"] == "ended")[name]
    told = [(each["outcome"], each["cause"]) for each in run["attempts"]]
    assert told == [("failed", "download-broke-off"), ("finished", None)]
    assert train.left() == []
