"""Is the training repository at its commit, with its dependencies? Judged, never touched."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyinfra_gpu.drift.finding import Effect, Finding, Id, Stage, stop
from pyinfra_gpu.facts.fields import Unknown
from pyinfra_gpu.facts.stamps import TrainingStamp
from pyinfra_gpu.text import some

if TYPE_CHECKING:
    from pyinfra_gpu.facts.record import Record
    from pyinfra_gpu.spec import HostSpec, TrainingSpec

STAGE = Stage.TRAINING

NO_REPOSITORY = "no training_repo declared"
"""What this stage is where no repository is asked for: neither there nor missing."""

REQUIREMENTS = (
    Id.TRAINING_REQUIREMENTS_NOT_INSTALLED,
    Id.TRAINING_REQUIREMENTS_CHANGED,
    Id.TRAINING_REQUIREMENTS_INTERRUPTED,
    Id.TRAINING_DISTRIBUTION_CHANGED,
)
"""What `training.requirements` repairs."""

CHECKOUT = (
    Id.TRAINING_NOT_CHECKED_OUT,
    Id.TRAINING_CHECKOUT_DAMAGED,
    Id.TRAINING_COMMIT_DIFFERS,
    Id.TRAINING_LOCAL_CHANGES,
    Id.TRAINING_LOCAL_CHANGES_IN_THE_WAY,
    Id.TRAINING_MODULE_HIDDEN,
    Id.TRAINING_SUBMODULE_DIFFERS,
    Id.TRAINING_LARGE_FILES_MISSING,
    Id.TRAINING_REMOTE_DIFFERS,
)
"""What `training.checkout` repairs."""


def needed(spec: HostSpec, record: Record) -> tuple[object, ...]:
    """Return the facts that this stage cannot do without."""
    training = record.training
    if spec.training is None:
        return ()
    if isinstance(training.damaged, str):  # then nothing else of it can be known
        return ()
    checkout: tuple[object, ...] = (training.commit, training.dirty_count)
    if spec.training.submodules:
        checkout = (*checkout, training.submodules)
    if spec.training.requirements is None:
        return checkout
    return (*checkout, training.requirements_sha256, training.stamp_text)


def summary(spec: HostSpec, record: Record) -> str:
    """Say which commit is checked out, where nothing differs."""
    if spec.training is None:
        return NO_REPOSITORY
    commit = record.training.commit
    if isinstance(commit, Unknown):
        return f"checkout {commit}"
    return f"at {commit[:12]}" if commit else "no checkout"


def judge(spec: HostSpec, record: Record) -> list[Finding]:
    """Return in what checkout and dependencies are not as declared.

    Local changes are a person's work: at the right commit they are noted and left, at another one
    the run stops at them, unless ``training_local_changes = "overwrite"``.
    """
    if spec.training is None:
        return []
    if isinstance(record.training.damaged, str):
        return [_damaged(spec, spec.training, record.training.damaged)]
    return [
        *_remote(spec, spec.training, record),
        *_checkout(spec, spec.training, record),
        *_module_hidden(spec, record),
        *_submodules(spec.training, record),
        *_large_files(spec.training, record),
        *_requirements(spec, spec.training, record),
    ]


def local_changes(record: Record) -> str:
    """Name the files that a person changed in the checkout; empty where there is none."""
    count = record.training.dirty_count
    if not isinstance(count, int) or count == 0:
        return ""
    dirty = record.training.dirty
    names = [] if isinstance(dirty, Unknown) else [line[3:] for line in dirty[:3]]
    return some(names, len(names), total=count)


def _damaged(spec: HostSpec, training: TrainingSpec, said: str) -> Finding:
    return Finding(
        id=Id.TRAINING_CHECKOUT_DAMAGED,
        found=f"a repository that git cannot read ({said})",
        expected=f"{training.repo} at {training.commit[:12]}",
        effect="repair",
        action=f"new clone; what is there is kept as {spec.paths.training}.damaged-TIME",
    )


def _remote(spec: HostSpec, training: TrainingSpec, record: Record) -> list[Finding]:
    remote = record.training.remote
    if not isinstance(record.training.commit, str) or remote == training.repo:
        return []
    return [
        Finding(
            id=Id.TRAINING_REMOTE_DIFFERS,
            found=f"the origin of {spec.paths.training} is not the declared training_repo",
            expected="the declared training_repo, from which commits are fetched anyway",
            effect="note",
            action="left as it is",
        )
    ]


def _checkout(spec: HostSpec, training: TrainingSpec, record: Record) -> list[Finding]:
    commit, dirty = record.training.commit, local_changes(record)
    if isinstance(commit, Unknown):
        return []
    right, overwrite = commit == training.commit, training.local_changes == "overwrite"
    if dirty and not right and not overwrite:
        found = f"at {str(commit)[:12]} and has local changes ({dirty})"
        return [_in_the_way(spec, training, found, _stash(record))]
    noted = [_local_changes(spec, dirty, overwrite=overwrite)] if dirty else []
    return noted if right else [*noted, _commit(training, commit)]


def _commit(training: TrainingSpec, commit: str | None) -> Finding:
    return Finding(
        id=Id.TRAINING_NOT_CHECKED_OUT if commit is None else Id.TRAINING_COMMIT_DIFFERS,
        found="no checkout" if commit is None else f"at {commit[:12]}",
        expected=f"{training.repo} at {training.commit[:12]}",
        effect="repair",
        action=f"checkout at {training.commit[:12]}",
    )


def _local_changes(spec: HostSpec, dirty: str, *, overwrite: bool) -> Finding:
    effect: Effect = "repair" if overwrite else "note"
    return Finding(
        id=Id.TRAINING_LOCAL_CHANGES,
        found=f"{spec.paths.training} has local changes ({dirty})",
        expected="none",
        effect=effect,
        action=f"stash of {dirty}" if overwrite else "left as they are",
    )


def _module_hidden(spec: HostSpec, record: Record) -> list[Finding]:
    """Find a file of a person's that Python imports in place of an installed package.

    A program's own folder comes first in sys.path, so `torch.py` beside train.py is `torch`.
    """
    dirty, installed = record.training.dirty, record.torch.distributions
    if isinstance(dirty, Unknown) or isinstance(installed, Unknown):
        return []
    modules = {name.replace("-", "_"): f"?? {name.replace('-', '_')}.py" for name in installed}
    hidden = [name for name, row in modules.items() if row in dirty]
    return [
        Finding(
            id=Id.TRAINING_MODULE_HIDDEN,
            found=f"{spec.paths.training}/{name}.py, which hides {name}",
            expected=f"the installed {name}, for programs of that folder",
            effect="report",
            action="left as it is, being yours: give it another name",
        )
        for name in hidden
    ]


def _submodules(training: TrainingSpec, record: Record) -> list[Finding]:
    """Find submodules that are not there, or at another commit; of another checkout all are."""
    there = record.training.submodules
    right = record.training.commit == training.commit
    if not training.submodules or not right or isinstance(there, Unknown) or not there:
        return []
    told = [f"{'no' if row[0] == '-' else 'another commit of'} {_path(row)}" for row in there]
    return [
        Finding(
            id=Id.TRAINING_SUBMODULE_DIFFERS,
            found=f"submodules: {some(told, 3)}",
            expected="each of the repository's submodules at the commit recorded for it",
            effect="repair",
            action="submodules",
        )
    ]


def _path(row: str) -> str:
    """Return a submodule's path: "+COMMIT PATH (NAME)", the name not always there."""
    path = row.partition(" ")[2]
    return path.rpartition(" (")[0] if path.endswith(")") and " (" in path else path


