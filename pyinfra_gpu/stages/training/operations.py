"""The training repository at a pinned commit, and its dependencies without touching torch."""

from __future__ import annotations

from functools import partial

from pyinfra import host, state
from pyinfra.api.command import PyinfraCommand

from pyinfra_gpu.engine import deadlines
from pyinfra_gpu.engine.ask import ask
from pyinfra_gpu.engine.converge import Commands, converging, unreadable, verify
from pyinfra_gpu.engine.look import look
from pyinfra_gpu.engine.privilege import as_owner
from pyinfra_gpu.engine.steps import reason, step
from pyinfra_gpu.engine.torch_install import constraint, install_command, marked
from pyinfra_gpu.engine.write import File, write
from pyinfra_gpu.facts.record import Record
from pyinfra_gpu.on_host import program
from pyinfra_gpu.spec import HostSpec
from pyinfra_gpu.stages.finding import Findings, Id
from pyinfra_gpu.stages.host import judged
from pyinfra_gpu.stages.pytorch import findings as pytorch
from pyinfra_gpu.stages.training import findings

STAGE = findings.STAGE


@converging(findings, repairs=findings.CHECKOUT)
def checkout(spec: HostSpec, record: Record, found: Findings) -> Commands:
    """Ensure that the declared repository is checked out at the declared commit.

    Local changes are a person's work. At the right commit they are reported and left. At another
    commit they stop this host, unless ``training_local_changes = "overwrite"``, which puts them
    into ``git stash`` first, where ``git stash list`` finds them. A repository that git cannot read
    is kept under another name, and cloned again. Submodules and files of git LFS
    belong to it, unless ``training_submodules`` or ``training_lfs`` is False.
    """
    training = findings.declared(spec)
    flags = (bool(found.of(Id.TRAINING_LOCAL_CHANGES)), training.submodules, training.lfs)
    # The stock `git.repo` follows branches and asks the remote each time; a pinned commit that is
    # there needs no network at all.
    command = program(
        "training/checkout.sh",
        *(spec.paths.training, training.repo, training.commit),
        *("1" if each else "" for each in flags),
    )
    what = f"check out {training.repo} at {training.commit[:12]}"
    yield _owners(spec, record)(what, command, seconds=deadlines.CLONE)


def unreachable(spec: HostSpec, record: Record) -> str:
    """Return why the declared commit cannot be fetched, a sentence; empty where it can.

    Git on the host is asked, as the owner, where the commit is not checked out; where there is no
    git yet nothing is known. Keeps nothing on the host.
    """
    found = judged(findings, spec, record, ()).of(Id.TRAINING_CHECKOUT_DIFFERS)
    if not found.acting:
        return ""
    training, place = findings.declared(spec), spec.paths.training
    command = program("training/reachable.sh", place, training.repo, training.commit)
    who = as_owner(spec, record)
    answer = ask(state, host, command, who, seconds=deadlines.PLAIN)
    why = "" if answer.ok else reason(answer.lines, said_by="git")
    return f"{host.name}: training_repo = {training.repo!r} cannot be fetched: {why}" if why else ""


def _owners(spec: HostSpec, record: Record) -> partial[PyinfraCommand]:
    """Return what makes a step of the owner's of (what it does, command, seconds=)."""
    return partial(step, STAGE, run_as=as_owner(spec, record), lock=spec.paths.lock)


@converging(findings, repairs=(Id.TRAINING_REQUIREMENTS_DIFFER,))
def requirements(spec: HostSpec, record: Record, found: Findings) -> Commands:
    """Ensure that the repository's dependencies are installed, and that torch stays ours.

    Whatever torch the repository asks for is overridden by the declared one, and what a lock names
    stays as the lock names it; digests in the repository's own file are asked. What was installed
    is written down, so that anything exchanged later (a ``uv sync`` by hand) is seen by name.
    """
    training = findings.declared(spec)
    path, held = f"{spec.paths.venv}/.pyinfra-gpu-override.txt", pytorch.held(spec, record)
    yield write(STAGE, File(path=path, content=f"{held}\n".encode()), as_owner(spec, record))
    command = install_command(spec, "--override", path, *constraint(spec, record))
    command += ["--requirement", f"{spec.paths.training}/{training.requirements}"]
    what = f"install {training.requirements} of {spec.paths.name} ({found[0].found})"
    yield _owners(spec, record)(what, marked(spec, command), seconds=deadlines.INSTALL)
    yield verify(pytorch, spec, *Id.of(pytorch.STAGE))
    if (after := look(spec)) is None:
        yield unreadable(STAGE)
        return
    text = f"{findings.stamp(after).model_dump_json(indent=1)}\n"
    file = File(path=f"{spec.paths.venv}/.pyinfra-gpu-training.json", content=text.encode())
    yield write(STAGE, file, as_owner(spec, after))
