"""What the known_hosts files say of a host's key, read as `ssh` reads them.

pyinfra's own reader gives a file up at the first line it cannot read, knows neither `@revoked` nor
`@cert-authority`, and asks where a jump host is unknown. What is accepted here `ssh` accepts with
the same files. It is stricter where `ssh` would take a new key in spite of a line that may be about
this very host: a damaged one, a revoked key, a certificate authority.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import os
import re
import struct
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Literal

from pyinfra_gpu import whole_file

_PLAIN, _REVOKED, _AUTHORITY = "", "@revoked", "@cert-authority"
_KINDS = frozenset(
    {
        *("ssh-ed25519", "ssh-rsa", "ssh-dss"),
        *(f"ecdsa-sha2-nistp{bits}" for bits in (256, 384, 521)),
        *("sk-ssh-ed25519@openssh.com", "sk-ecdsa-sha2-nistp256@openssh.com"),
    }
)
_ON_CONSOLE = (
    "compare it on the host's console (`ssh-keygen -lf /etc/ssh/ssh_host_ed25519_key.pub`)"
)
_LONGEST_PATTERN = 1023  # characters; ssh matches none that is longer

Strictness = Literal["yes", "ask", "accept-new", "no"]


class Unknown(Enum):
    """What becomes of a host that no line is about."""

    REFUSED = "refused"
    STORED = "stored"
    """Its key is accepted and stored, and checked ever after."""
    ACCEPTED = "accepted"
    """Its key is accepted each time anew."""


class HostKeyError(Exception):
    """A host key that is not accepted: one sentence that names the file, the line, the remedy."""


@dataclass(frozen=True, slots=True)
class Key:
    """A host's public key: its kind, e.g. "ssh-ed25519", and its bytes as SSH sends them."""

    kind: str
    blob: bytes

    @property
    def fingerprint(self) -> str:
        """As `ssh-keygen -l` prints it."""
        digest = base64.b64encode(hashlib.sha256(self.blob).digest()).decode().rstrip("=")
        return f"SHA256:{digest}"


@dataclass(frozen=True, slots=True)
class Line:
    """A line that is about some hosts.

    + place: "FILE line N"; marker: "", "@revoked" or "@cert-authority"; names: its first field
    + key: None where the line is damaged, and `damage` says how
    """

    place: str
    marker: str
    names: str
    key: Key | None
    damage: str = ""


@dataclass(frozen=True, slots=True)
class Names:
    """What a host is called in known_hosts: `ssh` looks for the first, then for the others."""

    all: tuple[str, ...]

    @property
    def shown(self) -> str:
        """The one under which a key is stored, and which `ssh-keygen -R` takes."""
        return self.all[0]


def names_of(hostname: str, port: int, alias: str | None = None) -> Names:
    """Return what `ssh` calls a host when it looks for its key.

    + hostname: after `HostName` of the user's configuration; alias: its `HostKeyAlias`
    """
    name = hostname.lower()
    if alias:
        return Names((alias,))
    return Names((name,) if port == 22 else (f"[{name}]:{port}", name))


def unknown_hosts(data: str | None, configured: str | None) -> Unknown:
    """Decide what becomes of hosts of which nothing is known.

    + data: ``ssh_strict_host_key_checking``, whose default in pyinfra is "accept-new"; None for a
      jump host, which data does not name: then the user's configuration alone decides
    + configured: ``StrictHostKeyChecking`` of the user's configuration, None where it says nothing

    Nobody is asked: where `ssh` would ask, the key is refused with what to do.
    """
    said = _strictness(configured) if data is None else _strictness(data)
    if "yes" in (said, _strictness(configured)) or said == "ask":
        return Unknown.REFUSED
    return Unknown.STORED if said == "accept-new" else Unknown.ACCEPTED


def _strictness(value: str | None) -> Strictness:
    words: dict[str, Strictness] = {
        "yes": "yes", "true": "yes", "no": "no", "off": "no", "false": "no",
        "accept-new": "accept-new", "ask": "ask",
    }  # fmt: skip
    if value is None:
        return "ask"
    return words.get(str(value).strip().lower(), "yes")  # a word that is none is no permission


def read(files: Iterable[str]) -> list[Line]:
    """Return the lines of known_hosts files; one that is not there has none, as for `ssh`.

    Raises HostKeyError where one cannot be read.
    """
    return [line for name in files for line in _lines(Path(name).expanduser())]


