"""What every operation of ours has in common: look, act with stock parts, forget, verify."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from typing import TYPE_CHECKING, Any, Protocol, cast

from pyinfra import host, logger, state
from pyinfra.api import operation
from pyinfra.api.command import FunctionCommand, PyinfraCommand
from pyinfra.api.state import StateStage

from pyinfra_gpu.engine import journal
from pyinfra_gpu.engine.look import forget, look
from pyinfra_gpu.engine.steps import failed
from pyinfra_gpu.facts.fields import Unknown
from pyinfra_gpu.facts.record import Record

if TYPE_CHECKING:
    from pyinfra.api.host import Host
    from pyinfra.api.operation import OperationMeta
    from pyinfra.api.state import State

    from pyinfra_gpu.drift.finding import Deviation
    from pyinfra_gpu.spec import HostSpec

_SEE_ABOVE = "a command failed; what it printed stands above, at this host's name"
Commands = Generator[Any, None, None]
"""What an operation yields: pyinfra commands, or strings that become shell commands."""

Body = Callable[["HostSpec", Record], Commands]
"""An operation's body: given what is declared and what is there, yields what is to be done."""


class ConvergingOperation(Protocol):
    """An operation that brings one stage of a host to what its specification says."""

    def __call__(self, *, spec: HostSpec, name: str, **arguments: Any) -> OperationMeta:
        """Add it to the run; `arguments` are pyinfra's global ones (`_sudo` ...)."""


def converging(stage: str) -> Callable[[Body], ConvergingOperation]:
    """Turn a generator of commands into one of our operations, belonging to `stage`.

    It is a plain pyinfra operation that takes the host's specification as `spec`, with some
    additions: the body is also handed the host's record, and the host is refused where it cannot
    be looked at; the record is forgotten around every command, since a command changes what the
    record says; and the time it took goes into the journal.
    """

    def decorator(body: Body) -> ConvergingOperation:
        def wrapper(spec: HostSpec) -> Commands:
            if _was_refused():
                return
            watch = journal.Stopwatch(stage)
            try:
                record = look(spec)
                if record is not None:
                    journal.saw(record)
                commands = iter([unreadable(stage)]) if record is None else body(spec, record)
                for command in commands:
                    yield command
                    forget()
            except GeneratorExit:
                # pyinfra drops the generator where a command failed. Ours have said why; a stock
                # command has printed its output above.
                if state.current_stage == StateStage.Execute:
                    journal.ensure_problem(stage, f"{host.name}: {stage}: {_SEE_ABOVE}")
                raise
            finally:
                watch.stop()

        # pyinfra reads the signature that it offers, so not functools.wraps: the body has another.
        for attribute in ("__module__", "__name__", "__qualname__", "__doc__"):
            setattr(wrapper, attribute, getattr(body, attribute))
        return cast(ConvergingOperation, operation()(wrapper))

    return decorator


def _was_refused() -> bool:
    """Tell whether a plan has refused this host already; what follows would only repeat it."""
    planning = state.current_stage != StateStage.Execute
    return planning and state.inventory.get_host(host.name) in state.failed_hosts


def refuse(stage: str, sentence: str) -> PyinfraCommand:
    """Return a command that fails this host, and only this host, with one sentence.

    Raising in an operation would abort the run on every other host.
    """
    if state.current_stage != StateStage.Execute:
        # A dry run stops at the first command without running it; the reason must still be seen.
        journal.problem(stage, sentence)
        logger.warning(f"{host.print_prefix}{sentence}")
        # pyinfra exits with 0 after any dry run, unless a host is among the failed ones.
        state.failed_hosts.add(state.inventory.get_host(host.name))
    return FunctionCommand(_fail, (stage, sentence), {})


def _fail(state: State, host: Host, stage: str, sentence: str) -> bool:
    return failed(host, stage, sentence)


def unreadable(stage: str) -> PyinfraCommand:
    """Return the refusal for a host whose record could not be read at all."""
    journal.found(stage, "could not be looked at")
    journal.unreadable(stage)
    return refuse(
        stage,
        f"{host.name}: could not be looked at ({journal.ERROR_ABOVE}): check that you can log in"
        " and use sudo there; for a sudo password run pyinfra with --same-sudo-password, without"
        ' sudo declare `privilege = "none"`',
    )


def unknown(stage: str, spec: HostSpec, *values: object) -> PyinfraCommand | None:
    """Return a refusal if one of these fields could not be read, else None.

    Acting on a guess is how a tool breaks a host that was fine.
    """
    for value in values:
        if isinstance(value, Unknown):
            journal.unreadable(stage)
            return refuse(stage, f"{spec.host}: cannot tell what is there: {value.reason}")
    return None


def note(stage: str, spec: HostSpec, deviations: Sequence[Deviation], otherwise: str) -> None:
    """Put deviations into the journal: what was found, what will be done, what is left to people.

    + otherwise: what was found where there is none, in a few words
    """
    journal.found(stage, "; ".join(each.found for each in deviations) or otherwise)
    for each in deviations:
        journal.deviation(stage, each)
        if each.effect == "report":
            journal.warn(stage, each.sentence(spec.host))
        elif each.effect != "note":
            journal.changed(stage, each.action)


def verify(
    stage: str, spec: HostSpec, wrong: Callable[[HostSpec, Record], str | None]
) -> PyinfraCommand:
    """Return a command that looks again and fails the host when the state is not as declared.

    + wrong: given the spec and a fresh record, returns what is still wrong, or None
    """
    return FunctionCommand(_verify, (stage, spec, wrong), {})


def _verify(
    state: State,
    host: Host,
    stage: str,
    spec: HostSpec,
    wrong: Callable[[HostSpec, Record], str | None],
) -> bool:
    forget()
    record = look(spec)
    if record is None:
        return failed(host, stage, f"{host.name}: cannot be looked at after the change")
    complaint = wrong(spec, record)
    if complaint is None:
        return True
    return failed(host, stage, f"{host.name}: still not as declared: {complaint}")
