"""Is everything that torch and the training stand on whole? Judged by the sizes wheels recorded."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyinfra_gpu.drift.finding import Effect, Finding, Id
from pyinfra_gpu.drift.pytorch_lock import lock_of
from pyinfra_gpu.facts.fields import Unknown
from pyinfra_gpu.facts.stamps import TrainingStamp
from pyinfra_gpu.text import some

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyinfra_gpu.facts.record import Record
    from pyinfra_gpu.spec import HostSpec

_NAMED = 3  # so many damaged distributions are told


def damaged(spec: HostSpec, record: Record) -> list[str]:
    """Return the names of the damaged distributions that were installed by us, torch excepted."""
    there, ours = record.torch.damaged_others, _ours(spec, record)
    return [] if isinstance(there, Unknown) else [name for name in there if name in ours]


def requirements(record: Record, names: list[str]) -> list[str]:
    """Return what asks for distributions in the very versions that are there.

    Of one that is there twice, in the version that the training noted, else in that of the record
    which is whole, else in the last; the installer removes the other.
    """
    there, damages = record.torch.distributions, record.torch.damaged_others
    versions = {} if isinstance(there, Unknown) else there
    broken = {} if isinstance(damages, Unknown) else damages
    stamp = record.training.stamp_text
    noted = None if isinstance(stamp, Unknown) else TrainingStamp.read(stamp)
    before = noted.distributions if isinstance(noted, TrainingStamp) else {}
    asked = []
    for name in (each for each in names if each in versions):
        several = versions[name].split(" and ")
        whole = [each for each in several if f"-{each}.dist-info" not in broken.get(name, "")]
        kept = before.get(name)
        asked.append(f"{name}=={kept if kept in several else (whole or several)[-1]}")
    return asked


def leftovers(spec: HostSpec, record: Record) -> list[str]:
    """Return folders of metadata without their list of files, where another one has the name too.

    An interrupted removal leaves them, and no installer can remove what nobody lists.
    """
    there, damages = record.torch.distributions, record.torch.damaged_others
    if isinstance(there, Unknown) or isinstance(damages, Unknown):
        return []
    twice = [name for name in damaged(spec, record) if " and " in there.get(name, "")]
    rows = [damages[name].partition("/") for name in twice]
    return [folder for folder, _, file in rows if file == "RECORD"]


def judge(spec: HostSpec, record: Record) -> list[Finding]:
    """Return the damaged distributions: ours to be repaired, a user's own only told of."""
    foreign, there = _foreign(record), record.torch.damaged_others
    if isinstance(there, Unknown):
        return foreign
    ours = damaged(spec, record)
    theirs = [name for name in there if name not in ours]
    left = "left as it is, being nothing that torch or the training needs"
    return [
        *foreign,
        *_elsewhere(record),
        *_finding(there, ours, "repair", f"reinstall of {some(ours, _NAMED)}"),
        *_finding(there, theirs, "note", left),
    ]


def _foreign(record: Record) -> list[Finding]:
    """Judge libraries that somebody copied beside torch's own: torch loads what lies there."""
    there = record.torch.foreign
    if isinstance(there, Unknown) or not there:
        return []
    return [
        Finding(
            id=Id.PYTORCH_LIBRARY_FOREIGN,
            found=f"{some(there, _NAMED)} beside torch's own libraries, and of no wheel",
            expected="no library there but those that its wheel recorded",
            effect="repair",
            action=f"{some(there, _NAMED)} set aside as NAME.before-pyinfra-gpu",
        )
    ]


def _elsewhere(record: Record) -> list[Finding]:
    """Find what has Python import another torch than the environment's: a .pth, sitecustomize."""
    said = record.torch.elsewhere
    if not isinstance(said, str):
        return []
    name, _, origin = said.partition(" ")
    return [
        Finding(
            id=Id.PYTORCH_IMPORT_ELSEWHERE,
            found=f"`import torch` takes {origin}, led there by {name}, which no package brought",
            expected="the environment's own torch",
            effect="report",
            action=f"left as it is, being yours: take {name} away",
        )
    ]


def _finding(
    there: Mapping[str, str], names: list[str], effect: Effect, action: str
) -> list[Finding]:
    if not names:
        return []
    return [
        Finding(
            id=Id.PYTORCH_DISTRIBUTION_DAMAGED,
            found=some([f"{name} damaged: {there[name]}" for name in names], _NAMED),
            expected="each of its files there, of the size its wheel recorded",
            effect=effect,
            action=action,
        )
    ]


def _ours(spec: HostSpec, record: Record) -> set[str]:
    """Return what we installed: what the lock names, torch needs, or the training asked for."""
    lock, needs = lock_of(spec, record), record.torch.needs
    stamp = record.training.stamp_text
    noted = None if isinstance(stamp, Unknown) else TrainingStamp.read(stamp)
    return {
        *(lock.lines if lock else ()),
        *(() if isinstance(needs, Unknown) else needs),
        *(noted.distributions if isinstance(noted, TrainingStamp) else ()),
    }
