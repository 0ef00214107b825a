"""A virtual environment whose torch is the declared one, complete, and from a declared place."""

from __future__ import annotations

from functools import partial

from pyinfra.api.command import PyinfraCommand

from pyinfra_gpu.engine import deadlines, journal
from pyinfra_gpu.engine.converge import Commands, converging, unreadable
from pyinfra_gpu.engine.look import look
from pyinfra_gpu.engine.privilege import as_owner, as_root, guard, made_for
from pyinfra_gpu.engine.steps import quoted, step
from pyinfra_gpu.engine.torch_install import install, sources
from pyinfra_gpu.facts.record import Record
from pyinfra_gpu.on_host import program
from pyinfra_gpu.spec import HostSpec
from pyinfra_gpu.spec.paths import beside
from pyinfra_gpu.stages.finding import Findings, Id
from pyinfra_gpu.stages.pytorch import findings
from pyinfra_gpu.stages.pytorch.lock import lock_of
from pyinfra_gpu.stages.pytorch_build.findings import has_wheel
from pyinfra_gpu.stages.rules import if_known
from pyinfra_gpu.text import some

STAGE = findings.STAGE


@converging(findings, repairs=(Id.PYTORCH_LOCK_MISSING, Id.PYTORCH_INSTALLER_DIFFERS))
def installer(spec: HostSpec, record: Record, found: Findings) -> Commands:
    """Ensure that the declared version of uv is in a small environment of its own.

    uv, not pip: its cache makes a repair a matter of seconds, and it can hold torch fixed while
    it installs a project that asks for another one. With a lock it is installed by the digest that
    the lock names. A host that has to have a lock, and has none, stops here.
    """
    paths, version, lock = spec.paths, spec.pytorch.uv_version, lock_of(spec, record)
    wheels = spec.pytorch.wheels or ""
    command = program(
        "pytorch/installer.sh",
        *(paths.tools, lock.installer if lock else f"uv=={version}", guard(as_root(spec))),
        *(wheels if wheels.startswith("/") else "", *sources(spec)),
        uses=("files/root_only.sh",),
    )
    yield _roots(spec)(f"install uv {version}", command, seconds=deadlines.INSTALL)


@converging(findings, repairs=(Id.PYTORCH_ENVIRONMENT_DIFFERS,))
def virtual_environment(spec: HostSpec, record: Record, found: Findings) -> Commands:
    """Ensure that the virtual environment exists, and its Python is the declared one and runs.

    An environment with another Python, or with one that vanished (a distribution upgrade does
    that), cannot be repaired. A new one is made beside it, torch included, and takes its place
    when `import torch` has worked there, unless torch has yet to be built for it; whatever fails
    before leaves the old one as it is, which is then kept as ``venv.old``.
    """
    if record.torch.python is None and not record.torch.python_problem:
        yield from _make(spec, record)
        return
    new, owners, why = spec.but(paths=beside(spec.paths)), _owners(spec, record), found[0].found
    for name, fails in (("new", "false"), ("old", "true")):
        path = quoted(f"{spec.paths.venv}.{name}")
        empty = f"[ ! -d {path} ] || find {path} -mindepth 1 -delete || {fails}"
        yield owners(f"empty {spec.paths.venv}.{name}, if an earlier run left it", empty)
    # Relocatable: it gets another name. uv writes that into it, for what is installed later too.
    yield from _make(new, record, "--relocatable")
    if (there := look(new)) is None:
        yield unreadable(STAGE)
        return
    if spec.pytorch.building is None or has_wheel(new, there):  # else it is built with that Python
        yield from install(new, there, why, ())
        works = quoted(new.paths.python, "-I", "-c", "import torch")
        yield owners("import torch from the new environment", works)
    arguments = (spec.paths.venv, made_for(spec, record))
    switch = program("pytorch/switch.sh", *arguments, uses=("files/root_only.sh",))
    yield _roots(spec)("put the new environment in the place of the old one", switch)
    journal.warn(
        STAGE, f"{spec.host}: the old environment ({why}) is kept as {spec.paths.venv}.old"
    )


