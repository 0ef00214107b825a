"""Checkers for places: directories on the host, package indexes, git repositories, commits."""

from __future__ import annotations

import ipaddress
import posixpath
import re
from urllib.parse import SplitResult, urlsplit

from pyinfra_gpu.errors import SECRET_NAME
from pyinfra_gpu.spec.values import BadValueError, text

# Linux reads 255 bytes of a script's first line, and we append up to 40 to the prefix.
LONGEST_PREFIX = 200

_IN_LOGS = "contains a user, password or token, which would end up in logs"
_NETRC = "remove the user, password or token from it and put it into ~/.netrc on the host"
_CREDENTIALS = (
    "remove the user, password or token from it, and use an SSH key, ~/.netrc or git's "
    "credential store on the host"
)

# Directories that are the system's, with everything below them.
_TREES = {
    "/bin": "holds the system's programs",
    "/boot": "holds the boot loader and kernels",
    "/dev": "holds devices",
    "/etc": "holds the system's configuration",
    "/lib": "holds the system's libraries",
    "/lib32": "holds the system's libraries",
    "/lib64": "holds the system's libraries",
    "/libx32": "holds the system's libraries",
    "/lost+found": "belongs to the file system",
    "/proc": "is the kernel's",
    "/run": "is emptied at every boot",
    "/sbin": "holds the system's programs",
    "/snap": "belongs to snapd",
    "/sys": "is the kernel's",
    "/usr": "belongs to the package manager",
    "/var/lib/apt": "belongs to apt",
    "/var/lib/dpkg": "belongs to dpkg",
    "/var/log": "is rotated and emptied by the system",
    "/var/run": "is emptied at every boot",
}
# Directories that are everybody's: fine to be in, not to be. (S108 warns of using /tmp: it is not.)
_SHARED = {
    "/": "is the whole system",
    "/home": "holds everybody's home directories",
    "/media": "holds mount points",
    "/mnt": "holds mount points",
    "/opt": "is shared with other software",
    "/root": "is root's home directory",
    "/srv": "is shared with other software",
    "/tmp": "is emptied by the system",  # noqa: S108
    "/usr/local": "is shared with other software",
    "/var": "holds the system's state",
    "/var/cache": "holds the system's caches",
    "/var/lib": "holds the system's state",
    "/var/opt": "is shared with other software",
    "/var/tmp": "is emptied by the system",  # noqa: S108
}
_UNSAFE = {
    " ": "contains a space, which breaks scripts' first lines and systemd's EnvironmentFile",
    "~": "contains ~, which nothing expands here",
    "$": "contains $, and no variable is expanded here",
    "%": "contains %, which systemd units read as a specifier",
    ":": "contains a colon, which separates the entries of PATH",
    "\\": "contains a backslash, which env files read as an escape",
}


def prefix(value: object) -> str:
    """Accept an absolute path that is nobody else's directory; a trailing slash is dropped."""
    path = text(value)
    for character, problem in _UNSAFE.items():
        if character in path:
            raise BadValueError(problem)
    if not path.startswith("/"):
        raise BadValueError("is a relative path")
    if not re.fullmatch(r"[A-Za-z0-9._+@/-]+", path):
        raise BadValueError("contains a character that a shell or an env file reads specially")
    if {".", ".."} & set(path.split("/")):
        raise BadValueError("contains . or .. as a part, so it hides where it points")
    path = "/" + posixpath.normpath(path).lstrip("/")
    if len(path) > LONGEST_PREFIX:
        raise BadValueError(f"is {len(path)} characters long, and {LONGEST_PREFIX} are allowed")
    _refuse_foreign(path)
    return path


def _refuse_foreign(path: str) -> None:
    if path in _SHARED:
        # Not below / either, and below /tmp everything is emptied just the same.
        usable = posixpath.basename(path) not in ("", "tmp")
        raise BadValueError(_SHARED[path], suggestion=f"{path}/pyinfra-gpu" if usable else None)
    for tree, reason in _TREES.items():
        if path == tree:
            raise BadValueError(reason)
        if path.startswith(f"{tree}/") and not path.startswith("/usr/local/"):
            raise BadValueError(f"is in {tree}, which {reason}")
    if re.fullmatch(r"/home/[^/]+", path):
        raise BadValueError("is a home directory", suggestion=f"{path}/pyinfra-gpu")


def index_url(value: object) -> str:
    """Accept an http, https or file URL of a package index, without credentials."""
    url, parts = split_url(value)
    if parts.scheme not in ("http", "https", "file"):
        raise BadValueError("is not an http, https or file URL")
    if "@" in parts.netloc or SECRET_NAME.search(parts.query):
        raise BadValueError(_IN_LOGS, remedy=_NETRC)
    if parts.fragment:
        raise BadValueError("has a # part, which indexes do not use")
    refuse_no_place(parts)
    return url