def _lines(path: Path) -> Iterator[Line]:
    try:
        raw = whole_file.read(path)
    except (FileNotFoundError, NotADirectoryError):
        return
    except OSError as error:
        raise HostKeyError(
            f"{path} cannot be read ({error.strerror}), so no host key is accepted: make it a file"
            " that you may read"
        ) from error
    for number, row in enumerate(raw.decode("latin-1").split("\n"), 1):
        # As text in C: nothing is read behind a zero byte.
        text = row.partition("\0")[0].lstrip(" \t")
        if text and not text.startswith("#"):
            yield _line(f"{path} line {number}", text)


def _line(place: str, text: str) -> Line:
    marker = _PLAIN
    if text.startswith("@"):
        marker, _, text = _word(text)
        if marker not in (_REVOKED, _AUTHORITY) or text.startswith("@"):
            return Line(place, marker, "", None, f"{marker[:32]} is no marker that ssh knows")
    names, blank, rest = _word(text)
    if not blank:
        return Line(place, marker, names, None, "it ends behind the host's name")
    if names.startswith("|") and _hash_in(names) is None:
        return Line(place, marker, "", None, "its hashed name is damaged")
    key = _key(rest)
    if isinstance(key, Key):
        return Line(place, marker, names, key)
    return Line(place, marker, names, None, key)


def _word(text: str) -> tuple[str, str, str]:
    """Return the first word of a text, the blanks behind it, and the rest."""
    found = re.match(r"([^ \t]*)([ \t]*)(.*)", text, re.DOTALL)
    assert found  # noqa: S101 (each of its parts may be empty)
    return found[1], found[2], found[3]


def _key(text: str) -> Key | str:
    """Return the key in the end of a line, or what is wrong with it."""
    kind, _, rest = _word(text)
    if kind not in _KINDS:
        return "it names no kind of key that ssh knows"
    try:
        blob = base64.b64decode(_word(rest.rstrip("\r"))[0], validate=True)
    except (binascii.Error, ValueError):
        return "its key is damaged"
    if not _is_whole(kind, blob):
        return "its key is damaged"
    return Key(kind, blob)


def _is_whole(kind: str, blob: bytes) -> bool:
    """Tell whether a key's bytes are its kind, and strings of the lengths they give, to the end."""
    parts, place = [], 0
    while place < len(blob):
        if place + 4 > len(blob):
            return False
        (length,) = struct.unpack(">I", blob[place : place + 4])
        place += 4 + length
        parts.append(blob[place - length : place])
    fields = {"ssh-rsa": 3, "ssh-dss": 5, "ssh-ed25519": 2}.get(kind, 4 if kind[:3] == "sk-" else 3)
    if kind == "sk-ssh-ed25519@openssh.com":
        fields = 3
    whole = place == len(blob) and len(parts) == fields and parts[0] == kind.encode()
    return whole and (kind != "ssh-ed25519" or len(parts[1]) == 32) and all(parts)


def _is_about(line: Line, name: str) -> bool:
    """Tell whether a line is about a name."""
    if found := _hash_in(line.names):
        return hmac.compare_digest(hmac.digest(found[0], name.encode(), "sha1"), found[1])
    about = False
    for raw in line.names.lower().split(","):
        pattern = raw.removeprefix("!")
        if len(pattern) > _LONGEST_PATTERN:
            return False
        if _matches(name.lower(), pattern):
            if raw != pattern:
                return False
            about = True
    return about


def _matches(name: str, pattern: str) -> bool:
    """Match `*` and `?` alone, in time that grows with the lengths' product at most."""
    star = -1
    place = at = mark = 0
    while at < len(name):
        if place < len(pattern) and pattern[place] == "*":
            star, mark, place = place, at, place + 1
        elif place < len(pattern) and pattern[place] in ("?", name[at]):
            place, at = place + 1, at + 1
        elif star >= 0:
            mark += 1
            place, at = star + 1, mark
        else:
            return False
    return not pattern[place:].strip("*")


def _hash_in(names: str) -> tuple[bytes, bytes] | None:
    """Return salt and digest of a hashed name; None where it is none."""
    parts = names.split("|")
    if len(parts) != 4 or parts[0] or parts[1] != "1":
        return None
    try:
        salt, digest = (base64.b64decode(each, validate=True) for each in parts[2:])
    except (binascii.Error, ValueError):
        return None
    return (salt, digest) if len(salt) == len(digest) == 20 else None


def kinds(lines: Sequence[Line], names: Names) -> tuple[str, ...]:
    """Return the kinds of key that are known of a host, which are to be asked of it first."""
    return tuple(dict.fromkeys(line.key.kind for line in _plain(lines, names.shown) if line.key))


