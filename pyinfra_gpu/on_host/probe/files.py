"""What stands at a path, and what root may take for its own."""

from __future__ import annotations

import os
import stat

from .frame import TEXT_LIMIT, NotTold, decoded, rows, unknown

TYPE_CHECKING = False  # to load `typing` takes as long as a fifth of the look
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any

_LARGEST_READ = 4 << 20  # bytes; a file full of holes is as large as somebody says
_KINDS = {stat.S_IFREG: "file", stat.S_IFDIR: "dir", stat.S_IFLNK: "link"}
_GONE = (FileNotFoundError, NotADirectoryError)


class Users:
    """The names of users, as the system's own list has them first."""

    def __init__(self, root: str = "") -> None:
        self._root = root
        self._rows: list[list[str]] | None = None
        self._asked: dict[int, str] = {}

    def local(self) -> list[list[str]]:
        """Return the rows of /etc/passwd."""
        if self._rows is None:
            try:
                found = [row.split(":") for row in rows(f"{self._root}/etc/passwd")]
            except (OSError, NotTold):
                found = []
            self._rows = [row for row in found if len(row) == 7 and row[2].isdigit()]
        return self._rows

    def name(self, uid: int) -> str:
        """Return the name of a user, or the number where there is none."""
        if uid not in self._asked:
            found = next((row[0] for row in self.local() if int(row[2]) == uid), None)
            if found is None:
                import pwd

                try:
                    found = pwd.getpwuid(uid).pw_name
                except KeyError:
                    found = str(uid)
            self._asked[uid] = found
        return self._asked[uid]

    def find(self, name: str) -> tuple[int, int, str] | None:
        """Return number, group and home of a user; None where there is none of that name."""
        for row in self.local():
            if row[0] == name and row[3].isdigit():
                return int(row[2]), int(row[3]), row[5]
        import pwd

        try:
            each = pwd.getpwnam(name)
        except (KeyError, ValueError):
            return None
        return each.pw_uid, each.pw_gid, each.pw_dir


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
            there = os.lstat(place)
        except OSError:
            return ""
        if there.st_uid != 0:
            return place
        if stat.S_ISLNK(there.st_mode):
            hops += 1
            target = os.readlink(place)
            if hops >= 40:
                return place
            rest += target.split("/")[::-1]
            at = "" if target.startswith("/") else at
        elif not stat.S_ISDIR(there.st_mode) or there.st_mode & 0o22:
            return place
        else:
            at = place
    return ""


def left_to_owner(paths: Iterable[str], prefix: str) -> list[str]:
    """Return those that only the owner may tell of.

    They are in what somebody else than root can change, or are files that are not root's, whose
    content may be exchanged while it is read.
    """
    left: list[str] = []
    ways: dict[str, str] = {}
    for path in paths:
        if not path.startswith(f"{prefix}/"):
            continue
        above = os.path.dirname(path)
        if above not in ways:
            ways[above] = open_place(above)
        try:
            there = os.lstat(path)
        except OSError:
            there = None
        theirs = there is not None and there.st_uid != 0 and stat.S_ISREG(there.st_mode)
        if ways[above] or theirs:
            left.append(path)
    return left


def entry(path: str, users: Users) -> dict[str, Any]:
    """Return what stands at a path; links are not followed."""
    try:
        there = os.lstat(path)
    except _GONE:
        return {"kind": "absent"}
    except PermissionError:
        return unknown(f"no permission to look at {path}")
    except OSError as error:
        return unknown(f"{path}: {error.strerror}")
    kind = _KINDS.get(stat.S_IFMT(there.st_mode), "other")
    found: dict[str, Any] = {
        "kind": kind,
        "mode": f"{stat.S_IMODE(there.st_mode):04o}",
        "owner": users.name(there.st_uid),
    }
    if kind == "file":
        found["size"] = there.st_size
        if there.st_size <= _LARGEST_READ:
            found["sha256"] = _said(path, digest)
    elif kind == "link":
        found["target"] = _said(path, os.readlink)
    return found


def _said(path: str, find: Callable[[str], Any]) -> Any:
    try:
        return find(path)
    except PermissionError:
        return unknown(f"no permission to read {path}")
    except (OSError, NotTold):
        return unknown(f"{path} could not be read")


def content(path: str, most: int, *, follow: bool = False) -> bytes:
    """Return the first bytes of a plain file; no device or pipe is ever read."""
    flags = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | (0 if follow else os.O_NOFOLLOW)
    number = os.open(path, flags)
    with open(number, "rb") as file:
        if not stat.S_ISREG(os.fstat(number).st_mode):
            raise NotTold(f"{path} is no file")
        return file.read(most)


def digest(path: str, *, follow: bool = False) -> str:
    """Return the SHA-256 of a file of at most 4 MiB."""
    import hashlib

    raw = content(path, _LARGEST_READ + 1, follow=follow)
    if len(raw) > _LARGEST_READ:
        raise NotTold(f"{path} is larger than 4 MiB")
    return hashlib.sha256(raw).hexdigest()


def there(path: str) -> bool:
    """Tell whether a file stands there, links followed; `NotTold` where it cannot be known."""
    try:
        return stat.S_ISREG(os.stat(path).st_mode)
    except _GONE:
        if os.path.islink(path):
            raise NotTold(f"{path} is a link to something that cannot be read") from None
        return False
    except PermissionError:
        raise NotTold(f"no permission to look at {path}") from None


def document(path: str) -> str | None:
    """Return a file's whole text; None where there is none."""
    if not path or not there(path):
        return None
    try:
        raw = content(path, TEXT_LIMIT + 1, follow=True)
    except PermissionError:
        raise NotTold(f"no permission to read {path}") from None
    if len(raw) > TEXT_LIMIT:
        raise NotTold(f"the file is longer than {TEXT_LIMIT // 1024} KiB")
    return decoded(raw)


def believed(path: str, *, as_root: bool) -> str | None:
    """Return the whole text of a file that root alone can have written.

    + as_root: whether root looks at what somebody else may have; else the reader's own word counts
    """
    if not path or not as_root:
        return document(path)
    if place := open_place(os.path.dirname(path)):
        raise NotTold(f"somebody else than root can change {place}")
    try:
        found = os.lstat(path)
    except _GONE:
        return None
    if found.st_uid != 0 or not stat.S_ISREG(found.st_mode):
        raise NotTold(f"{path} is not a file of root's")
    return document(path)


def size(path: str) -> int:
    """Return a file's size, 0 where there is none."""
    try:
        found = os.stat(path)
    except OSError:
        return 0
    return found.st_size if stat.S_ISREG(found.st_mode) else 0


def runs(path: str) -> bool:
    """Tell whether it is a program, and not empty."""
    return os.path.exists(path) and os.stat(path).st_size > 0 and os.access(path, os.X_OK)


def masked(units: Iterable[str], root: str) -> list[str]:
    """Return which of these units somebody forbade to start: an empty file, a link to /dev/null."""
    found = [each for each in units if os.path.exists(each) and not size(each)]
    return [each[len(root) :] for each in found]
