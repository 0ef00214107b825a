"""The directories under ``prefix``: there, root's or the owner's, and open to be read."""

from __future__ import annotations

from posixpath import basename

from pyinfra_gpu.engine import deadlines
from pyinfra_gpu.engine.converge import Commands, converging
from pyinfra_gpu.engine.privilege import as_root, made_for
from pyinfra_gpu.engine.steps import step
from pyinfra_gpu.facts.record import Record
from pyinfra_gpu.on_host import program
from pyinfra_gpu.spec import HostSpec
from pyinfra_gpu.stages.finding import Findings, Id
from pyinfra_gpu.stages.layout import findings


@converging(findings, repairs=(Id.LAYOUT_DIRECTORY_DIFFERS,))
def directories(spec: HostSpec, record: Record, found: Findings) -> Commands:
    """Ensure that our directories exist, belong to root or the owner, and have mode 0755.

    What root runs, writes or believes is in directories in which root alone can put anything; the
    owner has the virtual environment, the cache, the training checkouts and a directory for what
    programs write that run as the owner. What belongs to somebody else is set aside under the
    name ``NAME.before-pyinfra-gpu``.

    Something that is not a directory at one of these paths is somebody's; it is named and left.
    """
    what = "; ".join(f"{each.action}: {each.found}" for each in found)
    yield step(
        findings.STAGE,
        what,
        command(spec, record),
        run_as=as_root(spec),
        seconds=deadlines.MODULE,
        stream=True,
    )


def command(spec: HostSpec, record: Record) -> str:
    """Return the shell command that makes them, to be run as `as_root` says."""
    whose = dict.fromkeys(findings.roots(spec)[1:], "root")
    whose |= dict.fromkeys(findings.owners(spec), "owner") | {spec.paths.venv: "present"}
    words = [word for path, kind in whose.items() for word in (basename(path), kind)]
    words = [spec.paths.prefix, made_for(spec, record), *words]
    return program(
        "layout/directories.sh", *words, uses=("files/root_only.sh", "files/set_aside.sh")
    )
