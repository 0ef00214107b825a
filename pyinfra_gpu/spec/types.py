"""Checks of single values where a type cannot say what is allowed.

Each returns the value in its final form, or raises Bad. Pydantic calls them as PlainValidator.
"""

from __future__ import annotations

import ipaddress
import json
import posixpath
import re
from collections.abc import Callable, Collection
from urllib.parse import SplitResult, urlsplit

from pydantic import SecretStr

from pyinfra_gpu.errors import SECRET_NAME, nearest
from pyinfra_gpu.spec import presets as of_runs
from pyinfra_gpu.spec import variables as env

LONGEST_PREFIX = 200  # Linux reads 255 bytes of a script's first line, and we append up to 40
LONGEST_LIST = 14  # names that an error lists before it only points at the nearest

Bad = env.Bad
kind = env.kind

_IN_LOGS = "contains a user, password or token, which would end up in logs"
_DASH = "starts with a dash and would be read as an option"
_TAKE_OUT = "remove the user, password or token from it and put it into"
_NETRC = f"{_TAKE_OUT} ~/.netrc on the host"
_GIT = f"{_TAKE_OUT} ~/.netrc or git's credential store on the host, or use an SSH key"
_APT = f"{_TAKE_OUT} /etc/apt/auth.conf.d on the host"

_SYSTEMS = (
    "/bin /boot /dev /etc /lib /lib32 /lib64 /libx32 /lost+found /proc /run /sbin /snap /sys /usr"
    " /var/lib/apt /var/lib/dpkg /var/log /var/run"
)
"""The system's, with everything below them but /usr/local."""
_EVERYBODYS = (
    "/ /home /media /mnt /opt /root /srv /tmp /usr/local /var /var/cache /var/lib /var/opt /var/tmp"
)
"""Fine to be in, not to be."""


def text(value: object) -> str:
    """Accept text that is not empty and can be printed on one line."""
    if not isinstance(value, str):
        remedy = None
        if isinstance(value, int | float) and not isinstance(value, bool):
            remedy = (
                f"put it in quotes, KEY = '{value}', on the command line --data"
                f" 'KEY=\"{value}\"' (unquoted, 3.10 is the number 3.1)"
            )
        raise Bad(f"is {kind(value)}, not text", remedy=remedy)
    if not value:
        raise Bad("is empty")
    if not value.isprintable():
        raise Bad("contains a line break or another character that cannot be printed")
    return value


def one_of(names: Callable[[], Collection[str]], what: str) -> Callable[[object], str]:
    """Return a check for one of `names()`, which suggests the nearest."""

    def check(value: object) -> str:
        word, known = text(value), names()
        if word not in known:
            listed = ", ".join(known) if len(known) <= LONGEST_LIST else None
            raise Bad(f"is not {what}", suggestion=nearest(word, known), allowed=listed)
        return word

    return check


def number_of(numbers: Callable[[], Collection[int]], what: str) -> Callable[[object], int]:
    """Return a check for one of the whole numbers `numbers()`, which suggests the nearest."""

    def check(value: object) -> int:
        known = numbers()
        if isinstance(value, bool) or not isinstance(value, int):
            meant = int(value) if isinstance(value, str) and value.isdecimal() else None
            raise Bad(f"is {kind(value)}, not a whole number", suggestion=meant)
        if value not in known:
            close = min(known, key=lambda each: abs(each - value))
            raise Bad(f"is not {what}", suggestion=close, allowed=", ".join(map(str, known)))
        return value

    return check


def sequence(check: Callable[[str], object]) -> Callable[[object], tuple[object, ...]]:
    """Return a check for a list of texts; sorted, each once."""

    def checks(value: object) -> tuple[object, ...]:
        if isinstance(value, str) or not isinstance(value, list | tuple):
            meant = value.replace(",", " ").split() if isinstance(value, str) else None
            raise Bad(f"is {kind(value)}, not a list", suggestion=meant or None)
        for item in value:
            if not isinstance(item, str):
                raise Bad(
                    f"holds {kind(item)}, not text", remedy=f"put each in quotes, KEY = ['{item}']"
                )
        return tuple(sorted({check(item) for item in value}))  # type: ignore[type-var]

    return checks


def power_of_two(value: int) -> int:
    """Accept a power of two."""
    if value & (value - 1):
        raise Bad("is not a power of two", suggestion=1 << (value.bit_length() - 1))
    return value


def package(item: str) -> str:
    """Accept the name of a package that no stage of ours installs."""
    # A dash at the end of a name would ask for the package's removal.
    if not re.fullmatch(r"[a-z0-9][a-z0-9+.-]*[a-z0-9+]", item):
        raise Bad(f"holds {item!r}, which is not the name of a package alone")
    if re.fullmatch(r"(lib)?(nvidia(?!-container)|cuda).*", item):
        remedy = f"remove {item!r} from it; the keys driver_... and cuda_... say what is wanted"
        raise Bad(f"holds {item!r}, and driver and toolkit have stages of their own", remedy=remedy)
    return item


