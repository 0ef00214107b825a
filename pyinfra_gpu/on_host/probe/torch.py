"""The environment and torch in it, as its owner sees them; torch is never imported.

Its identity is text. Its files, and those of everything beside it, are compared with the lists of
sizes that their wheels brought; the digest of a file counts where it was touched since the smoke
test passed.
"""

from __future__ import annotations

import os
import re
import stat
import time
from functools import cached_property

from .files import content, document, there
from .frame import TEXT_LIMIT, Host, NotTold, decoded, names, rows, text, unknown, why

TYPE_CHECKING = False  # to load `typing` takes as long as a fifth of the look
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any, NoReturn

    from .frame import Facts

_GONE = (FileNotFoundError, NotADirectoryError)
_MOST_FOLDERS = 5000
_MOST_OTHERS = 100
_DIGESTS_S = 3  # before the end of the time for comparing: no digest is begun any more
# The version, what is behind the environment, its folder of packages, the C library: one a line.
_TELL = """
import os, sys
abi = "t" if "t" in sys.abiflags else ""
print(sys.version.split()[0])
print(os.path.realpath(sys._base_executable))
print("python%d.%d%s" % (*sys.version_info[:2], abi))
known = "CS_GNU_LIBC_VERSION" in os.confstr_names
print(known and os.confstr("CS_GNU_LIBC_VERSION") or "")
"""
_BEHIND = "import os, sys; print(os.path.realpath(sys._base_executable))"
_COMPARED = "torch.damaged torch.foreign torch.others torch.needs torch.touched torch.elsewhere"


class Environment:
    """The virtual environment, whose Python is asked once."""

    def __init__(self, host: Host) -> None:
        self.host = host
        self.venv: str = host.asked["venv"]
        self.python = self.base = self.glibc = None
        self.problem: str | None = None
        self.site = ""
        self.absent = self._is_absent()
        if self.absent:
            return
        self.installing = os.path.lexists(f"{self.venv}/.pyinfra-gpu-installing")
        try:
            self.python, self.base, self.site, self.glibc = self._asked()
        except NotTold as error:
            self.problem = str(error)
            found = [e for e in names(f"{self.venv}/lib") if e.startswith("python3")]
            self.site = f"{self.venv}/lib/{(found or ['python3'])[-1]}/site-packages"

    def _is_absent(self) -> bool:
        """Tell whether there is none: a folder may be made for the owner, and not filled yet."""
        try:
            if not stat.S_ISDIR(os.stat(self.venv).st_mode):
                return True
        except _GONE:
            return True
        except PermissionError:
            raise NotTold(f"no permission to look at {self.venv}") from None
        if not os.access(self.venv, os.R_OK | os.X_OK):
            raise NotTold(f"no permission to read {self.venv}")
        return not os.listdir(self.venv)

    def _asked(self) -> tuple[Any, Any, str, Any]:
        python = f"{self.venv}/bin/python"
        if not os.path.exists(python):
            link = f" is a link to {os.readlink(python)}, which" if os.path.islink(python) else ""
            raise NotTold(f"{python}{link} is not there")
        status, said = self.host.run(python, "-I", "-S", "-B", "-c", _TELL, seconds=15)
        if status:
            raise NotTold(why(status, said))
        version, base, folder, glibc, *more = [*said.split("\n"), "", "", ""]
        if (
            any(more)
            or not (base and folder)
            or "/" in folder
            or not said.replace("\n", "").isprintable()
        ):
            raise NotTold(f"it said {version[:80]!r}")
        with open(python, "rb") as file:
            if file.read(2) == b"#!":
                raise NotTold("as that of the environment, being a script that starts another one")
        try:
            settings = decoded(content(f"{self.venv}/pyvenv.cfg", TEXT_LIMIT, follow=True))
        except _GONE:
            raise NotTold("as that of the environment, whose pyvenv.cfg is gone") from None
        if "include-system-site-packages=true" in settings.replace(" ", "").lower():
            reason = "apart from the packages of the system, which pyvenv.cfg lets in"
            raise NotTold(reason)
        return version, base, f"{self.venv}/lib/{folder}/site-packages", glibc


class Asking:
    """The environment as it is found when it is first asked for."""

    def __init__(self, host: Host) -> None:
        self.host = host

    @cached_property
    def environment(self) -> Environment:
        """The environment; asked again where nobody could look at it."""
        return Environment(self.host)


