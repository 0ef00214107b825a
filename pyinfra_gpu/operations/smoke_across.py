"""The proof across hosts: one step that the ranks of several hosts train together."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from pyinfra import host, state
from pyinfra.api.command import FunctionCommand

from pyinfra_gpu.diagnosis.evidence import explained
from pyinfra_gpu.drift import smoke_across as drift
from pyinfra_gpu.drift.finding import Effect, Findings, Id
from pyinfra_gpu.drift.fingerprint import fingerprint
from pyinfra_gpu.engine import journal
from pyinfra_gpu.engine.ask import ask
from pyinfra_gpu.engine.converge import Commands, looking, note_findings, refuse, refused
from pyinfra_gpu.engine.look import forget, look
from pyinfra_gpu.engine.privilege import as_owner
from pyinfra_gpu.engine.steps import failed, quoted, step
from pyinfra_gpu.engine.together import Together, executing, together
from pyinfra_gpu.facts.verdict import AcrossVerdict
from pyinfra_gpu.on_host import smoke_digest
from pyinfra_gpu.operations.smoke import EXIT_CODES, FEW_HOSTS, STAGE, bundle

if TYPE_CHECKING:
    from pyinfra.api.host import Host
    from pyinfra.api.state import State

    from pyinfra_gpu.facts.record import Record
    from pyinfra_gpu.spec import HostSpec

_NO_ADDRESS = (
    "the step across hosts was not made: this host told of no IPv4 address that others could"
    " reach; declare smoke_across_address for it"
)
_NO_STAMP = "the step across hosts passed, and its stamp does not say so"
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

        across_hosts.proven(name="Train one checked step across the hosts", spec=wanted)
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
    meeting.say("owed", host.name, {"why": owed, "fingerprint": now, "mode": drift.mode(spec)})
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
    if len({each["mode"] for each in said.values()}) > 1:
        modes = ", ".join(f"{name} as {each['mode']}" for name, each in said.items())
        yield refuse(STAGE, f"{spec.host}: one step cannot run {modes}: put like hosts in a group")
        return
    _note(spec, why, "note" if "always" in why else "repair")
    yield from bundle(spec, record)
    yield FunctionCommand(_tell_place, (spec, record, meeting), {})
    places = meeting.hear("place", hosts, _PATIENCE_S)
    missing = [name for name in hosts if name not in places]
    if missing:
        yield from _alone(spec, missing, why)
        return
    plan = {
        name: {**places[name]["place"], "fingerprint": said[name]["fingerprint"]} for name in hosts
    }
    yield step(
        STAGE,
        f"one step with {drift.listed(others)} ({why})",
        quoted(*_command(spec, plan, places[hosts[0]]["terms"], meeting.run_id)),
        run_as=as_owner(spec, record),
        lock=spec.paths.lock,
        stream=len(hosts) <= FEW_HOSTS and host.name == hosts[0],
        success=EXIT_CODES,
    )
    yield FunctionCommand(_judge, (spec, record, hosts, meeting.run_id), {})


def _passed_earlier(record: Record, others: list[str], more: str) -> None:
    journal.summary(STAGE, f"with {drift.listed(others)}: passed earlier{more}")
    journal.across(drift.stamp(record))
    host.noop("the step across hosts passed with these very configurations")


def _alone(spec: HostSpec, missing: list[str], why: str) -> Commands:
    """The step is owed, and cannot be made: that is a failure, unless data asked for this host."""
    if any(_in_limit(name) for name in missing):
        yield refuse(
            STAGE,
            f"{spec.host}: the step across hosts was not made: {drift.listed(missing)} did not come"
            " to it (what failed there stands at its name; all hosts of the group must be in one"
            " run, without --serial and --no-wait)",
        )
        return
    _note(spec, why, "report")
    journal.warn(
        STAGE,
        f"{spec.host}: the step across hosts is owed ({why}) and was not made: this run leaves"
        f" {drift.listed(missing)} out",
    )
    host.noop("the other hosts are left out of this run")


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
    addresses = _addresses(state, host, spec, record)
    if not addresses:
        return failed(host, STAGE, f"{spec.host}: {_NO_ADDRESS}")
    ranks = 1 if spec.smoke.mode == "rehearsal-1gpu" else drift.RANKS
    place = {"addresses": addresses, "ranks": ranks}
    meeting.say("place", host.name, {"place": place, "terms": _terms(spec)})
    return True


def _addresses(state: State, host: Host, spec: HostSpec, record: Record) -> list[str]:
    across = spec.smoke.across
    if across is not None and across.address is not None:
        return [across.address]
    command = quoted(spec.paths.python, spec.paths.smoke_bundle, "--across", "--addresses")
    answer = ask(state, host, command, as_owner(spec, record), _timeout=60)
    try:
        found = json.loads(answer.stdout[-1]) if answer.ok and answer.stdout else []
    except ValueError:
        return []
    return [str(each) for each in found] if isinstance(found, list) else []


def _terms(spec: HostSpec) -> dict[str, str]:
    """Return what must be the same on all hosts of the step: the first one's is taken."""
    across, smoke = spec.smoke.across, spec.smoke
    return {
        "--port": str(across.port if across else 0),
        "--deadline": str(smoke.deadline_s),
        "--allreduce-mib": str(smoke.allreduce_mib),
    }


def _command(
    spec: HostSpec, plan: Mapping[str, Any], terms: Mapping[str, str], run_id: str
) -> list[str]:
    paths = spec.paths
    return [
        *(paths.python, paths.smoke_bundle, "--across", host.name, "--mode", drift.mode(spec)),
        *("--hosts", json.dumps(plan), "--run-id", run_id),
        *(word for pair in terms.items() for word in pair),
        *("--output", paths.across_verdict, "--stamp", paths.stamp),
    ]


def _judge(
    state: State, host: Host, spec: HostSpec, record: Record, hosts: list[str], run_id: str
) -> bool:
    """Believe what this run left on the host, not the exit code of a command."""
    command = quoted("cat", spec.paths.across_verdict)
    answer = ask(state, host, command, as_owner(spec, record), _timeout=30)
    verdict = AcrossVerdict.read("\n".join(answer.stdout) if answer.ok else None)
    if not isinstance(verdict, AcrossVerdict) or verdict.run_id != run_id:
        return failed(host, STAGE, f"{spec.host}: the step across hosts ended without a verdict")
    forget()
    fresh = look(spec)
    if fresh is None:
        return False
    if verdict.failed is None:
        stale = drift.stale(spec, fresh)
        journal.across(drift.stamp(fresh))
        return stale is None or failed(host, STAGE, f"{spec.host}: {_NO_STAMP} ({stale})")
    journal.across(explained(verdict, fresh))
    sentence = f"{verdict.failed.id}: {verdict.failed.sentence}"
    return failed(host, STAGE, f"{spec.host}: the step across hosts failed at {sentence}")
