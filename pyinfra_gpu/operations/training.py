"""The training repository at a pinned commit, and its dependencies without touching torch."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from pyinfra import host, logger

from pyinfra_gpu.engine import journal
from pyinfra_gpu.engine.converge import Commands, converging, refuse, unknown, unreadable, verify
from pyinfra_gpu.engine.look import look
from pyinfra_gpu.engine.privilege import as_owner
from pyinfra_gpu.engine.steps import quoted, step
from pyinfra_gpu.facts.fields import Unknown
from pyinfra_gpu.operations.pytorch import install_command, marked, torch_wrong

if TYPE_CHECKING:
    from pyinfra_gpu.facts.record import Record
    from pyinfra_gpu.spec import HostSpec, TrainingSpec

STAGE = "training"


@converging(STAGE)
def checkout(spec: HostSpec, record: Record) -> Commands:
    """Ensure that the declared repository is checked out at the declared commit.

    + spec: the host's resolved specification

    Local changes are a person's work. At the right commit they are reported and left. At another
    commit they stop this host, unless ``training_local_changes = "overwrite"``, which puts them
    into ``git stash`` first, where ``git stash list`` finds them.

    **Example:**

    .. code:: python

        training.checkout(name="Check out the training repository", spec=wanted)
    """
    if spec.training is None:
        journal.found(STAGE, "no training_repo declared")
        host.noop("no training repository is declared")
        return
    if refusal := unknown(STAGE, spec, record.training.commit, record.training.dirty_count):
        yield refusal
        return
    complaint = _commit_wrong(spec, record)
    dirty = _dirty(record)
    journal.found(STAGE, _summary(record))
    _note_history(spec, spec.training, record)
    overwrite = spec.training.local_changes == "overwrite"
    if dirty and not overwrite:
        yield from _report_local_changes(spec, spec.training, complaint, dirty)
    if complaint is None and not (dirty and overwrite):
        host.noop(f"{spec.paths.training} is at {spec.training.commit[:12]}")
        return
    if complaint is not None and dirty and not overwrite:
        return
    yield from _check_out(spec, spec.training, record, dirty)


def _check_out(spec: HostSpec, training: TrainingSpec, record: Record, dirty: str) -> Commands:
    commit = training.commit[:12]
    journal.changed(STAGE, f"{f'stash of {dirty}, ' if dirty else ''}checkout at {commit}")
    yield step(
        STAGE,
        f"check out {training.repo} at {commit}",
        _checkout_command(spec, training, record, stash=bool(dirty)),
        run_as=as_owner(spec, record),
        lock=spec.paths.lock,
    )
    yield verify(STAGE, spec, _commit_wrong)


def _report_local_changes(
    spec: HostSpec, training: TrainingSpec, complaint: str | None, dirty: str
) -> Commands:
    text = f"{spec.host}: {spec.paths.training} has local changes ({dirty}), left as they are"
    if complaint is None:
        journal.warn(STAGE, text)
        logger.warning(f"{host.print_prefix}{text}")
        return
    yield refuse(
        STAGE,
        f"{spec.host}: {spec.paths.training} is at another commit ({complaint}) than"
        f" {training.commit[:12]} and has local changes ({dirty}): commit or `git stash` them"
        ' there, or declare `training_local_changes = "overwrite"` (they are stashed first)',
    )


def _summary(record: Record) -> str:
    commit = record.training.commit
    if not isinstance(commit, str):
        return "no checkout"
    dirty = _dirty(record)
    return f"at {commit[:12]}" + (f", local changes: {dirty}" if dirty else "")


def _dirty(record: Record) -> str:
    count = record.training.dirty_count
    if not isinstance(count, int) or count == 0:
        return ""
    dirty = record.training.dirty
    names = [] if isinstance(dirty, Unknown) else [line[3:] for line in dirty[:3]]
    more = f" and {count - len(names)} more" if count > len(names) else ""
    return ", ".join(names) + more


def _commit_wrong(spec: HostSpec, record: Record) -> str | None:
    if spec.training is None or record.training.commit == spec.training.commit:
        return None
    if record.training.commit is None:
        return "no checkout"
    return f"at {str(record.training.commit)[:12]}"


def _checkout_command(
    spec: HostSpec, training: TrainingSpec, record: Record, *, stash: bool
) -> str:
    """Return the shell command that clones or fetches, and checks out the commit, detached.

    The stock ``git.repo`` operation follows branches and asks the remote each time; a pinned
    commit that is there needs no network at all.
    """
    path = spec.paths.training
    # An ssh remote must not stop at a question nobody sees.
    lines = ["export GIT_TERMINAL_PROMPT=0"]
    if record.training.commit is None:
        # Cloned beside and renamed: a clone that was cut off leaves no half repository.
        aside = f"{path}.cloning"
        lines += [
            quoted("rm", "-rf", aside),
            # An empty directory may stand there; anything else makes rmdir, and this step, fail.
            f"{{ [ ! -e {quoted(path)} ] || {quoted('rmdir', path)}; }}",
            quoted("git", "clone", "--quiet", "--no-checkout", "--", training.repo, aside),
            quoted("git", "-C", aside, "checkout", "--quiet", "--detach", training.commit),
            quoted("mv", aside, path),
        ]
        return " && ".join(lines)
    git = ("git", "-C", path)
    # HEAD is detached, so a commit that a person made here hangs on nothing but HEAD.
    held = quoted(*git, "for-each-ref", "--count=1", "--contains", "HEAD")
    keep = quoted(*git, "branch", kept_branch(record), "HEAD")
    lines.append(f'{{ [ -n "$({held})" ] || {keep}; }}')
    if stash:
        note = "set aside by pyinfra-gpu"
        lines.append(quoted(*git, "stash", "push", "--quiet", "--include-untracked", "-m", note))
    have = quoted(*git, "cat-file", "-e", f"{training.commit}^{{commit}}")
    # By URL, not by remote name: what the user's remotes are called is the user's business.
    fetch = quoted(
        *git, "fetch", "--quiet", "--", training.repo, "+refs/heads/*:refs/pyinfra-gpu/*"
    )
    lines.append(f"{{ {have} 2>/dev/null || {fetch}; }}")
    lines.append(quoted(*git, "checkout", "--quiet", "--detach", training.commit))
    return " && ".join(lines)


def kept_branch(record: Record) -> str:
    """Return the branch that keeps what HEAD was, if nothing else does."""
    return f"pyinfra-gpu/kept-{str(record.training.commit)[:12]}"


def _note_history(spec: HostSpec, training: TrainingSpec, record: Record) -> None:
    """Tell a person what is unusual about the checkout, and where their work is kept."""
    there = isinstance(record.training.commit, str)
    if there and record.training.remote != training.repo:
        text = f"{spec.host}: the origin of {spec.paths.training} is not the declared training_repo"
        journal.warn(STAGE, text)
    if there and record.training.commit != training.commit:
        journal.warn(
            STAGE,
            f"{spec.host}: {spec.paths.training} was at {str(record.training.commit)[:12]}; if no"
            f" branch or tag had that, branch {kept_branch(record)} has it now",
        )


@converging(STAGE)
def requirements(spec: HostSpec, record: Record) -> Commands:
    """Ensure that the repository's dependencies are installed, and that torch stays ours.

    + spec: the host's resolved specification

    Whatever torch the repository asks for is overridden by the declared one. What was installed
    is written down, so that anything exchanged later (a ``uv sync`` by hand) is seen by name.

    **Example:**

    .. code:: python

        training.requirements(name="Install the repository's dependencies", spec=wanted)
    """
    if spec.training is None or spec.training.requirements is None:
        host.noop("no requirements are declared")
        return
    wanted = record.training.requirements_sha256
    if refusal := unknown(STAGE, spec, wanted, record.training.stamp_text):
        yield refusal
        return
    complaint = _requirements_wrong(spec, record)
    if complaint is None:
        host.noop("the repository's dependencies are installed")
        return
    journal.found(STAGE, complaint)
    journal.changed(STAGE, "dependencies")
    yield step(
        STAGE,
        f"install {spec.training.requirements} of {spec.paths.name} ({complaint})",
        _requirements_command(spec, spec.training),
        run_as=as_owner(spec, record),
        lock=spec.paths.lock,
    )
    yield verify(STAGE, spec, torch_wrong)
    yield from _write_stamp(spec)
    yield verify(STAGE, spec, _requirements_wrong)


def _requirements_command(spec: HostSpec, training: TrainingSpec) -> str:
    override = f"{spec.paths.venv}/.pyinfra-gpu-override.txt"
    install = install_command(spec, "--override", override)
    install += ["--requirement", f"{spec.paths.training}/{training.requirements}"]
    write = f"{quoted('echo', spec.pytorch.requirement)} > {quoted(override)}"
    return f"{write} && {marked(spec, install)}"


def _write_stamp(spec: HostSpec) -> Commands:
    """Write down what is installed now, next to it; temp file and rename, so never half."""
    record = look(spec)
    if record is None:
        yield unreadable(STAGE)
        return
    text = json.dumps(stamp(spec, record), sort_keys=True)
    path = stamp_path(spec)
    write = f"{quoted('echo', text)} > {quoted(path + '.new')}"
    yield step(
        STAGE,
        "write down what is installed",
        f"{write} && {quoted('mv', path + '.new', path)}",
        run_as=as_owner(spec, record),
    )


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


def _requirements_wrong(spec: HostSpec, record: Record) -> str | None:
    """Compare the note with what is installed; name the first difference."""
    try:
        noted = json.loads(str(record.training.stamp_text))
        distributions = dict(noted["distributions"])
    except (ValueError, KeyError, TypeError):
        return "dependencies not installed"
    now = stamp(spec, record)
    if noted["requirements_sha256"] != now["requirements_sha256"]:
        return "the repository's requirements changed"
    if record.torch.installing is True:
        return "an installation was interrupted"
    for name, version in distributions.items():
        if now["distributions"].get(name) != version:
            return f"{name} {now['distributions'].get(name, 'is gone')}, was {version}"
    return None
