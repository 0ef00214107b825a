"""Is the training repository at its commit, with its dependencies? Judged, never touched."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pyinfra_gpu.drift.finding import Finding, Id, Stage, note, repair, report, stop
from pyinfra_gpu.drift.rules import Rules, if_known, known
from pyinfra_gpu.facts.record import Record
from pyinfra_gpu.facts.stamps import TrainingStamp
from pyinfra_gpu.spec import HostSpec, TrainingSpec
from pyinfra_gpu.text import some

STAGE = Stage.TRAINING

NO_REPOSITORY = "no training_repo declared"
"""What this stage is where no repository is asked for: neither there nor missing."""

CHECKOUT = (
    Id.TRAINING_CHECKOUT_DIFFERS,
    Id.TRAINING_LOCAL_CHANGES,
    Id.TRAINING_MODULE_HIDDEN,
)
"""What `training.checkout` repairs."""


def summary(spec: HostSpec, record: Record) -> str:
    """Say which commit is checked out, where nothing differs."""
    if spec.training is None:
        return NO_REPOSITORY
    commit = if_known(record.training.commit, None)
    return f"at {commit[:12]}" if commit else "no checkout"


def _readable(spec: HostSpec, record: Record) -> TrainingSpec | None:
    """Return what is declared of a repository, None where git cannot read what is there."""
    return None if isinstance(record.training.damaged, str) else spec.training


def _at_commit(spec: HostSpec, record: Record) -> TrainingSpec | None:
    """Return the same where the declared commit is there: of another checkout all is another."""
    training = _readable(spec, record)
    right = training is not None and known(record.training.commit) == training.commit
    return training if right else None


def _damaged(spec: HostSpec, record: Record) -> Iterator[Finding]:
    said, training = record.training.damaged, spec.training
    if training is not None and isinstance(said, str):
        yield repair(
            Id.TRAINING_CHECKOUT_DIFFERS,
            f"a repository that git cannot read ({said})",
            f"{training.repo} at {training.commit[:12]}",
            f"new clone; what is there is kept as {spec.paths.training}.damaged-TIME",
        )


def _remote(spec: HostSpec, record: Record) -> Iterator[Finding]:
    training, there = _readable(spec, record), record.training
    if training and known(there.commit) and there.remote != training.repo:
        found = f"the origin of {spec.paths.training} is not the declared training_repo"
        expected = "the declared training_repo, from which commits are fetched anyway"
        yield note(Id.TRAINING_CHECKOUT_DIFFERS, found, expected, "left alone")


def _checkout(spec: HostSpec, record: Record) -> Iterator[Finding]:
    """Judge commit and local changes.

    Local changes are a person's work: at the right commit they are noted and left, at another one
    the run stops at them, unless ``training_local_changes = "overwrite"``.
    """
    training = _readable(spec, record)
    if training is None:
        return
    commit, dirty, place = known(record.training.commit), local_changes(record), spec.paths.training
    right, overwrite = commit == training.commit, training.local_changes == "overwrite"
    wanted, found = training.commit[:12], f"{place} has local changes ({dirty})"
    if dirty and not right and not overwrite:
        found = f"{place} is at {str(commit)[:12]} and has local changes ({dirty})"
        action = f"commit or {_stash(record)} them there, or declare"
        action += ' `training_local_changes = "overwrite"` (they are stashed first)'
        yield stop(Id.TRAINING_LOCAL_CHANGES, found, f"commit {wanted}", action)
        return
    if dirty and overwrite:
        yield repair(Id.TRAINING_LOCAL_CHANGES, found, "none", f"stash {dirty}")
    elif dirty:
        yield note(Id.TRAINING_LOCAL_CHANGES, found, "none", "left alone")
    if not right:
        found = "no checkout" if commit is None else f"at {commit[:12]}"
        expected, action = f"{training.repo} at {wanted}", f"check out {wanted}"
        yield repair(Id.TRAINING_CHECKOUT_DIFFERS, found, expected, action)


def local_changes(record: Record) -> str:
    """Name the files that a person changed in the checkout; empty where there is none."""
    count = known(record.training.dirty_count)
    names = [line[3:] for line in if_known(record.training.dirty, ())[:3]]
    return some(names, len(names), total=count) if count else ""


def _stash(record: Record) -> str:
    """Return how a person stashes what is changed; of a submodule's nothing is saved above it."""
    count = len(if_known(record.training.dirty_submodules, ()))
    ways = [] if record.training.dirty_count == count else ["`git stash -u`"]
    ways += ["`git submodule foreach --recursive 'git stash -u'`"] if count else []
    return " and ".join(ways)


