"""What one throwaway host has compiled of Python, no other compiles again.

To compile torch's five thousand modules takes half a minute of a processor, each time that it is
installed. So what uv compiles is kept in a folder that the hosts of a machine share, and taken from
there, as ccache does for C: by the digest of the source, of its path, which is written in what is
compiled, and of the Python that compiles.
"""

from __future__ import annotations

import compileall
import hashlib
import os
import struct
from importlib.util import MAGIC_NUMBER, cache_from_source
from pathlib import Path
from typing import Any

FOLDER = Path("/run/rehearsal-bytecode")
_compile = compileall.compile_file


def compile_file(fullname: Any, *arguments: Any, **options: Any) -> Any:
    """Do what `compileall.compile_file` does, by way of the folder."""
    try:
        source, target = Path(fullname), Path(cache_from_source(fullname))
        text, status = source.read_bytes(), source.stat()
    except (OSError, NotImplementedError):
        return _compile(fullname, *arguments, **options)
    what = b"\0".join((os.fsencode(fullname), MAGIC_NUMBER, text))
    kept = FOLDER / hashlib.sha256(what).hexdigest()
    # Says for which source it is by that one's time and size: the usual kind.
    head = MAGIC_NUMBER + struct.pack("<LLL", 0, int(status.st_mtime) & 0xFFFFFFFF, status.st_size)
    try:
        target.parent.mkdir(exist_ok=True)
        _write(target, head + kept.read_bytes())
        return True
    except OSError:  # the first time, or there is no room: to compile it says which
        done = _compile(fullname, *arguments, **options)
    try:
        content = target.read_bytes()
        if content.startswith(head):
            _write(kept, content[len(head) :])
    except OSError:
        pass  # it could not be compiled, or there is no room: the hosts do without
    return done


def _write(path: Path, content: bytes) -> None:
    """Write it whole, or not at all."""
    part = path.with_name(f"{path.name}.{os.getpid()}")
    part.write_bytes(content)
    part.replace(path)
