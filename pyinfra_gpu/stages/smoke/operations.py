"""The proof: ranks that train one step together, and a verdict on the host that says so.

The ranks are those of one host; or, once all hosts of a group have passed, of all these. Then each
host runs the same program for its own ranks; the controller says when, where they meet, and who can
connect, and puts together what the hosts' verdicts say.
"""

from __future__ import annotations

import ipaddress
import json
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pyinfra import host, state
from pyinfra.api.command import FunctionCommand, PyinfraCommand

from pyinfra_gpu.diagnosis.explained import EVIDENCE_LIMIT, Explained, explained
from pyinfra_gpu.engine import deadlines, journal, meeting
from pyinfra_gpu.engine.ask import ask
from pyinfra_gpu.engine.converge import (
    Commands,
    converging,
    fresh,
    looking,
    note_findings,
    refuse,
    refused,
)
from pyinfra_gpu.engine.look import forget, look, unanswered
from pyinfra_gpu.engine.meeting import executing
from pyinfra_gpu.engine.privilege import as_owner, as_root
from pyinfra_gpu.engine.steps import LOCK_WAIT_S, failed, locked, quoted, step
from pyinfra_gpu.engine.write import File, write, written
from pyinfra_gpu.facts.fields import Unknown
from pyinfra_gpu.facts.verdict import Stamp, Verdict
from pyinfra_gpu.host_names import FEW, brief
from pyinfra_gpu.on_host import program
from pyinfra_gpu.on_host.smoke.document import EVIDENCE
from pyinfra_gpu.on_host.smoke.listening import ALLOWED_LOOPBACK
from pyinfra_gpu.on_host.smoke.options import Options
from pyinfra_gpu.stacks.bundle import smoke_bundle, smoke_digest
from pyinfra_gpu.stages.finding import Findings, Id
from pyinfra_gpu.stages.fingerprint import fingerprint
from pyinfra_gpu.stages.layout.findings import owner_name
from pyinfra_gpu.stages.rules import if_known, running
from pyinfra_gpu.stages.smoke import findings

if TYPE_CHECKING:
    from pyinfra.api.host import Host
    from pyinfra.api.state import State

    from pyinfra_gpu.facts.record import Record
    from pyinfra_gpu.spec import HostSpec

STAGE = findings.STAGE
EXIT_CODES = (0, 1, 2, 3)
"""The test's: passed, passed with warnings, failed, proves nothing about GPUs. After each of them
the verdict on the host says more than the code."""

_PATIENCE_S = 45.0
"""For a host that is late to the operation: longer than it takes to notice a dead network."""
_MOST = 64
"""Addresses of one host: who tells more is not believed to need them."""


@converging(
    findings,
    repairs=(
        Id.SMOKE_SKIPPED,
        Id.SMOKE_CANNOT_PROVE_TWO_GPUS,
        Id.SMOKE_UNPROVEN,
        Id.SMOKE_PROOF_BEFORE_BOOT,
    ),
)
def proven(spec: HostSpec, record: Record, found: Findings) -> Commands:
    """Ensure that the smoke test passed on this host as it is now.

    + spec: the host's resolved specification

    On two real GPUs or more the test uses all of them; on one it proves what one can; on
    simulated ones, and without any, it runs on the CPU and is labelled so. `spec.smoke.accept`
    says whether less than two real GPUs is enough.

    A pass leaves a stamp on the host, keyed by a fingerprint of all that the result depends on.
    While the fingerprint is the same there is nothing to do; ``smoke = "always"`` runs the test
    anyway, ``smoke = "skip"`` leaves it out, and says so.

    **Example:**

    .. code:: python

        smoke.proven(name="Run the smoke test", spec=wanted)
    """
    if record.torch.python is None and executing():
        yield refuse(
            STAGE,
            f"{spec.host}: there is no virtual environment at {spec.paths.venv} to test yet: run"
            " pyinfra INVENTORY deploy.py first",
        )
        return
    passed = record.smoke.stamp
    former = passed.driver if isinstance(passed, Stamp) else None
    yield from _prepared(spec, record, withdrawn=None)
    # What was installed by this very run is part of the fingerprint, so look again.
    record, smoke = fresh(spec, record), spec.smoke
    on_cpu = smoke.mode == "rehearsal-cpu"
    asked = Options(
        mode="rehearsal-cpu" if on_cpu else "gpu",
        output=spec.paths.verdict,
        host=spec.host,
        ranks=smoke.ranks,
        gpus=0 if on_cpu else spec.gpu.count,
        deadline_s=smoke.deadline_s,
        allreduce_mib=smoke.allreduce_mib,
        fingerprint=fingerprint(spec, record, smoke_digest()),
        compile=spec.environment.dynamo,
    )
    yield _started(spec, record, f"smoke test, {smoke.ranks} ranks ({found[0].found})", asked)
    yield FunctionCommand(_check_verdict, (spec, record.smoke.verdict, former), {})