def facts(host: Host) -> Facts:
    """The environment's Python, and torch by its files."""
    asking = Asking(host)

    def told(find: Callable[[Environment], Any], empty: Any = None) -> Callable[[], Any]:
        return lambda: empty if asking.environment.absent else find(asking.environment)

    return {
        "torch.python": told(lambda each: each.python or _raised(each.problem)),
        "torch.base": told(lambda each: each.base or _raised(each.problem)),
        "torch.installing": told(lambda each: each.installing, empty=False),
        "torch.version torch.git_version torch.cuda": told(_identity),
        "torch.folders": told(lambda each: _distributions(each.site), empty=[]),
        "torch.declared": lambda: _declared(asking.environment),
        "torch.uv": lambda: _uv(host, host.asked["uv"]),
        **({"cuda.glibc": lambda: _glibc(asking)} if host.asked["nvidia"] else {}),
        _COMPARED: lambda: _compared(asking.environment),
        # Behind the comparison, which may find that the owner cannot use it.
        "torch.python_problem": told(lambda each: each.problem),
    }


def _raised(reason: str | None) -> NoReturn:
    raise NotTold(reason or "it said nothing")


def _declared(environment: Environment) -> str | None:
    """Return what the declared interpreter is, where data names it by a path."""
    path = environment.host.asked["python"]
    if not path or not os.path.exists(path):
        return None
    base = environment.base
    if base and os.path.exists(base) and os.path.samefile(base, path):
        return str(base)
    status, said = environment.host.run(path, "-I", "-S", "-c", _BEHIND, seconds=5)
    if status:
        raise NotTold(f"{path}: {why(status, said)}")
    return said


def _uv(host: Host, path: str) -> str | None:
    if not there(path):
        return None
    status, said = host.run(path, "--version", seconds=5)
    if status:
        raise NotTold(f"{path}: {why(status, said)}")
    return uv_version(said)


def uv_version(said: str) -> str:
    """Read what `uv --version` says."""
    found = re.match(r"uv (\d\S*\.\S*\.\S*)", said)
    if not found:
        raise NotTold(f"`uv --version` said {said[:80]!r}")
    return found[1]


def _glibc(asking: Asking) -> str:
    """Return the version of the C library that the environment's Python runs with."""
    try:
        said = asking.environment.glibc
    except NotTold:
        said = None
    said = said or os.confstr("CS_GNU_LIBC_VERSION") or ""
    found = re.fullmatch(r"glibc ([\d.]+)", said)
    if not found:
        raise NotTold(f"the C library says {said[:80]!r}")
    return found[1]


def _identity(environment: Environment) -> tuple[Any, Any, Any]:
    """Return version, commit and CUDA as torch/version.py has them."""
    path = f"{environment.site}/torch/version.py"
    if not there(path):
        return None, None, None
    try:
        lines = rows(path)[:100]
    except OSError:
        raise NotTold(f"no permission to read {path}") from None
    return identity(lines)


def identity(lines: list[str]) -> tuple[Any, Any, Any]:
    """Read the lines of torch/version.py: plain strings or None, with or without a type."""
    keys = ("__version__", "git_version", "cuda")
    found: dict[str, Any] = {
        key: unknown(f"torch/version.py has no plain line for {key}") for key in keys
    }
    lines = [row for row in lines if row.startswith(keys)]
    for row in reversed(lines):
        plain = re.fullmatch(_LINE, row)
        if plain and (plain[3] is None or plain[3].isprintable()):
            found[plain[1]] = plain[3]
    # A line that is none was read, and is as good as no line: the file is damaged.
    version = found["__version__"] if isinstance(found["__version__"], str) else None
    return (version, found["git_version"], found["cuda"]) if lines else (None, None, None)


_LINE = (
    r"""(__version__|git_version|cuda)\s*(?::[^=]*)?=\s*(?:None|(['"])((?:(?!\2)[^\\])*)\2)\s*"""
)


def _distributions(site: str) -> list[str]:
    """Return the folders of metadata."""
    if os.path.isdir(site) and not os.access(site, os.R_OK | os.X_OK):
        raise NotTold(f"no permission to read {site}")
    found = [each for each in names(site) if each.endswith(".dist-info")]
    if len(found) > _MOST_FOLDERS:
        raise NotTold(f"{site} holds more than {_MOST_FOLDERS}")
    return [each for each in found if os.path.isdir(f"{site}/{each}")]


