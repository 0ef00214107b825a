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
    NotReported,
    content,
    decoded,
    hashed,
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
_BEHIND = "import os, sys; print(os.path.realpath(sys._base_executable))"
# What is behind the environment, its version, its folder of packages: one a line.
_TELL = f"""{_BEHIND}
print(sys.version.split()[0])
print("python%d.%d%s" % (*sys.version_info[:2], "t" if "t" in sys.abiflags else ""))
"""
_IDENTITY = r"""(__version__|git_version)\s*(?::[^=]*)?=\s*(?:None|(['"])((?:(?!\2)[^\\])*)\2)\s*"""


class Environment:
    """The virtual environment, whose Python is asked once."""

    def __init__(self, host: Host) -> None:
        self.host = host
        self.venv: str = host.asked["venv"]
        self.python = self.base = None
        self.problem: str | None = None
        if os.path.isdir(self.venv) and not os.access(self.venv, os.R_OK | os.X_OK):
            raise NotReported(f"no permission to read {self.venv}")
        # A folder may be made for the owner, and not filled yet.
        self.absent = not names(self.venv)
        try:
            self.base, self.python, folder = (None, None, "") if self.absent else self._asked()
        except NotReported as error:
            self.problem = str(error)
            found = [each for each in names(f"{self.venv}/lib") if each.startswith("python3")]
            folder = (found or ["python3"])[-1]
        self.site = f"{self.venv}/lib/{folder}/site-packages"

    def _asked(self) -> tuple[Any, ...]:
        python = f"{self.venv}/bin/python"
        if not os.path.exists(python):
            link = f" is a link to {os.readlink(python)}, which" if os.path.islink(python) else ""
            raise NotReported(f"{python}{link} is not there")
        status, said = self.host.run(python, "-I", "-S", "-B", "-c", _TELL, seconds=15)
        if status:
            raise NotReported(why(status, said))
        reported = tuple(said.split("\n"))
        if (
            len(reported) != 3
            or not all(reported)
            or "/" in reported[2]
            or not "".join(reported).isprintable()
        ):
            raise NotReported(f"it said {reported[0][:80]!r}")
        if content(python, 2) == b"#!":
            raise NotReported("as that of the environment, being a script that starts another one")
        try:
            settings = decoded(content(f"{self.venv}/pyvenv.cfg", TEXT_LIMIT))
        except GONE:
            raise NotReported("as that of the environment, whose pyvenv.cfg is gone") from None
        if "include-system-site-packages=true" in settings.replace(" ", "").lower():
            raise NotReported("apart from the packages of the system, which pyvenv.cfg lets in")
        return reported


environment = cache(Environment)
"""The environment as it is found when it is first asked for."""


def _python(host: Host) -> tuple[Any, Any, bool]:
    """Return version, base, and whether an installation was begun and not finished."""
    found = environment(host)
    begun = os.path.lexists(f"{found.venv}/.pyinfra-gpu-installing")
    reported = unknown(found.problem) if found.problem else None
    return reported or found.python, reported or found.base, begun


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
    if not is_file(path):
        return None
    said = host.said(path, "--version", seconds=5)
    return only(r"^uv (\d\S*\.\S*\.\S*)", said, "uv --version")


def _identity(host: Host) -> tuple[Any, Any]:
    """Return version and commit as torch/version.py has them: plain texts, or None."""
    lines = rows(f"{environment(host).site}/torch/version.py")[:100]
    if not any(row.startswith(("__version__", "git_version")) for row in lines):
        return None, None
    plain = filter(None, (re.fullmatch(_IDENTITY, row) for row in reversed(lines)))
    found = {each[1]: each[3] for each in plain if (each[3] or "").isprintable()}
    # Of a version in another form than wheels have it, nothing is known: the file is damaged.
    missing = unknown("torch/version.py has no plain line for git_version")
    return found.get("__version__"), found.get("git_version", missing)


