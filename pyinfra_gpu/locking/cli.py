"""The verb `lock` of the command line."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from pyinfra_gpu.errors import SpecError
from pyinfra_gpu.locking.download import download
from pyinfra_gpu.locking.errors import LockingError
from pyinfra_gpu.locking.needs import Wanted, needs
from pyinfra_gpu.locking.resolve import Resolved, resolve
from pyinfra_gpu.output import show
from pyinfra_gpu.report.check.cli import add_request, request_of
from pyinfra_gpu.spec.lock import FOLDER, Lock, Platform, changes, load, path_of
from pyinfra_gpu.text import one_line, wrapped
from pyinfra_gpu.whole_file import replacing

Done = dict[Path, tuple[Wanted, Resolved]]
"""What a run has locked, by the path of the lock."""


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the verb ``lock``."""
    parser = subparsers.add_parser(
        "lock",
        help="write what hosts install, with versions and digests, as data for their deploys",
        description="Resolve torch and everything around it for each kind of host of an inventory,"
        f" and write it with digests below {FOLDER}/. Hosts are looked at for their Python and"
        " machine; nothing is written there. Versions that are locked already stay.",
        epilog="exit code: 0 every lock is written; 1 something could not be locked",
    )
    add_request(parser)
    parser.add_argument(
        "--platform",
        metavar="PYTHON-MACHINE",
        action="append",
        default=[],
        help="such as 3.12-x86_64: contact no host, and lock for that; repeatable",
    )
    parser.add_argument(
        "--upgrade", action="store_true", help="take the newest of everything around torch"
    )
    parser.add_argument(
        "--download",
        metavar="FOLDER",
        help="also fetch every file that the locks name, for hosts without the internet",
    )
    parser.set_defaults(handler=handle)


def handle(options: argparse.Namespace) -> int:
    """Write the locks, say what changed in them, and return the exit code."""
    platforms = [Platform.parse(each) for each in options.platform]
    if None in platforms:
        return _problem("--platform is a Python and a machine, such as 3.12-x86_64")
    found = needs(request_of(options), [each for each in platforms if each])
    failed = bool([_problem(each) for each in found.problems])
    if not found.hosts and not failed:
        return _problem("every host has pytorch_lock = 'ignore': there is nothing to lock")
    done: Done = {}
    for wanted, hosts in found.hosts.items():
        try:
            lines = _lock(wanted, hosts, done, upgrade=options.upgrade)
        except (LockingError, SpecError, OSError) as error:
            failed = bool(_problem(f"{', '.join(hosts)}: {error}"))
        else:
            failed = bool(show("\n".join(lines), "lock")) or failed
    if options.download and done:
        failed = bool(_download(done, Path(options.download))) or failed
    return 1 if failed else 0


def _problem(sentence: str) -> int:
    print(f"! {one_line(sentence)}", file=sys.stderr)
    return 1


def _lock(wanted: Wanted, hosts: Sequence[str], done: Done, *, upgrade: bool) -> list[str]:
    """Write what is wanted, and return what is to be said of it.

    + done: what this run has written; it is added there

    Raises LockingError, also where two indexes serve different files for one lock;
    SpecError where the lock that is there is none; OSError.
    """
    path = path_of(wanted.torch, wanted.platform, wanted.source.identity)
    old = load(path) if path.exists() else None
    resolved = resolve(wanted, None if upgrade else old)
    if path in done:
        _refuse_another(wanted, resolved.lock, *done[path])
    done[path] = wanted, resolved
    new = resolved.lock
    tools = f" and {len(new.tools)} that build torch" if new.source else ""
    what = f"{len(new.packages)} packages{tools}, for {', '.join(hosts)}"
    if old is not None and old.text == new.text:
        return wrapped(f"{path}: unchanged, {what}", "", "  ")
    path.parent.mkdir(exist_ok=True)
    with replacing(path, 0o644) as file:
        file.write(new.text.encode("ascii"))
    changed = changes(old, new)
    return [
        *wrapped(f"{path}: {'changed' if old else 'new'}, {what}", "", "  "),
        *(line for each in changed for line in wrapped(each, "  ", "    ")),
    ]


def _refuse_another(wanted: Wanted, lock: Lock, other: Wanted, before: Resolved) -> None:
    if before.lock == lock:
        return
    one, two = (" ".join(each.indexes) or "the package index" for each in (other, wanted))
    differs = ", ".join(changes(before.lock, lock))
    raise LockingError(
        f"{one} and {two} serve different files for {lock.path} ({differs}): declare one index"
        " for all these hosts"
    )


def _download(done: Done, folder: Path) -> int:
    """Fetch every file that the locks of this run name; return 1 where one could not be."""
    files = {file.name: file for _, resolved in done.values() for file in resolved.files}
    fetched = 0
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name in sorted(files):
            fetched += download(files[name], folder)
    except (LockingError, OSError) as error:
        return _problem(str(error))
    size = sum((folder / name).stat().st_size for name in files) / 1e6
    text = f"{folder}: {len(files)} files, {size:.0f} MB, {fetched} of them fetched now"
    return show("\n".join(wrapped(text, "", "  ")), "lock")
