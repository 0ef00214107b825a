"""Reading apt's lists, its log and a keyring: tables of what people's files hold."""

from __future__ import annotations

import base64
import json
import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parent / "fixtures" / "probe"))
from nvidia_tree import FINGERPRINT, KEY

from pyinfra_gpu.facts.fields import Unknown, as_json
from pyinfra_gpu.facts.openpgp import fingerprints
from pyinfra_gpu.facts.parse import history, parse
from pyinfra_gpu.packages.model import Source

NVIDIA = "https://developer.download.nvidia.com/compute/cuda/repos/debian12/x86_64/"
LIST, SOURCES = "/etc/apt/sources.list.d/a.list", "/etc/apt/sources.list.d/a.sources"


def sources(file: str, text: str, declared: str | None = None) -> object:
    """What is read off one file's lines, as the probe sends them."""
    rows = [f"{file}:{line}" for line in text.splitlines()]
    told = json.dumps({"nvidia.sources": rows, "nvidia.repository": declared})
    return parse(["pyinfra-gpu-probe 1", told, "pyinfra-gpu-probe end"]).nvidia.sources


# line -> (URI, keyring), or None where it is not an enabled source of NVIDIA's packages
ONE_LINE: dict[str, tuple[str, str | None] | None] = {
    f"deb {NVIDIA} /": (NVIDIA, None),
    f"deb [signed-by=/k.gpg] {NVIDIA} /": (NVIDIA, "/k.gpg"),
    f"deb [ arch=amd64 Signed-By=/k.gpg ] {NVIDIA} /": (NVIDIA, "/k.gpg"),
    f"deb\t[arch=amd64]\t{NVIDIA}\t/": (NVIDIA, None),
    f"  deb {NVIDIA} / # ours": (NVIDIA, None),
    f"deb [signed-by=] {NVIDIA} /": (NVIDIA, None),
    f"deb [trusted=yes]{NVIDIA} /": (NVIDIA, None),
    "deb https://nvidia.github.io/libnvidia-container/stable/deb/amd64 /": (
        "https://nvidia.github.io/libnvidia-container/stable/deb/amd64",
        None,
    ),
    "deb http://mirror.example/CUDA/Repos/debian12 /": (
        "http://mirror.example/CUDA/Repos/debian12",
        None,
    ),
    f"deb-src {NVIDIA} /": None,
    f"# deb {NVIDIA} /": None,
    f"debx {NVIDIA} /": None,
    f"deb [signed-by=/k.gpg {NVIDIA} /": None,
    "deb": None,
    "": None,
    "deb http://deb.debian.org/debian bookworm main contrib # nvidia": None,
    "deb cdrom:[Ubuntu 24.04]/ noble main": None,
}


@pytest.mark.parametrize("line", sorted(ONE_LINE))
def test_a_line_of_a_list_is_read(line: str) -> None:
    expected = ONE_LINE[line]
    wanted = (Source(file=LIST, uri=expected[0], signed_by=expected[1]),) if expected else ()
    assert sources(LIST, line) == wanted


