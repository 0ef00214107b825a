"""Our pins and our guard, put to the test by the machine's own apt on a root of its own."""

from __future__ import annotations

import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from private_apt import APT, Package, PrivateApt

from pyinfra_gpu.engine.ask import Answer
from pyinfra_gpu.engine.transaction import why
from pyinfra_gpu.packages import apt as apt_words
from pyinfra_gpu.packages import files
from pyinfra_gpu.packages.simulation import Change, parse

pytestmark = pytest.mark.skipif(APT is None, reason="no apt-get on this machine")

GUARD = Path(__file__).parents[2] / "pyinfra_gpu/on_host/packages/apt/guard.sh"
VERSIONS = ("580.82.07", "580.95.05", "595.71.05")


def driver(version: str) -> list[Package]:
    exact = f"Depends: libcuda1 (= {version}-1)\n"
    return [
        Package("nvidia-driver-cuda", f"{version}-1", exact),
        Package("libcuda1", f"{version}-1"),
        Package("nvidia-modprobe", f"{version}-1"),
    ]


@pytest.fixture
def apt(tmp_path: Path) -> PrivateApt:
    """NVIDIA's repository, and a distribution with a newer driver of the same names."""
    private = PrivateApt(tmp_path)
    private.repository(
        "NVIDIA CUDA",
        *(package for version in VERSIONS for package in driver(version)),
        Package("nvidia-container-toolkit", "1.18.0-1"),
        Package("cuda-toolkit-13-0", "13.0.2-1"),
        Package("cuda-toolkit-13-0", "13.0.3-1"),
    )
    private.repository(
        "Debian", *driver("580.178.04"), Package("nvidia-kernel-common", "20220217"), suite="stable"
    )
    private.preferences(files.preferences(580, None, None))
    return private


def changes(apt: PrivateApt, *packages: str) -> dict[str, str | None]:
    simulation = parse(apt.simulate(*packages))
    assert simulation.problems == ()
    return {change.name: change.new for change in simulation.changes}


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        ("rm -r repository0", "apt says: E: Failed to fetch file:"),
        (
            "sed -i 's/trusted=yes/trusted=no/' etc/apt/sources.list",
            "cannot verify the signature of a package source (apt: E:",
        ),
        ("echo x >> repository0/Packages", "is not the one the source's index names (apt: E: "),
        (
            "sed -i 's|file:[^ ]*0 |http://127.0.0.1:9/x |' etc/apt/sources.list",
            "was not reached or refused (apt: E: Failed to fetch http://127.0.0.1:9/x",
        ),
    ],
)
def test_what_the_machines_own_apt_says_of_a_bad_repository_is_understood(
    apt: PrivateApt, spoil: str, words: str
) -> None:
    subprocess.run(spoil, shell=True, check=True, cwd=apt.root)
    lines = tuple(
        apt.run("update", "-o", "APT::Update::Error-Mode=any", "-o", "Acquire::Retries=0")
    )
    assert words in why(Answer(ok=False, stdout=(), lines=lines))


def test_what_was_removed_and_left_a_file_behind_is_not_on_offer(apt: PrivateApt) -> None:
    """As each pin package that another one has replaced; apt-cache show has it all the same."""
    name = "nvidia-driver-pinning-580.82.07"
    apt.installed(Package(name, "580.82.07-1"))
    status = apt.root / "var/lib/dpkg/status"
    status.write_text(
        status.read_text().replace("install ok installed", "deinstall ok config-files")
    )
    apt.run("update")
    assert apt.cache(f"apt-cache show --quiet=2 {name}")[0] == f"Package: {name}"
    found = apt_words.on_offer_in(apt.cache(apt_words.on_offer([name, "libcuda1"])))
    assert [*found] == ["libcuda1"]


def test_another_branch_is_brought_back(apt: PrivateApt) -> None:
    apt.installed(*driver("595.71.05"))
    found = changes(apt, "nvidia-driver-cuda", "libcuda1", "nvidia-modprobe")
    assert set(found.values()) == {"580.95.05-1"}


def test_an_upgrade_of_everything_stays_in_the_branch(apt: PrivateApt) -> None:
    apt.installed(*driver("580.82.07"))
    apt.run("update")
    found = parse(apt.run("-s", "dist-upgrade")).changes
    assert {change.new for change in found} == {"580.95.05-1"}
    apt.preferences(files.preferences(580, "580.82.07", None))
    assert parse(apt.run("-s", "dist-upgrade")).changes == ()


