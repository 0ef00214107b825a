"""Checkers for versions of drivers and toolkits, compute capabilities, repositories and keys."""

from __future__ import annotations

import re

from pyinfra_gpu.errors import SECRET_NAME
from pyinfra_gpu.spec.sources import refuse_no_place, split_url
from pyinfra_gpu.spec.values import BadValueError, kind, text

PLACEHOLDERS = ("{distro}", "{arch}")
# What stands in an apt source line without being read as its end, an option or a comment.
_URL = re.compile(r"[A-Za-z0-9._~:/%+\[\]-]+")


def driver_version(value: object) -> str:
    """Accept a whole driver version, "580.95.05" or "580.142"; the branch alone has its own key."""
    word = text(value)
    if re.fullmatch(r"\d{3}", word):
        raise BadValueError("is a branch, not a version", remedy=f"set driver_branch = {word}")
    if re.fullmatch(r"\d{3}\.\d{2,3}(\.\d{2})?-.+", word):
        raise BadValueError("names the package's revision too", suggestion=word.partition("-")[0])
    if not re.fullmatch(r"\d{3}\.\d{2,3}(\.\d{2})?", word):
        raise BadValueError("is not a whole driver version")
    return word


def cuda_version(value: object) -> str:
    """Accept a toolkit version of three numbers, "13.0.3"; the release alone has its own key."""
    word = text(value)
    if re.fullmatch(r"\d+\.\d+", word):
        raise BadValueError("is a release, not a version", remedy=f"set cuda_release = '{word}'")
    if re.fullmatch(r"\d+\.\d+\.\d+-.+", word):
        raise BadValueError("names the package's revision too", suggestion=word.partition("-")[0])
    if not re.fullmatch(r"\d{1,2}\.\d{1,2}\.\d{1,3}", word):
        raise BadValueError("is not a toolkit version of three numbers")
    return word


def archs(value: object) -> tuple[str, ...]:
    """Accept a list of compute capabilities, ["12.0"]; returned sorted, each once."""
    if isinstance(value, str) or not isinstance(value, list | tuple):
        meant = None
        if isinstance(value, str) and re.fullmatch(r"\d{1,2}\.\d", value):
            meant = [value]
        raise BadValueError(f"is {kind(value)}, not a list", suggestion=meant)
    return tuple(sorted({_arch(item) for item in value}, key=arch_number))


def arch_number(capability: str) -> int:
    """Return a compute capability times ten, as nvcc names it: 120 for "12.0"."""
    return int(capability.replace(".", ""))


def _arch(item: object) -> str:
    if not isinstance(item, str):
        raise BadValueError(
            f"holds {kind(item)}, not text",
            remedy="put each compute capability in quotes, KEY = ['12.0']",
        )
    if not re.fullmatch(r"\d{1,2}\.\d", item):
        digits = re.fullmatch(r"(?:sm_|compute_)?(\d{1,2})(\d)[af]?", item)
        raise BadValueError(
            f"holds {item!r}, which is not a compute capability",
            suggestion=[f"{digits[1]}.{digits[2]}"] if digits else None,
        )
    return item


def repository_url(value: object) -> str:
    """Accept an http, https or file URL that apt can read; a slash at its end is dropped.

    `{distro}` and `{arch}` may stand in it and become the host's own, as in NVIDIA's layout.
    """
    url, parts = split_url(value)
    if parts.scheme not in ("http", "https", "file"):
        raise BadValueError("is not an http, https or file URL")
    if "@" in parts.netloc or SECRET_NAME.search(parts.query):
        raise BadValueError(
            "contains a user, password or token, which would end up in logs",
            remedy="remove the user, password or token from it and put it into "
            "/etc/apt/auth.conf.d on the host",
        )
    if parts.query or parts.fragment:
        raise BadValueError("has a ? or # part, which apt repositories do not use")
    plain = url
    for placeholder in PLACEHOLDERS:
        plain = plain.replace(placeholder, "")
    if "{" in plain or "}" in plain:
        raise BadValueError("holds another placeholder than {distro} and {arch}")
    if not _URL.fullmatch(plain):
        raise BadValueError("contains a character that apt reads specially")
    if "{" in parts.netloc:
        raise BadValueError("has a placeholder in its host name")
    refuse_no_place(parts)
    return url.rstrip("/")


def fingerprint(value: object) -> str:
    """Accept the 40 hexadecimal digits of a key, spaces between them too; returned in upper case.

    Short key ids are refused: keys with a chosen short id can be made.
    """
    word = text(value).replace(" ", "")
    if not re.fullmatch(r"[0-9a-fA-F]+", word):
        raise BadValueError("is not a key fingerprint")
    if len(word) != 40:
        short = ", and a short id can be forged" if len(word) < 40 else ""
        raise BadValueError(f"has {len(word)} digits{short}")
    return word.upper()


def sha256(value: object) -> str:
    """Accept 64 hexadecimal digits, returned in lower case."""
    word = text(value)
    if not re.fullmatch(r"[0-9a-fA-F]+", word):
        raise BadValueError("is not a SHA-256 digest")
    if len(word) != 64:
        raise BadValueError(f"has {len(word)} digits")
    return word.lower()
