"""Names, addresses, numbers of devices and secrets, replaced: the same one by the same word."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from ipaddress import ip_address
from typing import Any

from pyinfra_gpu.errors import SECRET_NAME, masked
from pyinfra_gpu.packages import BY_DISTRIBUTION

_UUID = r"[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}"
# Not a part of a version, which has four numbers too now and then (cuDNN's): a sign is beside it.
_ADDRESS = r"(?<![\w.+=~:-])(?:\d{1,3}\.){3}\d{1,3}(?![\w.+~-])"
_ADDRESS_6 = r"(?<![\w:.])[0-9a-fA-F]{0,4}:[0-9a-fA-F:]*:[0-9a-fA-F:]*(?![\w:])"
_KINDS = (
    ("uuid", re.compile(rf"\b{_UUID}\b")),
    ("mail", re.compile(r"[\w.+-]{1,64}@[\w-]{1,63}(?:\.[\w-]{1,63})+")),
    ("mac", re.compile(r"(?<![\w:])(?:[0-9a-fA-F]{2}:){5}[0-9a-fA-F]{2}(?![\w:])")),
    ("address", re.compile(f"{_ADDRESS}|{_ADDRESS_6}")),
)
_SERIAL = re.compile(r"(?im)^(\s*(?:Serial Number|Board ID|Chassis[ \w]*Serial[ \w]*)\s*:\s*)(\S+)")
_SECRET = re.compile(
    rf"(?i)([\w-]*(?:{SECRET_NAME.pattern})[\w-]*[\"']?\s*[=:]\s*[\"']?)(?P<value>[^\s\"',;&]+)"
)
_TOKEN = re.compile(r"\b(?:gh[opsu]_|github_pat_|glpat-|hf_|sk-|AKIA|xox[abprs]-)[\w-]{8,}")
_KEY = re.compile(r"-----BEGIN [^-]*PRIVATE KEY-----.*?(?:-----END [^-]*-----|\Z)", re.DOTALL)
_ABSENT = {"n/a", "[n/a]", "none", "no", "yes", "true", "false", "null", "0"}
_SHORTEST = 2  # characters of a name that is looked for
_EVERYBODYS = frozenset({"root", "localhost", "nobody", "gpu", *BY_DISTRIBUTION})


@dataclass
class Masks:
    """What stands for what; one of them for all texts of a host, so that they still fit together.

    + hosts, users: names that are replaced wherever they stand as a word
    """

    hosts: Iterable[str] = ()
    users: Iterable[str] = ()
    words: dict[tuple[str, str], str] = field(default_factory=dict)

    def text(self, text: str) -> str:
        """Return the text with all of that replaced."""
        text = _KEY.sub("(a private key)", masked(text))
        text = _TOKEN.sub(lambda found: self._word("secret", found[0]), text)
        text = _SECRET.sub(self._secret, text)
        text = _SERIAL.sub(lambda found: found[1] + self._number("serial", found[2]), text)
        for kind, names in (("user", self.users), ("host", self.hosts)):
            text = self._names(kind, names, text)
        for kind, pattern in _KINDS:
            text = pattern.sub(self._replacement(kind), text)
        return text

    @property
    def counts(self) -> dict[str, int]:
        """How many different ones of each kind were replaced."""
        kinds = [kind for kind, _ in self.words]
        return {kind: kinds.count(kind) for kind in sorted(set(kinds))}

    def _replacement(self, kind: str) -> Callable[[re.Match[str]], str]:
        def replace(found: re.Match[str]) -> str:
            if kind == "address" and not _is_somebodys(found[0]):
                return found[0]
            return self._word(kind, found[0])

        return replace

    def _names(self, kind: str, names: Iterable[str], text: str) -> str:
        told = {name for name in names if len(name) >= _SHORTEST} - _EVERYBODYS
        # The longest first: "gpu1.lab.example" before "gpu1".
        for name in sorted(told, key=len, reverse=True):
            word = re.compile(rf"(?<![\w-]){re.escape(name)}(?![\w-])")
            text = word.sub(lambda found: self._word(kind, found[0]), text)
        return text

    def _secret(self, found: re.Match[str]) -> str:
        return found[1] + self._number("secret", found["value"])

    def _number(self, kind: str, value: str) -> str:
        known = value.lower() in _ABSENT or value in self.words.values()
        return value if known else self._word(kind, value)

    def _word(self, kind: str, value: str) -> str:
        known = self.words.setdefault((kind, value), "")
        if not known:
            number = sum(each == kind for each, _ in self.words)
            known = self.words[kind, value] = f"{kind}-{number}"
        return known


def _is_somebodys(text: str) -> bool:
    """Tell an address from a time or a place on a bus, and from one that every machine has."""
    try:
        address = ip_address(text)
    except ValueError:
        return False
    return not (address.is_loopback or address.is_unspecified)


def masked_fields(lines: Iterable[str], masks: Masks) -> list[str]:
    """Return a host's answer, masked, one value a line; the owner's half of it too."""
    found: list[str] = []
    for line in lines:
        told = _told(line)
        if told is None:
            found.append(masks.text(line))
        else:
            found += json.dumps(_masked(told, masks), indent=0).split("\n")
    return found


def _masked(value: Any, masks: Masks) -> Any:
    if isinstance(value, dict):
        return {masks.text(key): _masked(each, masks) for key, each in value.items()}
    if isinstance(value, list):
        return [_masked(each, masks) for each in value]
    if not isinstance(value, str):
        return value
    inner = _told(value)
    return masks.text(value) if inner is None else json.dumps(_masked(inner, masks))


def _told(text: str) -> dict[str, Any] | None:
    """Return what a text says that is an object in JSON; None where it is another text."""
    if not text.startswith("{"):
        return None
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None
