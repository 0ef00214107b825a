"""The directories under ``prefix``: there, ours, and open to be read."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyinfra import host
from pyinfra.operations import files

from pyinfra_gpu.engine import journal
from pyinfra_gpu.engine.converge import Commands, converging, refuse, verify
from pyinfra_gpu.engine.privilege import as_root, file_owner, owner_name
from pyinfra_gpu.engine.steps import quoted, step
from pyinfra_gpu.facts.fields import Unknown

if TYPE_CHECKING:
    from pyinfra_gpu.facts.record import Entry, Record
    from pyinfra_gpu.spec import HostSpec

STAGE = "layout"
MODE = "0755"


@converging(STAGE)
def directories(spec: HostSpec, record: Record) -> Commands:
    """Ensure that our directories exist, belong to the owner and have mode 0755.

    + spec: the host's resolved specification

    Something that is not a directory at one of these paths is somebody's; it is named and left.

    **Example:**

    .. code:: python

        layout.directories(name="Make the directories", spec=wanted)
    """
    deviations = wrong(spec, record)
    journal.found(STAGE, _summary(spec, deviations))
    blocked = [path for path in deviations if _blocked(record.layout.entry(path))]
    if blocked:
        yield refuse(
            STAGE,
            f"{spec.host}: {deviations[blocked[0]]}, a directory is needed there: move it away, or"
            " choose another `prefix`",
        )
        return
    if not deviations:
        host.noop("the directories are as declared")
        return
    journal.changed(STAGE, f"{len(deviations)} director{'y' if len(deviations) == 1 else 'ies'}")
    if spec.privilege == "sudo" and any("belongs to" in text for text in deviations.values()):
        yield from _hand_over(spec, record, deviations)
    for path in deviations:
        yield from files.directory._inner(path=path, mode=MODE, user=file_owner(spec, record))
    yield verify(STAGE, spec, _first_wrong)


def _hand_over(spec: HostSpec, record: Record, deviations: dict[str, str]) -> Commands:
    """Give what is in our directories to the owner, and not the directories alone.

    Links are changed themselves, never followed: they may point out of our tree.
    """
    owner = owner_name(spec, record)
    paths = [path for path, text in deviations.items() if "belongs to" in text]
    command = f"{quoted('id', '-u', owner)} && {quoted('chown', '-R', '-h', f'{owner}:', *paths)}"
    yield step(STAGE, f"give {', '.join(paths)} to {owner}", command, run_as=as_root(spec))


def _summary(spec: HostSpec, deviations: dict[str, str]) -> str:
    if len(deviations) == len(ours(spec)) and all(
        text.endswith("is missing") for text in deviations.values()
    ):
        return "no directories yet"
    return "; ".join(deviations.values()) or "as declared"


def ours(spec: HostSpec) -> tuple[str, ...]:
    """Return the directories this project keeps, parents first."""
    paths = spec.paths
    proofs = (paths.proofs,) if spec.accelerator == "nvidia" else ()
    return (
        paths.prefix,
        paths.tools,
        paths.cache,
        paths.bin,
        paths.env_dir,
        paths.training_parent,
        paths.smoke,
        *proofs,
    )


def wrong(spec: HostSpec, record: Record) -> dict[str, str]:
    """Return what is not as declared: path -> what was found, in a few words."""
    owner = owner_name(spec, record)
    deviations = {}
    for path in ours(spec):
        entry = record.layout.entry(path)
        if isinstance(entry, Unknown):
            deviations[path] = f"{path} is unreadable ({entry.reason})"
        elif entry.kind == "absent":
            deviations[path] = f"{path} is missing"
        elif entry.kind != "dir":
            deviations[path] = f"{path} is a {entry.kind}"
        elif entry.mode != MODE:
            deviations[path] = f"{path} has mode {entry.mode}"
        elif spec.privilege == "sudo" and entry.owner != owner:
            deviations[path] = f"{path} belongs to {entry.owner}"
    return deviations


def _blocked(entry: Entry | Unknown) -> bool:
    return isinstance(entry, Unknown) or entry.kind not in ("dir", "absent")


def _first_wrong(spec: HostSpec, record: Record) -> str | None:
    return next(iter(wrong(spec, record).values()), None)
