"""The wheel of a torch that is built from source: once, detached, proven, on the host."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyinfra import host, state
from pyinfra.api.command import FunctionCommand

from pyinfra_gpu.diagnosis.command import explain_lines
from pyinfra_gpu.drift import pytorch_build as drift
from pyinfra_gpu.drift.finding import Findings
from pyinfra_gpu.engine import deadlines
from pyinfra_gpu.engine.converge import Commands, looking, note, refuse, refused, verify
from pyinfra_gpu.engine.fallback import given_up
from pyinfra_gpu.engine.following import LostError, follow
from pyinfra_gpu.engine.look import forget, look
from pyinfra_gpu.engine.privilege import as_owner, as_root, made_for
from pyinfra_gpu.engine.steps import failed, quoted, step
from pyinfra_gpu.engine.together import executing, together
from pyinfra_gpu.engine.uv import sources
from pyinfra_gpu.engine.wheels import Cached, NotBuiltError, TransferError, cached, fetch, send
from pyinfra_gpu.engine.write import File, write, written
from pyinfra_gpu.facts.fields import Unknown
from pyinfra_gpu.facts.pytorch_build import Manifest
from pyinfra_gpu.on_host import build_bundle, program
from pyinfra_gpu.on_host.build.place import Place
from pyinfra_gpu.on_host.build.plan import Plan
from pyinfra_gpu.on_host.build.shown import shown
from pyinfra_gpu.stacks import catalogue

if TYPE_CHECKING:
    from pyinfra.api.host import Host
    from pyinfra.api.state import State

    from pyinfra_gpu.facts.pytorch_build import BuildState
    from pyinfra_gpu.facts.record import Record
    from pyinfra_gpu.spec import HostSpec

STAGE = drift.STAGE
_KINDS, _WHEELS = "pytorch kinds", "pytorch wheels"
"""What hosts tell one another: of which kind they are, and that their wheel is there."""

_PATIENCE_S = 45.0
"""For a host that is late to the operation: longer than it takes to notice a dead network."""


def _acts(spec: HostSpec, record: Record) -> bool:
    return bool(Findings(drift.judge(spec, record)).acting)


@looking(STAGE, claims=drift.BUILD, acts=_acts)
def built(spec: HostSpec, record: Record) -> Commands:
    """Ensure that the wheel of the declared build lies on the host, proven, where it is needed.

    + spec: the host's resolved specification; without `pytorch_source = "source"` there is nothing
      to do

    One host of each kind builds, and its wheel goes to the others by way of the controller's cache.
    The build runs as a unit of systemd's, as the owner, with a limit of memory: a connection that
    breaks, a controller that is killed or a second operator change nothing of it, and the next run
    follows it where it is. It goes on where it stopped, and what a power cut may have spoilt is
    made again. The same fingerprint is never built twice.

    **Example:**

    .. code:: python

        pytorch_build.built(name="Build torch", spec=wanted)
    """
    found = note(drift, spec, record, drift.BUILD)
    if refusal := refused(drift, spec, record, found):
        yield refusal
        return
    if spec.pytorch.building is not None and executing():
        together().say(_KINDS, host.name, _kind(spec, record, acts=bool(found.acting)))
    if not found.acting:
        host.noop(drift.summary(spec, record) or "nothing is declared for it here")
        return
    if executing():
        yield from _have(spec, record)
    else:
        yield from _start(spec, record)
    yield verify(drift, spec, *found.acting.ids)


def _kind(spec: HostSpec, record: Record, *, acts: bool) -> dict[str, Any]:
    """Return what the other hosts have to know of this one."""
    return {
        "ingredients": drift.ingredients(spec, record),
        "acts": acts,
        "wheel": record.build.wheel if drift.has_wheel(spec, record) else None,
        "run_as": as_owner(spec, record),
        "build": spec.paths.build,
    }


def _have(spec: HostSpec, record: Record) -> Commands:
    """Take the wheel from the cache, from the host that has or builds it, or build it here."""
    building, mine = spec.pytorch.building, drift.ingredients(spec, record)
    assert building is not None  # noqa: S101 - see drift/pytorch_build.py
    if cached(drift.fingerprint(spec, record)):
        yield FunctionCommand(_placed, (spec, record, None), {})
        return
    said = together().hear(_KINDS, building.members, _PATIENCE_S)
    same = [
        name
        for name in building.members
        if name in said
        and said[name]["ingredients"] == mine
        and (said[name]["acts"] or said[name]["wheel"])
    ]
    builder = building.builder or same[0]
    if builder == host.name:
        yield from _build_here(spec, record)
    elif builder in said and said[builder]["ingredients"] != mine:
        names = ", ".join(drift.changed(said[builder]["ingredients"], mine))
        yield refuse(
            STAGE,
            f"{spec.host}: pytorch_builder {builder} is of another kind ({names} differ): its wheel"
            " is not for this host: remove pytorch_builder, and each kind builds its own",
        )
    elif builder not in said:
        yield refuse(
            STAGE,
            f"{spec.host}: torch is built on {builder}, which this run leaves out or has given up:"
            f" run it for {builder} too, or set pytorch_builder = {spec.host!r}",
        )
    else:
        host.log(f"torch is built on {builder}: waiting for its wheel")
        yield FunctionCommand(_placed, (spec, record, (builder, said[builder])), {})


def _build_here(spec: HostSpec, record: Record) -> Commands:
    if record.build.running is None:
        yield from _start(spec, record)
    yield FunctionCommand(_followed, (spec, record), {})


def _placed(
    state: State,
    host: Host,
    spec: HostSpec,
    record: Record,
    origin: tuple[str, dict[str, Any]] | None,
) -> bool:
    """Bring the wheel from the cache to this host, and before that there where it is not yet.

    + origin: the host that has it or builds it, and what it said
    """
    name, fingerprint = f"{host.name}: the wheel of torch", drift.fingerprint(spec, record)
    run_as = as_owner(spec, record)
    try:
        wheel = cached(fingerprint)
        if wheel is None and origin is not None:
            wheel = _from(state, *origin)
        if wheel is None:
            return failed(host, STAGE, f"{name} is not in the cache any more: run again")
        host.log(f"bring {wheel.manifest.file} from the cache ({wheel.manifest.size} bytes) ...")
        wheels, sha256 = f"{spec.paths.build}/wheels", wheel.manifest.sha256
        send(state, host, run_as, wheels, wheel.path, sha256, host.log)
    except NotBuiltError as error:
        return given_up(host, STAGE, spec, f"{name} cannot be had: {error}")
    except (TransferError, OSError) as error:
        return failed(host, STAGE, f"{name} did not come over: {error}; the next run goes on")
    file = File(path=f"{spec.paths.build}/wheel.json", content=wheel.text.encode())
    return written(state, host, STAGE, file, run_as)


def _from(state: State, builder: str, said: dict[str, Any]) -> Cached:
    """Return the wheel of another host, once that has built it. Raises TransferError."""
    manifest = said["wheel"]
    if manifest is None:
        told = together().hear(_WHEELS, [builder], deadlines.INSTALL)
        if told.get(builder) is None:
            raise NotBuiltError(f"{builder} has not built it")
        manifest = told[builder]
    source = state.inventory.get_host(builder)
    return fetch(state, source, said["run_as"], said["build"], manifest)


def _start(spec: HostSpec, record: Record) -> Commands:
    paths = spec.paths
    there = record.layout.entry(paths.build_bundle)
    content = build_bundle()
    if isinstance(there, Unknown) or there.sha256 != hashlib.sha256(content).hexdigest():
        yield write(STAGE, File(path=paths.build_bundle, content=content), as_root(spec))
    made = plan(spec, record)
    if not executing() and state.print_noop_info:  # as with `--dry -v`
        for line in shown(Plan.made(made), Place(Path(paths.build))):
            host.log(line)
    text = json.dumps(made, indent=1, sort_keys=True) + "\n"
    file = File(path=f"{paths.build}/plan.json", content=text.encode())
    yield write(STAGE, file, as_owner(spec, record))
    owner = made_for(spec, record)
    words = (
        drift.UNIT,
        owner,
        paths.build_bundle,
        paths.build,
        str(drift.memory_mib(spec, record)),
    )
    yield step(
        STAGE,
        f"start the build of torch {spec.pytorch.full_version}",
        program("build/start.sh", *words),
        run_as=as_root(spec),
        seconds=deadlines.SERVICE,
    )


def plan(spec: HostSpec, record: Record) -> dict[str, Any]:
    """Return what the program on the host is to build; see `on_host.build.plan.Plan`."""
    building, torch, paths = spec.pytorch.building, spec.pytorch, spec.paths
    assert building is not None  # noqa: S101 - see drift/pytorch_build.py
    return {
        "fingerprint": drift.fingerprint(spec, record),
        "ingredients": drift.ingredients(spec, record),
        "source": building.origin,
        "version": torch.full_version,
        "settings": building.settings,
        "declared": [name for name, _ in building.flags],
        "archs": list(building.archs),
        "cuda": f"/usr/local/cuda-{spec.cuda.release}" if building.cuda else None,
        "nccl": building.nccl_url,
        "cudnn": building.cudnn,
        "compiler": _compilers(spec.cuda.host_compiler),
        "python": paths.python,
        "uv": paths.uv,
        "cache": paths.cache,
        "sources": sources(spec),
        "tools": list(catalogue().build_tools),
        "memory_mib": drift.memory_mib(spec, record),
        "rehearsal": spec.rehearsal,
    }


def _compilers(declared: str | None) -> list[str] | None:
    if declared is None:
        return None
    name, _, major = declared.partition("-")
    return [f"{name}-{major}", f"{'g++' if name == 'gcc' else 'clang++'}-{major}"]


def _followed(state: State, host: Host, spec: HostSpec, record: Record) -> bool:
    """Show the build until it ends; fail the host with the first error of its log."""
    paths, name = spec.paths, f"{host.name}: the build of torch"
    watch = quoted("/usr/bin/python3", "-I", paths.build_bundle, "watch", paths.build)
    try:
        run_as, wanted = as_owner(spec, record), drift.fingerprint(spec, record)
        last = follow(state, host, watch, run_as, wanted)
    except (LostError, OSError) as error:
        goes_on = "it goes on there, and the next run follows it"
        return failed(host, STAGE, f"{name} cannot be followed ({error}); {goes_on}")
    if last.status == "done":
        return _told_of(host, spec)
    together().say(_WHEELS, host.name, None)
    return given_up(host, STAGE, spec, f"{name} {_why(last, f'{paths.build}/log.txt')}")


def _told_of(host: Host, spec: HostSpec) -> bool:
    """Tell the hosts that wait for it which wheel there is."""
    forget()
    record = look(spec)
    if record is None or not isinstance(record.build.wheel, Manifest):
        return failed(host, STAGE, f"{host.name}: the build ended, and its wheel cannot be read")
    together().say(_WHEELS, host.name, record.build.wheel)
    return True


def _why(last: BuildState, log: str) -> str:
    if last.error is None:
        ended = "was stopped" if last.status == "stopped" else "was killed"
        return f"{ended} in {last.told()}: run again, and it goes on from there"
    said, quoted = last.error.sentence, last.error.quoted
    if explained := explain_lines(last.error.lines or [said]):
        # The explanation shows the line itself.
        said = said.removesuffix(f": {quoted}") if quoted in explained else said
        said += f": {explained.rstrip('.')}"
    return f"failed in {last.phase}: {said}; all of it is in {log} there"
