"""What every part of the look stands on: facts that fail alone, and processes with a deadline.

Python 3.9 and later, and of its library only what Debian's python3-minimal has: no `json`.
"""

from __future__ import annotations

import os
import re
import select
import stat
import time
from fcntl import fcntl

TYPE_CHECKING = False  # to load `typing` takes as long as a fifth of the look
if TYPE_CHECKING:
    from collections.abc import Callable as Callable
    from collections.abc import Iterable as Iterable
    from collections.abc import Iterator as Iterator
    from collections.abc import Mapping as Mapping
    from typing import Any as Any

    Facts = Mapping[str, Callable[["Host"], Any]]
    """Key of the answer -> what finds it out; several keys with blanks between, several values."""
else:  # in annotations alone, which nobody evaluates
    Any = Callable = Facts = Iterable = Iterator = Mapping = None

TOO_LATE = "the host was asked for it and did not answer in time"
TEXT_LIMIT = 65536  # bytes of a document
GONE = (FileNotFoundError, NotADirectoryError)
_MOST_SAID = 8 << 20  # bytes that a program may say, or a file of the system's may have
_MOST_TOLD = 1 << 20  # bytes of one part of the answer
_SBIN = ":/usr/local/sbin:/usr/sbin:/sbin"
_KILL = 9  # to load `signal` takes 8 ms
_ADD_SEALS, _SEAL_SHRINK_AND_GROW = 1033, 6  # see fcntl(2)


class NotReported(Exception):  # noqa: N818 - it is no error: the host has its reasons
    """The host would not tell; the reason is a clause."""


