"""What every part of the look stands on: facts that fail alone, programs and parts with a deadline.

Python 3.9 and later, and of its library only what Debian's python3-minimal has: no `json`.
"""

from __future__ import annotations

import os
import select
import time

TYPE_CHECKING = False  # to load `typing` takes as long as a fifth of the look
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from typing import Any

    Facts = Mapping[str, Callable[[], Any]]
    """Key of the answer -> what finds it out; several keys with blanks between, several values."""

TOO_LATE = "the host was asked for it and did not answer in time"
TEXT_LIMIT = 65536  # bytes of a document
_KILL = 9  # to load `signal` takes 8 ms
_MOST_SAID = 8 << 20  # bytes that a program may say
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

    def __init__(self, root: str, asked: Mapping[str, Any]) -> None:
        self.root = root
        self.asked = asked
        self.environment = {**os.environ, "LC_ALL": "C"}
        self.path = self.environment.get("PATH", "") + asked.get("sbin", _SBIN)
        self.environment["PATH"] = self.path
        self.uid = os.getuid()
        self.stanzas: list[dict[str, str]] = []  # of dpkg's list, once it was read
        arch = self.first_line("/proc/sys/kernel/arch")  # since Linux 6.1
        self.machine: str = arch or os.uname().machine

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

    def real(self, path: str) -> str:
        """Return the path behind all links."""
        return self.shown(os.path.realpath(self.root + path))

    def names(self, folder: str, begin: str = "", end: str = "") -> list[str]:
        """Return the names in a folder that begin and end so, in order; none where it is not."""
        return [e for e in names(self.root + folder) if e.startswith(begin) and e.endswith(end)]

    def first_line(self, path: str) -> str | None:
        """Return the first line of a file of the kernel's; None where it is not there."""
        return first_line(self.root + path)

    def rows(self, path: str) -> list[str]:
        """Return the lines of a file of the system's."""
        return rows(self.root + path)

    def process(self, pid: str) -> str:
        """Return how a process is named to people, e.g. "pid 812 (python3)"."""
        try:
            name = self.first_line(f"/proc/{pid}/comm")
        except NotTold:
            name = None
        return f"pid {pid}" + (f" ({name})" if name else "")

    def shown(self, path: str) -> str:
        """Return the path of the system's that is there."""
        return path[len(self.root) :] if self.root and path.startswith(self.root) else path

    @property
    def native(self) -> str:
        """The architecture as Debian's packages are named for it."""
        return {"x86_64": "amd64", "aarch64": "arm64"}.get(self.machine, self.machine)

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


def unknown(reason: str) -> dict[str, str]:
    """Return what stands in the answer for what the host would not tell."""
    return {"?": reason[:400]}


def told(facts: Facts) -> Iterable[tuple[str, Any]]:
    """Yield each fact with its value: None is "it is not there", and one that fails fails alone."""
    for keys, find in facts.items():
        try:
            found = find()
        except NotTold as error:
            found = unknown(str(error))
        except FileNotFoundError:
            found = None
        except PermissionError as error:
            found = unknown(f"no permission to look at {text(error.filename)}")
        except OSError as error:
            found = unknown(f"{text(error.filename)}: {error.strerror}")
        except Exception as error:  # whatever it is, the other facts are told
            found = unknown(f"{type(error).__name__}: {error}")
        names = keys.split()
        several = isinstance(found, tuple) and len(names) > 1
        yield from zip(names, found if several else (found,) * len(names))


class Part:
    """A part of the answer, found out by a process of its own, which can be left to itself.

    + names: what begins the keys that it tells, with blanks between
    """

    def __init__(self, names: str, facts: Callable[[], Facts]) -> None:
        self.names = names
        self.said = b""
        self.whole = False
        self._reader, writer = os.pipe()
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
                for key, value in told(facts()):
                    out.write(f"{json(key)}:{json(value)}\n".encode())
                out.write(b"\n")
        finally:
            os._exit(0)

    def fileno(self) -> int:
        """Return what is to be read."""
        return self._reader

    def more(self) -> bool:
        """Take in what was told; return whether there may be more."""
        part = os.read(self._reader, 1 << 16)
        self.said += part
        return bool(part) and len(self.said) <= _MOST_TOLD

    def end(self) -> None:
        """End it, with all that it started."""
        os.close(self._reader)
        for kill in (os.killpg, os.kill):
            try:
                kill(self._pid, _KILL)
            except OSError:
                continue
        _wait(self._pid)

    def members(self) -> list[str]:
        """Return the members of an object in JSON that it has told."""
        rows = self.said.decode("ascii", "replace").split("\n")
        self.whole = rows[-2:] == ["", ""]
        return [row for row in rows[:-1] if row]


def collect(parts: Iterable[Part], end: float) -> tuple[list[str], dict[str, str]]:
    """Wait for all parts, at most until `end`.

    Return the members of an object in JSON; and why keys that begin so are not among them.
    """
    poll, waiting = select.poll(), {}
    parts = list(parts)
    for part in parts:
        poll.register(part.fileno(), select.POLLIN)
        waiting[part.fileno()] = part
    while waiting and (left := end - time.monotonic()) > 0:
        for number, _ in poll.poll(1000 * left):
            if not waiting[number].more():
                poll.unregister(number)
                del waiting[number]
    found: list[str] = []
    missing: dict[str, str] = {}
    for part in parts:
        part.end()
        found += part.members()
        if not part.whole:
            reason = TOO_LATE if part in waiting.values() else "the look at it ended too early"
            missing.update(dict.fromkeys(part.names.split(), reason))
    return found, missing


def json(value: Any) -> str:
    """Return a value in JSON, as plain ASCII."""
    if value is None or value is True or value is False:
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, int):
        return str(value)
    if isinstance(value, dict):
        return "{" + ",".join(f"{json(text(k))}:{json(v)}" for k, v in value.items()) + "}"
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


def first_line(path: str) -> str | None:
    """Return the first line of a file of the kernel's; None where it is not there."""
    try:
        with open(path, "rb") as file:
            row = decoded(file.readline(65536)).rstrip("\n").strip()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError:
        row = ""
    if not row:
        raise NotTold(f"{path} is empty or may not be read")
    return row


def rows(path: str) -> list[str]:
    """Return the lines of a file of the system's."""
    try:
        with open(path, "rb") as file:
            return decoded(file.read(_MOST_SAID)).split("\n")
    except PermissionError:
        raise NotTold(f"no permission to read {path}") from None


def names(folder: str) -> list[str]:
    """Return the names in a folder, in order; none where it is not there."""
    try:
        return sorted(os.listdir(folder))
    except (FileNotFoundError, NotADirectoryError):
        return []


def pairs(lines: Sequence[str]) -> dict[str, str]:
    """Return what lines NAME=VALUE say."""
    return {name: value for name, mark, value in (row.partition("=") for row in lines) if mark}
