"""What every part of the look stands on: facts that fail alone, programs and parts with a deadline.

Python 3.9 and later, and of its library only what Debian's python3-minimal has: no `json`.
"""

from __future__ import annotations

import os
import re
import select
import stat
import time
from functools import partial

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
_KILL = 9  # to load `signal` takes 8 ms
_MOST_SAID = 8 << 20  # bytes that a program may say, or a file of the system's may have
_MOST_LINES = 20_000
_MOST_TOLD = 1 << 20  # bytes of one part of the answer
_SBIN = ":/usr/local/sbin:/usr/sbin:/sbin"


class NotTold(Exception):  # noqa: N818 - it is no error: the host has its reasons
    """The host would not tell; the reason is a clause."""


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
        arch = self.first_line("/proc/sys/kernel/arch")  # since Linux 6.1
        self.machine: str = arch or os.uname().machine
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

    def real(self, path: str) -> str:
        """Return the path behind all links."""
        return self.shown(os.path.realpath(self.root + path))

    def shown(self, path: str) -> str:
        """Return the path of the system's that is there."""
        return path[len(self.root) :] if self.root and path.startswith(self.root) else path

    def names(self, folder: str, begin: str = "", end: str = "") -> list[str]:
        """Return the names in a folder that begin and end so, in order; none where it is not."""
        return [e for e in names(self.root + folder) if e.startswith(begin) and e.endswith(end)]

    def paths(self, folder: str, begin: str = "", end: str = "") -> list[str]:
        """Return the same as paths of the system's."""
        return [f"{folder}/{each}" for each in self.names(folder, begin, end)]

    def rows(self, path: str) -> list[str]:
        """Return the lines of a file of the system's."""
        return rows(self.root + path)

    def rows_if_any(self, path: str) -> list[str]:
        """Return the same; none where it cannot be read."""
        try:
            return self.rows(path)
        except (OSError, NotTold):
            return []

    def first_line(self, path: str) -> str | None:
        """Return the first line of a file of the kernel's; None where it is not there."""
        try:
            with open(self.root + path, "rb") as file:
                row = decoded(file.readline(65536)).strip()
        except GONE:
            return None
        except OSError:
            row = ""
        if not row:
            raise NotTold(f"{self.root}{path} is empty or may not be read")
        return row

    def line(self, path: str) -> str:
        """Return the same; `NotTold` where it is not there."""
        found = self.first_line(path)
        if found is None:
            raise NotTold("the host does not show it")
        return found

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

    def said(self, *words: str, seconds: float) -> str:
        """Return what a program says; `NotTold`, with its words, where it fails."""
        status, said = self.run(*words, seconds=seconds)
        if status:
            raise NotTold(f"{words[0]}: {why(status, said)}")
        return said

    def run(
        self,
        *words: str,
        seconds: float,
        environment: Mapping[str, str] | None = None,
        errors: bool = True,
    ) -> tuple[int, str]:
        """Run a program; return its status, and what it said on both channels.

        + errors: whether what it says on standard error counts

        124: it was given up. What it leaves behind is not waited for. `NotTold` where it is not
        there, or says more than anybody reads.
        """
        program = self.which(words[0])
        if program is None:
            raise NotTold(f"{words[0]} is not on this host")
        reader, writer = os.pipe()
        actions: list[Any] = [(os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0)]
        actions.append((os.POSIX_SPAWN_OPEN, 2, os.devnull, os.O_WRONLY, 0))
        actions += [(os.POSIX_SPAWN_DUP2, writer, each) for each in ((1, 2) if errors else (1,))]
        given = self.environment if environment is None else environment
        try:
            pid = os.posix_spawn(program, words, given, file_actions=actions)
        except OSError as error:
            os.close(reader)
            return 126, f"{words[0]}: {error.strerror}"
        finally:
            os.close(writer)
        limit = min(seconds, self.asked.get("limit", seconds))
        said, status = _heard(reader, pid, time.monotonic() + limit)
        os.close(reader)
        if len(said) > _MOST_SAID or said.count(b"\n") > _MOST_LINES:
            raise NotTold(f"{words[0]} said too much")
        return status, decoded(said).rstrip("\n")


def _heard(reader: int, pid: int, end: float) -> tuple[bytes, int]:
    """Return what a program says until it has ended, and its status."""
    said, status, is_open = b"", None, True
    poll = select.poll()
    poll.register(reader, select.POLLIN)
    while time.monotonic() < end and len(said) <= _MOST_SAID and (is_open or status is None):
        if not is_open:
            time.sleep(0.002)
        elif poll.poll(100 if status is None else 0):
            part = os.read(reader, 1 << 16)
            said, is_open = said + part, bool(part)
        elif status is not None:
            break  # it has ended, and something else holds its output open
        status = _status(pid) if status is None else status
    if status is not None:
        return said, status
    os.kill(pid, _KILL)
    _wait(pid)
    return said, 124


def _status(pid: int) -> int | None:
    """Return the status of a child that has ended, as a shell would tell it."""
    done, status = os.waitpid(pid, os.WNOHANG)
    code = os.waitstatus_to_exitcode(status)
    return None if not done else 128 - code if code < 0 else code