class Child:
    """A process with a deadline; what it says goes to memory that does not grow past a bound.

    So nobody has to read along, and whatever holds its output open when it has ended is not waited
    for.

    + start: begins it with a file for what it says, and returns its number
    + most: bytes that it may say
    """

    def __init__(self, start: Callable[[int], int], most: int) -> None:
        self._most = most
        self._file = os.memfd_create("said", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        try:
            os.ftruncate(self._file, most)
            fcntl(self._file, _ADD_SEALS, _SEAL_SHRINK_AND_GROW)
            self._pid = start(self._file)
        except BaseException:
            os.close(self._file)
            raise

    def end(self, until: float) -> tuple[int | None, bytes]:
        """Return its status, as a shell tells it, and what it said.

        None: it was not done in time. It is killed then, with all that it started in its own group;
        what hangs in the kernel does not end now, and is not waited for.
        """
        ended = os.pidfd_open(self._pid)
        poll = select.poll()
        poll.register(ended, select.POLLIN)
        in_time = poll.poll(max(0, 1000 * (until - time.monotonic())))
        for kill in (os.killpg, os.kill):
            try:
                kill(self._pid, _KILL)
            except OSError:
                continue
        if not in_time:
            poll.poll(100)
        os.close(ended)
        code = os.waitstatus_to_exitcode(os.waitpid(self._pid, os.WNOHANG)[1])
        reported = min(self._most, os.lseek(self._file, 0, os.SEEK_CUR))  # a child can set it
        said = os.pread(self._file, reported, 0)
        os.close(self._file)
        return (128 - code if code < 0 else code) if in_time else None, said


class Host:
    """Where to look, and what was asked.

    + root: the folder that stands for / where the system tells of itself; "" is / itself
    + asked: the request, see `pyinfra_gpu.facts.probe`
    """

    owner: Any
    """As whom the owner's half is looked at: `look.Owner`."""

    def __init__(self, root: str, asked: Mapping[str, Any]) -> None:
        self.root = root
        self.asked = asked
        self.path = os.environ.get("PATH", "") + asked.get("sbin", _SBIN)
        self.environment = {**os.environ, "LC_ALL": "C", "PATH": self.path}
        self.uid = os.getuid()
        arch = attempt(self.line, "/proc/sys/kernel/arch")  # since Linux 6.1
        self.machine: str = arch if isinstance(arch, str) else os.uname().machine
        # The architecture as Debian's packages are named for it.
        self.native = {"x86_64": "amd64", "aarch64": "arm64"}.get(self.machine, self.machine)

    def at(self, path: str) -> str:
        """Return where a path of the system's is."""
        return self.root + path

    def there(self, path: str) -> bool:
        """Tell whether something stands at a path of the system's, links followed."""
        return os.path.exists(self.root + path)

    def is_dir(self, path: str) -> bool:
        """Tell whether it is a folder."""
        return os.path.isdir(self.root + path)

    def is_file(self, path: str) -> bool:
        """Tell whether it is a plain file."""
        return os.path.isfile(self.root + path)

    def is_filled(self, path: str) -> bool:
        """Tell whether it is a file with contents: as a power cut leaves it, it is not."""
        return self.is_file(path) and os.stat(self.root + path).st_size > 0

    def runs(self, path: str) -> bool:
        """Tell whether it is a program, and not empty."""
        return self.is_filled(path) and os.access(self.root + path, os.X_OK)

    def shown(self, path: str) -> str:
        """Return the path of the system's that is there."""
        return path[len(self.root) :] if self.root and path.startswith(self.root) else path

    def real(self, path: str) -> str:
        """Return the path behind all links."""
        return self.shown(os.path.realpath(self.root + path))

    def names(self, folder: str, begin: str = "", end: str = "") -> list[str]:
        """Return the names in a folder that begin and end so, in order; none where it is not."""
        return [e for e in names(self.root + folder) if e.startswith(begin) and e.endswith(end)]

    def paths(self, folder: str, begin: str = "", end: str = "") -> list[str]:
        """Return the same as paths of the system's."""
        return [f"{folder}/{each}" for each in self.names(folder, begin, end)]

    def files(self, *places: str) -> list[str]:
        """Return the plain files at these places; FOLDER/*END stands for those that end so."""
        found: list[str] = []
        for place in places:
            folder, star, end = place.partition("/*")
            found += self.paths(folder, end=end) if star else [place]
        return [each for each in found if self.is_file(each)]

    def rows(self, path: str) -> list[str]:
        """Return the lines of a file of the system's."""
        return rows(self.root + path)

    def rows_if_any(self, path: str) -> list[str]:
        """Return the same; none where it cannot be read."""
        try:
            return self.rows(path)
        except (OSError, NotReported):
            return []

    def line(self, path: str) -> str:
        """Return the first line of a file of the kernel's."""
        try:
            with open(self.root + path, "rb") as file:
                row = decoded(file.readline(TEXT_LIMIT)).strip()
        except OSError:
            row = ""
        if not row:
            raise NotReported(f"{self.root}{path} is empty, or the host does not show it")
        return row

    def process(self, pid: str) -> str:
        """Return how a process is named to people, e.g. "pid 812 (python3)"."""
        name = next(iter(self.rows_if_any(f"/proc/{pid}/comm")), "")
        return f"pid {pid}" + (f" ({name})" if name else "")

    def which(self, name: str) -> str | None:
        """Return the program of that name, or path."""
        folders = [""] if "/" in name else [f"{each}/" for each in self.path.split(":") if each]
        for folder in folders:
            if os.path.isfile(folder + name) and os.access(folder + name, os.X_OK):
                return folder + name
        return None

    def run(
        self,
        *words: str,
        seconds: float,
        environment: Mapping[str, str] | None = None,
        errors: bool = True,
    ) -> tuple[int, str]:
        """Run a program; return its status, and what it said on both channels.

        + errors: whether what it says on standard error counts

        124: it was given up. `NotReported` where it is not there, or says more than anybody reads.
        """
        program = self.which(words[0])
        if program is None:
            raise NotReported(f"{words[0]} is not on this host")
        given = self.environment if environment is None else environment

        def start(file: int) -> int:
            silent = (os.POSIX_SPAWN_OPEN, 2, os.devnull, os.O_WRONLY, 0)
            actions: list[Any] = [
                (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
                (os.POSIX_SPAWN_DUP2, file, 1),
                (os.POSIX_SPAWN_DUP2, file, 2) if errors else silent,
            ]
            return os.posix_spawn(program, words, given, file_actions=actions)

        try:
            child = Child(start, _MOST_SAID)
        except OSError as error:
            return 126, f"{words[0]}: {error.strerror}"
        status, said = child.end(time.monotonic() + min(seconds, self.asked.get("limit", seconds)))
        if len(said) >= _MOST_SAID:
            raise NotReported(f"{words[0]} said too much")
        return 124 if status is None else status, decoded(said).rstrip("\n")

    def said(self, *words: str, seconds: float) -> str:
        """Return what a program says; `NotReported`, with its words, where it fails."""
        status, said = self.run(*words, seconds=seconds)
        if status:
            raise NotReported(f"{words[0]}: {why(status, said)}")
        return said


def why(status: int, said: str) -> str:
    """Return why a program did not answer, a clause."""
    if status == 124:
        return "it did not answer in time"
    if status > 128:
        return f"it was ended by signal {status - 128}"
    first = next((row for row in said.split("\n") if row.strip()), "")
    return first or f"it ended with status {status} and said nothing"


def only(form: str, said: str, program: str) -> str:
    """Return what stands at the form's one group in what a program said."""
    found = re.search(form, said)
    if not found:
        raise NotReported(f"{program}: it said {said.partition(chr(10))[0][:80]}")
    return found[1]


def unknown(reason: str) -> dict[str, str]:
    """Return what stands in the answer for what the host would not tell."""
    return {"?": reason[:400]}


def attempt(find: Callable[..., Any], *given: Any) -> Any:
    """Return what is found; what says why not where that fails, and None where it is not there."""
    try:
        return find(*given)
    except NotReported as error:
        return unknown(str(error))
    except GONE:
        return None
    except PermissionError as error:
        return unknown(f"no permission to look at {text(error.filename)}")
    except OSError as error:
        return unknown(f"{text(error.filename)}: {error.strerror}")
    except Exception as error:  # whatever it is, the other facts are told
        return unknown(f"{type(error).__name__}: {error}")


def begin(host: Host, table: Facts, first: Callable[[Host], None] | None = None) -> Child:
    """Begin to find out a table of facts in a process; a fact that fails fails alone.

    + first: what its process does before
    """

    def tell(file: int) -> None:
        os.setpgid(0, 0)
        nothing = os.open(os.devnull, os.O_RDWR)
        for number in (0, 1, 2):
            os.dup2(nothing, number)
        os.closerange(3, file)
        os.closerange(file + 1, 256)
        with open(file, "wb", buffering=0) as out:
            if first:
                first(host)
            for keys, find in table.items():
                value, several = attempt(find, host), keys.split()
                values = value if isinstance(value, tuple) else (value,) * len(several)
                for key, each in zip(several, values):
                    out.write(f"{key} {json(each)}\n".encode())

    def start(file: int) -> int:
        if pid := os.fork():
            return pid
        try:
            tell(file)
            os._exit(0)
        finally:
            os._exit(1)

    return Child(start, _MOST_TOLD)


def collect(begun: Iterable[tuple[Facts, Child]], until: float) -> dict[str, str]:
    """Return key -> JSON; what is not told until then is unknown, so no key is missing."""
    found: dict[str, str] = {}
    for table, child in begun:
        status, said = child.end(until)
        problem = TOO_LATE if status is None else "the look at it ended too early"
        mine = dict.fromkeys(" ".join(table).split(), json(unknown(problem)))
        rows = (row.partition(" ") for row in decoded(said).split("\n")[:-1])
        found |= {**mine, **{key: value for key, _, value in rows if key in mine}}
    return found


def object_of(members: Mapping[str, str]) -> str:
    """Return an object in JSON, of members in JSON."""
    return "{" + ",".join(f"{json(key)}:{value}" for key, value in members.items()) + "}"


def json(value: Any) -> str:
    """Return a value in JSON, as plain ASCII."""
    if value is None or value is True or value is False:
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, int):
        return str(value)
    if isinstance(value, dict):
        return object_of({text(key): json(each) for key, each in value.items()})
    if isinstance(value, (list, tuple)):
        return "[" + ",".join(map(json, value)) + "]"
    return '"' + re.sub(r"[^ !#-\[\]-~]", _escaped, text(value)) + '"'


def _escaped(found: re.Match[str]) -> str:
    units = found[0].encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"\\u{units[at : at + 4]}" for at in range(0, len(units), 4))


