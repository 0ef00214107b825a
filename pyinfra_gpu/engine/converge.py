"""What every operation of ours has in common: look, judge, note, act, judge again.

A host on which the whole run has nothing to do is judged before its first stage, noted in the
journal as its operations would have noted it, and gets none.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator
from functools import wraps
from typing import Any, TypeVar, cast

from pyinfra import host, logger, state
from pyinfra.api import deploy, operation
from pyinfra.api.command import FunctionCommand, PyinfraCommand
from pyinfra.api.exceptions import DeployError
from pyinfra.api.host import Host
from pyinfra.api.operation import OperationMeta
from pyinfra.api.state import State

from pyinfra_gpu.engine import journal, lease
from pyinfra_gpu.engine.look import forget, lacks_python, look, unanswered
from pyinfra_gpu.engine.meeting import executing
from pyinfra_gpu.engine.privilege import as_root
from pyinfra_gpu.engine.steps import broken, failed
from pyinfra_gpu.engine.transaction import first_package
from pyinfra_gpu.facts.record import Record
from pyinfra_gpu.spec import HostSpec
from pyinfra_gpu.stages.finding import Findings, Id, Stage
from pyinfra_gpu.stages.host import Concern, history_of, judge, judged, unread
from pyinfra_gpu.text import one_line

_NO_SPEC = "`spec` has to be what pyinfra_gpu.engine.declared.declared(host) returns"
_SEE_ABOVE = "a command failed; what it printed stands above, at this host's name"
_KEY = "pyinfra_gpu_nothing_to_do"  # in connector_data, pyinfra's own of this host and run
Commands = Generator[Any, None, None]
"""What an operation yields: pyinfra commands, or strings that become shell commands."""

Operation = Callable[..., OperationMeta]
"""An operation of ours: adds itself to the run. Its `repairs` are the findings that it claims."""
Body = Callable[["HostSpec", Record], Commands]
"""Given what is declared and what is there, yields what is to be done."""
RepairBody = Callable[["HostSpec", Record, Findings], Commands]
"""The same, also given the findings it claims and has to act on; there is one at least."""
Decorator = Callable[[RepairBody], Operation]
F = TypeVar("F", bound=Callable[..., Any])


class Refusal(FunctionCommand):
    """A command that fails its host, and does nothing there."""


def converging(concern: Concern, *, repairs: tuple[Id, ...], hint: str = "") -> Decorator:
    """Turn a generator of commands into one of our operations.

    + concern: the module `findings` that judges what this operation acts on
    + repairs: the findings it claims
    + hint: what to look at where it did its work and the finding is still there, a clause

    A host that cannot be looked at, or does not tell what has to be known, is refused, and so is
    one with a finding at which the run stops. What is found goes into the journal. With nothing to
    act on the body is not asked; otherwise, after it, the host is judged again, and fails if a
    finding is still there.
    """

    def decorator(body: RepairBody) -> Operation:
        def converge(spec: HostSpec, record: Record) -> Commands:
            found = note(concern, spec, record, repairs)
            if refusal := refused(concern, spec, record, found):
                yield refusal
            elif found.acting:
                yield from body(spec, record, found.acting)
                yield verify(concern, spec, *found.acting.ids, hint=hint)
            else:
                host.noop(concern.summary(spec, record) or "nothing is declared for it here")

        return looking(concern.STAGE, claims=repairs)(_named(converge, body))

    return decorator


def looking(stage: Stage, *, claims: tuple[Id, ...]) -> Callable[[Body], Operation]:
    """Turn a generator of commands into an operation that is handed the host's record.

    + claims: the findings that it answers for

    It is a plain pyinfra operation that takes the host's specification as `spec`, run as root
    where data allows it, with some additions: a host that cannot be looked at is refused; the host
    is this run's alone from the first command on; the record is forgotten behind every command,
    which changes what the record says; and the time it took goes into the journal.
    """

    def decorator(body: Body) -> Operation:
        def wrapper(spec: HostSpec) -> Commands:
            yield from _guarded(stage, spec, body)

        made: Any = operation()(_named(wrapper, body))

        def call(*, spec: HostSpec, name: str, **arguments: Any) -> OperationMeta:
            if not isinstance(spec, HostSpec):
                raise DeployError(f"{host.name}: {_NO_SPEC}, and this is {type(spec).__name__}")
            # One line for all hosts: pyinfra orders operations by the lines of their callers.
            arguments = {**as_root(spec), **arguments}
            return cast(OperationMeta, made(spec=spec, name=name, **arguments))

        call.repairs = frozenset(claims)  # type: ignore[attr-defined]
        return _named(call, body)

    return decorator


def _guarded(stage: Stage, spec: HostSpec, body: Body) -> Commands:
    planning, started = not executing(), time.monotonic()
    if planning and state.inventory.get_host(host.name) in state.failed_hosts:
        return  # a plan has refused it already; what follows would only repeat that
    entry = journal.entry(stage)
    try:
        for command in _commands(stage, spec, body):
            if not isinstance(command, Refusal):
                lease.ensure(state, host, spec)
            yield _contained(stage, command)
            forget()
    except GeneratorExit:
        # pyinfra drops the generator where a command failed. Ours have said why; a stock command
        # has printed its output above.
        if not (planning or entry.problem):
            journal.problem(stage, f"{host.name}: {stage}: {_SEE_ABOVE}")
        raise
    except lease.LeaseError as error:
        yield refuse(stage, f"{host.name}: {error}")
    except Exception as error:  # one host's failure is one host's failure
        yield refuse(stage, broken(state, host.name, stage, error))
    finally:
        entry.seconds += time.monotonic() - started


def _named(function: F, after: Callable[..., object]) -> F:
    """Give it another's name and words, but not its signature, which pyinfra reads."""
    for attribute in ("__module__", "__name__", "__qualname__", "__doc__"):
        setattr(function, attribute, getattr(after, attribute))
    return function


