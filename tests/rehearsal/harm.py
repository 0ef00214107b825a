"""What a hostile owner must not bring about on a throwaway host, compared and traced."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from running import SYSTEM_OWN, written_files
from tracing import Trace, traced

from pyinfra_gpu_rehearsal import LabHost

PREFIX = "/opt/pyinfra-gpu"
OWNERS = tuple(f"{PREFIX[1:]}/{name}" for name in ("venv", "cache", "training", "state"))
NOT_LOOKED_AT = (*SYSTEM_OWN, "var/tmp/", "home/", "root/")


def outside(host: LabHost, *, without: tuple[str, ...] = OWNERS) -> dict[str, tuple[object, ...]]:
    """Return mode, owner, group and content of everything the host has written elsewhere.

    + without: beginnings of relative paths that are the owner's
    """
    without = (*NOT_LOOKED_AT, *without)
    digests = written_files(host, without=without)
    found: dict[str, tuple[object, ...]] = {}
    for folder, folders, names in os.walk(host.upper):
        here = Path(folder).relative_to(host.upper)
        folders[:] = [name for name in folders if not f"{here / name}/".startswith(without)]
        for name in (*folders, *names):
            relative = str(here / name)
            if relative.startswith(without):
                continue
            path = host.upper / relative
            there = path.lstat()
            content = str(path.readlink()) if path.is_symlink() else digests.get(relative)
            found[relative] = (there.st_mode, there.st_uid, there.st_gid, content)
    return found


@contextmanager
def harmless(host: LabHost, *, without: tuple[str, ...] = OWNERS) -> Iterator[Trace]:
    """Insist that nothing outside changes meanwhile, and root opens nothing of the owner's."""
    before = outside(host, without=without)
    pid = host.pid()
    assert pid is not None
    with traced(pid, PREFIX) as trace:
        yield trace
    assert trace.events
    assert trace.by_root == [], trace.by_root
    assert [path for path, uids in trace.ran_as.items() if 0 in uids] == []
    after = outside(host, without=without)
    assert {path: after.get(path) for path in before if after.get(path) != before[path]} == {}
    new = sorted(after.keys() - before.keys())
    assert new == [], new