def text(value: Any) -> str:
    r"""Return text that has bytes which are not UTF-8 as `\xNN`."""
    return decoded(os.fsencode(str(value)))


def decoded(raw: bytes) -> str:
    r"""Return bytes as text; what is not UTF-8 is `\xNN`."""
    return raw.decode("utf-8", "backslashreplace")


def content(path: str, most: int, *, follow: bool = True) -> bytes:
    """Return the first bytes of a plain file; no device or pipe is ever read."""
    flags = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | (0 if follow else os.O_NOFOLLOW)
    try:
        number = os.open(path, flags)
    except PermissionError:
        raise NotReported(f"no permission to read {path}") from None
    with open(number, "rb") as file:
        if not stat.S_ISREG(os.fstat(number).st_mode):
            raise NotReported(f"{path} is no file")
        return file.read(most)


def hashed(path: str | bytes, kind: str) -> Any:
    """Return the digest of a whole file, as hashlib has it."""
    import hashlib

    found = hashlib.new(kind, usedforsecurity=False)
    with open(path, "rb") as file:
        while part := file.read(1 << 20):
            found.update(part)
    return found


def rows(path: str) -> list[str]:
    """Return the lines of a file."""
    return decoded(content(path, _MOST_SAID)).split("\n")


def names(folder: str) -> list[str]:
    """Return the names in a folder, in order; none where it is not there."""
    try:
        return sorted(os.listdir(folder))
    except GONE:
        return []


def pairs(lines: Iterable[str]) -> dict[str, str]:
    """Return what lines NAME=VALUE say."""
    return {name: value for name, mark, value in (row.partition("=") for row in lines) if mark}