def _roots(spec: HostSpec) -> partial[PyinfraCommand]:
    """Return what makes a step of root's of (what it does, command), of seconds to minutes."""
    return partial(
        step, STAGE, run_as=as_root(spec), seconds=deadlines.SERVICE, lock=spec.paths.lock
    )


def _owners(spec: HostSpec, record: Record) -> partial[PyinfraCommand]:
    """Return the same for a step in what the owner can write."""
    return partial(_roots(spec), run_as=as_owner(spec, record))


def _make(spec: HostSpec, record: Record, *options: str) -> Commands:
    """Make the environment: root an empty directory of the owner's, the owner what is in it."""
    place = (spec.paths.venv, made_for(spec, record))
    command = program("pytorch/place.sh", *place, uses=("files/root_only.sh",))
    yield _roots(spec)(f"make {spec.paths.venv}", command)
    torch, folder = spec.pytorch, f"{spec.paths.cache}/python"
    which, downloaded = ["--no-managed-python"], list[str]()
    if torch.downloads_python:  # by the digest that this uv knows
        which = ["--python-preference", "system"]
        downloaded = ["env", f"UV_PYTHON_INSTALL_DIR={folder}", "UV_PYTHON_INSTALL_BIN=0"]
        downloaded += [f"UV_PYTHON_INSTALL_MIRROR={torch.python_url}"] if torch.python_url else []
    make = [*downloaded, spec.paths.uv, "venv", "--quiet", *which, "--no-config", *options]
    make += ["--cache-dir", spec.paths.cache, "--python", torch.python, spec.paths.venv]
    yield _owners(spec, record)(
        f"make a virtual environment of {torch.python}",
        f"[ -x {quoted(spec.paths.python)} ] || {quoted(*make)}",
        seconds=deadlines.INSTALL if torch.downloads_python else deadlines.SERVICE,
    )


@converging(
    findings,
    repairs=(
        *(Id.PYTORCH_VERSION_DIFFERS, Id.PYTORCH_FILES_DAMAGED, Id.PYTORCH_IMPORT_ELSEWHERE),
        *(Id.PYTORCH_LOCK_DIFFERS, Id.PYTORCH_BUILD_DIFFERS, Id.PYTORCH_FALLBACK),
    ),
)
def wheel(spec: HostSpec, record: Record, found: Findings) -> Commands:
    """Ensure that torch is the declared version and build, complete on disk.

    Which torch is there is read from its own files, each compared with the size its wheel
    recorded, so that an interrupted install and a hand-copied library are both seen. With a lock,
    everything in the environment is of a version and a digest that the lock names; a file that has
    another digest fails this host while the environment is still as it was. What torch and the
    training stand on is compared in the same way, and installed again by itself, in the version
    that is there.
    """
    wrong = "; ".join(each.found for each in findings.of_torch(spec, record))
    for again in (False, True):
        names = findings.damaged(spec, record)
        if paths := [*if_known(record.torch.foreign, ()), *findings.unlisted(spec, record)]:
            aside = program("pytorch/set_aside.sh", spec.paths.venv, *paths)
            yield _owners(spec, record)(f"set {some(paths, 2)} aside", aside)
        if again:
            # uv links a wheel's files into the environment, so what overwrote one of them has
            # overwritten uv's own copy as well: it is to fetch the wheels again.
            distrusted = [*(["torch"] if wrong else []), *names]
            clean = quoted(spec.paths.uv, "cache", "clean", "--cache-dir", spec.paths.cache)
            drop = f"{clean} {quoted(*distrusted)}"
            yield _owners(spec, record)(f"drop {', '.join(distrusted)}", drop, lock=None)
        if wrong or names:
            yield from install(spec, record, wrong, names)
        record = look(spec) or record
        wrong = ", ".join(f"damaged: {each}" for each in if_known(record.torch.damaged, ())[:1])
        if not wrong and not findings.damaged(spec, record):
            return
