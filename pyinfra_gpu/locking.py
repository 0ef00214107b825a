"""The verb `lock` of the command line."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import click

from pyinfra_gpu.drift.pytorch_lock import platform_of
from pyinfra_gpu.engine.look import Unanswered, answer
from pyinfra_gpu.engine.torch_install import index_options
from pyinfra_gpu.engine.wheels import WheelError
from pyinfra_gpu.engine.wheels import download as download_wheels
from pyinfra_gpu.errors import SpecError
from pyinfra_gpu.output import show
from pyinfra_gpu.report.check.cli import of_hosts
from pyinfra_gpu.report.check.running import Request, ask
from pyinfra_gpu.spec.lock import COMMAND, INSTALLER, Platform, load, path_of
from pyinfra_gpu.stacks import catalogue
from pyinfra_gpu.text import one_line, shortened

if TYPE_CHECKING:
    from pyinfra.api.host import Host
    from pyinfra.api.state import State

    from pyinfra_gpu.spec import HostSpec

_LONGEST_REASON = 400  # characters
_OLDEST_GLIBC = 28


class Wanted(NamedTuple):
    """What one lock is to hold: all that its hosts have in common, and so they share it.

    + requirements: what uv is asked for: torch and uv
    + glibc: the second number of the oldest that torch's wheels load on
    + indexes: options that name the declared ones, for pip and uv
    """

    path: Path
    platform: Platform
    requirements: tuple[str, ...]
    glibc: int
    indexes: tuple[str, ...]


def _platform(text: str) -> Platform:
    if found := Platform.parse(text):
        return found
    raise click.BadParameter("it is a Python and a machine, such as 3.12-x86_64")


@click.command("lock", epilog="exit code: 0 every lock is written; 1 one could not be written.")
@of_hosts
@click.option(
    "--platform", "platforms", metavar="PYTHON-MACHINE", multiple=True, type=_platform,
    help="such as 3.12-x86_64: contact no host, and lock for that; repeatable",
)  # fmt: skip
@click.option("--upgrade", is_flag=True, help="take the newest of everything around torch")
@click.option(
    "--download", metavar="FOLDER", type=click.Path(path_type=Path),
    help="also fetch every file that the locks name, for hosts without the internet",
)  # fmt: skip
def command(
    request: Request, platforms: tuple[Platform, ...], upgrade: bool, download: Path | None
) -> int:
    """Pin what hosts install, by version and hash.

    Resolves torch and everything around it for each kind of host of an inventory, and writes it
    with hashes below locks/. Hosts are asked for their Python and machine; nothing is written
    there. Versions that are locked already stay.
    """
    code, hosts = 0, dict[Wanted, list[str]]()
    found, problems = ask(request, partial(_wanted, platforms))
    failed = [*problems]
    for name, wanted in found.items():
        if isinstance(wanted, Unanswered):
            sentence = f"{name}: its Python and machine are not known: {wanted.reason}"
            failed.append(f"{sentence}; name them: --platform 3.12-x86_64")
            continue
        for each in wanted:
            hosts.setdefault(each, []).append(name)
    if not hosts and not failed:
        failed.append("nothing to lock: hosts ignore locks, or build torch from source")
    for each, of in sorted(hosts.items()):
        try:
            said = _lock(each, upgrade=upgrade, download=download)
            code = show(f"{said}, for {', '.join(of)}") or code
        except (SpecError, OSError) as error:
            failed.append(f"{', '.join(of)}: {error}")
    for sentence in failed:
        click.echo(f"! {one_line(sentence)}", err=True)
    return 1 if failed else code


def _wanted(
    platforms: Sequence[Platform], state: State, host: Host, spec: HostSpec
) -> list[Wanted] | Unanswered:
    """Return which locks a host needs."""
    torch = spec.pytorch
    if torch.lock == "ignore" or torch.building is not None:
        return []
    if not platforms:
        record = answer(state, host, spec)
        if isinstance(record, Unanswered):
            return record
        if (its := platform_of(spec, record)) is None:
            return Unanswered(reason=f"pytorch_python = {torch.python!r} names no version there")
        platforms = [its]
    release = catalogue().torch.get(torch.version)
    glibc = int(release.glibc.partition(".")[2]) if release and release.glibc else _OLDEST_GLIBC
    asked = (torch.requirement, f"{INSTALLER}=={torch.uv_version}")
    version, indexes = torch.full_version, tuple(index_options(spec))
    return [Wanted(path_of(version, each), each, asked, glibc, indexes) for each in platforms]


def _lock(wanted: Wanted, *, upgrade: bool, download: Path | None) -> str:
    """Have uv write a lock, and return a line about it. Raises SpecError, and OSError.

    + download: the folder that every file is to be fetched into which the lock names
    """
    path, platform, requirements, glibc, indexes = wanted
    if path.exists():
        load(path)  # uv would begin anew with what it cannot read
    beside = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])
    if (uv := shutil.which("uv", path=beside)) is None:
        raise SpecError("uv is needed to resolve: run `pip install 'pyinfra-gpu[lock]'`")
    command = [
        *(uv, "pip", "compile", "--no-config", "--quiet", "--color", "never"),
        *("--refresh", "--generate-hashes", "--no-annotate", "--custom-compile-command", COMMAND),
        *("--only-binary", ":all:", "--no-python-downloads", "--python", sys.executable),
        *("--python-version", platform.python),
        *("--python-platform", f"{platform.machine}-manylinux_2_{glibc}"),
        *(*indexes, "--output-file", str(path), *(["--upgrade"] if upgrade else []), "-"),
    ]
    path.parent.mkdir(exist_ok=True)
    asked = "\n".join(requirements)
    done = subprocess.run(command, input=asked, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        why = shortened(done.stderr or done.stdout, _LONGEST_REASON)
        raise SpecError(f"{', '.join(requirements)} cannot be locked for {platform}: {why}")
    try:
        if download is not None:
            named = ["--require-hashes", "--requirement", str(path)]
            download_wheels(named, platform, indexes, download, glibc)
    except WheelError as error:
        why = shortened(str(error), _LONGEST_REASON)
        raise SpecError(f"what {path} names cannot be fetched into {download}: {why}") from None
    return f"{path}: {len(load(path).lines)} packages"
