"""The verb `lock` of the command line."""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from pyinfra.context import ctx_host

from pyinfra_gpu.drift.pytorch_lock import platform_of
from pyinfra_gpu.engine.declared import declared
from pyinfra_gpu.engine.look import Unanswered, answer
from pyinfra_gpu.engine.pip_download import DownloadError, download
from pyinfra_gpu.engine.uv import index_options
from pyinfra_gpu.errors import SpecError
from pyinfra_gpu.output import show
from pyinfra_gpu.report.check.cli import add_request, request_of
from pyinfra_gpu.report.check.running import visit
from pyinfra_gpu.spec.lock import COMMAND, FOLDER, INSTALLER, Platform, load, path_of
from pyinfra_gpu.stacks import catalogue
from pyinfra_gpu.text import one_line, shortened

if TYPE_CHECKING:
    from pyinfra.api.host import Host
    from pyinfra.api.state import State

_DEADLINE_S = 3600.0
_LONGEST_REASON = 400  # characters
_OLDEST_GLIBC = 28


class Wanted(NamedTuple):
    """What one lock is to hold: all that its hosts have in common, and so they share it.

    + requirements: what uv is asked for: torch and uv
    + glibc: the second number of the oldest that torch's wheels load on, 0 where it is not known
    + indexes: options that name the declared ones, for pip and uv
    """

    path: Path
    platform: Platform
    requirements: tuple[str, ...]
    glibc: int
    indexes: tuple[str, ...]


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the verb ``lock``."""
    parser = subparsers.add_parser(
        "lock",
        help="pin what hosts install, by version and hash",
        description="Resolve torch and everything around it for each kind of host of an inventory,"
        f" and write it with hashes below {FOLDER}/. Hosts are asked for their Python and machine;"
        " nothing is written there. Versions that are locked already stay.",
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
    """Write the locks, say what was written, and return the exit code."""
    platforms = [Platform.parse(each) for each in options.platform]
    if None in platforms:
        return _problem("--platform is a Python and a machine, such as 3.12-x86_64")
    found: dict[str, tuple[Wanted, ...] | str] = {}
    names, problems = visit(
        request_of(options),
        partial(_of_host, [each for each in platforms if each]),
        lambda one, _: found.update({one[0]: one[1]}),
    )
    hosts: dict[Wanted, list[str]] = {}
    for name in names:
        wanted = found[name]
        if isinstance(wanted, str):
            problems = (*problems, wanted)
            continue
        for each in wanted:
            hosts.setdefault(each, []).append(name)
    failed = bool([_problem(each) for each in problems])
    if not hosts and not failed:
        return _problem("nothing to lock: hosts ignore locks, or build torch from source")
    for each, of in sorted(hosts.items()):
        try:
            failed = bool(show(_lock(each, of, upgrade=options.upgrade), "lock")) or failed
            if options.download:
                named = ["--require-hashes", "--requirement", str(each.path)]
                place, glibc = Path(options.download), each.glibc or _OLDEST_GLIBC
                download(named, each.platform, each.indexes, place, glibc)
        except DownloadError as error:
            what = f"what {each.path} names cannot be fetched into {options.download}"
            failed = bool(_problem(f"{what}: {shortened(str(error), _LONGEST_REASON)}"))
        except (SpecError, OSError, subprocess.TimeoutExpired) as error:
            failed = bool(_problem(f"{', '.join(of)}: {error}"))
    return 1 if failed else 0


def _problem(sentence: str) -> int:
    print(f"! {one_line(sentence)}", file=sys.stderr)
    return 1


def _of_host(
    platforms: Sequence[Platform], state: State, host: Host
) -> tuple[str, tuple[Wanted, ...] | str]:
    """Return a host's name and which locks it needs, or why that is not known."""
    try:
        with ctx_host.use(host):
            spec = declared(host)
            torch = spec.pytorch
            if torch.lock == "ignore" or torch.building is not None:
                return host.name, ()
            seen: Sequence[Platform] = platforms
            if not seen:
                record = answer(state, host, spec)
                if isinstance(record, Unanswered):
                    raise SpecError(record.reason)
                its = platform_of(spec, record)
                if its is None:
                    raise SpecError(f"pytorch_python = {torch.python!r} names no version there")
                seen = (its,)
    except Exception as error:  # one host's failure is one host's failure
        why = str(error) if isinstance(error, SpecError) else f"{type(error).__name__}: {error}"
        sentence = f"{host.name}: its Python and machine are not known: {why}"
        return host.name, one_line(f"{sentence}; name them: --platform 3.12-x86_64")
    release = catalogue().torch.get(torch.version)
    glibc = int(((release and release.glibc) or "2.0").partition(".")[2])
    asked = (torch.requirement, f"{INSTALLER}=={torch.uv_version}")
    indexes = tuple(index_options(spec))
    return host.name, tuple(
        Wanted(path_of(torch.full_version, each), each, asked, glibc, indexes) for each in seen
    )


def _lock(wanted: Wanted, hosts: Sequence[str], *, upgrade: bool) -> str:
    """Have uv write a lock, and return a line about it. Raises SpecError."""
    path, platform = wanted.path, wanted.platform
    before = load(path) if path.exists() else None
    libc = f"manylinux_2_{wanted.glibc}" if wanted.glibc else "unknown-linux-gnu"
    command = [
        *(_uv(), "pip", "compile", "--no-config", "--quiet", "--color", "never", "--refresh"),
        *("--generate-hashes", "--no-annotate", "--custom-compile-command", COMMAND),
        *("--only-binary", ":all:", "--no-python-downloads", "--python", sys.executable),
        *("--python-version", platform.python, "--python-platform", f"{platform.machine}-{libc}"),
        *(*wanted.indexes, "--output-file", str(path), *(["--upgrade"] if upgrade else []), "-"),
    ]
    path.parent.mkdir(exist_ok=True)
    done = subprocess.run(
        command, input="\n".join(wanted.requirements), capture_output=True, text=True,
        timeout=_DEADLINE_S, check=False,
    )  # fmt: skip
    if done.returncode != 0:
        why = shortened(done.stderr or done.stdout, _LONGEST_REASON)
        asked = ", ".join(wanted.requirements)
        raise SpecError(f"{asked} cannot be locked for {platform}: {why}")
    after = load(path)
    said = "new" if before is None else "unchanged" if before == after else "changed"
    return f"{path}: {said}, {len(after.lines)} packages, for {', '.join(hosts)}"


def _uv() -> str:
    beside = str(Path(sys.executable).parent)
    found = shutil.which("uv", path=os.pathsep.join([beside, os.environ.get("PATH", os.defpath)]))
    if found is None:
        raise SpecError("uv is needed to resolve: run `pip install 'pyinfra-gpu[lock]'`")
    return found