def _infos(site: str) -> list[str]:
    found = [each for each in names(site) if each.endswith(".dist-info")]
    if len(found) > _MOST_FOLDERS:
        raise NotReported(f"{os.path.realpath(site)} holds more than {_MOST_FOLDERS}")
    return found


def _distributions(host: Host) -> dict[str, str]:
    """Return names and versions, from the names of the folders of metadata.

    A name that begins with "~" is what pip leaves of a package that it could not remove; one that
    is there twice has both versions.
    """
    site = environment(host).site
    found: dict[str, str] = {}
    for folder in _infos(site):
        name, _, version = folder.replace(".dist-info", "").rpartition("-")
        name = plain_name(name)
        if name and name[0] != "~" and os.path.isdir(f"{site}/{folder}"):
            found[name] = f"{found[name]} and {version}" if name in found else version
    return found


def plain_name(name: str) -> str:
    """Return a distribution's name as the index compares it (PEP 503)."""
    return re.sub(r"[-_.]+", "-", name).lower()


def _compared(host: Host) -> tuple[Any, ...]:
    """Return what the comparison finds, and behind it why the owner cannot use the environment."""
    found = environment(host)
    why_not = "the environment's python does not run, so its files were not compared"
    if not found.problem:
        try:
            return (*Comparison(found).result(), None)
        except NotReported as error:
            return (*(unknown(str(error)),) * 6, None)
        except PermissionError as error:
            where = text(os.fsdecode(error.filename))
            if os.stat(found.venv).st_uid != os.getuid():
                return (*(unknown(f"no permission to look at {where}"),) * 6, None)
            found.problem = f"for its owner, who may not look at {where}"
    return (*(unknown(why_not),) * 6, found.problem)