def _prepared(spec: HostSpec, record: Record, withdrawn: Stamp | None) -> Commands:
    """Put the test's program onto the host, unless this very one is there; take back the stamp.

    From here on an earlier pass says nothing: if this test fails, or is cut off, no stamp may be
    left that calls the host, or the step, proven.

    + withdrawn: what the stamp still says, None for no stamp
    """
    there = record.layout.entry(spec.paths.smoke_bundle)
    if isinstance(there, Unknown) or there.sha256 != smoke_digest():
        file = File(path=spec.paths.smoke_bundle, content=smoke_bundle())
        yield write(STAGE, file, as_root(spec))
    if withdrawn:
        yield write(STAGE, _stamp_file(spec, withdrawn), as_root(spec))
    elif record.smoke.stamp is not None:
        remove = quoted("rm", "-f", "--", spec.paths.stamp)
        what = "remove the stamp of the last test"
        yield step(STAGE, what, remove, run_as=as_root(spec), seconds=deadlines.PLAIN)


def _started(
    spec: HostSpec, record: Record, what: str, asked: Options, addresses: Iterable[str] = ()
) -> PyinfraCommand:
    """Return a command that runs the test, so that all it starts is ended in the end.

    Only the host itself and `addresses` can connect to it, where there is root to limit that. What
    was limited is not told by root: the test finds it out by trying (`on_host/smoke/listening.py`).
    """
    words = (spec.paths.python, spec.paths.smoke_bundle, asked.as_json())
    # The owner waits for the lock, so nothing that is waited for stands between root and them.
    command, run_as = locked(quoted(*words), spec.paths.lock), as_owner(spec, record)
    patience = LOCK_WAIT_S + 2 * asked.deadline_s
    if spec.privilege != "none" and spec.smoke.limit_network:
        allowed = " ".join(dict.fromkeys([*ALLOWED_LOOPBACK, *addresses]))
        given = (owner_name(spec, record), command, str(patience), allowed)
        command = program("reach/group.sh", *given, uses=("reach/as_owner.sh",))
        run_as = as_root(spec)
    return step(
        STAGE,
        what,
        command,
        run_as=run_as,
        seconds=patience + deadlines.SERVICE,
        stream=len(state.inventory) <= FEW,
        success=EXIT_CODES,
    )


def _check_verdict(
    state: State, host: Host, spec: HostSpec, before: Verdict | Unknown | None, former: str | None
) -> bool:
    """Believe the verdict that the test left, not the exit code of a command.

    + before: the verdict that stood there before the test: it does not count
    + former: the driver with which the test passed last
    """
    forget()
    record = look(spec)
    if record is None:
        return failed(host, STAGE, f"{spec.host}: after the test it {unanswered()}")
    verdict, current = record.smoke.verdict, fingerprint(spec, record, smoke_digest())
    found = None if verdict == before else verdict
    status, why = _end(state, host, spec, record, found, current)
    if status != "pass" or not isinstance(found, Verdict):
        why += _way_back(spec, record, former)
        return failed(host, STAGE, f"{host.name}: the smoke test failed: {why}")
    driver = if_known(record.driver.loaded, None)
    # The digest of its text, by which one that somebody edits later is known.
    digest = if_known(record.smoke.verdict_sha256, None)
    stamp = _stamp_file(spec, Stamp(current, found.mode, digest, driver=driver))
    return written(state, host, STAGE, stamp, as_root(spec))


def _way_back(spec: HostSpec, record: Record, former: str | None) -> str:
    """Say how to go back to the driver that passed last, where another one is loaded now."""
    if former in (None, record.driver.loaded) or spec.driver.source == "present":
        return ""
    option = f"--data driver_version={former}"
    return f". With driver {former} it passed here; to go back, deploy with {option}"


