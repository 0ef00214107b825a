"""Are our directories there, root's and the owner's, and open to be read? Judged, never touched."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from pyinfra_gpu.facts.fields import Unknown
from pyinfra_gpu.facts.record import Entry, Record
from pyinfra_gpu.spec import HostSpec
from pyinfra_gpu.stages.finding import Finding, Id, Stage, repair, stop
from pyinfra_gpu.stages.rules import Rules, known
from pyinfra_gpu.text import some

STAGE = Stage.LAYOUT
ROOT = "root"


def roots(spec: HostSpec) -> tuple[str, ...]:
    """Return the directories in which nobody but root can put anything, the prefix first.

    What root runs, writes or believes is in them: the installer, our programs, stamps, proofs.
    """
    paths = spec.paths
    proofs = (paths.proofs,) if spec.accelerator == "nvidia" else ()
    train = (paths.train_dir,) if spec.training is not None else ()
    return (paths.prefix, paths.tools, paths.bin, paths.env_dir, paths.smoke, *train, *proofs)


def owners(spec: HostSpec) -> tuple[str, ...]:
    """Return the directories that are the owner's; root never opens anything below them.

    The virtual environment is the owner's as well, and made by the stage that fills it.
    """
    build = (spec.paths.build,) if spec.pytorch.source != "wheel" else ()
    return (spec.paths.cache, spec.paths.training_parent, spec.paths.state, *build)


def owner(spec: HostSpec, record: Record) -> str | Unknown | None:
    """Return who runs what is deployed; None without root, where nobody's could be given away."""
    return (spec.owner or record.system.user) if spec.privilege == "sudo" else None


def owner_name(spec: HostSpec, record: Record) -> str:
    """Return the user who runs what is deployed: as declared, else the login user."""
    return spec.owner or str(record.system.user)


def summary(spec: HostSpec, record: Record) -> str:
    """Say what was found where nothing differs."""
    del spec, record
    return "as declared"


def _places(spec: HostSpec, record: Record) -> Iterator[tuple[str, str, str | None, str | None]]:
    """Yield path, kind, owner and mode of what is ours.

    No owner without root, where all belongs to whoever logs in; no mode for what another stage
    makes, which is judged only where it is there.
    """
    known(owner(spec, record))
    root, its_owner = (ROOT, owner_name(spec, record)) if spec.privilege == "sudo" else (None, None)
    yield from ((path, "dir", root, "0755") for path in roots(spec))
    yield from ((path, "dir", its_owner, "0755") for path in owners(spec))
    yield spec.paths.venv, "dir", its_owner, None
    if root:
        # The group is the owner's: whoever can read a file can lock it, and stall a run.
        yield spec.paths.lock, "file", root, "0640"


def _differing(spec: HostSpec, record: Record) -> Iterator[Finding]:
    """Something that is not a directory at one of these paths is somebody's: the run stops."""
    alike: dict[tuple[str, str, str], list[str]] = defaultdict(list)
    unknown: list[Unknown] = []
    for path, kind, whose, mode in _places(spec, record):
        there = record.layout.entry(path)
        if isinstance(there, Unknown):
            unknown += [there] if mode else []
        elif mode and kind == "dir" and there.kind not in ("dir", "absent"):
            found, action = f"{path} is a {there.kind}", "move it away, or choose another `prefix`"
            yield stop(Id.LAYOUT_DIRECTORY_DIFFERS, found, "a directory", action)
        elif wrong := _wrong(there, kind, whose, mode):
            alike[wrong].append(path)
    for (found, expected, action), paths in alike.items():
        yield repair(Id.LAYOUT_DIRECTORY_DIFFERS, f"{some(paths, 2)}: {found}", expected, action)
    for each in unknown:
        known(each)


def _wrong(
    there: Entry, kind: str, whose: str | None, mode: str | None
) -> tuple[str, str, str] | None:
    """Return what is wrong, what is expected and what is done; None where all is right."""
    if there.kind == "absent" or (mode is None and there.kind != kind):
        return ("missing", "our directories and lock", "create") if mode else None
    if there.kind != kind or whose not in (None, there.owner):
        action = f"make {whose}'s, and set aside what somebody else's folder holds"
        return f"owner {there.owner}", f"owner {whose}", action
    if mode not in (None, there.mode):
        return f"mode {there.mode}", f"mode {mode}", f"set mode {mode}"
    return None


judge = Rules(_differing)
