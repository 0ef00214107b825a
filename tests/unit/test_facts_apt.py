"""Reading apt's lists, its log and a keyring: tables of what people's files hold."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parent / "fixtures" / "probe"))
from nvidia_tree import FINGERPRINT, KEY

from pyinfra_gpu.facts.fields import Unknown, as_json
from pyinfra_gpu.facts.openpgp import fingerprints
from pyinfra_gpu.on_host.probe import apt
from pyinfra_gpu.packages.model import Source

NVIDIA = "https://developer.download.nvidia.com/compute/cuda/repos/debian12/x86_64/"
LIST, SOURCES = "/etc/apt/sources.list.d/a.list", "/etc/apt/sources.list.d/a.sources"


def sources(file: str, text: str) -> list[tuple[str, str | None]]:
    """URI and keyring of what counts in one file."""
    return [(each["uri"], each["signed_by"]) for each in apt.listed(file, text.splitlines())]


# line -> (URI, keyring), or None where it is not an enabled source of packages
ONE_LINE: dict[str, tuple[str, str | None] | None] = {
    f"deb {NVIDIA} /": (NVIDIA, None),
    f"deb [signed-by=/k.gpg] {NVIDIA} /": (NVIDIA, "/k.gpg"),
    f"deb [ arch=amd64 Signed-By=/k.gpg ] {NVIDIA} /": (NVIDIA, "/k.gpg"),
    f"  deb {NVIDIA} / # ours": (NVIDIA, None),
    f"deb [trusted=yes]{NVIDIA} /": (NVIDIA, None),
    f"deb-src {NVIDIA} /": None,
    f"# deb {NVIDIA} /": None,
    "deb": None,
    "": None,
}


@pytest.mark.parametrize("line", sorted(ONE_LINE))
def test_a_line_of_a_list_is_read(line: str) -> None:
    expected = ONE_LINE[line]
    assert sources(LIST, line) == ([expected] if expected else [])


STANZAS: dict[str, list[tuple[str, str | None]]] = {
    f"Types: deb\nURIs: {NVIDIA}\nSuites: /\nSigned-By: /k.gpg": [(NVIDIA, "/k.gpg")],
    f"types: deb-src deb\nuris: {NVIDIA}\nsuites: /": [(NVIDIA, None)],
    f"Types: deb\nURIs:\n http://other/\n {NVIDIA}\nSuites: /": [
        ("http://other/", None),
        (NVIDIA, None),
    ],
    f"Types: deb\nEnabled: no\nURIs: {NVIDIA}": [],
    f"Types: deb-src\nURIs: {NVIDIA}": [],
    f"Types: deb\nURIs: http://x/\n\n\nTypes: deb\nURIs: {NVIDIA} http://nvidia.example/b": [
        ("http://x/", None),
        (NVIDIA, None),
        ("http://nvidia.example/b", None),
    ],
    f"Types: deb\nURIs: {NVIDIA}\nSigned-By:\n -----BEGIN PGP PUBLIC KEY BLOCK-----\n .\n mDM\n": [
        (NVIDIA, "embedded key")
    ],
    f"# Types: deb\nTypes: deb\n# x\nURIs: {NVIDIA}": [(NVIDIA, None)],
    " continued\nno colon\n: empty": [],
}


@pytest.mark.parametrize("text", sorted(STANZAS))
def test_a_stanza_of_the_newer_form_is_read(text: str) -> None:
    assert sources(SOURCES, text) == STANZAS[text]


def test_suites_and_components_are_told_of_all_but_a_flat_repository() -> None:
    assert [
        (each["suites"], each["components"])
        for each in apt.listed(LIST, ["deb http://x/ noble main universe", "deb http://x/ ./"])
    ] == [(["noble"], ["main", "universe"]), ([], [])]


def test_a_password_in_an_address_is_kept_for_comparison_and_not_printed() -> None:
    source = Source(file=LIST, uri="https://me:secret@nvidia.example/x")
    assert as_json(source)["uri"] == "https://***@nvidia.example/x"  # type: ignore[index]


WHEN = "Start-Date: 2026-11-21  06:12:03\n"
CHANGES = {
    "Upgrade: libcuda1:amd64 (1, 2)": ("Upgrade", "1", "2"),
    "Install: libcuda1:amd64 (1, automatic)": ("Install", None, "1"),
    "Remove: libcuda1:amd64 (1)": ("Remove", "1", None),
    "Reinstall: libcuda1:amd64 (1)": ("Reinstall", "1", "1"),
}


@pytest.mark.parametrize("text", sorted(CHANGES))
def test_a_change_tells_the_versions_before_and_after(text: str) -> None:
    (change,) = apt.changes(f"{WHEN}{text}\n".encode(), "amd64")
    assert (change["action"], change["old"], change["new"]) == CHANGES[text]
    assert (change["when"], change["name"]) == ("2026-11-21T06:12:03", "libcuda1")
    assert (change["command"], change["by"]) == (None, None)


def test_who_did_it_and_how_is_told_without_a_password() -> None:
    by = "Commandline: apt -o Proxy=http://u:pw@h/ install a|b\nRequested-By: alice (1000)\n"
    (reported,) = apt.changes(f"{WHEN}{by}Install: dkms:amd64 (3)\n".encode(), "amd64")
    expected = ("apt -o Proxy=http://u:***@h/ install a|b", "alice (1000)")
    assert (reported["command"], reported["by"]) == expected


DAMAGED = (
    f"{WHEN}Commandline: caf\u00e9 \x1b[0m\0\nUpgrade: nvidia-smi, cuda (\n",
    *("", f"{WHEN}Explode: libcuda1:amd64 (1, 2)\n", f"{WHEN}Install: (1)\n"),
    *(f"{WHEN}Install: libcuda1:amd64 ()\n", f"{WHEN}Install: libcuda1:amd64\n"),
    *("Start-Date: yesterday\nInstall: libcuda1:amd64 (1)\n"),
)


@pytest.mark.parametrize("text", DAMAGED)
def test_a_damaged_part_of_the_log_is_passed_over(text: str) -> None:
    good = f"{WHEN}Remove: libcuda1:amd64 (1)\n\n"
    assert len(apt.changes(f"{text}\n{good}{text}".encode(), "amd64")) == 1
    assert apt.changes(b"Install: libcuda1:amd64 (1)\n", "amd64") == []


PADDING = b"\xca\x03abc"  # a marker-like packet in the new form of header
READABLE = {KEY: 1, PADDING + KEY + PADDING: 1, KEY + KEY: 2, b"": 0}


@pytest.mark.parametrize("keyring", READABLE, ids=READABLE.values())
def test_a_keyring_tells_its_fingerprints(keyring: bytes) -> None:
    assert fingerprints(keyring) == (FINGERPRINT,) * READABLE[keyring]


@pytest.mark.parametrize("header", ["98{:02x}", "99{:04x}", "9a{:08x}", "c6{:02x}", "c6ff{:08x}"])
def test_a_key_in_each_form_of_header_has_the_same_fingerprint(header: str) -> None:
    body = KEY[2 : 2 + KEY[1]]
    assert fingerprints(bytes.fromhex(header.format(len(body))) + body) == (FINGERPRINT,)


UNREADABLE = {
    "text": b"hello",
    "cut off": KEY[:-1],
    "a key of version 6": b"\x98\x02\x06\x00",
    "no length": b"\x9b" + KEY[2:],
    "in parts": b"\xc6\xe1" + KEY[2:],
    "armor": b"-----BEGIN PGP PUBLIC KEY BLOCK-----\n\nmDMEawF9\n",
}


@pytest.mark.parametrize("name", sorted(UNREADABLE))
def test_a_keyring_that_cannot_be_read_whole_is_unknown(name: str) -> None:
    found = fingerprints(UNREADABLE[name])
    assert isinstance(found, Unknown)
    assert found.reason.startswith("it is not a readable keyring: ")
