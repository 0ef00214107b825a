"""Files that run on a host, and how they are packed for the way there. No pyinfra in them."""

from __future__ import annotations

import base64
import io
import shlex
import zipfile
import zlib
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.metadata import distribution
from pathlib import Path

from .smoke.gpus import KINDS_FILE

_HERE = Path(__file__).parent
_EPOCH = (1980, 1, 1, 0, 0, 0)  # the first moment a zip file can express


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
    return _zipapp("smoke.__main__", {**_sources("smoke"), f"smoke/{KINDS_FILE}": kinds})


def train_bundle(interpreter: str, catalogue: bytes) -> bytes:
    """Return the launcher of training runs as a program that is run by its path.

    + interpreter: absolute; it is run isolated, without what is installed beside it
    + catalogue: what is known of failures, as `diagnosis.causes` reads it
    """
    smokes = ("__init__", "files", "listening", "nvidia_smi")
    parts = ("train", "diagnosis", "fingerprint.py", "terminal.py")
    own = _sources(*parts, *(f"smoke/{name}.py" for name in smokes))
    own |= {"__init__.py": b"", "diagnosis/catalogue.json": catalogue}
    sources = {f"on_host/{path}": content for path, content in own.items()}
    for path in distribution("click").files or ():
        if path.suffix == ".py" and path.parts[0] == "click":
            sources[str(path)] = path.read_binary()
    archive = _zipapp("on_host.train.cli", sources, "sys.argv[1:]")
    return f"#!{interpreter} -IS\n".encode() + archive


def _sources(*places: str) -> dict[str, bytes]:
    """Return the code and data in these files and folders below this one."""
    found = {}
    for path in (_HERE / place for place in places):
        for each in path.rglob("*.*") if path.is_dir() else (path,):
            if each.suffix in (".py", ".json"):
                found[str(each.relative_to(_HERE))] = each.read_bytes()
    return found


def source(path: str) -> bytes:
    """Return a program of Python's that is one file.

    + path: below this folder, e.g. "build.py"
    """
    return (_HERE / path).read_bytes()


def _zipapp(module: str, sources: Mapping[str, bytes], given: str = "") -> bytes:
    """Return a zipapp that calls `main` of a module, independent of time and order.

    + sources: path in it -> content
    + given: what `main` is called with
    """
    entry = f"import sys\n\nfrom {module} import main\n\nsys.exit(main({given}))\n"
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_STORED) as file:
        for name, content in sorted({"__main__.py": entry.encode(), **sources}.items()):
            about = zipfile.ZipInfo(name, _EPOCH)
            about.create_system = 3  # Unix, wherever this runs
            about.external_attr = 0o100644 << 16
            file.writestr(about, content)
    return archive.getvalue()
