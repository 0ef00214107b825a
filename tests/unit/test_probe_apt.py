"""What the probe tells of apt and NVIDIA's packages."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parent / "fixtures" / "probe"))
from nvidia_tree import (
    gpu_host_fixture,  # noqa: F401
    look,
    package,
)
from probing import NOBODY, ROOT, Tree, tree_fixture, write  # noqa: F401

LOG = "var/log/apt/history.log"


def status(tree: Tree, *stanzas: str) -> None:
    write(tree.root / "var/lib/dpkg/status", "".join(stanzas))


STATES = {
    "install ok installed": (False, True),
    "hold ok installed": (True, True),
    "install ok half-configured": (False, False),
    "install ok half-installed": (False, False),
    "hold reinstreq half-installed": (True, False),
    "install ok triggers-pending": (False, False),
    "deinstall ok config-files": None,
}


@pytest.mark.parametrize("state", sorted(STATES))
def test_a_package_is_complete_or_not_or_not_there(gpu_host: Tree, state: str) -> None:
    text = package("libcuda1", "1:580-1", state)
    if "triggers" in state:
        text = text.replace("Description", "Triggers-Pending: x\nDescription")
    status(gpu_host, text)
    expected = STATES[state]
    record = look(gpu_host, packages=("libcuda1",))
    reported = [(each.version, each.held, each.complete) for each in record.nvidia.packages]  # type: ignore[union-attr]
    assert reported == ([("1:580-1", *expected)] if expected else [])
    assert record.packages.half_configured == (
        ("libcuda1",) if expected and not expected[1] else ()
    )
    assert record.packages.installed == (
        {"libcuda1": "1:580-1"} if expected and expected[1] else {}
    )


def test_sources_in_both_forms_are_told(gpu_host: Tree) -> None:
    folder = gpu_host.root / "etc/apt/sources.list.d"
    write(
        folder / "cuda-debian12-x86_64.list",
        "# NVIDIA\ndeb [signed-by=/usr/share/keyrings/cuda-archive-keyring.gpg] "
        "https://developer.download.nvidia.com/compute/cuda/repos/debian12/x86_64/ /",
    )
    write(
        folder / "b.sources",
        "Types: deb\nURIs:\n https://nvidia.example/caf\N{LATIN SMALL LETTER E WITH ACUTE}\n\n"
        "Types: deb\nEnabled: no\nURIs: https://nvidia.example/off\n",
    )
    write(folder / "c.list.save", "deb https://nvidia.example/saved /\n")
    sources = look(gpu_host).nvidia.sources
    assert [(each.file.split("/")[-1], each.uri) for each in sources] == [  # type: ignore[union-attr]
        ("sources.list", "http://deb.debian.org/debian"),
        (
            "cuda-debian12-x86_64.list",
            "https://developer.download.nvidia.com/compute/cuda/repos/debian12/x86_64/",
        ),
        ("pyinfra-gpu-nvidia.list", "http://mirror.example/gpu/debian12/x86_64/"),
        ("b.sources", "https://nvidia.example/caf\N{LATIN SMALL LETTER E WITH ACUTE}"),
    ]


def test_the_log_tells_what_happened_when_and_by_what(gpu_host: Tree) -> None:
    history = look(gpu_host).nvidia.history
    assert [
        (each.when, each.action, each.name, each.old, each.new)
        for each in history  # type: ignore[union-attr]
    ] == [
        (
            *("2026-10-01T08:00:00", "Install", "linux-image-6.1.0-37-amd64"),
            *(None, "6.1.140-1"),
        ),
        ("2026-11-20T10:00:00", "Install", "libcuda1", None, "580.82.07-1"),
        ("2026-11-20T10:00:00", "Install", "dkms", None, "3.0.10-8"),
        ("2026-11-21T06:12:03", "Upgrade", "libcuda1", "580.82.07-1", "580.95.05-1"),
    ]
    last = history[-1]  # type: ignore[index,union-attr]
    assert (last.command, last.by) == ("/usr/bin/unattended-upgrade", None)
    assert history[1].by == "alice (1000)"  # type: ignore[index,union-attr]


def test_a_log_without_an_older_one_or_none_at_all_is_no_error(gpu_host: Tree) -> None:
    (gpu_host.root / f"{LOG}.1.gz").write_bytes(b"this is no gzip file")
    assert len(look(gpu_host).nvidia.history) == 3  # type: ignore[arg-type]
    (gpu_host.root / f"{LOG}.1.gz").unlink()
    (gpu_host.root / LOG).unlink()
    assert look(gpu_host).nvidia.history == ()