def _large_files(training: TrainingSpec, record: Record) -> list[Finding]:
    """Find files of git LFS of which only the pointers are there; of another checkout all are."""
    lfs, right = record.training.lfs, record.training.commit == training.commit
    if not training.lfs or not right or not isinstance(lfs, str) or lfs == "0":
        return []
    without = lfs == "-"
    effect: Effect = "report" if without else "repair"
    return [
        Finding(
            id=Id.TRAINING_LARGE_FILES_MISSING,
            found="files in git LFS, and no git-lfs on the host"
            if without
            else f"{lfs} files of git LFS not fetched",
            expected="each of the repository's files, not a pointer to it",
            effect=effect,
            action='put "git-lfs" into `packages_extra`, or declare `training_lfs = False`'
            if without
            else "files of git LFS",
        )
    ]


def _in_the_way(spec: HostSpec, training: TrainingSpec, found: str, stash: str) -> Finding:
    return stop(
        Id.TRAINING_LOCAL_CHANGES_IN_THE_WAY,
        found=f"{spec.paths.training} is {found}",
        expected=f"commit {training.commit[:12]}",
        action=f"commit or {stash} them there, or declare"
        ' `training_local_changes = "overwrite"` (they are stashed first)',
    )


def _stash(record: Record) -> str:
    """Return how a person stashes what is changed; of a submodule's nothing is saved above it."""
    inside = record.training.dirty_submodules
    count = 0 if isinstance(inside, Unknown) else len(inside)
    ways = [] if record.training.dirty_count == count else ["`git stash -u`"]
    ways += ["`git submodule foreach --recursive 'git stash -u'`"] if count else []
    return " and ".join(ways)


def stamp_path(spec: HostSpec) -> str:
    """Return the path of the note on what the requirements installed."""
    return f"{spec.paths.venv}/.pyinfra-gpu-training.json"


def stamp(spec: HostSpec, record: Record) -> dict[str, Any]:
    """Return what the installed dependencies depend on, and what they came to."""
    installed = record.torch.distributions
    return {
        "requirements_sha256": record.training.requirements_sha256,
        "torch": spec.pytorch.full_version,
        "distributions": {} if isinstance(installed, Unknown) else dict(sorted(installed.items())),
    }


def _requirements(spec: HostSpec, training: TrainingSpec, record: Record) -> list[Finding]:
    wrong = _requirements_wrong(spec, record) if training.requirements else None
    if wrong is None:
        return []
    id_, found = wrong
    return [
        Finding(
            id=id_,
            found=found,
            expected=f"what {training.requirements} asks for, torch excepted",
            effect="repair",
            action="dependencies",
        )
    ]


def _requirements_wrong(spec: HostSpec, record: Record) -> tuple[Id, str] | None:
    """Compare the note with what is installed; name the first difference."""
    if isinstance(record.training.stamp_text, Unknown):
        return None  # not known to be wrong; see `needed`
    if isinstance(record.training.requirements_sha256, Unknown):
        return None
    noted = TrainingStamp.read(record.training.stamp_text)
    if not isinstance(noted, TrainingStamp):
        return Id.TRAINING_REQUIREMENTS_NOT_INSTALLED, "dependencies not installed"
    now = stamp(spec, record)
    if noted.requirements_sha256 != now["requirements_sha256"]:
        return Id.TRAINING_REQUIREMENTS_CHANGED, "the repository's requirements changed"
    if record.torch.installing is True:
        return Id.TRAINING_REQUIREMENTS_INTERRUPTED, "an installation was interrupted"
    for name, version in noted.distributions.items():
        there = now["distributions"].get(name)
        if there != version:
            found = f"{name} {there or 'is gone'}, was {version}"
            return Id.TRAINING_DISTRIBUTION_CHANGED, found
    return None
