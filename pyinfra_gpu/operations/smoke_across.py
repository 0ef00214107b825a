"""The proof across hosts: one step that the ranks of several hosts train together."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from pyinfra import host, state
from pyinfra.api.command import FunctionCommand

from pyinfra_gpu.diagnosis.explained import explained
from pyinfra_gpu.drift import smoke_across as drift
from pyinfra_gpu.drift.deferral import deferred_by
from pyinfra_gpu.drift.finding import Effect, Findings, Id
from pyinfra_gpu.drift.fingerprint import fingerprint
from pyinfra_gpu.engine import journal, lease, reach
from pyinfra_gpu.engine.across_hosts import Member, Trained, gone, read
from pyinfra_gpu.engine.ask import Answer, ask
from pyinfra_gpu.engine.converge import Commands, looking, note_findings, refuse, refused
from pyinfra_gpu.engine.look import forget, look, unanswered
from pyinfra_gpu.engine.privilege import as_owner, as_root
from pyinfra_gpu.engine.steps import LOCK_WAIT_S, failed, locked, quoted
from pyinfra_gpu.engine.together import Together, executing, together
from pyinfra_gpu.engine.transport import is_alive
from pyinfra_gpu.engine.write import File, write, written
from pyinfra_gpu.facts.verdict import AcrossVerdict, Stamp
from pyinfra_gpu.host_names import FEW
from pyinfra_gpu.on_host.smoke import files
from pyinfra_gpu.on_host.smoke.across import Part, Step
from pyinfra_gpu.on_host.smoke.across import stamp as across_stamp
from pyinfra_gpu.on_host.smoke.document import AcrossVerdict as WrittenVerdict
from pyinfra_gpu.operations.smoke import EXIT_CODES, STAGE, bundle, stamp_file
from pyinfra_gpu.stacks.bundle import smoke_digest

if TYPE_CHECKING:
    from pyinfra.api.host import Host
    from pyinfra.api.state import State

    from pyinfra_gpu.facts.record import Record
    from pyinfra_gpu.spec import HostSpec

_NO_ADDRESS = (
    "the multi-node step was not made: this host told of no IPv4 address that others could"
    " reach; declare smoke_across_address for it"
)
_NO_STAMP = "the multi-node step passed, and its stamp does not say so"
_WORDS = 200
_PATIENCE_S = 45.0
"""For a host that is late to the operation: longer than it takes to notice a dead network."""


_IDS = (Id.SMOKE_UNPROVEN_ACROSS_HOSTS, Id.SMOKE_ACROSS_IMPOSSIBLE)


@looking(STAGE, claims=_IDS)
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
    owed = owed_because(spec, record)
    hosts, others = list(across.members), drift.others(spec, across)
    if executing():
        meeting = together()
        try:
            yield from _act(spec, record, hosts, owed, meeting)
        finally:
            meeting.leave(host.name)
    elif owed is None:
        _passed_earlier(record, others, "")
    else:
        note_findings(STAGE, spec, found)
        yield FunctionCommand(_tell_place, (spec, record, together()), {})


def owed_because(spec: HostSpec, record: Record) -> str | None:
    """Return why this host needs the step again, in a few words; None where its stamp is good."""
    return 'smoke = "always"' if spec.smoke.run == "always" else drift.stale(spec, record)


def _act(
    spec: HostSpec, record: Record, hosts: list[str], owed: str | None, meeting: Together
) -> Commands:
    """Take part if any host of the group finds that the step is owed."""
    now = fingerprint(spec, record, smoke_digest())
    mine = {"why": owed, "fingerprint": now, "mode": drift.mode(spec), "runs": deferred_by(record)}
    meeting.say("owed", host.name, mine)
    said = meeting.hear("owed", hosts, _PATIENCE_S)
    others = [name for name in hosts if name != host.name]
    missing = [name for name in others if name not in said]
    why = owed or "; ".join(f"{name}: {each['why']}" for name, each in said.items() if each["why"])
    if not why or (missing and owed is None):
        _passed_earlier(
            record, others, f"; nothing is known of {drift.listed(missing)}" if missing else ""
        )
        return
    if missing:
        yield from _alone(spec, missing, why)
        return
    if trains := [f"{name} has {each['runs']}" for name, each in said.items() if each["runs"]]:
        _later(spec, why, ", ".join(trains))
        return
    if len({each["mode"] for each in said.values()}) > 1:
        modes = ", ".join(f"{name} as {each['mode']}" for name, each in said.items())
        yield refuse(STAGE, f"{spec.host}: one step cannot run {modes}: put like hosts in a group")
        return
    in_order = {name: said[name] for name in hosts}  # the first one's address is met at
    yield from _made(spec, record, in_order, why, meeting)


def _made(
    spec: HostSpec, record: Record, said: Mapping[str, Any], why: str, meeting: Together
) -> Commands:
    """Make the step with the other hosts.

    + said: what each host of the group said of itself, in the group's order
    """
    hosts = list(said)
    others = [name for name in hosts if name != host.name]
    _note(spec, why, "note" if "always" in why else "repair")
    yield lease.command(STAGE, spec)
    yield from bundle(spec, record)
    # As with the test of one host: what is not finished must not look proven.
    if drift.stamp(record) is not None:
        yield write(STAGE, stamp_file(spec, _own_stamp(record)), as_root(spec))
    yield FunctionCommand(_tell_place, (spec, record, meeting), {})
    places = meeting.hear("place", hosts, _PATIENCE_S)
    missing = [name for name in hosts if name not in places]
    if missing:
        yield from _alone(spec, missing, why)
        return
    step = Step(
        mode=drift.mode(spec),
        hosts={name: places[name]["ranks"] for name in hosts},
        fingerprints={name: said[name]["fingerprint"] for name in hosts},
        run_id=meeting.run_id,
        deadline=places[hosts[0]]["deadline"],
        allreduce_mib=places[hosts[0]]["allreduce_mib"],
    )
    asked = f"one step with {drift.listed(others)} ({why})"
    allowed = [each for name in hosts for each in places[name]["addresses"]]
    command = _command(spec, step, places)
    arguments = (spec, record, Trained(meeting, step), command, allowed, asked)
    yield FunctionCommand(_train, arguments, {})


def _passed_earlier(record: Record, others: list[str], more: str) -> None:
    journal.summary(STAGE, f"with {drift.listed(others)}: passed earlier{more}")
    journal.across(drift.stamp(record))
    host.noop("the multi-node step passed with these very configurations")


def _alone(spec: HostSpec, missing: list[str], why: str) -> Commands:
    """The step is owed, and cannot be made: that is a failure, unless data asked for this host."""
    if any(_in_limit(name) for name in missing):
        yield refuse(
            STAGE,
            f"{spec.host}: the multi-node step was not made: {drift.listed(missing)} did not come"
            " to it (what failed there stands at its name; all hosts of the group must be in one"
            " run, without --serial and --no-wait)",
        )
        return
    _note(spec, why, "report")
    journal.warn(
        STAGE,
        f"{spec.host}: the multi-node step is owed ({why}) and was not made: this run leaves"
        f" {drift.listed(missing)} out",
    )
    host.noop("the other hosts are left out of this run")


def _later(spec: HostSpec, why: str, trains: str) -> None:
    """A training run has the GPUs of one host, so no host of the group begins."""
    _note(spec, why, "report")
    journal.warn(STAGE, f"{spec.host}: the multi-node step is owed ({why}) and waits: {trains} on")
    host.noop("a training run is on")


def _in_limit(name: str) -> bool:
    return bool(state.is_host_in_limit(state.inventory.get_host(name)))


def _note(spec: HostSpec, why: str, effect: Effect) -> None:
    across = drift.declared(spec)
    if across is not None:
        journal.found(STAGE, drift.unproven(spec, across, why, effect))


def _tell_place(
    state: State, host: Host, spec: HostSpec, record: Record, meeting: Together
) -> bool:
    """Tell the other hosts where this one can be reached."""
    has = reach.addresses(_told(state, host, spec, record))
    # IPv6 only where data names an address: most hosts have some that lead nowhere.
    declared = spec.smoke.across.address if spec.smoke.across else None
    reached = [declared] if declared else [each for each in has if ":" not in each]
    if not reached:
        return failed(host, STAGE, f"{spec.host}: {_NO_ADDRESS}")
    smoke = spec.smoke
    place = {
        "ranks": 1 if smoke.mode == "rehearsal-1gpu" else drift.RANKS,
        # What must be the same on all hosts of the step: the first one's is taken.
        "reached": reached,
        "port": smoke.across.port if smoke.across else 0,
        # Those of all its interfaces: what a rank sends may leave by any of them.
        "addresses": [*has, *reached],
        "deadline": smoke.deadline_s,
        "allreduce_mib": smoke.allreduce_mib,
    }
    meeting.say("place", host.name, place)
    return True


def _told(state: State, host: Host, spec: HostSpec, record: Record) -> list[str]:
    """Return what a host says when it is asked for the addresses of its interfaces."""
    answer = ask(state, host, "hostname -I", as_owner(spec, record), seconds=60)
    return " ".join(answer.stdout).split() if answer.ok else []


def _train(
    state: State,
    host: Host,
    spec: HostSpec,
    record: Record,
    trained: Trained,
    command: list[str],
    allowed: list[str],
    asked: str,
) -> bool:
    """Run this host's ranks beside the others'; believe what all ranks wrote down."""
    hosts, run_as = list(trained.step.hosts), as_owner(spec, record)
    verdict_file = spec.paths.across_verdict
    waiting = locked(quoted(*command), spec.paths.lock)
    patience = LOCK_WAIT_S + 2 * trained.step.deadline
    limited, limited_as = reach.limited(spec, record, waiting, patience, allowed)

    def run() -> Part:
        host.log(f"{asked} ...")
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
        return read(text, trained.step.run_id) or _gone(host, answer)

    def end() -> None:
        program = quoted("tee", f"{verdict_file}.end")
        ask(state, host, program, run_as, _stdin=trained.step.run_id, seconds=30)

    document = trained.take_part(Member(host.name, run, end))
    return _concluded(state, host, spec, record, document)


def _concluded(
    state: State, host: Host, spec: HostSpec, record: Record, document: WrittenVerdict
) -> bool:
    """Have the host keep what was judged of all ranks, and its stamp say so if they passed."""
    judged = json.dumps(files.finite(document.as_json()))
    verdict = AcrossVerdict.read(judged)
    if not isinstance(verdict, AcrossVerdict):
        return failed(host, STAGE, f"{spec.host}: what the hosts told cannot be read: {verdict}")
    if not is_alive(host.connector):
        return failed(host, STAGE, f"{spec.host}: {_failure(verdict)}")
    file = File(path=spec.paths.across_verdict, content=judged.encode())
    if not written(state, host, STAGE, file, as_owner(spec, record)):
        return False
    if verdict.failed is None and not _stamped(state, host, spec, document):
        return False
    return _judge(host, spec, verdict)


def _own_stamp(record: Record) -> dict[str, Any]:
    """Return what the host's stamp says of its own test; empty where it has none."""
    stamp = record.smoke.stamp
    if not isinstance(stamp, Stamp):
        return {}
    return {name: value for name, value in stamp.as_json().items() if name != "across"}