def _compared(environment: Environment) -> tuple[Any, ...]:
    if environment.absent:
        return [], [], {}, [], 0, None
    if not environment.problem:
        try:
            return Comparison(environment).result()
        except PermissionError as error:
            where = text(os.fsdecode(error.filename))
            if os.stat(environment.venv).st_uid != os.getuid():
                raise NotTold(f"no permission to look at {where}") from None
            environment.problem = f"for its owner, who may not look at {where}"
    raise NotTold("the environment's python does not run, so its files were not compared")


class Comparison:
    """The files of an environment, held against the lists that their wheels brought."""

    def __init__(self, environment: Environment) -> None:
        host = environment.host
        self.environment, self.site = environment, environment.site
        self.end = time.monotonic() + host.asked["compare_s"]
        self.libraries: set[bytes] = set()
        self.later: list[tuple[float, bytes, bytes, list[str]]] = []
        self.touched = 0
        try:
            self.proven, self.stamped = os.stat(host.asked["stamp"]).st_mtime, True
        except OSError:
            self.proven, self.stamped = 1e18, False

    def result(self) -> tuple[Any, ...]:
        """Return what `_COMPARED` names, in that order."""
        site = self.site
        if not os.path.isdir(site):
            return [], [], {}, [], 0, None
        os.chdir(site)
        elsewhere = self._elsewhere()
        infos = [each for each in names(".") if each.endswith(".dist-info") and "-" in each]
        own = [each for each in infos if each.lower().startswith("torch-")]
        bad: list[str] = []
        if not own and os.path.isdir("torch"):
            bad.append("torch-*.dist-info/RECORD")
        for info in own:
            self._compare(f"{info}/RECORD", bad, 5)
        others: dict[str, list[str]] = {}
        rest = (n for n in infos if n not in own and n[0] != "~" and " " not in n)
        for info in [*rest][:_MOST_FOLDERS]:
            self._compare(f"{info}/RECORD", others.setdefault(info, []), 1)
        self._digests()
        lost = {n.partition("-")[0]: bad[0] for n, bad in others.items() if bad}
        lost = dict([*lost.items()][:_MOST_OTHERS])
        needs = sorted(_needed(infos)) if lost else []
        return bad[:5], [] if bad else self._foreign(), lost, needs, self.touched, elsewhere

    def _compare(self, record: str, bad: list[str], most: int) -> None:  # noqa: C901 - it is hot
        """Hold the files of one list against it; note those that differ, that many at most."""
        whole, itself = False, os.fsencode(record)
        lstat, proven = os.lstat, self.proven
        try:
            with open(record, "rb") as file:
                if os.fstat(file.fileno()).st_size > 1 << 25:
                    raise ValueError(record)
                while lines := file.readlines(1 << 17):
                    if time.monotonic() > self.end:
                        raise NotTold("its files could not be compared in time")
                    if most == 5:
                        self.libraries.update(r.rsplit(b",", 2)[0] for r in lines if b".so" in r)
                    for row in lines:
                        try:
                            path, digest, size = row.rsplit(b",", 2)
                            if path == itself:
                                whole = True
                            if size < b"0" and not size.strip():
                                continue
                            found = lstat(path)
                            if (
                                found.st_size == int(size)
                                and found.st_ctime <= proven
                                and found.st_mode & 0o170004 == 0o100004
                            ):
                                continue
                        except (OSError, ValueError):
                            if row.count(b",") < 2:
                                continue
                        if path[:1] == b'"':
                            path = path[1:-1].replace(b'""', b'"')
                        if not self._same(path, digest, size, bad):
                            bad.append(text(os.fsdecode(path)))
                            if len(bad) >= most:
                                return
        except (*_GONE, ValueError):
            whole = False
        if not whole:
            bad.append(record)

    def _same(self, path: bytes, digest: bytes, size: bytes, bad: list[str]) -> bool:
        try:
            found = os.lstat(path)
            since = found.st_ctime
            if stat.S_ISLNK(found.st_mode):
                found = os.stat(path)
                since = max(since, found.st_ctime) if self.stamped else float("inf")
        except _GONE:
            return False
        except PermissionError:
            if os.stat(self.environment.venv).st_uid != os.getuid():
                raise NotTold("whoever looks may not look at all of its files") from None
            raise
        if not found.st_mode & 4 and not os.access(path, os.R_OK):
            return False
        fits = found.st_size == int(size)
        if not fits or since <= self.proven or not digest.startswith(b"sha256="):
            return fits
        self.later.append((since, path, digest[7:], bad))
        return True

    def _digests(self) -> None:
        """Make digests, the last touched first: of what was installed again none has changed."""
        if not self.later:
            return
        import base64
        import hashlib

        self.later.sort(key=lambda each: each[:2], reverse=True)
        for number, (_, path, digest, bad) in enumerate(self.later):
            if time.monotonic() > self.end - _DIGESTS_S:
                self.touched = len(self.later) - number
                return
            now = hashlib.sha256()
            try:
                with open(path, "rb") as file:
                    while part := file.read(1 << 20):
                        now.update(part)
            except _GONE:
                pass
            if digest != base64.urlsafe_b64encode(now.digest()).rstrip(b"="):
                bad.append(text(os.fsdecode(path)))

    def _foreign(self) -> list[str]:
        """Return the first libraries in torch's folders that no wheel of its brought there."""
        found = []
        for folder in ("torch", "torch/lib"):
            for name in names(folder):
                path = f"{folder}/{name}"
                ours = os.fsencode(path) in self.libraries or name.endswith(".before-pyinfra-gpu")
                if ".so" in name and not ours and not os.path.isdir(path):
                    found.append(path)
        return found[:5]

    def _elsewhere(self) -> str | None:
        """Return where `import torch` finds another one, and what leads there."""
        found = [n for n in os.listdir() if n.endswith(".pth") or n[-12:] == "customize.py"]
        found = [n for n in found if not n.startswith("_virtualenv") and not _brought(n)]
        if not found:
            return None
        ask = 'import importlib.util as i; print(i.find_spec("torch").origin)'
        python = f"{self.environment.venv}/bin/python"
        os.chdir("/")
        _, said = self.environment.host.run(
            python, "-B", "-c", ask, seconds=5, environment={}, errors=False
        )
        os.chdir(self.site)
        origin = said.strip().rpartition("\n")[2]
        if not origin or os.path.realpath(origin) == os.path.realpath("torch/__init__.py"):
            return None
        return f"{found[0]} {origin}"