STANZAS: dict[str, list[tuple[str, str | None]]] = {
    f"Types: deb\nURIs: {NVIDIA}\nSuites: /\nSigned-By: /k.gpg": [(NVIDIA, "/k.gpg")],
    f"types: deb-src deb\nuris: {NVIDIA}\nsuites: /": [(NVIDIA, None)],
    f"Types: deb\nURIs:\n http://other/\n {NVIDIA}\nSuites: /": [(NVIDIA, None)],
    f"Types: deb\nEnabled: no\nURIs: {NVIDIA}": [],
    f"Types: deb\nEnabled: False\nURIs: {NVIDIA}": [],
    f"Types: deb\nEnabled: yes\nURIs: {NVIDIA}": [(NVIDIA, None)],
    f"Types: deb-src\nURIs: {NVIDIA}": [],
    f"URIs: {NVIDIA}": [],
    f"Types: deb\nURIs: http://x/\n\n\nTypes: deb\nURIs: {NVIDIA} http://nvidia.example/b": [
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
    expected = tuple(Source(file=SOURCES, uri=uri, signed_by=key) for uri, key in STANZAS[text])
    assert sources(SOURCES, text) == expected


MIRRORS = {
    ("http://m/gpu/{distro}/{arch}", "http://m/gpu/debian12/x86_64/"): True,
    ("http://m/gpu/{distro}/{arch}/", "http://m/gpu/debian12/x86_64"): True,
    ("http://m/gpu", "http://m/gpu/"): True,
    ("http://m/gpu/{distro}/{arch}", "http://m/gpu/debian12"): False,
    ("http://m/gpu/{distro}/{arch}", "http://m/gpu/debian12/x86_64/extra"): False,
    ("http://m.x/gpu", "http://mix/gpu"): False,
    ("http://m/gpu", "http://m/debian"): False,
}


@pytest.mark.parametrize(("declared", "uri"), sorted(MIRRORS))
def test_the_declared_mirror_is_a_source_whatever_its_name(declared: str, uri: str) -> None:
    assert (sources(LIST, f"deb {uri} /", declared) != ()) is MIRRORS[declared, uri]


def test_a_list_that_is_named_after_nvidia_counts_whatever_its_address() -> None:
    file = "/etc/apt/sources.list.d/nvidia-mirror.list"
    assert sources(file, "deb http://10.0.0.1/x /") == (
        Source(file=file, uri="http://10.0.0.1/x", signed_by=None),
    )


def test_a_password_in_an_address_is_kept_for_comparison_and_not_printed() -> None:
    found = sources(LIST, "deb https://me:secret@nvidia.example/x /")
    assert found[0].uri == "https://me:secret@nvidia.example/x"  # type: ignore[index]
    assert as_json(found[0])["uri"] == "https://me:***@nvidia.example/x"  # type: ignore[index]


WHEN = "2026-11-21  06:12:03"
ROWS = {
    f"{WHEN}|Upgrade|libcuda1|1, 2||unattended-upgrade": ("Upgrade", "1", "2"),
    f"{WHEN}|Downgrade|libcuda1|2, 1||x": ("Downgrade", "2", "1"),
    f"{WHEN}|Install|libcuda1|1, automatic||x": ("Install", None, "1"),
    f"{WHEN}|Install|libcuda1|1||x": ("Install", None, "1"),
    f"{WHEN}|Remove|libcuda1|1||x": ("Remove", "1", None),
    f"{WHEN}|Purge|libcuda1|1||x": ("Purge", "1", None),
    f"{WHEN}|Reinstall|libcuda1|1||x": ("Reinstall", "1", "1"),
    f"{WHEN}|Upgrade|libcuda1|1||x": ("Upgrade", "1", None),
}


@pytest.mark.parametrize("row", sorted(ROWS))
def test_a_change_tells_the_versions_before_and_after(row: str) -> None:
    (change,) = history((row,))
    assert (change.action, change.old, change.new) == ROWS[row]
    assert (change.when, change.name) == ("2026-11-21T06:12:03", "libcuda1")


def test_who_did_it_and_how_is_told_where_the_log_knows() -> None:
    row = f"{WHEN}|Install|dkms|3|alice (1000)|apt -o Proxy=http://u:pw@h/ install a|b"
    told, untold = history((row, f"{WHEN}|Install|dkms|3||"))
    assert (told.command, told.by) == (
        "apt -o Proxy=http://u:***@h/ install a|b",
        "alice (1000)",
    )
    assert (untold.command, untold.by) == (None, None)


@pytest.mark.parametrize(
    "row",
    [
        "",
        "|||||",
        f"{WHEN}|Upgrade|libcuda1|1, 2|",
        f"{WHEN}|Explode|libcuda1|1, 2||x",
        f"{WHEN}|Install||1||x",
        f"{WHEN}|Install|libcuda1|||x",
        "yesterday|Install|libcuda1|1||x",
        "|Install|libcuda1|1||x",
    ],
)
def test_a_damaged_row_of_the_log_is_passed_over(row: str) -> None:
    good = f"{WHEN}|Remove|libcuda1|1||x"
    assert len(history((row, good, row))) == 1


ARMOR = base64.encodebytes(KEY)
BEGIN, END = (f"-----{word} PGP PUBLIC KEY BLOCK-----\n".encode() for word in ("BEGIN", "END"))
PADDING = b"\xca\x03abc"  # a marker-like packet in the new form of header
READABLE = {
    "binary": KEY,
    "other packets": PADDING + KEY + PADDING,
    "armor": BEGIN + b"\n" + ARMOR + b"=y8iQ\n" + END,
    "armor with a header": BEGIN + b"Version: x\nComment: y\n\n" + ARMOR + END,
    "armor of other line ends": (BEGIN + b"\n" + ARMOR + END).replace(b"\n", b"\r\n"),
    "armor without an empty line": BEGIN + ARMOR + END,
    "armor behind text": b"NVIDIA's key\n" + BEGIN + b"\n" + ARMOR + END + b"and more\n",
    "two blocks": (BEGIN + b"\n" + ARMOR + END) * 2,
}


@pytest.mark.parametrize("name", sorted(READABLE))
def test_a_keyring_tells_its_fingerprints(name: str) -> None:
    expected = (FINGERPRINT,) * (2 if name.startswith("tw") else 1)
    assert fingerprints(READABLE[name]) == expected


@pytest.mark.parametrize("header", ["98{:02x}", "99{:04x}", "9a{:08x}", "c6{:02x}", "c6ff{:08x}"])
def test_a_key_in_each_form_of_header_has_the_same_fingerprint(header: str) -> None:
    body = KEY[2 : 2 + KEY[1]]
    assert fingerprints(bytes.fromhex(header.format(len(body))) + body) == (FINGERPRINT,)


def test_an_empty_keyring_trusts_nobody() -> None:
    assert fingerprints(b"") == ()


UNREADABLE = {
    "text": b"hello",
    "cut off": KEY[:-1],
    "a key of version 6": b"\x98\x02\x06\x00",
    "no length": b"\x9b" + KEY[2:],
    "in parts": b"\xc6\xe1" + KEY[2:],
    "armor without an end": BEGIN + b"\n" + ARMOR,
    "armor with other letters": BEGIN + b"\n????\n" + END,
    "armor of a message": b"-----BEGIN PGP MESSAGE-----\n\nabcd\n-----END PGP MESSAGE-----\n",
}


@pytest.mark.parametrize("name", sorted(UNREADABLE))
def test_a_keyring_that_cannot_be_read_whole_is_unknown(name: str) -> None:
    found = fingerprints(UNREADABLE[name])
    assert isinstance(found, Unknown)
    assert found.reason.startswith("it is not a readable keyring: ")