def _end(
    state: State,
    host: Host,
    spec: HostSpec,
    record: Record,
    found: Verdict | Unknown | None,
    fingerprint: str | None,
) -> tuple[str, str]:
    """Return how a test ended, and what failed in one sentence; note both for the report.

    + found: the verdict that it left; fingerprint: what this very test was to write into it
    """
    if not isinstance(found, Verdict) or found.fingerprint != fingerprint:
        why = f" ({found.reason})" if isinstance(found, Unknown) else ""
        return "fail", (
            f"it ended without a verdict for what is installed now{why}; run it again, or look at"
            f" {spec.paths.state} there"
        )
    note = journal.across if found.hosts else journal.verdict
    if not found.failed:
        note(Explained(found))
        return "pass", ""
    own = spec.paths.across_verdict if found.hosts else spec.paths.verdict
    path = f"{own}.logs/{EVIDENCE}"  # not where the verdict says: that may be any file
    command = quoted("head", "-c", str(EVIDENCE_LIMIT), "--", path)
    answer = ask(state, host, command, as_owner(spec, record), seconds=deadlines.PLAIN)
    note(explained(found, record, "\n".join(answer.stdout) if answer.ok else ""))
    return found.status, f"{found.failed.id}: {found.failed.sentence}"


def _stamp_file(spec: HostSpec, stamp: Stamp) -> File:
    """Return the stamp as the file in which root keeps it."""
    text = json.dumps(stamp.as_json(), indent=1, sort_keys=True) + "\n"
    return File(path=spec.paths.stamp, content=text.encode())


# -- with the other hosts of the group


@looking(STAGE, claims=(Id.SMOKE_UNPROVEN_ACROSS_HOSTS,))
def proven_across(spec: HostSpec, record: Record) -> Commands:
    """Ensure that the hosts of this host's group have trained one step together as they are now.

    + spec: the host's resolved specification; without `smoke.across` there is nothing to do

    All hosts of the group have passed their own test before: a host that failed is not among
    those pyinfra still works on. Each host's stamp then names all of them; a host that is tested
    anew loses that, and all take part again.

    **Example:**

    .. code:: python

        smoke.proven_across(name="Run the multi-node smoke test", spec=wanted)
    """
    if not findings.members(spec):
        return
    found = Findings(findings.judge(spec, record)).of(Id.SMOKE_UNPROVEN_ACROSS_HOSTS)
    if refusal := refused(findings, spec, record, found):
        note_findings(STAGE, spec, found)
        yield refusal
    elif executing():
        try:
            yield from _with_others(spec, record)
        finally:
            meeting.leave()
    elif found:
        note_findings(STAGE, spec, found)
        yield FunctionCommand(lambda *_: True, (), {})  # a plan only counts it
    else:
        _passed_earlier(spec)


def _with_others(spec: HostSpec, record: Record) -> Commands:
    """Take part if any host of the group finds that the step has to be made."""
    mode = "rehearsal-cpu" if spec.smoke.mode == "rehearsal-cpu" else "gpu"
    mine = findings.why_across(spec, record)
    reported = {"why": mine, "mode": mode, "runs": running(record)}
    said, missing = _heard(spec, "step", reported)
    why = mine or "; ".join(f"{name}: {each['why']}" for name, each in said.items() if each["why"])
    runs = ", ".join(f"{name} has {each['runs']}" for name, each in said.items() if each["runs"])
    modes = {name: each["mode"] for name, each in said.items()}
    if not why or (missing and mine is None):
        _passed_earlier(spec, f"; nothing is known of {brief(missing)}" if missing else "")
    elif missing:
        yield from _alone(spec, missing, why)
    elif runs:  # a training run has the GPUs of one host, so no host of the group begins
        _put_off(spec, why, f"waits: {runs} on")
    elif len({*modes.values()}) > 1:
        each_as = ", ".join(f"{name} as {mode}" for name, mode in modes.items())
        yield refuse(STAGE, f"{spec.host}: one step cannot run {each_as}: group like hosts")
    else:
        yield from _step_across(spec, record, mode, why)


def _heard(
    spec: HostSpec, topic: str, mine: Mapping[str, Any], seconds: float = _PATIENCE_S
) -> tuple[dict[str, Any], list[str]]:
    """Tell the other hosts something; return host -> what it told, in the group's order, and who
    told nothing.
    """
    meeting.say(topic, mine)
    said = meeting.hear(topic, findings.members(spec), seconds)
    reported = {name: said[name] for name in findings.members(spec) if name in said}
    return reported, [name for name in findings.members(spec) if name not in said]