def _module_hidden(spec: HostSpec, record: Record) -> Iterator[Finding]:
    """Find a file of a person's that Python imports in place of an installed package.

    A program's own folder comes first in sys.path, so `torch.py` beside train.py is `torch`.
    """
    if _readable(spec, record) is None:
        return
    dirty = if_known(record.training.dirty, ())
    for name in (each.replace("-", "_") for each in if_known(record.torch.distributions, {})):
        if f"?? {name}.py" in dirty:
            found = f"{spec.paths.training}/{name}.py, which hides {name}"
            expected = f"the installed {name}, for programs of that folder"
            action = "left alone: it is yours. Give it another name"
            yield report(Id.TRAINING_MODULE_HIDDEN, found, expected, action)


def _submodules(spec: HostSpec, record: Record) -> Iterator[Finding]:
    """Find submodules that are not there, or at another commit."""
    training = _at_commit(spec, record)
    there = known(record.training.submodules) if training and training.submodules else ()
    if there:
        rows = [f"{'no' if row[0] == '-' else 'another commit of'} {_path(row)}" for row in there]
        expected = "each of the repository's submodules at the commit recorded for it"
        found = f"submodules: {some(rows, 3)}"
        yield repair(Id.TRAINING_CHECKOUT_DIFFERS, found, expected, "submodules")


def _path(row: str) -> str:
    """Return a submodule's path: "+COMMIT PATH (NAME)", the name not always there."""
    path = row.partition(" ")[2]
    return path.rpartition(" (")[0] if path.endswith(")") and " (" in path else path


def _large_files(spec: HostSpec, record: Record) -> Iterator[Finding]:
    """Find files of git LFS of which only the pointers are there."""
    training = _at_commit(spec, record)
    lfs = if_known(record.training.lfs, None) if training and training.lfs else None
    id_, expected = Id.TRAINING_CHECKOUT_DIFFERS, "each of its files, not a pointer to it"
    if lfs == "-":
        action = 'put "git-lfs" into `packages_extra`, or declare `training_lfs = False`'
        yield report(id_, "files in git LFS, and no git-lfs on the host", expected, action)
    elif lfs not in (None, "0"):
        yield repair(id_, f"{lfs} files of git LFS not fetched", expected, "files of git LFS")


def stamp_path(spec: HostSpec) -> str:
    """Return the path of the note on what the requirements installed."""
    return f"{spec.paths.venv}/.pyinfra-gpu-training.json"


def stamp(spec: HostSpec, record: Record) -> dict[str, Any]:
    """Return what the installed dependencies depend on, and what they came to."""
    return {
        "requirements_sha256": record.training.requirements_sha256,
        "torch": spec.pytorch.full_version,
        "distributions": dict(sorted(if_known(record.torch.distributions, {}).items())),
    }


def _requirements(spec: HostSpec, record: Record) -> Iterator[Finding]:
    training = _readable(spec, record)
    if training and training.requirements and (found := _not_as_noted(spec, record)):
        expected = f"what {training.requirements} asks for, torch excepted"
        yield repair(Id.TRAINING_REQUIREMENTS_DIFFER, found, expected, "dependencies")


def _not_as_noted(spec: HostSpec, record: Record) -> str | None:
    """Compare the note with what is installed; name the first difference."""
    known(record.training.requirements_sha256)
    noted = TrainingStamp.read(known(record.training.stamp_text))
    if not isinstance(noted, TrainingStamp):
        return "dependencies not installed"
    now = stamp(spec, record)
    if noted.requirements_sha256 != now["requirements_sha256"]:
        return "the repository's requirements changed"
    if record.torch.installing is True:
        return "an installation was interrupted"
    for name, version in noted.distributions.items():
        there = now["distributions"].get(name)
        if there != version:
            return f"{name} {there or 'is gone'}, was {version}"
    return None


judge = Rules(
    _damaged,
    _remote,
    _checkout,
    _module_hidden,
    _submodules,
    _large_files,
    _requirements,
)
