"""The proof across hosts: one step that the ranks of several hosts train together."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from pyinfra import host, state
from pyinfra.api.command import FunctionCommand

from pyinfra_gpu.diagnosis.explained import explained
from pyinfra_gpu.drift import smoke_across as drift
from pyinfra_gpu.drift.deferral import deferred_by
from pyinfra_gpu.drift.finding import Effect, Findings, Id
from pyinfra_gpu.drift.fingerprint import fingerprint
from pyinfra_gpu.engine import journal, reach
from pyinfra_gpu.engine.across_hosts import Trained, gone, read
from pyinfra_gpu.engine.ask import Answer, ask
from pyinfra_gpu.engine.converge import Commands, looking, note_findings, refuse, refused
from pyinfra_gpu.engine.look import forget, look, unanswered
from pyinfra_gpu.engine.privilege import as_owner, as_root
from pyinfra_gpu.engine.steps import LOCK_WAIT_S, failed, locked, quoted
from pyinfra_gpu.engine.together import Together, executing, together
from pyinfra_gpu.engine.transport import is_alive
from pyinfra_gpu.engine.write import File, write, written
from pyinfra_gpu.facts.verdict import AcrossVerdict
from pyinfra_gpu.host_names import FEW, brief
from pyinfra_gpu.on_host.smoke import files
from pyinfra_gpu.on_host.smoke.across import Part, Step
from pyinfra_gpu.on_host.smoke.across import stamp as across_stamp
from pyinfra_gpu.operations.smoke import EXIT_CODES, STAGE, bundle, own_stamp, stamp_file
from pyinfra_gpu.stacks.bundle import smoke_digest

if TYPE_CHECKING:
    from pyinfra.api.host import Host
    from pyinfra.api.state import State

    from pyinfra_gpu.facts.record import Record
    from pyinfra_gpu.spec import HostSpec

_WORDS = 200
_PATIENCE_S = 45.0
"""For a host that is late to the operation: longer than it takes to notice a dead network."""


@looking(STAGE, claims=(Id.SMOKE_UNPROVEN_ACROSS_HOSTS, Id.SMOKE_ACROSS_IMPOSSIBLE))
def proven(spec: HostSpec, record: Record) -> Commands:
    """Ensure that the hosts of this host's group have trained one step together as they are now.

    + spec: the host's resolved specification; without `smoke.across` there is nothing to do

    All hosts of the group have passed their own test before: a host that failed is not among
    those pyinfra still works on. Each host's stamp then names the fingerprints of all hosts, and
    each host compares its own; if one of them finds it changed, all take part again.

    **Example:**

    .. code:: python

        smoke_across.proven(name="Run the multi-node smoke test", spec=wanted)
    """
    across = drift.declared(spec)
    if across is None:
        return
    found = Findings(drift.judge(spec, record))
    if refusal := refused(drift, spec, record, found):
        note_findings(STAGE, spec, found)
        yield refusal
        return
    owed = 'smoke = "always"' if spec.smoke.run == "always" else drift.stale(spec, record)
    if executing():
        meeting = together()
        try:
            yield from _act(spec, record, owed, meeting)
        finally:
            meeting.leave(host.name)
    elif owed is None:
        _passed_earlier(record, drift.others(spec, across))
    else:
        note_findings(STAGE, spec, found)
        yield FunctionCommand(_tell_place, (spec, record, together()), {})


def _act(spec: HostSpec, record: Record, owed: str | None, meeting: Together) -> Commands:
    """Take part if any host of the group finds that the step is owed."""
    assert spec.smoke.across is not None  # noqa: S101 - for mypy
    hosts = list(spec.smoke.across.members)
    others = drift.others(spec, spec.smoke.across)
    now = fingerprint(spec, record, smoke_digest())
    mine = {"why": owed, "fingerprint": now, "mode": drift.mode(spec), "runs": deferred_by(record)}
    meeting.say("owed", host.name, mine)
    said = meeting.hear("owed", hosts, _PATIENCE_S)
    missing = [name for name in others if name not in said]
    why = owed or "; ".join(f"{name}: {each['why']}" for name, each in said.items() if each["why"])
    runs = ", ".join(f"{name} has {each['runs']}" for name, each in said.items() if each["runs"])
    modes = {name: each["mode"] for name, each in said.items()}
    if not why or (missing and owed is None):
        unheard = f"; nothing is known of {brief(missing)}" if missing else ""
        _passed_earlier(record, others, unheard)
    elif missing:
        yield from _alone(spec, missing, why)
    elif runs:  # a training run has the GPUs of one host, so no host of the group begins
        _put_off(spec, why, f"waits: {runs} on")
    elif len(set(modes.values())) > 1:
        each_as = ", ".join(f"{name} as {mode}" for name, mode in modes.items())
        yield refuse(STAGE, f"{spec.host}: one step cannot run {each_as}: group like hosts")
    else:  # in the group's order: the first one's address is met at
        yield from _made(spec, record, {name: said[name] for name in hosts}, why, meeting)


def _made(
    spec: HostSpec, record: Record, said: Mapping[str, Any], why: str, meeting: Together
) -> Commands:
    """Make the step with the other hosts.

    + said: what each host of the group said of itself, in the group's order
    """
    _note(spec, why, "note" if "always" in why else "repair")
    yield from bundle(spec, record)
    # As with the test of one host: what is not finished must not look proven.
    if drift.stamp(record) is not None:
        yield write(STAGE, stamp_file(spec, own_stamp(record)), as_root(spec))
    yield FunctionCommand(_tell_place, (spec, record, meeting), {})
    places = meeting.hear("place", said, _PATIENCE_S)
    if missing := [name for name in said if name not in places]:
        yield from _alone(spec, missing, why)
        return
    first = places[next(iter(said))]
    step = Step(
        mode=drift.mode(spec),
        hosts={name: places[name]["ranks"] for name in said},
        fingerprints={name: said[name]["fingerprint"] for name in said},
        run_id=meeting.run_id,
        deadline=first["deadline"],
        allreduce_mib=first["allreduce_mib"],
    )
    yield FunctionCommand(_train, (spec, record, Trained(meeting, step), places, why), {})


def _passed_earlier(record: Record, others: list[str], more: str = "") -> None:
    journal.summary(STAGE, f"with {brief(others)}: passed earlier{more}")
    journal.across(drift.stamp(record))
    host.noop("the multi-node step passed with these very configurations")


def _alone(spec: HostSpec, missing: list[str], why: str) -> Commands:
    """The step is owed, and cannot be made: that is a failure, unless data asked for this host."""
    if any(state.is_host_in_limit(state.inventory.get_host(name)) for name in missing):
        yield refuse(
            STAGE,
            f"{spec.host}: the multi-node step was not made: {brief(missing)} did not come"
            " to it (what failed there stands at its name; all hosts of the group must be in one"
            " run, without --serial and --no-wait)",
        )
    else:
        _put_off(spec, why, f"was not made: this run leaves {brief(missing)} out")


def _put_off(spec: HostSpec, why: str, until: str) -> None:
    """Say that the step is owed and is not made by this run."""
    _note(spec, why, "report")
    journal.warn(STAGE, f"{spec.host}: the multi-node step is owed ({why}) and {until}")
    host.noop("the multi-node step is not made by this run")


def _note(spec: HostSpec, why: str, effect: Effect) -> None:
    if (across := spec.smoke.across) is not None:
        journal.found(STAGE, drift.unproven(spec, across, why, effect))


def _tell_place(
    state: State, host: Host, spec: HostSpec, record: Record, meeting: Together
) -> bool:
    """Tell the other hosts where this one can be reached."""
    assert spec.smoke.across is not None  # noqa: S101 - for mypy
    answer = ask(state, host, "hostname -I", as_owner(spec, record), seconds=60)
    has = reach.addresses(" ".join(answer.stdout).split() if answer.ok else [])
    # IPv6 only where data names an address: most hosts have some that lead nowhere.
    declared = spec.smoke.across.address
    reached = [declared] if declared else [each for each in has if ":" not in each]
    if not reached:
        return failed(
            host,
            STAGE,
            f"{spec.host}: the multi-node step was not made: this host told of no IPv4 address"
            " that others could reach; declare smoke_across_address for it",
        )
    place = {
        "ranks": 1 if spec.smoke.mode == "rehearsal-1gpu" else drift.RANKS,
        # What must be the same on all hosts of the step: the first one's is taken.
        "reached": reached,
        "port": spec.smoke.across.port,
        "deadline": spec.smoke.deadline_s,
        "allreduce_mib": spec.smoke.allreduce_mib,
        # Those of all its interfaces: what a rank sends may leave by any of them.
        "addresses": [*has, *reached],
    }
    meeting.say("place", host.name, place)
    return True


def _train(
    state: State,
    host: Host,
    spec: HostSpec,
    record: Record,
    trained: Trained,
    places: Mapping[str, Any],
    why: str,
) -> bool:
    """Run this host's ranks beside the others'; keep and believe what is judged of all ranks."""
    hosts, run_as, step = list(trained.step.hosts), as_owner(spec, record), trained.step
    verdict_file = spec.paths.across_verdict
    waiting = locked(quoted(*_command(spec, step, places)), spec.paths.lock)
    patience = LOCK_WAIT_S + 2 * step.deadline
    allowed = [each for name in hosts for each in places[name]["addresses"]]
    limited, limited_as = reach.limited(spec, record, waiting, patience, allowed)

    def run() -> Part:
        others = [name for name in hosts if name != host.name]
        host.log(f"one step with {brief(others)} ({why}) ...")
        answer = ask(
            state,
            host,
            limited,
            limited_as,
            stream=len(hosts) <= FEW and host.name == hosts[0],
            _success_exit_codes=list(EXIT_CODES),
            seconds=patience,
        )
        part = ask(state, host, quoted("cat", f"{verdict_file}.part"), run_as, seconds=30)
        text = "\n".join(part.stdout) if part.ok else ""
        return read(text, step.run_id) or gone(host.name, _why_gone(host, answer))

    def end() -> None:
        program = quoted("tee", f"{verdict_file}.end")
        ask(state, host, program, run_as, _stdin=step.run_id, seconds=30)

    document = trained.take_part(host.name, run, end)
    text = json.dumps(files.finite(document.as_json()))
    verdict = AcrossVerdict.read(text)
    if not isinstance(verdict, AcrossVerdict):
        return failed(host, STAGE, f"{spec.host}: what the hosts told cannot be read: {verdict}")
    if is_alive(host.connector):
        stamp = across_stamp(document).as_json() if verdict.passed else None
        for file in _files(spec, text, stamp):
            user = run_as if file.path == verdict_file else as_root(spec)
            if not written(state, host, STAGE, file, user):
                return False
        forget()
        if (record_now := look(spec)) is None:
            return failed(host, STAGE, f"{spec.host}: after the step it {unanswered()}")
        if verdict.passed:
            journal.across(drift.stamp(record_now))
            stale = drift.stale(spec, record_now)
            sentence = f"the multi-node step passed, and its stamp does not say so ({stale})"
            return stale is None or failed(host, STAGE, f"{spec.host}: {sentence}")
        journal.across(explained(verdict, record_now))
    assert verdict.failed is not None  # noqa: S101 - see `document.Tested`
    sentence = f"{verdict.failed.id}: {verdict.failed.sentence}"
    return failed(host, STAGE, f"{spec.host}: the multi-node step failed at {sentence}")


def _files(spec: HostSpec, verdict: str, stamp: Mapping[str, Any] | None) -> Iterator[File]:
    """Yield the verdict, and the stamp of the host's own test with that of a step that passed.

    A host that has no stamp of its own stays without one: this step alone proves too little.
    """
    yield File(path=spec.paths.across_verdict, content=verdict.encode())
    forget()
    record = look(spec) if stamp else None
    if record is not None and (own := own_stamp(record)):
        yield stamp_file(spec, {**own, "across": stamp})


def _command(spec: HostSpec, step: Step, places: Mapping[str, Any]) -> list[str]:
    """Return the launcher's command line.

    All meet at the first host, at the first of its addresses that no other host has: that of a
    bridge for containers, say, is the same on all.

    + places: what each host told of itself
    """
    first, *others = (places[name] for name in step.hosts)
    alike = {each for other in others for each in other["addresses"]}
    own = [each for each in first["reached"] if each not in alike]
    across = {
        "hosts": [*step.hosts],
        "address": (own or first["reached"])[0],
        "port": first["port"],
        "run_id": step.run_id,
    }
    paths = spec.paths
    return [
        *(paths.python, paths.smoke_bundle, "--mode", step.mode, "--host", host.name),
        *("--ranks", str(step.hosts[host.name]), "--across", json.dumps(across)),
        *("--deadline", str(step.deadline), "--allreduce-mib", str(step.allreduce_mib)),
        *("--output", paths.across_verdict),
    ]


def _why_gone(host: Host, answer: Answer) -> str:
    """Say why a launcher has left no part."""
    if not is_alive(host.connector):
        what = "the machine, or the network to it, is down"
        return f"the connection to {host.name} was lost in the middle of the step: {what}"
    last = next((line.strip() for line in reversed(answer.lines) if line.strip()), "")
    told = f"; its last words: {last[:_WORDS]}" if last else ""
    return f"the test on {host.name} ended without a word: it was killed{told}"