def _commands(stage: Stage, spec: HostSpec, body: Body) -> Commands:
    record = look(spec)
    if record is None and lacks_python() and spec.privilege != "none":
        yield first_package(stage, spec)
        record = look(spec)  # in a plan it is as before
    if record is None:
        yield unreadable(stage)
        return
    if book := journal.current():
        book.saw(host.name, record)
    yield from body(spec, record)


def _contained(stage: Stage, command: object) -> object:
    """Return a command that fails its host, with a sentence, where a function of ours raises."""
    if not isinstance(command, FunctionCommand):
        return command

    def execute(state: State, host: Host) -> bool:
        try:
            return command.execute(state, host, {}) is not False
        except Exception as error:
            return failed(host, stage, broken(state, host.name, stage, error))

    return FunctionCommand(execute, (), {})


def note(concern: Concern, spec: HostSpec, record: Record, ids: tuple[Id, ...]) -> Findings:
    """Judge a concern, put what is found of these ids into the journal, and return it."""
    book = journal.current()
    first = book.looks.get(host.name, record) if book else record  # before this run did anything
    everything = judged(concern, spec, record, history_of(first))
    if not everything:
        journal.summary(concern.STAGE, concern.summary(spec, record))
    found = everything.of(*ids)
    note_findings(concern.STAGE, spec, found)
    return found


def note_findings(stage: Stage, spec: HostSpec, found: Findings) -> None:
    """Put findings into the journal, and what of them needs a person's attention."""
    for each in found:
        journal.found(stage, each)
        if not (each.acts or each.stops or each.deferred):
            journal.warn(stage, each.sentence(spec.host))


def refused(
    concern: Concern, spec: HostSpec, record: Record, found: Findings
) -> PyinfraCommand | None:
    """Return the refusal of a host that cannot be judged, or at which the run stops, else None."""
    unknown = unread(concern, spec, record)
    if unknown:
        journal.entry(concern.STAGE).unreadable = True
    sentences = [f"{spec.host}: {text}" for text in unknown]
    sentences += [each.sentence(spec.host) for each in found.stopping]
    return refuse(concern.STAGE, "; ".join(sentences)) if sentences else None


