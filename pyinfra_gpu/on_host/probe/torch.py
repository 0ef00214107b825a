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
from functools import cache

from .files import document, is_file
from .frame import (
    GONE,
    TEXT_LIMIT,
    Any,
    Callable,
    Facts,
    Host,
    Iterable,
    Iterator,
    NotTold,
    content,
    decoded,
    names,
    only,
    rows,
    text,
    unknown,
    why,
)

_MOST_FOLDERS = 5000
_MOST_OTHERS = 100
_MOST_OF_A_LIST = 32 << 20  # bytes
_DIGESTS_S = 3  # before the end of the time for comparing: no digest is begun any more
# The version, what is behind the environment, its folder of packages, the C library: one a line.
_TELL = """
import os, sys
abi = "t" if "t" in sys.abiflags else ""
print(sys.version.split()[0])
print(os.path.realpath(sys._base_executable))
print("python%d.%d%s" % (*sys.version_info[:2], abi))
"""
_BEHIND = "import os, sys; print(os.path.realpath(sys._base_executable))"
_IDENTITY = (
    r"""(__version__|git_version|cuda)\s*(?::[^=]*)?=\s*(?:None|(['"])((?:(?!\2)[^\\])*)\2)\s*"""
)


class Environment:
    """The virtual environment, whose Python is asked once."""

    def __init__(self, host: Host) -> None:
        self.host = host
        self.venv: str = host.asked["venv"]
        self.python = self.base = None
        self.problem: str | None = None
        self.absent = self._is_absent()
        if self.absent:
            return
        self.installing = os.path.lexists(f"{self.venv}/.pyinfra-gpu-installing")
        try:
            self.python, self.base, folder = self._asked()
        except NotTold as error:
            self.problem = str(error)
            found = [e for e in names(f"{self.venv}/lib") if e.startswith("python3")]
            folder = (found or ["python3"])[-1]
        self.site = f"{self.venv}/lib/{folder}/site-packages"

    def _is_absent(self) -> bool:
        """Tell whether there is none: a folder may be made for the owner, and not filled yet."""
        try:
            if not stat.S_ISDIR(os.stat(self.venv).st_mode):
                return True
        except GONE:
            return True
        if not os.access(self.venv, os.R_OK | os.X_OK):
            raise NotTold(f"no permission to read {self.venv}")
        return not os.listdir(self.venv)

    def _asked(self) -> tuple[Any, ...]:
        python = f"{self.venv}/bin/python"
        if not os.path.exists(python):
            link = f" is a link to {os.readlink(python)}, which" if os.path.islink(python) else ""
            raise NotTold(f"{python}{link} is not there")
        status, said = self.host.run(python, "-I", "-S", "-B", "-c", _TELL, seconds=15)
        if status:
            raise NotTold(why(status, said))
        told = tuple(said.split("\n"))
        if len(told) != 3 or not all(told) or "/" in told[2] or not "".join(told).isprintable():
            raise NotTold(f"it said {told[0][:80]!r}")
        if content(python, 2) == b"#!":
            raise NotTold("as that of the environment, being a script that starts another one")
        try:
            settings = decoded(content(f"{self.venv}/pyvenv.cfg", TEXT_LIMIT))
        except GONE:
            raise NotTold("as that of the environment, whose pyvenv.cfg is gone") from None
        if "include-system-site-packages=true" in settings.replace(" ", "").lower():
            raise NotTold("apart from the packages of the system, which pyvenv.cfg lets in")
        return told


environment = cache(Environment)
"""The environment as it is found when it is first asked for."""


def _told(find: Callable[[Environment], Any], empty: Any = None) -> Callable[[Host], Any]:
    """Return what finds something out where there is an environment."""
    return lambda host: empty if environment(host).absent else find(environment(host))


def _or_problem(name: str) -> Callable[[Host], Any]:
    def find(found: Environment) -> Any:
        if found.problem:
            raise NotTold(found.problem)
        return getattr(found, name)

    return _told(find)


def _declared(host: Host) -> str | None:
    """Return what the declared interpreter is, where data names it by a path."""
    path = host.asked["python"]
    if not path or not os.path.exists(path):
        return None
    base = environment(host).base
    if base and os.path.exists(base) and os.path.samefile(base, path):
        return str(base)
    return host.said(path, "-I", "-S", "-c", _BEHIND, seconds=5)


def _uv(host: Host) -> str | None:
    path = host.asked["uv"]
    return uv_version(host.said(path, "--version", seconds=5)) if is_file(path) else None


def uv_version(said: str) -> str:
    """Read what `uv --version` says."""
    return only(r"^uv (\d\S*\.\S*\.\S*)", said, "uv --version")


def _identity(found: Environment) -> tuple[Any, Any, Any]:
    """Return version, commit and CUDA as torch/version.py has them."""
    return identity(rows(f"{found.site}/torch/version.py")[:100])


