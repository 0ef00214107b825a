"""The verb `lock` of the command line."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

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
from pyinfra_gpu.stages.pytorch.lock import platform_of
from pyinfra_gpu.text import one_line, shortened

if TYPE_CHECKING:
    from pyinfra.api.host import Host
    from pyinfra.api.state import State

    from pyinfra_gpu.spec import HostSpec
    from pyinfra_gpu.spec.model import PytorchSpec

_LONGEST_REASON = 400  # characters
_OLDEST_GLIBC = 28


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
    found, problems = ask(request, partial(_needed, platforms))
    code, failed, done = 0, [*problems], list[Path]()
    for name, needs in found.items():
        if isinstance(needs, Unanswered):
            sentence = f"{name}: its Python and machine are not known: {needs.reason}"
            failed.append(f"{sentence}; name them: --platform 3.12-x86_64")
            continue
        for torch, platform in needs:
            if (path := path_of(torch.full_version, platform)) in done:
                continue
            done.append(path)
            try:
                said = _lock(path, torch, platform, upgrade=upgrade, download=download)
                code = show(said) or code
            except (SpecError, OSError) as error:
                failed.append(f"{name}: {error}")
    if not done and not failed:
        failed.append("nothing to lock: hosts ignore locks, or build torch from source")
    for sentence in failed:
        click.echo(f"! {one_line(sentence)}", err=True)
    return 1 if failed else code


def _needed(
    platforms: Sequence[Platform], state: State, host: Host, spec: HostSpec
) -> list[tuple[PytorchSpec, Platform]] | Unanswered:
    """Return for which torch and platforms a host needs locks."""
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
    return [(torch, each) for each in platforms]


def _lock(
    path: Path, torch: PytorchSpec, platform: Platform, *, upgrade: bool, download: Path | None
) -> str:
    """Have uv write a lock, and return a line about it. Raises SpecError, and OSError.

    + download: the folder that every file is to be fetched into which the lock names
    """
    release, indexes = catalogue().torch.get(torch.version), index_options(torch)
    # The second number of the oldest that torch's wheels load on.
    glibc = int(release.glibc.partition(".")[2]) if release and release.glibc else _OLDEST_GLIBC
    requirements = (torch.requirement, f"{INSTALLER}=={torch.uv_version}")
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