def arch(item: str) -> int:
    """Accept a compute capability; returned times ten, as nvcc names it: 120 for "12.0"."""
    if not re.fullmatch(r"\d{1,2}\.\d", item):
        digits = re.fullmatch(r"(?:sm_|compute_)?(\d{1,2})(\d)[af]?", item)
        meant = [f"{digits[1]}.{digits[2]}"] if digits else None
        raise Bad(f"holds {item!r}, which is not a compute capability", suggestion=meant)
    return int(item.replace(".", ""))


archs = sequence(arch)
packages = sequence(package)


def capabilities(value: object) -> tuple[str, ...]:
    """Accept a list of compute capabilities, as text and in their order."""
    return tuple(f"{str(each)[:-1]}.{str(each)[-1]}" for each in archs(value))


def is_nightly(version: str) -> bool:
    """Return whether a version is a nightly's, which ends in a date: "2.16.0.dev20261120"."""
    return ".dev" in version


# --- places ---


def prefix(value: object) -> str:
    """Accept an absolute path that is nobody else's directory; a trailing slash is dropped."""
    path = text(value)
    if not path.startswith("/"):
        raise Bad("is a relative path")
    if not re.fullmatch(r"[A-Za-z0-9._+@/-]+", path):
        raise Bad("contains a character that a shell, PATH, systemd or an env file reads specially")
    if {".", ".."} & set(path.split("/")):
        raise Bad("contains . or .. as a part, so it hides where it points")
    path = "/" + posixpath.normpath(path).lstrip("/")
    if len(path) > LONGEST_PREFIX:
        raise Bad(f"is {len(path)} characters long, and {LONGEST_PREFIX} are allowed")
    if path in _EVERYBODYS.split() or re.fullmatch(r"/home/[^/]+", path):
        # Not below / either, and below /tmp everything is emptied just the same.
        usable = posixpath.basename(path) not in ("", "tmp")
        meant = f"{path}/pyinfra-gpu" if usable else None
        raise Bad("is a directory that others use too", suggestion=meant)
    for tree in _SYSTEMS.split():
        if f"{path}/".startswith(f"{tree}/") and not path.startswith("/usr/local/"):
            raise Bad(f"is {'' if path == tree else 'in '}{tree}, which belongs to the system")
    return path


def split_url(value: object, *schemes: str) -> tuple[str, SplitResult]:
    """Return a URL of one of `schemes` and its parts; refuse what is not one."""
    url = text(value)
    if " " in url:
        raise Bad("contains a space")
    try:
        parts = urlsplit(url)
        _ = parts.port  # a malformed port shows only when it is read
    except ValueError as error:
        raise Bad(f"is not a URL ({error})") from None
    if parts.scheme not in schemes:
        *most, last = schemes
        raise Bad(f"is not an {', '.join(most)} or {last} URL")
    if parts.scheme == "file":
        if parts.netloc or not parts.path.startswith("/") or len(parts.path) < 2:
            remedy = "write file:///ABSOLUTE/PATH, with three slashes"
            raise Bad("does not name an absolute path", remedy=remedy)
    elif not parts.hostname or "-" in (parts.hostname[0], parts.netloc[0]):
        raise Bad("names no host")
    return url, parts


def index_url(value: object) -> str:
    """Accept an http, https or file URL of a package index, without credentials."""
    url, parts = split_url(value, "http", "https", "file")
    if "@" in parts.netloc or SECRET_NAME.search(parts.query):
        raise Bad(_IN_LOGS, remedy=_NETRC)
    if parts.fragment:
        raise Bad("has a # part, which indexes do not use")
    return url


def repository_url(value: object) -> str:
    """Accept an http, https or file URL that apt can read; a slash at its end is dropped.

    `{distro}` and `{arch}` may stand in it and become the host's own, as in NVIDIA's layout.
    """
    url, parts = split_url(value, "http", "https", "file")
    if "@" in parts.netloc or SECRET_NAME.search(parts.query):
        raise Bad(_IN_LOGS, remedy=_APT)
    if parts.query or parts.fragment:
        raise Bad("has a ? or # part, which apt repositories do not use")
    plain = url.replace("{distro}", "").replace("{arch}", "")
    if "{" in plain or "}" in plain:
        raise Bad("holds another placeholder than {distro} and {arch}")
    # What stands in an apt source line without being read as its end, an option or a comment.
    if not re.fullmatch(r"[A-Za-z0-9._~:/%+\[\]-]+", plain):
        raise Bad("contains a character that apt reads specially")
    if "{" in parts.netloc:
        raise Bad("has a placeholder in its host name")
    return url.rstrip("/")


