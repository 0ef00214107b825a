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
import time
from importlib.util import MAGIC_NUMBER, cache_from_source
from pathlib import Path
from typing import Any

FOLDER = Path("/run/rehearsal-bytecode")
_DIGEST = 32  # bytes
_PATIENCE_S = 3.0  # a module takes a tenth of a second, the largest one
_POLL_S = 0.005
_compile = compileall.compile_file


def compile_file(fullname: Any, *arguments: Any, **options: Any) -> Any:
    """Do what `compileall.compile_file` does, by way of the folder."""
    try:
        source, target = Path(fullname), Path(cache_from_source(fullname))
        text, status = source.read_bytes(), source.stat()
    except (OSError, NotImplementedError):
        return _compile(fullname, *arguments, **options)
    what = b"\0".join((MAGIC_NUMBER, os.fsencode(fullname), text))
    kept = FOLDER / hashlib.sha256(what).hexdigest()
    # Says for which source it is by that one's time and size: the usual kind.
    head = MAGIC_NUMBER + struct.pack("<LLL", 0, int(status.st_mtime) & 0xFFFFFFFF, status.st_size)
    claim = kept.with_suffix(".part")
    if _take(kept, target, head):
        return True
    if not _claimed(claim):
        _wait(claim)
        if _take(kept, target, head):
            return True
    done = _compile(fullname, *arguments, **options)
    _keep(kept, claim, target, head)
    return done


def _claimed(claim: Path) -> bool:
    """Begin to compile for all hosts; tell whether that is to be done here."""
    try:
        claim.touch(exist_ok=False)
    except OSError:
        return False  # another host is about it, or the folder cannot be written
    return True


def _wait(claim: Path) -> None:
    """Wait until another host has compiled it; one that was cut off meanwhile never has."""
    limit = time.monotonic() + _PATIENCE_S
    while claim.exists() and time.monotonic() < limit:
        time.sleep(_POLL_S)


def _take(kept: Path, target: Path, head: bytes) -> bool:
    try:
        content = kept.read_bytes()
        digest, code = content[:_DIGEST], content[_DIGEST:]
        if hashlib.sha256(code).digest() != digest:
            return False
        target.parent.mkdir(exist_ok=True)
        part = target.with_name(f"{target.name}.{os.getpid()}")
        part.write_bytes(head + code)
        part.replace(target)
    except OSError:
        return False  # the first time, or there is no room: to compile it says which
    return True


def _keep(kept: Path, claim: Path, compiled: Path, head: bytes) -> None:
    try:
        content = compiled.read_bytes()
        if content.startswith(head):
            code = content[len(head) :]
            claim.write_bytes(hashlib.sha256(code).digest() + code)
            claim.replace(kept)
        claim.unlink(missing_ok=True)
    except OSError:
        return  # it could not be compiled, or there is no room: the hosts do without
