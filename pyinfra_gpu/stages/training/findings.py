"""Is the training repository at its commit, with its dependencies? Judged, never touched."""

from __future__ import annotations

import re
from collections.abc import Iterator

from pyinfra_gpu.facts.fields import Unknown
from pyinfra_gpu.facts.record import Record
from pyinfra_gpu.facts.stamps import TrainingStamp
from pyinfra_gpu.spec import HostSpec, TrainingSpec
from pyinfra_gpu.stages.finding import Finding, Id, Stage, note, repair, report, stop
from pyinfra_gpu.stages.packages import findings as packages
from pyinfra_gpu.stages.rules import Rules, if_known, known, where
from pyinfra_gpu.text import some

STAGE = Stage.TRAINING

NO_REPOSITORY = "no training_repo declared"
"""What this stage is where no repository is asked for: neither there nor missing."""

CHECKOUT = (Id.TRAINING_CHECKOUT_DIFFERS, Id.TRAINING_LOCAL_CHANGES)
"""What `training.checkout` repairs."""


def summary(spec: HostSpec, record: Record) -> str:
    """Say which commit is checked out, where nothing differs."""
    if spec.training is None:
        return NO_REPOSITORY
    commit = if_known(record.training.commit, None)
    return f"at {commit[:12]}" if commit else "no checkout"


def declared(spec: HostSpec) -> TrainingSpec:
    """Return what is declared of the repository, where one is."""
    assert spec.training is not None  # noqa: S101 - the rules below are asked only then
    return spec.training


def _checkout(spec: HostSpec, record: Record) -> Iterator[Finding]:
    """Judge whether git can read it, its commit, local changes, and whether it is complete.

    Local changes are a person's work: at the right commit they are noted and left, at another one
    the run stops at them, unless ``training_local_changes = "overwrite"``.
    """
    training, place, there = declared(spec), spec.paths.training, record.training
    wanted, id_ = training.commit[:12], Id.TRAINING_CHECKOUT_DIFFERS
    expected = f"{training.repo} at {wanted}"
    if isinstance(there.damaged, str):
        found = f"a repository that git cannot read ({there.damaged})"
        action = f"clone it again; what is there is kept as {place}.damaged-TIME"
        yield repair(id_, found, expected, action)
        return
    if isinstance(there.commit, Unknown) and "git" in packages.missing(spec, record):
        found = f"git is not installed, so {place} cannot be read"
        yield repair(id_, found, expected, f"check out {wanted}, once git is installed")
        return
    commit, dirty = known(there.commit), local_changes(record)
    changed, is_at = f"{place} has local changes ({dirty})", f"at {str(commit)[:12]}"
    if dirty and training.local_changes == "overwrite":
        yield repair(Id.TRAINING_LOCAL_CHANGES, changed, "none", f"stash {dirty}")
    elif dirty and commit == training.commit:
        yield note(Id.TRAINING_LOCAL_CHANGES, changed, "none", "left alone")
    elif dirty:
        found = f"{place} is {is_at} and has local changes ({dirty})"
        action = "commit or `git stash -u` them there (in submodules too), or declare"
        action += ' `training_local_changes = "overwrite"` (they are stashed first)'
        yield stop(Id.TRAINING_LOCAL_CHANGES, found, f"commit {wanted}", action)
        return
    if commit != training.commit:
        found = "no checkout" if commit is None else is_at
        yield repair(id_, found, expected, f"check out {wanted}")
    else:
        yield from _incomplete(training, record)


def _incomplete(training: TrainingSpec, record: Record) -> Iterator[Finding]:
    """Find submodules that are not there, or at another commit, and files that are LFS pointers."""
    id_, lfs = Id.TRAINING_CHECKOUT_DIFFERS, if_known(record.training.lfs, None)
    if rows := known(record.training.submodules) if training.submodules else ():
        # "+COMMIT PATH (NAME)", the name not always there
        pairs = [(row[0], re.sub(r" \(.*\)$", "", row.partition(" ")[2])) for row in rows]
        each = [f"{'no' if mark == '-' else 'another commit of'} {path}" for mark, path in pairs]
        expected = "each of the repository's submodules at the commit recorded for it"
        yield repair(id_, f"submodules: {some(each, 3)}", expected, "check out the submodules")
    expected = "each of its files, not a pointer to it"
    if training.lfs and lfs == "-":
        action = 'put "git-lfs" into `packages_extra`, or declare `training_lfs = False`'
        yield report(id_, "files in git LFS, and no git-lfs on the host", expected, action)
    elif training.lfs and lfs not in (None, "0"):
        action = "fetch the files of git LFS"
        yield repair(id_, f"{lfs} files of git LFS not fetched", expected, action)


def local_changes(record: Record) -> str:
    """Name the files that a person changed in the checkout; empty where there is none."""
    count = known(record.training.dirty_count)
    names = [line[3:] for line in if_known(record.training.dirty, ())[:3]]
    return some(names, len(names), total=count) if count else ""


def stamp(record: Record) -> TrainingStamp:
    """Return what the installed dependencies depend on, and what they came to."""
    return TrainingStamp(
        requirements_sha256=if_known(record.training.requirements_sha256, None),
        distributions=dict(sorted(if_known(record.torch.distributions, {}).items())),
    )


def _requirements(spec: HostSpec, record: Record) -> Iterator[Finding]:
    """Compare what the requirements installed with what is installed, by the note on it."""
    training, there = declared(spec), record.training
    if not training.requirements or isinstance(there.damaged, str):
        return
    digest, installed = known(there.requirements_sha256), known(record.torch.distributions)
    noted = TrainingStamp.read(known(there.stamp_text))
    if not isinstance(noted, TrainingStamp):
        found = "dependencies not installed"
    elif noted.requirements_sha256 != digest:
        found = "the repository's requirements changed"
    elif record.torch.installing is True:
        found = "an installation was interrupted"
    else:
        other = [name for name, was in noted.distributions.items() if installed.get(name) != was]
        if not other:
            return
        found = (
            f"{other[0]} {installed.get(other[0], 'is gone')}, was {noted.distributions[other[0]]}"
        )
    expected = f"what {training.requirements} asks for, torch excepted"
    yield repair(Id.TRAINING_REQUIREMENTS_DIFFER, found, expected, "install the dependencies")


judge = Rules(*where(lambda spec: spec.training is not None, _checkout, _requirements))