def test_what_is_not_the_driver_stays_free(apt: PrivateApt) -> None:
    assert changes(apt, "nvidia-kernel-common", "nvidia-container-toolkit") == {
        "nvidia-kernel-common": "20220217",
        "nvidia-container-toolkit": "1.18.0-1",
    }


def test_a_declared_toolkit_is_exact(apt: PrivateApt) -> None:
    apt.preferences(files.preferences(580, None, ("cuda-toolkit-13-0", "13.0.2")))
    assert changes(apt, "cuda-toolkit-13-0") == {"cuda-toolkit-13-0": "13.0.2-1"}


def test_what_was_removed_by_force_is_named_and_asked_for_with_the_rest(apt: PrivateApt) -> None:
    apt.installed(*(each for each in driver("580.82.07") if each.name != "libcuda1"))
    asked = ("nvidia-driver-cuda=580.82.07-*", "nvidia-modprobe=580.82.07-*")
    found = parse(apt.simulate(*asked))
    assert found.problems
    assert found.unmet == ("libcuda1=580.82.07-1",)
    assert changes(apt, *asked, *found.unmet) == {"libcuda1": "580.82.07-1"}


def test_a_hold_is_told_in_the_simulation_and_a_removal_too(apt: PrivateApt) -> None:
    apt.repository("Debian", Package("desktop", "1", "Conflicts: libcuda1\n"), suite="x")
    apt.installed(*driver("580.82.07"))
    found = parse(apt.simulate("desktop")).changes
    assert Change(name="libcuda1", old="580.82.07-1", new=None) in found


def run_guard(tmp_path: Path, allowed: str, *rows: str, version: str = "3") -> tuple[int, str]:
    (tmp_path / "allowed").write_text(allowed)
    told = f"VERSION {version}\nAPT::Architecture=amd64\nDir=/\n\n" + "".join(
        f"{row}\n" for row in rows
    )
    done = subprocess.run(
        ["sh", str(GUARD), str(tmp_path / "allowed")],
        input=told,
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stderr


NEW = "libcuda1 - - none < 580.95.05-1 amd64 same /var/cache/apt/archives/libcuda1.deb"
GONE = "yq 3.1.0-3 all none > - - none **REMOVE**"
DONE = "libcuda1 - - none < 580.95.05-1 amd64 same **CONFIGURE**"


@pytest.mark.parametrize(
    ("allowed", "rows", "code"),
    [
        ("libcuda1 580.95.05-1\n", (NEW, DONE), 0),
        ("libcuda1 580.95.05-1\nyq -\n", (GONE, NEW, DONE), 0),
        ("libcuda1 580.95.05-1\n", (GONE, NEW), 1),
        ("libcuda1 580.82.07-1\n", (NEW,), 1),
        ("libcuda1 580.95.05-10\n", (NEW,), 1),
        ("libcuda1 580x95x05-1\n", (NEW,), 1),
        ("", (NEW,), 1),
        ("yq 3.1.0-3\n", (GONE,), 1),
        ("", (DONE,), 0),
        ("", (), 0),
    ],
)
def test_the_guard_lets_through_what_was_simulated_and_nothing_else(
    tmp_path: Path, allowed: str, rows: tuple[str, ...], code: int
) -> None:
    found, said = run_guard(tmp_path, allowed, *rows)
    assert found == code
    assert bool(said) == bool(code)


def test_the_guard_stops_a_protocol_it_does_not_know(tmp_path: Path) -> None:
    assert run_guard(tmp_path, "libcuda1 580.95.05-1\n", NEW, version="4")[0] == 1


def test_who_holds_apts_lock_is_read_off_apts_own_words(apt: PrivateApt) -> None:
    words = shlex.split(apt_words.unlocked(0))
    words = words[words.index("check") :]
    assert apt_words.locked_by(apt.run(*words)) is None
    program = (
        "import fcntl, sys; lock = open(sys.argv[1], 'w'); fcntl.lockf(lock, fcntl.LOCK_EX);"
        "print(flush=True); sys.stdin.read()"
    )
    path = str(apt.root / "var/lib/dpkg/lock-frontend")
    command = [sys.executable, "-c", program, path]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout
        holder.stdout.readline()
        told = apt_words.locked_by(apt.run(*words))
        holder.communicate()
    assert told
    assert told.startswith(f"pid {holder.pid} (")