def identity(lines: list[str]) -> tuple[Any, Any, Any]:
    """Read the lines of torch/version.py: plain strings or None, with or without a type."""
    keys = ("__version__", "git_version", "cuda")
    found: dict[str, Any] = {
        key: unknown(f"torch/version.py has no plain line for {key}") for key in keys
    }
    lines = [row for row in lines if row.startswith(keys)]
    for row in reversed(lines):
        plain = re.fullmatch(_IDENTITY, row)
        if plain and (plain[3] is None or plain[3].isprintable()):
            found[plain[1]] = plain[3]
    # A line that is none was read, and is as good as no line: the file is damaged.
    version = found["__version__"] if isinstance(found["__version__"], str) else None
    return (version, found["git_version"], found["cuda"]) if lines else (None, None, None)


def _distributions(found: Environment) -> dict[str, str]:
    folders = [e for e in names(found.site) if e.endswith(".dist-info")]
    if len(folders) > _MOST_FOLDERS:
        raise NotTold(f"{found.site} holds more than {_MOST_FOLDERS}")
    return distributions(e for e in folders if os.path.isdir(f"{found.site}/{e}"))


def distributions(folders: Iterable[str]) -> dict[str, str]:
    """Return names and versions, from the names of the folders of metadata.

    A name that begins with "~" is what pip leaves of a package that it could not remove; one that
    is there twice has both versions.
    """
    found: dict[str, str] = {}
    for folder in folders:
        name, _, version = folder.replace(".dist-info", "").rpartition("-")
        name = plain_name(name)
        if name and name[0] != "~":
            found[name] = f"{found[name]} and {version}" if name in found else version
    return found


def plain_name(name: str) -> str:
    """Return a distribution's name as the index compares it (PEP 503)."""
    return re.sub(r"[-_.]+", "-", name).lower()


def _compared(found: Environment) -> tuple[Any, ...]:
    if not found.problem:
        try:
            return Comparison(found).result()
        except PermissionError as error:
            where = text(os.fsdecode(error.filename))
            if os.stat(found.venv).st_uid != os.getuid():
                raise NotTold(f"no permission to look at {where}") from None
            found.problem = f"for its owner, who may not look at {where}"
    raise NotTold("the environment's python does not run, so its files were not compared")


