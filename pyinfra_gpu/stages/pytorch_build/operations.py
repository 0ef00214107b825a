"""The wheel of a torch that is built from source: once, detached, proven, on the host."""

from __future__ import annotations

from collections.abc import Sequence

from pyinfra import host, state
from pyinfra.api.command import FunctionCommand
from pyinfra.api.host import Host
from pyinfra.api.state import State

from pyinfra_gpu.diagnosis.command import explain_lines
from pyinfra_gpu.engine import deadlines
from pyinfra_gpu.engine.ask import ask
from pyinfra_gpu.engine.converge import Commands, looking, note, refused, verify
from pyinfra_gpu.engine.declared import declared
from pyinfra_gpu.engine.look import forget, last_of, look
from pyinfra_gpu.engine.meeting import executing
from pyinfra_gpu.engine.privilege import as_owner, as_root, made_for
from pyinfra_gpu.engine.steps import failed, reason, step
from pyinfra_gpu.engine.torch_install import given_up, sources
from pyinfra_gpu.engine.wheels import cached
from pyinfra_gpu.engine.write import File, write
from pyinfra_gpu.facts.record import Record
from pyinfra_gpu.on_host import program, source
from pyinfra_gpu.on_host.build import FAILED, PRINTED, SAYS, Plan
from pyinfra_gpu.spec import HostSpec
from pyinfra_gpu.stacks import catalogue
from pyinfra_gpu.stages.cuda.findings import home
from pyinfra_gpu.stages.finding import Id
from pyinfra_gpu.stages.pytorch_build import findings

STAGE = findings.STAGE


@looking(STAGE, claims=(Id.PYTORCH_BUILD_MISSING,))
def built(spec: HostSpec, record: Record) -> Commands:
    """Ensure that the wheel of the declared build is there, proven, where it is needed.

    One host of each kind builds it; the others get it with the next operation, at which no host is
    before all are behind this one. The build runs as a unit of systemd's, as the owner, with a
    limit of memory: a connection that breaks, a controller that is killed or a second operator
    change nothing of it, and the next run follows it where it is. The same fingerprint is never
    built twice.
    """
    found = note(findings, spec, record, (Id.PYTORCH_BUILD_MISSING,))
    if refusal := refused(findings, spec, record, found):
        yield refusal
    elif not found.acting:
        host.noop(findings.summary(spec, record) or "nothing is declared for it here")
    elif executing() and (elsewhere := _elsewhere(spec, findings.fingerprint(spec, record))):
        host.log(f"torch is not built here: its wheel comes from {elsewhere}")
    else:
        paths, name = spec.paths, f"have torch {spec.pytorch.full_version} built in the background"
        own = File(path=paths.build_program, content=source("build.py"))
        yield write(STAGE, own, as_root(spec))
        planned = File(path=f"{paths.build}/plan.json", content=plan(spec, record).text.encode())
        yield write(STAGE, planned, as_owner(spec, record))
        where = (paths.build_program, paths.build, str(findings.memory_mib(spec, record)))
        start = program("pytorch/build.sh", findings.UNIT, made_for(spec, record), *where)
        yield step(STAGE, name, start, run_as=as_root(spec), seconds=deadlines.SERVICE)
        yield FunctionCommand(_followed, (spec, record), {})
        yield verify(findings, spec, *found.acting.ids)


def _elsewhere(spec: HostSpec, mine: str) -> str:
    """Return from where this host gets the wheel; empty where it has to build it.

    Its builder is as declared, else who of the kind has the wheel, or the inventory's first.

    + mine: the build's fingerprint
    """
    if cached(mine):
        return "the controller's cache"
    if (builder := findings.building(spec).builder) is None:
        has = dict[str, bool]()
        for each in (each for each in state.inventory if each not in state.failed_hosts):
            its, there = declared(each), last_of(each)
            if there and findings.may_give(its, there, mine):
                has[each.name] = findings.has_wheel(its, there)
        builder = min(has, key=lambda name: not has[name])
    return builder if builder != host.name else ""


def plan(spec: HostSpec, record: Record) -> Plan:
    """Return what the program on the host is to build."""
    build, paths = findings.building(spec), spec.paths
    name, _, major = (spec.cuda.host_compiler or "").partition("-")
    second = "g++" if name == "gcc" else "clang++"
    uv = [paths.uv, "--no-config", "--cache-dir", paths.cache]
    return Plan(
        fingerprint=findings.fingerprint(spec, record),
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
        memory_mib=findings.memory_mib(spec, record),
        rehearsal=spec.rehearsal,
    )


def _followed(state: State, host: Host, spec: HostSpec, record: Record) -> bool:
    """Show the build until it ends; fail the host with the first error of what it printed."""
    name, run_as = f"{host.name}: the build of torch", as_owner(spec, record)
    manager = "" if made_for(spec, record) else "--user"
    words = program("pytorch/follow.sh", findings.UNIT, manager)
    answer = ask(state, host, words, run_as, seconds=deadlines.BUILD, show=True)
    if not answer.ok:
        goes_on = "it goes on there, and the next run follows it"
        return failed(host, STAGE, f"{name} cannot be followed ({reason(answer.lines)}); {goes_on}")
    forget()
    after = look(spec)
    if after is not None and findings.has_wheel(spec, after):
        return True
    why = no_wheel(answer.stdout)
    return given_up(host, STAGE, spec, f"{name} {why}; {findings.log(spec)} there has all of it")


def no_wheel(lines: Sequence[str]) -> str:
    """Return why a build left no wheel, with the first error: a clause.

    + lines: what it said
    """
    said = [line.removeprefix(SAYS) for line in lines if line.startswith(SAYS)]
    printed = [line.removeprefix(PRINTED) for line in said if line.startswith(PRINTED)]
    ended = [line for line in said if line.startswith(FAILED)][-1:]
    if ended:
        explained = explain_lines(printed or ended)
        return ": ".join([*ended, *([explained.rstrip(".")] if explained else printed[:1])])
    phases = [f" in {line}" for line in said if line.isalpha()]
    return f"was killed{''.join(phases[-1:])}: run again, and it goes on"
