"""The wheel of a torch that is built from source: once, detached, proven, on the host."""

from __future__ import annotations

from collections.abc import Sequence

from pyinfra import host, state
from pyinfra.api.command import FunctionCommand
from pyinfra.api.host import Host
from pyinfra.api.state import State

from pyinfra_gpu.diagnosis.command import explain_lines
from pyinfra_gpu.drift import pytorch_build as drift
from pyinfra_gpu.drift.cuda import home
from pyinfra_gpu.engine import deadlines
from pyinfra_gpu.engine.ask import ask
from pyinfra_gpu.engine.converge import Commands, looking, note, refused, verify
from pyinfra_gpu.engine.look import forget, look
from pyinfra_gpu.engine.meeting import executing, meeting
from pyinfra_gpu.engine.privilege import as_owner, as_root, made_for
from pyinfra_gpu.engine.steps import failed, reason, step
from pyinfra_gpu.engine.torch_install import given_up
from pyinfra_gpu.engine.uv import sources
from pyinfra_gpu.engine.wheels import TransferError, cached, fetch, send
from pyinfra_gpu.engine.write import File, write, written
from pyinfra_gpu.facts.pytorch_build import BuildState, Manifest
from pyinfra_gpu.facts.record import Record
from pyinfra_gpu.on_host import build_bundle, program
from pyinfra_gpu.on_host.build.steps import FAILED, PRINTED, Plan
from pyinfra_gpu.spec import HostSpec
from pyinfra_gpu.stacks import catalogue

STAGE = drift.STAGE
_KINDS, _LOOKS = "pytorch kinds", "pytorch looks"
"""What hosts tell one another: first which build they need or have, and whether they have it; then
what is declared for them and what is there, when nothing more is built.
"""

_PATIENCE_S = 45.0
"""For a host that is late to the operation: longer than it takes to notice a dead network."""

_SHOWN = "torch: "
"""Begins each line that `follow.sh` prints."""


@looking(STAGE, claims=drift.BUILD)
def built(spec: HostSpec, record: Record) -> Commands:
    """Ensure that the wheel of the declared build lies on the host, proven, where it is needed.

    One host of each kind builds, and its wheel goes to the others by way of the controller's cache.
    The build runs as a unit of systemd's, as the owner, with a limit of memory: a connection that
    breaks, a controller that is killed or a second operator change nothing of it, and the next run
    follows it where it is. The same fingerprint is never built twice.
    """
    found = note(drift, spec, record, drift.BUILD)
    if refusal := refused(drift, spec, record, found):
        yield refusal
        return
    if spec.pytorch.building is not None and executing():
        has = drift.has_wheel(spec, record)
        kind = drift.fingerprint(spec, record) if found.acting or has else None
        meeting().say(_KINDS, host.name, (kind, has))
        if not found.acting:
            meeting().say(_LOOKS, host.name, (spec, record))
    if not found.acting:
        host.noop(drift.summary(spec, record) or "nothing is declared for it here")
        return
    yield from _have(spec, record) if executing() else _start(spec, record)
    yield verify(drift, spec, *found.acting.ids)


def _builder(spec: HostSpec, mine: str) -> str:
    """Return who builds: as declared, else of its kind who has the wheel, or the inventory's first.

    + mine: the build's fingerprint
    """
    build = drift.building(spec)
    if build.builder is not None:
        return build.builder
    kinds = meeting().hear(_KINDS, build.members, _PATIENCE_S)
    same = [name for name in build.members if name in kinds and kinds[name][0] == mine]
    return min(same, key=lambda name: not kinds[name][1])


def _have(spec: HostSpec, record: Record) -> Commands:
    """Take the wheel from the cache, from the host that has or builds it, or build it here."""
    mine = drift.fingerprint(spec, record)
    builder = "" if cached(mine) else _builder(spec, mine)
    if builder == host.name:
        yield from _start(spec, record)
        yield FunctionCommand(_followed, (spec, record), {})
        return
    if builder:
        host.log(f"torch is built on {builder}: waiting for its wheel")
    yield FunctionCommand(_placed, (spec, record, builder), {})