class Comparison:
    """The files of an environment, held against the lists that their wheels brought."""

    def __init__(self, found: Environment) -> None:
        self.host, self.venv, self.site = found.host, found.venv, found.site
        self.end = time.monotonic() + self.host.asked["compare_s"]
        self.libraries: set[bytes] = set()
        self.later: list[tuple[float, bytes, bytes, list[str]]] = []
        self.touched = 0
        try:
            self.proven, self.stamped = os.stat(self.host.asked["stamp"]).st_mtime, True
        except OSError:
            self.proven, self.stamped = 1e18, False

    def result(self) -> tuple[Any, ...]:
        """Return damaged, foreign, damaged_others, needs, touched and elsewhere of the record."""
        if not os.path.isdir(self.site):
            return _EMPTY
        os.chdir(self.site)
        elsewhere = self._elsewhere()
        infos = [each for each in names(".") if each.endswith(".dist-info") and "-" in each]
        own = [each for each in infos if each.lower().startswith("torch-")]
        bad: list[str] = []
        if not own and os.path.isdir("torch"):
            bad.append("torch-*.dist-info/RECORD")
        for info in own:
            self._compare(f"{info}/RECORD", bad, 5)
            rows = self._listed(f"{info}/RECORD")
            self.libraries.update(row.rsplit(b",", 2)[0] for row in rows if b".so" in row)
        others: dict[str, list[str]] = {}
        if len(infos) > _MOST_FOLDERS:
            raise NotTold(f"{self.site} holds more than {_MOST_FOLDERS}")
        for info in (each for each in infos if each not in own):
            name = plain_name(info.partition("-")[0])
            if re.fullmatch(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?", name, re.ASCII):
                self._compare(f"{info}/RECORD", others.setdefault(name, []), 1)
        self._digests()
        lost = [(name, bad[0]) for name, bad in others.items() if bad]
        needs = sorted(_needed(infos)) if lost else []
        foreign = [] if bad else self._foreign()
        return bad[:5], foreign, dict(lost[:_MOST_OTHERS]), needs, self.touched, elsewhere

    def _compare(self, record: str, bad: list[str], most: int) -> None:
        """Hold the files of one list against it; note those that differ, that many at most."""
        listed, itself = self._listed(record), os.fsencode(f"{record},")
        lstat, proven = os.lstat, self.proven
        for row in listed:
            try:
                path, digest, size = row.rsplit(b",", 2)
                if size < b"0" and not size.strip():
                    continue
                found = lstat(path)
                unchanged = found.st_size == int(size) and found.st_ctime <= proven
                if unchanged and found.st_mode & 0o170004 == 0o100004:
                    continue
            except (OSError, ValueError):
                if row.count(b",") < 2:
                    continue
            if path[:1] == b'"':
                path = path[1:-1].replace(b'""', b'"')
            if not self._same(path, digest, size.strip(), bad):
                bad.append(text(os.fsdecode(path)))
                if len(bad) >= most:
                    return
        if not any(row.startswith(itself) for row in listed):
            bad.append(record)

    def _listed(self, record: str) -> list[bytes]:
        if time.monotonic() > self.end:
            raise NotTold("its files could not be compared in time")
        try:
            with open(record, "rb") as file:
                whole = file.read(_MOST_OF_A_LIST + 1)
        except GONE:
            return []
        return whole.split(b"\n") if len(whole) <= _MOST_OF_A_LIST else []

    def _same(self, path: bytes, digest: bytes, size: bytes, bad: list[str]) -> bool:
        try:
            found = os.lstat(path)
            since = found.st_ctime
            if stat.S_ISLNK(found.st_mode):
                found = os.stat(path)
                since = max(since, found.st_ctime) if self.stamped else float("inf")
        except GONE:
            return False
        except PermissionError:
            if os.stat(self.venv).st_uid != os.getuid():
                raise NotTold("whoever looks may not look at all of its files") from None
            raise
        if not found.st_mode & 4 and not os.access(path, os.R_OK):
            return False
        fits = size.isdigit() and found.st_size == int(size)
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
            except GONE:
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
        words = (f"{self.venv}/bin/python", "-B", "-c", ask)
        os.chdir("/")
        _, said = self.host.run(*words, seconds=5, environment={}, errors=False)
        os.chdir(self.site)
        origin = said.strip().rpartition("\n")[2]
        if not origin or os.path.realpath(origin) == os.path.realpath("torch/__init__.py"):
            return None
        return f"{found[0]} {origin}"


def _brought(name: str) -> bool:
    row = os.fsencode(f"\n{name},")
    lists = (f"{each}/RECORD" for each in os.listdir() if each.endswith(".dist-info"))
    return any(row in b"\n" + content(e, 1 << 24) for e in lists if os.path.exists(e))


def _needed(infos: list[str]) -> set[str]:
    """Return what torch needs to run, by its own metadata, and it."""
    folders = {plain_name(info.partition("-")[0]): info for info in infos}
    wanted, found = [("torch", "")], set()
    while wanted:
        each = wanted.pop()
        if each[0] in folders and each not in found:
            found.add(each)
            wanted += _required(f"{folders[each[0]]}/METADATA", each[1])
    return {name for name, _ in found}


def _required(metadata: str, extras: str) -> Iterator[tuple[str, str]]:
    try:
        head = decoded(content(metadata, 262144)).partition("\n\n")[0]
    except GONE:
        return
    chosen = plain_name(extras).replace(",", " ").split()
    form = r"(?m)^Requires-Dist: ([\w.-]+) ?(?:\[(.*?)\])?(.*)"
    for name, more, rest in re.findall(form, head):
        only = re.findall(r"extra == .([\w.-]+)", rest)
        if not only or any(plain_name(extra) in chosen for extra in only):
            yield plain_name(name), more


def _of_build(name: str) -> Callable[[Host], str | None]:
    """Return what reads a document in the folder of builds; none where no build is declared."""
    return lambda host: document(host.asked["build"] and f"{host.asked['build']}/{name}")


def _build_stamp(host: Host) -> str | None:
    return (
        document(f"{host.asked['venv']}/.pyinfra-gpu-build.json") if host.asked["build"] else None
    )


def _building(host: Host) -> dict[str, Any] | None:
    """What the last build says of itself, and whether it is at work: its program holds a lock."""
    said = _of_build("building")(host)
    if said is None:
        return None
    if len(words := said.split()) != 2:
        raise NotTold("it does not say which build it is")
    from fcntl import LOCK_NB, LOCK_SH, flock

    told = {"fingerprint": words[0], "phase": words[1], "running": False}

    file = os.open(f"{host.asked['build']}/building", os.O_RDONLY | os.O_NONBLOCK)
    try:
        flock(file, LOCK_SH | LOCK_NB)
    except BlockingIOError:
        return {**told, "running": True}
    finally:
        os.close(file)
    return told


_EMPTY: tuple[Any, ...] = ([], [], {}, [], 0, None)
FACTS: Facts = {
    "build.stamp": _build_stamp,
    "build.wheel": _of_build("wheel.json"),
    "build.state": _building,
    "torch.python": _or_problem("python"),
    "torch.base": _or_problem("base"),
    "torch.installing": _told(lambda each: each.installing, empty=False),
    "torch.version torch.git_version torch.cuda": _told(_identity),
    "torch.distributions": _told(_distributions, empty={}),
    "torch.declared": _declared,
    "torch.uv": _uv,
    "torch.damaged torch.foreign torch.damaged_others torch.needs torch.touched torch.elsewhere": (
        _told(_compared, empty=_EMPTY)
    ),
    # Behind the comparison, which may find that the owner cannot use it.
    "torch.python_problem": _told(lambda each: each.problem),
}