def refuse(stage: Stage, sentence: str) -> PyinfraCommand:
    """Return a command that fails this host, and only this host, with one sentence.

    Raising in an operation would abort the run on every other host.
    """
    sentence = one_line(sentence)
    if not executing():
        # A dry run stops at the first command without running it; the reason must still be seen.
        journal.problem(stage, sentence)
        logger.warning(f"{host.print_prefix}{sentence}")
        # pyinfra exits with 0 after any dry run, unless a host is among the failed ones.
        state.failed_hosts.add(state.inventory.get_host(host.name))
    return Refusal(lambda state, host: failed(host, stage, sentence), (), {})


def unreadable(stage: Stage) -> PyinfraCommand:
    """Return the refusal for a host whose record could not be read at all."""
    journal.summary(stage, "could not be looked at")
    journal.entry(stage).unreadable = True
    return refuse(stage, f"{host.name}: {unanswered()}")


def fresh(spec: HostSpec, record: Record) -> Record:
    """Return the record of now: what this very run did may matter. A plan has done nothing."""
    if not executing():
        return record
    forget()
    return look(spec) or record


def verify(concern: Concern, spec: HostSpec, *ids: Id, hint: str = "") -> PyinfraCommand:
    """Return a command that judges again and fails the host where one of `ids` is still found.

    + hint: what to look at then, a clause
    """

    def again(state: State, host: Host) -> bool:
        forget()
        record = look(spec)
        if record is None:
            return failed(host, concern.STAGE, f"{host.name}: after the change it {unanswered()}")
        found = judged(concern, spec, record, ()).of(*ids)
        left = [x for x in found if x.effect in ("repair", "restart") or x.stops]
        reasons = [*unread(concern, spec, record)]
        reasons += [f"{each.found}, expected {each.expected}" for each in left]
        why = "; ".join([*reasons, hint] if hint else reasons)
        sentence = f"{host.name}: still not as declared: {why}"
        return not reasons or failed(host, concern.STAGE, sentence)

    return FunctionCommand(again, (), {})


def stage(name: str) -> Callable[[Callable[[HostSpec], None]], Callable[[HostSpec], None]]:
    """Make a function that composes operations one stage of a deploy.

    + name: what stands before its operations' names

    It is pyinfra's `deploy`, but for hosts on which the whole run has nothing to do: these are
    judged as `check` judges them, when their first stage is called, and get no operations.
    """

    def decorate(compose: Callable[[HostSpec], None]) -> Callable[[HostSpec], None]:
        composed: Callable[[HostSpec], None] = deploy(name)(compose)  # type: ignore[assignment]

        @wraps(compose)
        def called(wanted: HostSpec) -> None:
            if not nothing_to_do(wanted):
                composed(wanted)

        return called

    return decorate


def nothing_to_do(spec: HostSpec) -> bool:
    """Tell whether this run can leave the current host without any operation.

    + spec: the host's resolved specification

    False wherever an operation would act, stop, or could not tell; where others count on this
    host, since it builds torch or takes part in a step across hosts; where somebody asked to see
    each operation (`-v`); and where no report is attached. The operations use the same look.
    """
    book, known = journal.current(), host.connector_data
    counted_on = spec.smoke.across is not None or spec.pytorch.building is not None
    if book is None or state.print_noop_info or counted_on:
        return False
    if _KEY not in known:
        try:
            known[_KEY] = _judged(spec, book)
        except Exception:  # the operation that comes to it says so, of this host alone
            known[_KEY] = False
    return bool(known[_KEY])


def _judged(spec: HostSpec, book: journal.Journal) -> bool:
    """Look at the host and judge it; note what is found if no operation would do anything."""
    started = time.monotonic()
    if (record := look(spec)) is None:
        return False
    stages = judge(spec, record)
    if any(each.stops or each.findings.acting for each in stages):
        return False
    book.saw(host.name, record)
    book.entry(host.name, Stage.PREFLIGHT).seconds += time.monotonic() - started
    for each in stages:
        for summary in each.summaries:
            journal.summary(each.stage, summary)
        note_findings(each.stage, spec, each.findings)
    book.as_declared.add(host.name)
    return True
