"""The directories under ``prefix``: there, ours, and open to be read."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyinfra.operations import files

from pyinfra_gpu.drift import layout as drift
from pyinfra_gpu.drift.finding import Findings, Id
from pyinfra_gpu.engine import deadlines
from pyinfra_gpu.engine.converge import Commands, converging
from pyinfra_gpu.engine.privilege import as_root, file_owner
from pyinfra_gpu.engine.steps import quoted, step

if TYPE_CHECKING:
    from pyinfra_gpu.facts.record import Record
    from pyinfra_gpu.spec import HostSpec


@converging(
    drift,
    repairs=drift.IDS,
)
def directories(spec: HostSpec, record: Record, found: Findings) -> Commands:
    """Ensure that our directories exist, belong to the owner and have mode 0755.

    + spec: the host's resolved specification

    Something that is not a directory at one of these paths is somebody's; it is named and left.

    **Example:**

    .. code:: python

        layout.directories(name="Make the directories", spec=wanted)
    """
    if found.of(Id.LAYOUT_OWNER_DIFFERS):
        yield from _hand_over(spec, record)
    for path in drift.wrong_paths(spec, record):
        yield from files.directory._inner(path=path, mode=drift.MODE, user=file_owner(spec, record))


def _hand_over(spec: HostSpec, record: Record) -> Commands:
    """Give what is in our directories to the owner, and not the directories alone.

    Links are changed themselves, never followed: they may point out of our tree.
    """
    owner, paths = drift.owner_name(spec, record), drift.foreign_paths(spec, record)
    command = f"{quoted('id', '-u', owner)} && {quoted('chown', '-R', '-h', f'{owner}:', *paths)}"
    what = f"give {', '.join(paths)} to {owner}"
    yield step(drift.STAGE, what, command, run_as=as_root(spec), seconds=deadlines.MODULE)