class Comparison:
    """The files of an environment, held against the lists that their wheels brought.

    A file that nobody touched since the smoke test passed has to have its size; one that was, its
    digest, too. Touched means the time of the kernel's, which nobody can set.
    """

    def __init__(self, found: Environment) -> None:
        self.host, self.venv, self.site = found.host, found.venv, found.site
        self.end = time.monotonic() + self.host.asked["compare_s"]
        self.touched: list[tuple[float, bytes, bytes, list[str]]] = []
        try:
            self.proven, self.stamped = os.stat(self.host.asked["stamp"]).st_mtime, True
        except OSError:
            self.proven, self.stamped = 1e18, False

    def result(self) -> tuple[Any, ...]:
        """Return damaged, foreign, damaged_others, needs, touched and elsewhere of the record."""
        if not os.path.isdir(self.site):
            return [], [], {}, [], 0, None
        os.chdir(self.site)
        elsewhere = self._elsewhere()
        infos = [each for each in _infos(".") if "-" in each]
        own = [each for each in infos if each.lower().startswith("torch-")]
        bad = ["torch-*.dist-info/RECORD"] if not own and os.path.isdir("torch") else []
        for info in own:
            self._compare(f"{info}/RECORD", bad, 5)
        others: dict[str, list[str]] = {}
        for info in (each for each in infos if each not in own):
            name = plain_name(info.partition("-")[0])
            if re.fullmatch(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?", name, re.ASCII):
                self._compare(f"{info}/RECORD", others.setdefault(name, []), 1)
        left = self._digests()
        lost = [(name, bad[0]) for name, bad in others.items() if bad]
        needs = sorted(_needed(infos)) if lost else []
        foreign = [] if bad else self._foreign(own)
        return bad[:5], foreign, dict(lost[:_MOST_OTHERS]), needs, left, elsewhere

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
            raise NotReported("its files could not be compared in time")
        try:
            with open(record, "rb") as file:
                whole = file.read(_MOST_OF_A_LIST + 1)
        except GONE:
            return []
        return whole.split(b"\n") if len(whole) <= _MOST_OF_A_LIST else []

    def _same(self, path: bytes, digest: bytes, size: bytes, bad: list[str]) -> bool:
        """Tell whether a file is as listed, as far as a glance shows; else its digest is due."""
        try:
            found = os.lstat(path)
            since = found.st_ctime
            if stat.S_ISLNK(found.st_mode):  # which no wheel brings
                found = os.stat(path)
                since = max(since, found.st_ctime) if self.stamped else float("inf")
        except GONE:
            return False
        if not found.st_mode & 4 and not os.access(path, os.R_OK):
            return False
        fits = size.isdigit() and found.st_size == int(size)
        if fits and since > self.proven and digest.startswith(b"sha256="):
            self.touched.append((since, path, digest[7:], bad))
        return fits

    def _digests(self) -> int:
        """Make digests, the last touched first: of what was installed again none has changed.

        Returns of how many files there was no time to.
        """
        import base64

        self.touched.sort(key=lambda each: each[:2], reverse=True)
        for number, (_, path, digest, bad) in enumerate(self.touched):
            if time.monotonic() > self.end - _DIGESTS_S:
                return len(self.touched) - number
            try:
                now = base64.urlsafe_b64encode(hashed(path, "sha256").digest()).rstrip(b"=")
            except GONE:
                now = b""
            if now != digest:
                bad.append(text(os.fsdecode(path)))
        return 0

    def _foreign(self, own: list[str]) -> list[str]:
        """Return the first libraries in torch's folders that no wheel of its brought there."""
        listed = [row for info in own for row in self._listed(f"{info}/RECORD") if b".so" in row]
        ours, found = {row.rsplit(b",", 2)[0] for row in listed}, []
        for path in (f"{each}/{name}" for each in ("torch", "torch/lib") for name in names(each)):
            apart = path.endswith(".before-pyinfra-gpu") or os.path.isdir(path)
            if ".so" in path and not apart and os.fsencode(path) not in ours:
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
    """Return torch and what it needs to run, if only with an extra, by their own metadata."""
    folders = {plain_name(info.partition("-")[0]): info for info in infos}
    wanted, found = ["torch"], set()
    while wanted:
        name = wanted.pop()
        if name in folders and name not in found:
            found.add(name)
            try:
                head = decoded(content(f"{folders[name]}/METADATA", 262144)).partition("\n\n")[0]
            except GONE:
                continue
            wanted += map(plain_name, re.findall(r"(?m)^Requires-Dist: ([\w.-]+)", head))
    return found


def _of_build(folder: str, name: str) -> Callable[[Host], str | None]:
    """Return what reads a document of a build; None where no build is declared."""
    return lambda host: document(f"{host.asked[folder]}/{name}") if host.asked["build"] else None


def _building(host: Host) -> dict[str, Any] | None:
    """What the last build says of itself, and whether it is at work: its program holds a lock."""
    said = _of_build("build", "building")(host)
    if said is None:
        return None
    if len(words := said.split()) != 2:
        raise NotReported("it does not say which build it is")
    from fcntl import LOCK_NB, LOCK_SH, flock

    file = os.open(f"{host.asked['build']}/building", os.O_RDONLY | os.O_NONBLOCK)
    try:
        flock(file, LOCK_SH | LOCK_NB)
        running = False
    except BlockingIOError:
        running = True
    finally:
        os.close(file)
    return {"fingerprint": words[0], "phase": words[1], "running": running}


FACTS: Facts = {
    "build.stamp": _of_build("venv", ".pyinfra-gpu-build.json"),
    "build.wheel": _of_build("build", "wheel.json"),
    "build.state": _building,
    "torch.python torch.base torch.installing": _python,
    "torch.version torch.git_version": _identity,
    "torch.distributions": _distributions,
    "torch.declared": _declared,
    "torch.uv": _uv,
    "torch.damaged torch.foreign torch.damaged_others torch.needs torch.touched torch.elsewhere"
    " torch.python_problem": _compared,
}