def _stamped(state: State, host: Host, spec: HostSpec, document: WrittenVerdict) -> bool:
    """Put a pass into the stamp of the host's own test, which root keeps.

    A host that has no stamp of its own stays without one: this step alone proves too little.
    """
    forget()
    record = look(spec)
    own = _own_stamp(record) if record else {}
    if not own:
        return True
    file = stamp_file(spec, {**own, "across": across_stamp(document).as_json()})
    return written(state, host, STAGE, file, as_root(spec))


def _command(spec: HostSpec, step: Step, places: Mapping[str, Any]) -> list[str]:
    """Return the launcher's command line.

    All meet at the first host, at the first of its addresses that no other host has: that of a
    bridge for containers, say, is the same on all.

    + places: what each host told of itself
    """
    first, *others = (places[name] for name in step.hosts)
    alike = {each for other in others for each in other["addresses"]}
    across = {
        "hosts": [*step.hosts],
        "address": next((each for each in first["reached"] if each not in alike), None)
        or first["reached"][0],
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


def _gone(host: Host, answer: Answer) -> Part:
    """Return the part of a host whose launcher has left none."""
    if not is_alive(host.connector):
        return gone(
            host.name,
            f"the connection to {host.name} was lost in the middle of the step: the machine, or"
            " the network to it, is down",
        )
    last = next((line.strip() for line in reversed(answer.lines) if line.strip()), "")
    told = f"; its last words: {last[:_WORDS]}" if last else ""
    return gone(host.name, f"the test on {host.name} ended without a word: it was killed{told}")


def _judge(host: Host, spec: HostSpec, verdict: AcrossVerdict) -> bool:
    forget()
    fresh = look(spec)
    if fresh is None:
        return failed(host, STAGE, f"{spec.host}: after the step it {unanswered()}")
    if verdict.failed is None:
        stale = drift.stale(spec, fresh)
        journal.across(drift.stamp(fresh))
        return stale is None or failed(host, STAGE, f"{spec.host}: {_NO_STAMP} ({stale})")
    journal.across(explained(verdict, fresh))
    return failed(host, STAGE, f"{spec.host}: {_failure(verdict)}")


def _failure(verdict: AcrossVerdict) -> str:
    why = verdict.failed
    return f"the multi-node step failed at {why.id}: {why.sentence}" if why else ""