def _plain(lines: Sequence[Line], name: str) -> list[Line]:
    return [x for x in lines if x.marker == _PLAIN and x.key and _is_about(x, name)]


def authorities(lines: Sequence[Line], names: Names) -> list[Key]:
    """Return the keys of the certificate authorities that are known for a host."""
    return [
        line.key
        for line in lines
        if line.marker == _AUTHORITY and line.key and _is_named(line, names)
    ]


def _is_named(line: Line, names: Names) -> bool:
    return any(_is_about(line, name) for name in names.all)


def refuse_revoked(lines: Sequence[Line], names: Names, *keys: Key) -> None:
    """Raise HostKeyError where one of these keys, a host's or an authority's, is revoked for it."""
    for line in lines:
        if line.marker == _REVOKED and line.key in keys and _is_named(line, names):
            raise HostKeyError(
                f"the key that {names.shown} shows ({keys[0].fingerprint}), or that of its"
                f" authority, is revoked by {line.place}: give the host a new one, or take that"
                " line out"
            )


def judge(
    lines: Sequence[Line],
    names: Names,
    key: Key,
    unknown: Unknown,
    fault: str = "there is none",
) -> bool:
    """Return whether a host's key is known; False means it is new and may be accepted.

    + unknown: what becomes of a host that no line is about
    + fault: what is wrong with its certificate, where it has one

    Raises HostKeyError where it must not be accepted: it is revoked, differs from the one that is
    known, or is not known where that is not enough.
    """
    refuse_revoked(lines, names, key)
    for name in names.all:
        plain = _plain(lines, name)
        if any(line.key == key for line in plain):
            return True
        if plain and name == names.shown:
            raise HostKeyError(_changed(plain, names, key))
    if obstacle := _in_the_way(lines, names, unknown, fault):
        raise HostKeyError(obstacle)
    return False


def _changed(known: Sequence[Line], names: Names, key: Key) -> str:
    same = [line for line in known if line.key and line.key.kind == key.kind] or known
    file = same[0].place.rpartition(" line ")[0]
    return (
        f"the {key.kind} key that {names.shown} shows ({key.fingerprint}) is not the one in"
        f" {same[0].place}, so somebody may be listening in: {_ON_CONSOLE}; if it is right,"
        f" `ssh-keygen -R '{names.shown}' -f {file}`"
    )


def _in_the_way(lines: Sequence[Line], names: Names, unknown: Unknown, fault: str) -> str | None:
    """Return why a host of which no key is known is not accepted as new; None if it is."""
    for line in lines:
        mine = _is_named(line, names)
        if line.damage and (mine or not line.names):
            return (
                f"{line.place} is damaged ({line.damage}), and may be about {names.shown}, of which"
                " no other key is known: correct that line or take it out"
            )
        if line.marker == _AUTHORITY and mine:
            return (
                f"{line.place} knows {names.shown} by a certificate authority alone, and the host"
                f" shows no certificate of it that holds ({fault}): renew that, or add a line with"
                " the host's own key"
            )
    if unknown is Unknown.REFUSED:
        return (
            f"no key of {names.shown} is known, and unknown hosts are not accepted: log in there"
            " once by `ssh`, and compare the key it shows with the one on the host's console"
        )
    return None


def store(file: str, names: Names, key: Key, *, hashed: bool) -> None:
    """Add a host's key to a known_hosts file, on a line of its own whatever the file ends with.

    + hashed: hide the name, as ``HashKnownHosts`` asks for

    Raises HostKeyError where it cannot be written: a key that is not kept would be accepted anew
    each time.
    """
    path = Path(file).expanduser()
    name = _hash(names.shown) if hashed else names.shown
    line = f"{name} {key.kind} {base64.b64encode(key.blob).decode()}\n"
    try:
        path.parent.mkdir(mode=0o700, exist_ok=True)
        before = whole_file.read(path) if path.exists() else b""
        text = line if not before or before.endswith(b"\n") else f"\n{line}"
        handle = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            os.write(handle, text.encode())
        finally:
            os.close(handle)
    except OSError as error:
        raise HostKeyError(
            f"the key of {names.shown} cannot be stored in {path} ({error.strerror}), so it is not"
            " accepted: make that a file that you may write"
        ) from error


def _hash(name: str) -> str:
    salt = os.urandom(20)
    digest = hmac.digest(salt, name.encode(), "sha1")
    return f"|1|{base64.b64encode(salt).decode()}|{base64.b64encode(digest).decode()}"
