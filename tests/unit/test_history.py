"""Which package action explains a deviation, and how it is said."""

from __future__ import annotations

import shlex

import pytest

from pyinfra_gpu.engine.transaction import words
from pyinfra_gpu.packages.model import Action, PackageChange, explain


def change(
    name: str,
    when: str = "2026-11-21T06:12:03",
    action: Action = "Upgrade",
    old: str | None = "580.95.05-1",
    new: str | None = "580.105.08-1",
    command: str | None = "/usr/bin/unattended-upgrade",
    by: str | None = None,
) -> PackageChange:
    return PackageChange(
        when=when, command=command, by=by, action=action, name=name, old=old, new=new
    )


EARLY = "2026-11-01T10:00:00"
HISTORY = (
    change("libcuda1", when=EARLY, command="apt-get install cuda-drivers"),
    change("gcc-13", when="2026-11-20T09:00:00", action="Install", old=None, new="13"),
    change("libcuda1"),
    change("nvidia-kernel-open-dkms"),
    change("nvidia-settings:amd64"),
    change("linux-image-6.1.0-41-amd64", when="2026-11-21T07:00:00", action="Install", old=None),
)


@pytest.mark.parametrize(
    ("packages", "row"),
    [
        (("libcuda1",), 2),
        (("nvidia-kernel-open-dkms", "libcuda1"), 3),
        (("libcuda1", "nvidia-*"), 2),
        (("nvidia-*",), 3),
        (("nvidia-settings",), 4),
        (("libcuda1", "linux-image-*"), 5),
        (("gcc*",), 1),
        *((packages, None) for packages in ((), ("libcuda",), ("cuda1",), ("nvidia",))),
    ],
)
def test_the_newest_change_of_the_most_telling_package_explains(
    packages: tuple[str, ...], row: int | None
) -> None:
    assert explain(packages, HISTORY) == (None if row is None else HISTORY[row])
    assert explain(packages, ()) is None


def test_what_came_after_our_own_transaction_no_package_has_done() -> None:
    command = shlex.join(words(["libcuda1"], reinstall=False, wait_s=1))
    ours = change("libcuda1", when="2026-11-22T08:00:00", command=command)
    assert explain(("libcuda1",), (*HISTORY, ours)) is None
    assert explain(("dkms", "gcc*"), (*HISTORY, ours)) == HISTORY[1]
    later = change("libcuda1", when="2026-11-23T06:00:00")
    assert explain(("libcuda1",), (*HISTORY, ours, later)) == later


@pytest.mark.parametrize(
    ("row", "what", "by"),
    [
        (HISTORY[2], "libcuda1 580.95.05-1 -> 580.105.08-1", "/usr/bin/unattended-upgrade"),
        (
            change("dkms", action="Remove", old="3.0.10", new=None, command=None, by="al (1000)"),
            *("dkms 3.0.10 removed", "al (1000)"),
        ),
        (
            change("gcc", action="Install", old=None, new="13", command="apt i", by="al (1000)"),
            *("gcc 13 installed", "al (1000): apt i"),
        ),
        (change("x", action="Downgrade", old="2", new="1", command=None), "x 2 -> 1", None),
    ],
)
def test_a_change_is_told_by_what_it_did_when_and_who(
    row: PackageChange, what: str, by: str | None
) -> None:
    assert row.as_json() == {"when": "2026-11-21T06:12:03", "by": by, "change": what}