def _brought(name: str) -> bool:
    row = os.fsencode(f"\n{name},")
    for info in os.listdir():
        if info.endswith(".dist-info") and os.path.exists(f"{info}/RECORD"):
            with open(f"{info}/RECORD", "rb") as file:
                if row in b"\n" + file.read(1 << 24):
                    return True
    return False


def _plain(name: str) -> str:
    return re.sub(r"[_.]", "-", name).lower()


def _needed(infos: list[str]) -> set[str]:
    """Return what torch needs to run, by its own metadata, and it."""
    folders = {_plain(info.partition("-")[0]): info for info in infos}
    wanted, found = [("torch", "")], set()
    while wanted:
        each = wanted.pop()
        if each[0] in folders and each not in found:
            found.add(each)
            wanted += _required(f"{folders[each[0]]}/METADATA", each[1])
    return {name for name, _ in found}


def _required(metadata: str, extras: str) -> Iterator[tuple[str, str]]:
    try:
        head = decoded(content(metadata, 262144, follow=True)).partition("\n\n")[0]
    except _GONE:
        return
    chosen = _plain(extras).replace(",", " ").split()
    form = r"(?m)^Requires-Dist: ([\w.-]+) ?(?:\[(.*?)\])?(.*)"
    for name, more, rest in re.findall(form, head):
        only = re.findall(r"extra == .([\w.-]+)", rest)
        if not only or any(_plain(extra) in chosen for extra in only):
            yield _plain(name), more


def build(host: Host) -> Facts:
    """How far a build of torch from source is, and which wheel it left."""
    at, venv = host.asked["build"], host.asked["venv"]
    return {
        "build.stamp": lambda: document(f"{venv}/.pyinfra-gpu-build.json") if at else None,
        "build.wheel": lambda: document(f"{at}/wheel.json") if at else None,
        "build.state": lambda: _building(f"{at}/building") if at else None,
    }


def _building(path: str) -> str | None:
    """What the last build says of itself, and whether it is at work: its program holds a lock."""
    from fcntl import LOCK_NB, LOCK_SH, flock

    said = document(path)
    if said is None:
        return None
    file = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    try:
        flock(file, LOCK_SH | LOCK_NB)
    except BlockingIOError:
        return f"{said.strip()} at work"
    finally:
        os.close(file)
    return f"{said.strip()} ended"
