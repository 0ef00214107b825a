"""Apt, dpkg and Debian are named where packages are their subject, and nowhere else."""

from __future__ import annotations

import re
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[2]
WORDS = re.compile(r"(?i)(?<![a-z])(apt|dpkg|debian)")
KINDS = (".py", ".sh", ".j2")
AT_HOME = ("pyinfra_gpu/packages/", "pyinfra_gpu/on_host/packages/")

# What a line may be about all the same: a pattern, and why. The data key `preflight_apt_wait_s` and
# what it becomes may stand anywhere: it is the user's word.
KEY = re.compile(r"(preflight_)?apt_wait_s")
ALLOWED = {
    # A user's own words: what a key is for, and why a value is refused.
    "pyinfra_gpu/spec/": r"help=|apt source line|that apt|which apt|/etc/apt/auth|debian12",
    # Folders a user may not choose for our files, by the name of whose they are.
    "pyinfra_gpu/spec/sources.py": r'"/var/lib/(apt|dpkg)"',
    # What the data of stacks.yaml looks like.
    "pyinfra_gpu/stacks/": r"debian 12'|\{\"debian\": ",
    # From which distribution on a library is new enough.
    "pyinfra_gpu/compatibility/software.py": r"Debian 11 or Ubuntu 22.04 at least",
    # Leftovers beside kernels are no kernels, whoever left them.
    "pyinfra_gpu/on_host/probe/driver.py": r"\.dpkg-|/var/lib/dpkg/info",
    "pyinfra_gpu/on_host/__init__.py": r'"power", "apt", "needs"',
    # The look's part that asks the package manager, and what calls it.
    "pyinfra_gpu/on_host/probe/apt.py": r".",
    "pyinfra_gpu/on_host/probe/": r"\bapt\b|Debian|Ubuntu|MOK.der|dkms",
    # A proof is one file that runs alone; it asks whose a library is where there is one to ask.
    "pyinfra_gpu/on_host/proofs/libcuda_proof.sh": r"dpkg-query -S",
}


def files() -> list[Path]:
    roots = (PROJECT / "pyinfra_gpu", PROJECT / "tasks", PROJECT / "deploy.py")
    found = [path for root in roots for path in (root.rglob("*") if root.is_dir() else [root])]
    return sorted(path for path in found if path.suffix in KINDS)


def named(path: Path) -> list[tuple[str, str]]:
    """The lines of a file that name one of them, and the file."""
    where = path.relative_to(PROJECT).as_posix()
    lines = path.read_text(encoding="utf-8").splitlines()
    return [(where, line.strip()) for line in lines if WORDS.search(KEY.sub("", line))]


def is_allowed(where: str, line: str) -> bool:
    return where.startswith(AT_HOME) or any(
        where.startswith(place) and re.search(pattern, line) for place, pattern in ALLOWED.items()
    )


def test_no_family_is_named_outside_the_package_managers_room() -> None:
    strangers = [each for path in files() for each in named(path) if not is_allowed(*each)]
    assert strangers == []


def test_every_exception_is_still_needed() -> None:
    lines = [each for path in files() for each in named(path)]
    for place, pattern in ALLOWED.items():
        assert [
            line for where, line in lines if where.startswith(place) and re.search(pattern, line)
        ]


def test_the_words_are_found_where_they_stand() -> None:
    assert WORDS.search("import apt")
    assert WORDS.search("AptRecord")
    assert WORDS.search("_apt(x)")
    assert WORDS.search("on Debian 12")
    assert not WORDS.search("adapt, captured")
    assert any(named(path) for path in files() if "packages/apt" in path.as_posix())
    assert KEY.sub("", "spec.preflight.apt_wait_s, preflight_apt_wait_s") == "spec.preflight., "


def test_the_room_stands_below_all_that_looks_judges_and_acts() -> None:
    above = r"pyinfra_gpu\.(facts|drift|engine|operations|report|diagnosis|cli)|\btasks\b"
    for path in (PROJECT / "pyinfra_gpu" / "packages").rglob("*.py"):
        for line in path.read_text(encoding="utf-8").splitlines():
            if line.lstrip().startswith(("import ", "from ")):
                assert not re.search(above, line), f"{path}: {line}"