def wheels(value: object) -> str:
    """Accept the URL of a folder of wheels on a web server, or the path of one on the host."""
    word = text(value)
    if word.startswith("file://"):
        raise Bad("is a file URL, not a path", suggestion=word.removeprefix("file://"))
    if "://" in word:
        return index_url(word)
    if not re.fullmatch(r"/[A-Za-z0-9._+@/-]+", word) or {".", ".."} & set(word.split("/")):
        raise Bad("is neither a URL nor an absolute path of plain characters")
    return posixpath.normpath(word)


def git_url(value: object) -> str:
    """Accept what `git clone` accepts: https, http, ssh, git, file, user@host:path, alias:path."""
    url = text(value)
    if url.startswith("-"):
        raise Bad(_DASH)
    if "::" in url.split("/")[0]:
        raise Bad("names a program for git to run as transport")
    if "://" not in url:
        return _scp_like(url)
    url, parts = split_url(url, "https", "http", "ssh", "git", "file")
    # An SSH user is no secret; before an https host stands a token as often as a name.
    named = "@" in parts.netloc and parts.scheme != "ssh"
    if parts.password is not None or named or SECRET_NAME.search(parts.query):
        raise Bad(_IN_LOGS, remedy=_GIT)
    if not parts.path.strip("/"):
        raise Bad("names no repository on that host")
    return url


def _scp_like(url: str) -> str:
    if " " in url:
        raise Bad("contains a space")
    if re.match(r"[^/@:]+:[^@/]+@", url):
        raise Bad(_IN_LOGS, remedy=_GIT)
    if url.startswith("/"):
        raise Bad("is a path, not a URL", suggestion=f"file://{url}")
    if re.fullmatch(r"([A-Za-z0-9._-]+@)?[A-Za-z0-9][A-Za-z0-9._-]*:[^:].*", url):
        return url
    if re.match(r"[A-Za-z0-9-]+(\.[A-Za-z0-9-]+)+/", url):
        raise Bad("has no scheme", suggestion=f"https://{url}")
    raise Bad("is not a git URL")


def requirements(value: object) -> str:
    """Accept a relative path below the repo to a requirements .txt or a pyproject.toml."""
    path = text(value)
    name = posixpath.basename(path)
    if path.startswith("/"):
        raise Bad("is an absolute path", suggestion=name or None)
    if path.startswith("-"):
        raise Bad(_DASH)
    if ".." in path.split("/"):
        raise Bad("leads out of the repo")
    if not re.fullmatch(r"[A-Za-z0-9._+@/-]+", path):
        raise Bad("contains a character that a shell reads specially")
    if name != "pyproject.toml" and not name.endswith(".txt"):
        raise Bad("is neither a requirements .txt nor a pyproject.toml")
    return posixpath.normpath(path)


def ip_address(value: object) -> str:
    """Accept an IPv4 or IPv6 address that others can reach."""
    word = text(value)
    try:
        address = ipaddress.ip_address(word)
    except ValueError:
        raise Bad("is not an IP address") from None
    if address.is_loopback or address.is_unspecified:
        raise Bad("is not an address that other hosts can reach")
    return word


def switch_or_group(value: object) -> object:
    """Accept True, False or the name of an inventory group."""
    if isinstance(value, str) and value.casefold() not in ("true", "false", "yes", "no"):
        if not re.fullmatch(r"[A-Za-z][A-Za-z0-9_]{0,63}", value):
            raise Bad("is neither True, False nor the name of a group")
        return value
    if not isinstance(value, bool):
        meant = {"true": True, "yes": True, "1": True}.get(str(value).casefold())
        raise Bad(f"is {kind(value)}, not True or False", suggestion=meant)
    return value


# --- what runs ---


def flags(value: object) -> tuple[tuple[str, str], ...]:
    """Accept a dict of CMake options and their values, sorted; True and False become 1 and 0."""
    if not isinstance(value, dict):
        raise Bad(f"is {kind(value)}, not a dict")
    found = {}
    for name, each in value.items():
        if not isinstance(name, str) or not re.fullmatch(r"[A-Z][A-Z0-9_]{1,60}", name):
            raise Bad(f"holds {name!r}, which is not the name of an option")
        if isinstance(each, bool | int) and each in (0, 1):
            each = str(int(each))
        if not isinstance(each, str) or not re.fullmatch(r"[A-Za-z0-9_.,+:;=/ -]{1,200}", each):
            raise Bad(f"gives {name} {kind(each)}, which is not True, False or plain text")
        found[name] = each
    return tuple(sorted(found.items()))


def variables(value: object) -> tuple[tuple[str, SecretStr], ...]:
    """Accept a dict of text to text with allowed names; its items, sorted by name."""
    return tuple((name, SecretStr(content)) for name, content in env.variables(value))


def presets(value: object) -> str:
    """Accept a dict of presets, each right by itself and with what it extends; as JSON."""
    return json.dumps(of_runs.presets(value))