def _placed(state: State, host: Host, spec: HostSpec, record: Record, builder: str) -> bool:
    """Bring the wheel to this host from the cache, and before that from its builder.

    + builder: "" where the cache has it
    """
    name, run_as = f"{host.name}: the wheel of torch", as_owner(spec, record)
    fingerprint, build = drift.fingerprint(spec, record), spec.paths.build
    try:
        if (found := cached(fingerprint)) is None:
            there = meeting().hear(_LOOKS, [builder], deadlines.BUILD).get(builder)
            wheel = there[1].build.wheel if there else None
            if there is None or not isinstance(wheel, Manifest) or wheel.fingerprint != fingerprint:
                why = f"{name} cannot be had: {builder} has none of this build: run this for it"
                return given_up(host, STAGE, spec, f"{why} too, or remove pytorch_builder")
            source = state.inventory.get_host(builder)
            found = fetch(state, source, as_owner(*there), there[0].paths.build, wheel)
        path, manifest = found
        host.log(f"bring {path.name} from the cache ({manifest.size} bytes) ...")
        send(state, host, run_as, f"{build}/wheels", path, manifest.sha256)
    except (TransferError, OSError) as error:
        return failed(host, STAGE, f"{name} could not be transferred: {error}: run again")
    content = (manifest.model_dump_json(indent=1) + "\n").encode()
    return written(state, host, STAGE, File(path=f"{build}/wheel.json", content=content), run_as)


def _start(spec: HostSpec, record: Record) -> Commands:
    """Start the build, where it is not at work already."""
    paths, text = spec.paths, plan(spec, record).text
    # As with `--dry -v`; first, since a plan ends at the first command.
    if not executing() and state.print_noop_info:
        for line in text.splitlines():
            host.log(line)
    yield write(STAGE, File(path=paths.build_bundle, content=build_bundle()), as_root(spec))
    file = File(path=f"{paths.build}/plan.json", content=text.encode())
    yield write(STAGE, file, as_owner(spec, record))
    memory = str(drift.memory_mib(spec, record))
    where = (paths.build_bundle, paths.build, memory)
    yield step(
        STAGE,
        f"have torch {spec.pytorch.full_version} built in the background",
        program("build/start.sh", drift.UNIT, made_for(spec, record), *where),
        run_as=as_root(spec),
        seconds=deadlines.SERVICE,
    )


def plan(spec: HostSpec, record: Record) -> Plan:
    """Return what the program on the host is to build."""
    build, paths = drift.building(spec), spec.paths
    name, _, major = (spec.cuda.host_compiler or "").partition("-")
    second = "g++" if name == "gcc" else "clang++"
    uv = [paths.uv, "--no-config", "--cache-dir", paths.cache]
    return Plan(
        fingerprint=drift.fingerprint(spec, record),
        ingredients=drift.ingredients(spec, record),
        git=str(build.git_url),
        commit=str(build.commit),
        version=spec.pytorch.full_version,
        settings=build.settings,
        archs=build.archs,
        cuda=home(spec) if build.cuda else None,
        compilers=[f"{name}-{major}", f"{second}-{major}"] if name else [],
        venv=[*uv, "venv", "--quiet", "--clear", "--no-managed-python", "--python", paths.python],
        install=[*uv, "pip", "install", *sources(spec)],
        tools=catalogue().build_tools,
        memory_mib=drift.memory_mib(spec, record),
        rehearsal=spec.rehearsal,
    )


def _followed(state: State, host: Host, spec: HostSpec, record: Record) -> bool:
    """Show the build until it ends; fail the host with the first error of what it printed."""
    name = f"{host.name}: the build of torch"
    words = program("build/follow.sh", drift.UNIT, made_for(spec, record))
    answer = ask(state, host, words, as_root(spec), seconds=deadlines.BUILD, show=True)
    if not answer.ok:
        goes_on = "it goes on there, and the next run follows it"
        return failed(host, STAGE, f"{name} cannot be followed ({reason(answer.lines)}); {goes_on}")
    forget()
    after = look(spec)
    if after is not None:
        meeting().say(_LOOKS, host.name, (spec, after))
        if drift.has_wheel(spec, after):
            return True
    why = no_wheel(answer.stdout, after)
    return given_up(host, STAGE, spec, f"{name} {why}; {drift.log(spec)} there has all of it")


def no_wheel(lines: Sequence[str], record: Record | None) -> str:
    """Return why a build left no wheel, with the first error: a clause.

    + lines: what `follow.sh` printed; record: of the host afterwards
    """
    said = [line.removeprefix(_SHOWN) for line in lines if line.startswith(_SHOWN)]
    printed = [line.removeprefix(PRINTED) for line in said if line.startswith(PRINTED)]
    ended = [line for line in said if line.startswith(FAILED)][-1:]
    if ended:
        explained = explain_lines(printed or ended)
        return ": ".join([*ended, *([explained.rstrip(".")] if explained else printed[:1])])
    state = record.build.state if record is not None else None
    phase = f" in {state.phase}" if isinstance(state, BuildState) else ""
    return f"was killed{phase}, or its journal cannot be read: run again, and it goes on"