def wheels(value: object) -> str:
    """Accept the URL of a folder of wheels on a web server, or the path of one on the host."""
    word = text(value)
    if word.startswith("file://"):
        suggestion = word.removeprefix("file://")
        raise BadValueError("is a file URL, not a path", suggestion=suggestion)
    if "://" in word:
        return index_url(word)
    if not re.fullmatch(r"/[A-Za-z0-9._+@/-]+", word) or {".", ".."} & set(word.split("/")):
        raise BadValueError("is neither a URL nor an absolute path of plain characters")
    return posixpath.normpath(word)


def folder(value: object) -> str:
    """Accept the absolute path of a folder on a host, without blanks."""
    path = text(value)
    if not re.fullmatch(r"/[A-Za-z0-9_.+/-]{1,200}", path) or ".." in path.split("/"):
        raise BadValueError("is not an absolute path without blanks")
    return posixpath.normpath(path)


def git_url(value: object) -> str:
    """Accept what `git clone` accepts as a URL: https, http, ssh, git, file, user@host:path."""
    url = text(value)
    if url.startswith("-"):
        raise BadValueError("starts with a dash and would be read as an option")
    if "::" in url.split("/")[0]:
        raise BadValueError("names a program for git to run as transport")
    if "://" not in url:
        return _scp_like(url)
    url, parts = split_url(url)
    if parts.scheme not in ("https", "http", "ssh", "git", "file"):
        raise BadValueError("is not an https, http, ssh, git or file URL")
    # An SSH user is no secret; before an https host stands a token as often as a name.
    named = "@" in parts.netloc and parts.scheme != "ssh"
    if parts.password is not None or named or SECRET_NAME.search(parts.query):
        raise BadValueError(_IN_LOGS, remedy=_CREDENTIALS)
    refuse_no_place(parts)
    if not parts.path.strip("/"):
        raise BadValueError("names no repository on that host")
    return url


def _scp_like(url: str) -> str:
    if any(character.isspace() for character in url):
        raise BadValueError("contains a space")
    if re.match(r"[^/@:]+:[^@/]+@", url):
        raise BadValueError(_IN_LOGS, remedy=_CREDENTIALS)
    if url.startswith("/"):
        raise BadValueError("is a path, not a URL", suggestion=f"file://{url}")
    if re.fullmatch(r"[A-Za-z0-9._-]+@[A-Za-z0-9][A-Za-z0-9.-]*:[^:].*", url):
        return url
    if re.match(r"[A-Za-z0-9-]+(\.[A-Za-z0-9-]+)+/", url):
        raise BadValueError("has no scheme", suggestion=f"https://{url}")
    raise BadValueError("is not a git URL")


def split_url(value: object) -> tuple[str, SplitResult]:
    """Return a URL and its parts; refuse what is not one."""
    url = text(value)
    if any(character.isspace() for character in url):
        raise BadValueError("contains a space")
    try:
        parts = urlsplit(url)
        _ = parts.port  # a malformed port shows only when it is read
    except ValueError as error:
        raise BadValueError(f"is not a URL ({error})") from None
    return url, parts


def refuse_no_place(parts: SplitResult) -> None:
    """Refuse a URL that names no host, or a file URL without an absolute path."""
    if parts.scheme == "file":
        if parts.netloc or not parts.path.startswith("/") or len(parts.path) < 2:
            remedy = "write file:///ABSOLUTE/PATH, with three slashes"
            raise BadValueError("does not name an absolute path", remedy=remedy)
    elif not parts.hostname or "-" in (parts.hostname[0], parts.netloc[0]):
        raise BadValueError("names no host")


def commit(value: object) -> str:
    """Accept 40 hexadecimal digits, returned in lower case."""
    word = text(value)
    if not re.fullmatch(r"[0-9a-fA-F]{4,64}", word):
        raise BadValueError("is not a commit, and a branch or tag may move")
    if len(word) != 40:
        short = ", it is shortened" if len(word) < 40 else ""
        raise BadValueError(f"has {len(word)} digits{short}")
    if set(word) == {"0"}:
        raise BadValueError("is git's name for no commit")
    return word.lower()


def requirements(value: object) -> str:
    """Accept a relative path below the repo to a requirements .txt or a pyproject.toml."""
    path = text(value)
    name = posixpath.basename(path)
    if path.startswith("/"):
        raise BadValueError("is an absolute path", suggestion=name or None)
    if path.startswith("-"):
        raise BadValueError("starts with a dash and would be read as an option")
    if ".." in path.split("/"):
        raise BadValueError("leads out of the repo")
    if not re.fullmatch(r"[A-Za-z0-9._+@/-]+", path):
        raise BadValueError("contains a character that a shell reads specially")
    if name != "pyproject.toml" and not name.endswith(".txt"):
        raise BadValueError("is neither a requirements .txt nor a pyproject.toml")
    return posixpath.normpath(path)


def ip_address(value: object) -> str:
    """Accept an IPv4 or IPv6 address that others can reach."""
    word = text(value)
    try:
        address = ipaddress.ip_address(word)
    except ValueError:
        raise BadValueError("is not an IP address") from None
    if address.is_loopback or address.is_unspecified:
        raise BadValueError("is not an address that other hosts can reach")
    return word
