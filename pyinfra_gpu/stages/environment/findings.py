"""Are the environment file and the ``torchrun`` wrapper as declared? Judged, never touched."""

from __future__ import annotations

from collections.abc import Iterator

from pyinfra_gpu.facts.record import Record
from pyinfra_gpu.spec import HostSpec, env_file
from pyinfra_gpu.spec.types import FORBIDDEN
from pyinfra_gpu.stages import files
from pyinfra_gpu.stages.files import File, differs
from pyinfra_gpu.stages.finding import Finding, Id, Stage, report
from pyinfra_gpu.stages.layout import findings as layout
from pyinfra_gpu.stages.rules import Rules, if_known, known
from pyinfra_gpu.text import some

STAGE = Stage.ENVIRONMENT


def declared(spec: HostSpec, owner: str | None) -> tuple[File, File]:
    """Return the files that this stage keeps: root's, where there is root.

    + owner: who runs what is deployed; None without root

    Variables that a user declares may be keys to something: then the file is the owner's alone.
    """
    paths, root = spec.paths, layout.ROOT if spec.privilege == "sudo" else None
    whose, mode = (owner, "0600") if spec.environment.variables else (root, "0644")
    text, wrapper = env_file.render(spec), env_file.render_torchrun(spec)
    id_ = Id.ENVIRONMENT_FILE_DIFFERS
    return (
        File(path=paths.env_file, content=text.encode(), mode=mode, owner=whose, id=id_),
        File(path=paths.torchrun, content=wrapper.encode(), mode="0755", owner=root, id=id_),
    )


def wrong(spec: HostSpec, record: Record) -> list[File]:
    """Return the files that are not as declared."""
    ours = declared(spec, known(layout.owner(spec, record)))
    return [each for each in ours if differs(record, each)]


def summary(spec: HostSpec, record: Record) -> str:
    """Say what was found where nothing differs."""
    del spec, record
    return "as declared"


def _files(spec: HostSpec, record: Record) -> Iterator[Finding]:
    yield from files.judge(record, declared(spec, known(layout.owner(spec, record))))


def _for_all(spec: HostSpec, record: Record) -> Iterator[Finding]:
    """Judge what every login gets of what no env file may hold; `train` has nothing of a login."""
    of_gpus = () if spec.accelerator == "nvidia" else ("CUDA_VISIBLE_DEVICES",)
    rows = (
        each.rpartition(" ") for each in dict.fromkeys(if_known(record.environment.for_all, ()))
    )
    found = [(file, name) for file, _, name in rows if name in FORBIDDEN and name not in of_gpus]
    if found:
        file, name = found[0]
        yield report(
            Id.ENVIRONMENT_SET_FOR_ALL,
            "every login gets " + some([f"{name} from {place}" for place, name in found], 3),
            f"none: {FORBIDDEN[name]}",
            "left alone, since somebody wrote that, and what is started by hand runs with it:"
            " take the line out, and log in again",
            f"grep -nE '{'|'.join(dict.fromkeys(name for _, name in found))}' {file}",
        )


judge = Rules(_files, _for_all)
