"""What stands at a path, whose it is, and what root may take for its own."""

from __future__ import annotations

import os
import pwd
import stat
from functools import cache

from .frame import GONE, TEXT_LIMIT, Any, Host, Iterable, NotReported, attempt, content, decoded

_LARGEST_READ = 4 << 20  # bytes; a file full of holes is as large as somebody says
_KINDS = {stat.S_IFREG: "file", stat.S_IFDIR: "dir", stat.S_IFLNK: "link"}


@cache
def user_name(uid: int) -> str:
    """Return the name of a user, or the number where there is none."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def open_place(folder: str) -> str:
    """Return the first place on the way to a folder that somebody else than root can change.

    Empty where there is none. A folder that is not there passes: nobody else can make it. An
    access list shows as write permission of the group, so that counts whoever the group is; and in
    a folder like /tmp the sticky bit keeps nobody from putting something at a free name.
    """
    rest, at, hops = folder.split("/")[::-1], "", 0
    while rest:
        step = rest.pop()
        if step in ("", "."):
            continue
        if step == "..":
            at = at.rpartition("/")[0]
            continue
        place = f"{at}/{step}"
        try:
            found = os.lstat(place)
        except OSError:
            return ""
        if found.st_uid != 0:
            return place
        if stat.S_ISLNK(found.st_mode):
            hops += 1
            target = os.readlink(place)
            if hops >= 40:
                return place
            rest += target.split("/")[::-1]
            at = "" if target.startswith("/") else at
        elif not stat.S_ISDIR(found.st_mode) or found.st_mode & 0o22:
            return place
        else:
            at = place
    return ""


def left_to_owner(paths: Iterable[str], prefix: str) -> list[str]:
    """Return those that only the owner may tell of.

    They are in what somebody else than root can change, or are files that are not root's, whose
    content may be exchanged while it is read.
    """
    changeable = cache(open_place)

    def is_theirs(path: str) -> bool:
        try:
            found = os.lstat(path)
        except OSError:
            return False
        return found.st_uid != 0 and stat.S_ISREG(found.st_mode)

    below = (path for path in paths if path.startswith(f"{prefix}/"))
    return [each for each in below if changeable(os.path.dirname(each)) or is_theirs(each)]


def entries(paths: Iterable[str]) -> dict[str, Any]:
    """Return path -> what stands there; links are not followed."""
    return {each: attempt(entry, each) for each in paths}


def entry(path: str) -> dict[str, Any]:
    """Return what stands at a path: "kind", and what else there is to tell of it."""
    try:
        there = os.lstat(path)
    except GONE:
        return {"kind": "absent"}
    kind = _KINDS.get(stat.S_IFMT(there.st_mode), "other")
    mode = f"{stat.S_IMODE(there.st_mode):04o}"
    found: dict[str, Any] = {"kind": kind, "mode": mode, "owner": user_name(there.st_uid)}
    if kind == "file":
        found["size"] = there.st_size
        if there.st_size <= _LARGEST_READ:
            found["sha256"] = attempt(digest, path, False)
    if kind == "link":
        found["target"] = attempt(os.readlink, path)
    return found


def digest(path: str, follow: bool = True) -> str:
    """Return the SHA-256 of a file of at most 4 MiB."""
    import hashlib

    raw = content(path, _LARGEST_READ + 1, follow=follow)
    if len(raw) > _LARGEST_READ:
        raise NotReported(f"{path} is larger than 4 MiB")
    return hashlib.sha256(raw).hexdigest()


def is_file(path: str) -> bool:
    """Tell whether a file stands there, links followed; `NotReported` where it cannot be known."""
    try:
        return bool(path) and stat.S_ISREG(os.stat(path).st_mode)
    except GONE:
        if os.path.islink(path):
            raise NotReported(f"{path} is a link to something that cannot be read") from None
        return False


def document(path: str) -> str | None:
    """Return a file's whole text; None where there is none."""
    if not is_file(path):
        return None
    raw = content(path, TEXT_LIMIT + 1)
    if len(raw) > TEXT_LIMIT:
        raise NotReported(f"the file is longer than {TEXT_LIMIT // 1024} KiB")
    return decoded(raw)


def believed(host: Host, name: str) -> str | None:
    """Return the whole text of a file that root alone can have written.

    + name: under which the request has its path

    Where root looks at what somebody else may have; else the reader's own word counts.
    """
    path: str = host.asked[name]
    if path and host.owner.apart:
        if place := open_place(os.path.dirname(path)):
            raise NotReported(f"somebody else than root can change {place}")
        found = os.lstat(path)
        if found.st_uid != 0 or not stat.S_ISREG(found.st_mode):
            raise NotReported(f"{path} is not a file of root's")
    return document(path)