def _step_across(spec: HostSpec, record: Record, mode: Any, why: str) -> Commands:
    """Make the step with the other hosts."""
    journal.found(STAGE, findings.unproven_across(spec, why))
    own = record.smoke.stamp
    if not isinstance(own, Stamp):  # the step alone proves too little
        yield refuse(STAGE, f"{spec.host}: its own test has left no stamp: deploy again")
        return
    own = replace(own, across=())
    yield from _prepared(spec, record, withdrawn=own)
    place = _place(spec, record)
    if not place["reached"]:
        yield refuse(
            STAGE,
            f"{spec.host}: the multi-node step was not made: this host reported no IPv4 address"
            " that others could reach; declare smoke_across_address for it",
        )
        return
    places, missing = _heard(spec, "place", place)
    if missing:
        yield from _alone(spec, missing, why)
        return
    first, *others = places.values()
    # They meet at an address that no other host has: a bridge's for containers is on all the same.
    alike = {each for other in others for each in other["addresses"]}
    its_own = [each for each in first["reached"] if each not in alike]
    hosts = {name: each["ranks"] for name, each in places.items()}
    asked = Options(
        mode=mode,
        output=spec.paths.across_verdict,
        host=host.name,
        ranks=sum(hosts.values()),
        deadline_s=first["deadline"],
        allreduce_mib=first["allreduce_mib"],
        fingerprint=meeting.RUN_ID,
        hosts=hosts,
        address=(its_own or first["reached"])[0],
        port=first["port"],
    )
    addresses = [each for reported in places.values() for each in reported["addresses"]]
    yield _started(spec, record, f"one step with {findings.others(spec)} ({why})", asked, addresses)
    yield FunctionCommand(_check_step, (spec, asked, own), {})


def _passed_earlier(spec: HostSpec, more: str = "") -> None:
    journal.summary(STAGE, f"with {findings.others(spec)}: passed earlier{more}")
    host.noop("the multi-node step passed with these very configurations")


def _alone(spec: HostSpec, missing: list[str], why: str) -> Commands:
    """The step cannot be made: that is a failure, unless data asked for this host alone."""
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
    """Say that the step has to be made and is not made by this run."""
    journal.found(STAGE, findings.unproven_across(spec, why, "report"))
    journal.warn(STAGE, f"{spec.host}: the multi-node step is required ({why}) and {until}")
    host.noop("the multi-node step is not made by this run")


def _place(spec: HostSpec, record: Record) -> dict[str, Any]:
    """Return where the other hosts can reach this one, and what must be the same on all: of that
    the first host's is taken.
    """
    across = spec.smoke.across
    assert across is not None  # noqa: S101 - for mypy
    answer = ask(state, host, "hostname -I", as_owner(spec, record), seconds=60)
    words = " ".join(answer.stdout).split() if answer.ok else []
    has = [*map(str, filter(_is_address, words))][:_MOST]
    # IPv6 only where data names an address: most hosts have some that lead nowhere.
    reached = [across.address] if across.address else [each for each in has if ":" not in each]
    return {
        "ranks": 1 if spec.smoke.mode == "rehearsal-1gpu" else findings.ACROSS_RANKS,
        "reached": reached,
        "port": across.port,
        "deadline": spec.smoke.deadline_s,
        "allreduce_mib": spec.smoke.allreduce_mib,
        # Those of all its interfaces: what a rank sends may leave by any of them.
        "addresses": [*has, *reached],
    }


def _is_address(word: str) -> bool:
    """Tell whether a limit can name this word of a host's as an address of it.

    A link-local one says nothing of whose it is: on each link there may be another.
    """
    try:
        ip = ipaddress.ip_address(word)
    except ValueError:
        return False
    return not (ip.is_unspecified or ip.is_multicast or ip.is_link_local or ip.is_loopback)


def _check_step(state: State, host: Host, spec: HostSpec, asked: Options, own: Stamp) -> bool:
    """Believe the verdicts that the step left on the hosts; keep what a pass of all stands for.

    A host whose ranks only lost those of another does not know why, and says "unknown": then one
    that failed by itself is the cause, or else one of which nothing is heard any more.
    """
    forget()
    record, mine = look(spec), ("fail", unanswered())
    if record is not None:
        command = quoted("head", "-c", str(EVIDENCE_LIMIT), "--", asked.output)
        answer = ask(state, host, command, as_owner(spec, record), seconds=deadlines.PLAIN)
        verdict = Verdict.read("\n".join(answer.stdout) if answer.ok else None)
        mine = _end(state, host, spec, record, verdict, asked.fingerprint)
    said, missing = _heard(spec, "end", {"mine": mine}, asked.deadline_s + _PATIENCE_S)
    ends = {name: each["mine"] for name, each in said.items()}
    ends |= dict.fromkeys(missing, ("lost", "it was lost in the middle of the step"))
    for status in ("fail", "lost", "unknown"):
        for name in (host.name, *ends):
            if ends[name][0] == status:
                why = f"the multi-node step failed on {name}: {ends[name][1]}"
                return failed(host, STAGE, f"{host.name}: {why}")
    stamp = _stamp_file(spec, replace(own, across=tuple(asked.hosts)))
    return written(state, host, STAGE, stamp, as_root(spec))
