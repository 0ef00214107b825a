"""Files that run on a host, and how they are packed for the way there. No pyinfra in them."""

from __future__ import annotations

import io
import shlex
import zipfile
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from .smoke.gpu.expected import KINDS_FILE

_HERE = Path(__file__).parent
_SMOKE = _HERE / "smoke"
_EPOCH = (1980, 1, 1, 0, 0, 0)  # the first moment a zip file can express
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


def smoke_bundle(kinds: bytes) -> bytes:
    """Return the smoke test as a zipapp; the same sources and data give the same bytes, always.

    + kinds: what is known of GPUs, as `smoke.gpu.expected` reads it
    """
    sources = {
        str(path.relative_to(_SMOKE.parent)): path.read_bytes() for path in _SMOKE.rglob("*.py")
    }
    data = {f"{_SMOKE.name}/gpu/{KINDS_FILE}": kinds}
    return pack({"__main__.py": _ENTRY, **sources, **data})


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
