"""Files that run on a host, and how they are packed for the way there. No pyinfra in them."""

from __future__ import annotations

import base64
import io
import shlex
import zipfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from importlib.metadata import distribution
from pathlib import Path

from .smoke.gpus import KINDS_FILE

_HERE = Path(__file__).parent
_SMOKE = _HERE / "smoke"
_EPOCH = (1980, 1, 1, 0, 0, 0)  # the first moment a zip file can express
_TRAIN_ENTRY = b"import sys\n\nfrom on_host.train.cli import main\n\nsys.exit(main(sys.argv[1:]))\n"
_CODE_AND_DATA = (".py", ".json")
_ENTRY = b"import sys\n\nfrom smoke.__main__ import main\n\nsys.exit(main())\n"


@cache
def text(path: str) -> str:
    """Return the text of a shell program without its comments, as it travels to a host.

    + path: below this folder, e.g. "driver/reload_module.sh"
    """
    lines = (_HERE / path).read_text(encoding="ascii").splitlines(keepends=True)
    return "".join(line for line in lines if not line.lstrip("\t").startswith(("# ", "#\n")))


def program(path: str, *arguments: str, uses: Sequence[str] = ()) -> str:
    """Return the command line that runs a POSIX shell program of ours, which it brings along.

    + path: below this folder, e.g. "driver/reload_module.sh"
    + arguments: its $1, $2 and so on; never part of the program's text
    + uses: files below this folder whose functions it calls, e.g. "files/root_only.sh"
    """
    code = "".join(text(each) for each in (*uses, path))
    return shlex.join(["sh", "-c", code, path.rpartition("/")[2], *arguments])


_PROBE = (
    *("frame", "files", "system", "storage", "driver", "apt", "needs", "torch"),
    *("training", "look"),
)
"""The modules of the look, each behind those that it imports."""


def probe_program(name: str, asked: Mapping[str, object]) -> str:
    """Return a program of `probe` for Python's standard input, with all that it imports.

    + name: of the module whose `main` is called
    + asked: what it is given, of plain types
    """
    begin = (_HERE / "probe/begin.py").read_text(encoding="ascii")
    return f"{begin}\n\nbegin({_packed(name)!r}, {dict(asked)!r})\n"


@cache
def _packed(name: str) -> str:
    names = dict.fromkeys((*_PROBE, name))
    texts = ((each, (_HERE / f"probe/{each}.py").read_text(encoding="ascii")) for each in names)
    whole = "\0".join(f"{each}\n{text}" for each, text in texts)
    return base64.b64encode(zlib.compress(whole.encode(), 9)).decode()


def smoke_bundle(kinds: bytes) -> bytes:
    """Return the smoke test as a zipapp; the same sources and data give the same bytes, always.

    + kinds: what is known of GPUs, as `smoke.gpus` reads it
    """
    sources = _sources(_SMOKE)
    data = {f"{_SMOKE.name}/{KINDS_FILE}": kinds}
    return pack({"__main__.py": _ENTRY, **sources, **data})


def train_bundle(interpreter: str, catalogue: bytes) -> bytes:
    """Return the launcher of training runs as a program that is run by its path.

    + interpreter: absolute; it is run isolated, without what is installed beside it
    + catalogue: what is known of failures, as `diagnosis.causes` reads it
    """
    sources = {"on_host/__init__.py": b"", "on_host/diagnosis/catalogue.json": catalogue}
    for path in _travelling():
        sources[f"on_host/{path.relative_to(_HERE)}"] = path.read_bytes()
    archive = pack({"__main__.py": _TRAIN_ENTRY, **sources, **_library("click")})
    return f"#!{interpreter} -IS\n".encode() + archive


def _travelling() -> Iterator[Path]:
    """Yield the files of this folder that the launcher is made of."""
    for folder in ("train", "diagnosis"):
        yield from (each for each in (_HERE / folder).rglob("*") if each.suffix in _CODE_AND_DATA)
    yield from (_HERE / name for name in ("fingerprint.py", "terminal.py"))
    names = ("__init__.py", "files.py", "listening.py", "nvidia_smi.py")
    yield from (_SMOKE / name for name in names)


@cache
def _library(name: str) -> Mapping[str, bytes]:
    """Return the modules of a library of pure Python that is installed on the controller."""
    found = {}
    for path in distribution(name).files or ():
        if path.suffix == ".py" and path.parts[0] == name:
            found[str(path)] = path.read_binary()
    return found


def source(path: str) -> bytes:
    """Return a program of Python's that is one file.

    + path: below this folder, e.g. "build.py"
    """
    return (_HERE / path).read_bytes()


def _sources(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(_HERE)): path.read_bytes() for path in folder.rglob("*.py")}


def pack(sources: dict[str, bytes]) -> bytes:
    """Return a zipapp of `sources` (path in it -> content), independent of time and order."""
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_STORED) as file:
        for name in sorted(sources):
            entry = zipfile.ZipInfo(name, _EPOCH)
            entry.create_system = 3  # Unix, wherever this runs
            entry.external_attr = 0o100644 << 16
            file.writestr(entry, sources[name])
    return archive.getvalue()