def _wait(pid: int) -> None:
    """Take leave of a child; what hangs in the kernel does not end now, and is not waited for."""
    for _ in range(20):
        if os.waitpid(pid, os.WNOHANG)[0]:
            return
        time.sleep(0.005)


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
        raise NotTold(f"{program}: it said {said.partition(chr(10))[0][:80]}")
    return found[1]


def unknown(reason: str) -> dict[str, str]:
    """Return what stands in the answer for what the host would not tell."""
    return {"?": reason[:400]}


def attempt(find: Callable[[], Any]) -> Any:
    """Return what is found; what says why not where that fails, and None where it is not there."""
    try:
        return find()
    except NotTold as error:
        return unknown(str(error))
    except GONE:
        return None
    except PermissionError as error:
        return unknown(f"no permission to look at {text(error.filename)}")
    except OSError as error:
        return unknown(f"{text(error.filename)}: {error.strerror}")
    except Exception as error:  # whatever it is, the other facts are told
        return unknown(f"{type(error).__name__}: {error}")


def told(facts: Facts, host: Host) -> Iterable[tuple[str, Any]]:
    """Yield each fact with its value; one that fails fails alone."""
    for keys, find in facts.items():
        value = attempt(partial(find, host))
        several = keys.split()
        yield from zip(several, value if isinstance(value, tuple) else (value,) * len(several))


class Part:
    """A part of the answer, made by a process of its own, which can be left to itself.

    + work: yields its lines, in ASCII
    """

    def __init__(self, work: Callable[[], Iterable[str]]) -> None:
        self.said = b""
        self.late = False
        self.reader, writer = os.pipe()
        self._pid = os.fork()
        if self._pid:
            os.close(writer)
            return
        try:
            os.setpgid(0, 0)
            nothing = os.open(os.devnull, os.O_RDWR)
            for number in (0, 1, 2):
                os.dup2(nothing, number)
            os.closerange(3, writer)
            os.closerange(writer + 1, 256)
            with open(writer, "wb", buffering=0) as out:
                for line in work():
                    out.write(f"{line}\n".encode())
                out.write(b"\n")
        finally:
            os._exit(0)

    def more(self) -> bool:
        """Take in what was told; return whether there may be more."""
        part = os.read(self.reader, 1 << 16)
        self.said += part
        return bool(part) and len(self.said) <= _MOST_TOLD

    def end(self) -> None:
        """End it, with all that it started."""
        os.close(self.reader)
        for kill in (os.killpg, os.kill):
            try:
                kill(self._pid, _KILL)
            except OSError:
                continue
        _wait(self._pid)

    @property
    def lines(self) -> list[str]:
        """The lines that it has told to their end."""
        whole = decoded(self.said).split("\n")[:-1]
        return whole[:-1] if whole[-1:] == [""] else whole

    @property
    def problem(self) -> str:
        """Why it has not told all; "" where it has."""
        if self.said.endswith(b"\n\n") or self.said == b"\n":
            return ""
        return TOO_LATE if self.late else "the look at it ended too early"


def collect(parts: Iterable[Part], end: float) -> None:
    """Wait for all parts, at most until `end`."""
    poll = select.poll()
    waiting = {part.reader: part for part in parts}
    everybody = list(waiting.values())
    for number in waiting:
        poll.register(number, select.POLLIN)
    while waiting and (left := end - time.monotonic()) > 0:
        for number, _ in poll.poll(1000 * left):
            if not waiting[number].more():
                poll.unregister(number)
                del waiting[number]
    for part in everybody:
        part.late = part.reader in waiting
        part.end()


class Asking:
    """Tables of facts that are being found out, each by a process of its own."""

    def __init__(self, host: Host) -> None:
        self.host = host
        self._parts: list[tuple[Facts, Part]] = []

    def begin(self, table: Facts, first: Callable[[Host], None] | None = None) -> None:
        """Begin with a table.

        + first: what its process does before
        """

        def lines() -> Iterable[str]:
            if first:
                first(self.host)
            return (f"{key} {json(value)}" for key, value in told(table, self.host))

        self._parts.append((table, Part(lines)))

    def answer(self, end: float) -> dict[str, str]:
        """Return key -> JSON; what is not told until `end` is unknown, so no key is missing."""
        collect([part for _, part in self._parts], end)
        found: dict[str, str] = {}
        for table, part in self._parts:
            mine = dict.fromkeys(" ".join(table).split(), json(unknown(part.problem)))
            rows = (row.partition(" ") for row in part.lines)
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
    word = text(value)
    plain = word.isascii() and word.isprintable() and not ('"' in word or "\\" in word)
    return f'"{word if plain else "".join(map(_letter, word))}"'


def _letter(letter: str) -> str:
    if " " <= letter <= "~" and letter not in '"\\':
        return letter
    units = letter.encode("utf-16-be", "surrogatepass").hex()
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
        raise NotTold(f"no permission to read {path}") from None
    with open(number, "rb") as file:
        if not stat.S_ISREG(os.fstat(number).st_mode):
            raise NotTold(f"{path} is no file")
        return file.read(most)


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
