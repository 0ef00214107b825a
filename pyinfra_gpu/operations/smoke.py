"""The proof: ranks that train one step together, and a verdict on the host that says so.

The ranks are those of one host; or, once all hosts of a group have passed, of all these. Then each
host runs the same program for its own ranks, and judges all of them; the controller only agrees
with them when, where they meet, and who can connect.
"""

from __future__ import annotations

import ipaddress
import json
import posixpath
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from pyinfra import host, state
from pyinfra.api.command import FunctionCommand, PyinfraCommand

from pyinfra_gpu.diagnosis.explained import EVIDENCE_LIMIT, Explained, explained
from pyinfra_gpu.drift import smoke as drift
from pyinfra_gpu.drift.finding import Findings, Id
from pyinfra_gpu.drift.fingerprint import fingerprint
from pyinfra_gpu.drift.layout import owner_name
from pyinfra_gpu.drift.pytorch import has_fallback
from pyinfra_gpu.drift.rules import if_known, running
from pyinfra_gpu.engine import deadlines, journal
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
from pyinfra_gpu.engine.meeting import executing, meeting
from pyinfra_gpu.engine.privilege import as_owner, as_root
from pyinfra_gpu.engine.steps import LOCK_WAIT_S, failed, locked, quoted, step
from pyinfra_gpu.engine.write import File, write, written
from pyinfra_gpu.facts.fields import Unknown
from pyinfra_gpu.facts.verdict import AcrossStamp, Stamp, Verdict
from pyinfra_gpu.host_names import FEW, brief
from pyinfra_gpu.on_host import program
from pyinfra_gpu.on_host.smoke.listening import ALLOWED_LOOPBACK
from pyinfra_gpu.stacks.bundle import smoke_bundle, smoke_digest

if TYPE_CHECKING:
    from pyinfra.api.host import Host
    from pyinfra.api.state import State

    from pyinfra_gpu.facts.record import Record
    from pyinfra_gpu.spec import HostSpec

    Stale = Callable[[HostSpec, Record], str | None]

STAGE = drift.STAGE
EXIT_CODES = (0, 1, 2, 3)
"""The test's: passed, passed with warnings, failed, proves nothing about GPUs. After each of them
the verdict on the host says more than the code."""

_NO_STAMP = "the smoke test passed, and its stamp does not say so"
_PATIENCE_S = 45.0
"""For a host that is late to the operation: longer than it takes to notice a dead network."""
_MOST = 64
"""Addresses of one host: who tells more is not believed to need them."""


@converging(
    drift,
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
    yield from _bundle(spec, record)
    # From here on an earlier pass says nothing: if this test fails, or is cut off, no stamp may be
    # left that calls the host proven.
    if record.smoke.stamp is not None:
        yield write(STAGE, stamp_file(spec, withdrawn(spec, record)), as_root(spec))
    # What was installed by this very run is part of the fingerprint, so look again.
    record = fresh(spec, record)
    what = f"smoke test, {spec.smoke.ranks} ranks ({found[0].found})"
    yield _started(spec, record, what, _command(spec, record), spec.smoke.deadline_s)
    yield FunctionCommand(_check_verdict, (spec, record.smoke.verdict), {})


def _started(
    spec: HostSpec,
    record: Record,
    what: str,
    words: list[str],
    deadline: int,
    addresses: Iterable[str] = (),
) -> PyinfraCommand:
    """Return a command that runs the test, so that all it starts is ended in the end.

    Only the host itself and `addresses` can connect to it, where there is root to limit that. What
    was limited is not told by root: the test finds it out by trying (`on_host/smoke/listening.py`).
    """
    # The owner waits for the lock, so nothing that is waited for stands between root and them.
    command, run_as = locked(quoted(*words), spec.paths.lock), as_owner(spec, record)
    patience = LOCK_WAIT_S + 2 * deadline
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


def _bundle(spec: HostSpec, record: Record) -> Commands:
    """Yield what puts the test's program onto the host, unless this very one is there."""
    there = record.layout.entry(spec.paths.smoke_bundle)
    if isinstance(there, Unknown) or there.sha256 != smoke_digest():
        file = File(path=spec.paths.smoke_bundle, content=smoke_bundle())
        yield write(STAGE, file, as_root(spec))


def _command(spec: HostSpec, record: Record) -> list[str]:
    paths, smoke = spec.paths, spec.smoke
    on_cpu = smoke.mode == "rehearsal-cpu"
    mode = ["rehearsal-cpu"] if on_cpu else ["gpu", "--gpus", str(spec.gpu.count)]
    return [
        *(paths.python, paths.smoke_bundle, "--mode", *mode),
        *("--ranks", str(smoke.ranks), "--deadline", str(smoke.deadline_s)),
        *("--allreduce-mib", str(smoke.allreduce_mib), "--host", spec.host),
        *("--fingerprint", fingerprint(spec, record, smoke_digest())),
        *("--output", paths.verdict),
        *([] if spec.environment.dynamo else ["--no-compile"]),
    ]


def _check_verdict(
    state: State, host: Host, spec: HostSpec, before: Verdict | Unknown | None
) -> bool:
    """Believe the verdict that the test left, not the exit code of a command.

    + before: the verdict that stood there before the test: it does not count
    """
    forget()
    record = look(spec)
    if record is None:
        return failed(host, STAGE, f"{spec.host}: after the test it {unanswered()}")
    verdict = record.smoke.verdict
    current = fingerprint(spec, record, smoke_digest())
    if not isinstance(verdict, Verdict) or verdict.fingerprint != current or verdict == before:
        return failed(host, STAGE, f"{spec.host}: {_without_verdict(spec, verdict)}")
    if has_fallback(spec, record):
        wanted = spec.pytorch
        journal.warn(
            STAGE,
            f"{spec.host}: the verdict is of torch {wanted.full_fallback}, the fallback, and not of"
            f" the declared {wanted.full_version}",
        )
    if verdict.passed:
        journal.verdict(Explained(verdict))
        return _stamped(state, host, spec, stamp_of(verdict, record), drift.stale)
    journal.verdict(explained(verdict, record, _evidence(state, host, spec, record, verdict)))
    return _fails(host, verdict, _former_driver(spec, record))


def _stamped(
    state: State, host: Host, spec: HostSpec, stamp: Mapping[str, Any], stale: Stale
) -> bool:
    """Keep what this pass stands for, where the owner cannot write; look whether it counts."""
    if not written(state, host, STAGE, stamp_file(spec, stamp), as_root(spec)):
        return False
    forget()
    record = look(spec)
    why = stale(spec, record) if record else unanswered()
    return why is None or failed(host, STAGE, f"{spec.host}: {_NO_STAMP} ({why})")


def _fails(host: Host, verdict: Verdict, more: str = "") -> bool:
    """Fail the host: say which check failed and why."""
    assert verdict.failed is not None  # noqa: S101 - see `Verdict`
    what = "multi-node step" if verdict.hosts else "smoke test"
    sentence = f"{verdict.failed.id}: {verdict.failed.sentence}{more}"
    return failed(host, STAGE, f"{host.name}: the {what} failed at {sentence}")


def stamp_of(verdict: Verdict, record: Record) -> dict[str, Any]:
    """Return what the next run compares of a verdict that passed, with or without warnings.

    + record: with the digest of its text, by which one that somebody edited later is known
    """
    names = ("fingerprint", "status", "mode", "finished")
    digest = if_known(record.smoke.verdict_sha256, None)
    driver = if_known(record.driver.loaded, None)
    return {**{name: getattr(verdict, name) for name in names}, "verdict": digest, "driver": driver}


def withdrawn(spec: HostSpec, record: Record) -> dict[str, Any]:
    """Return the stamp of a host that has to be tested again: which driver passed last."""
    known = {"mode": spec.smoke.mode, "finished": "", **own_stamp(record)}
    return {**known, "fingerprint": None, "status": "fail", "verdict": None}


def _former_driver(spec: HostSpec, record: Record) -> str:
    """Say how to go back to the driver that passed last, where another one is loaded now."""
    passed = own_stamp(record).get("driver")
    if passed in (None, record.driver.loaded) or spec.driver.source == "present":
        return ""
    return (
        f". With driver {passed} it passed here; to go back, deploy with"
        f" --data driver_version={passed}"
    )


def own_stamp(record: Record) -> dict[str, Any]:
    """Return what the host's stamp says of its own test; empty where it has none."""
    stamp = record.smoke.stamp
    if not isinstance(stamp, Stamp):
        return {}
    return {name: value for name, value in stamp.as_json().items() if name != "across"}


def stamp_file(spec: HostSpec, stamp: Mapping[str, Any]) -> File:
    """Return the stamp as the file in which root keeps it."""
    text = json.dumps(stamp, indent=1, sort_keys=True) + "\n"
    return File(path=spec.paths.stamp, content=text.encode())


def _evidence(state: State, host: Host, spec: HostSpec, record: Record, verdict: Verdict) -> str:
    """Fetch what a failed test has left on the host, as far as it can be read."""
    path = posixpath.normpath(verdict.evidence or "")
    if not path.startswith(f"{spec.paths.state}/"):
        return ""  # the verdict names a file, and not just any file belongs into a report
    command = quoted("head", "-c", str(EVIDENCE_LIMIT), "--", path)
    answer = ask(state, host, command, as_owner(spec, record), seconds=deadlines.PLAIN)
    return "\n".join(answer.stdout) if answer.ok else ""


def _without_verdict(spec: HostSpec, found: Verdict | Unknown | None) -> str:
    """Say that this very test wrote nothing down that counts."""
    why = f" ({found.reason})" if isinstance(found, Unknown) else ""
    return (
        f"the smoke test ended without a verdict for what is installed now{why};"
        f" run it again, or look at {spec.paths.state} there"
    )


# -- with the other hosts of the group


@looking(STAGE, claims=(Id.SMOKE_UNPROVEN_ACROSS_HOSTS,))
def proven_across(spec: HostSpec, record: Record) -> Commands:
    """Ensure that the hosts of this host's group have trained one step together as they are now.

    + spec: the host's resolved specification; without `smoke.across` there is nothing to do

    All hosts of the group have passed their own test before: a host that failed is not among
    those pyinfra still works on. Each host's stamp then names the fingerprints of all hosts, and
    each host compares its own; if one of them finds it changed, all take part again.

    **Example:**

    .. code:: python

        smoke.proven_across(name="Run the multi-node smoke test", spec=wanted)
    """
    if not drift.members(spec):
        return
    found = Findings(drift.judge(spec, record)).of(Id.SMOKE_UNPROVEN_ACROSS_HOSTS)
    if refusal := refused(drift, spec, record, found):
        note_findings(STAGE, spec, found)
        yield refusal
        return
    why = 'smoke = "always"' if spec.smoke.run == "always" else drift.stale_across(spec, record)
    if executing():
        try:
            yield from _with_others(spec, record, why)
        finally:
            meeting().leave(host.name)
    elif why is None:
        _passed_earlier(spec, record)
    else:
        note_findings(STAGE, spec, found)
        yield FunctionCommand(lambda *_: True, (), {})  # a plan only counts it


def _with_others(spec: HostSpec, record: Record, mine: str | None) -> Commands:
    """Take part if any host of the group finds that the step has to be made.

    + mine: why this one does
    """
    told = {
        "why": mine,
        "fingerprint": fingerprint(spec, record, smoke_digest()),
        "mode": drift.across_mode(spec),
        "runs": running(record),
    }
    said, missing = _heard(spec, "step", told)
    why = mine or "; ".join(f"{name}: {each['why']}" for name, each in said.items() if each["why"])
    runs = ", ".join(f"{name} has {each['runs']}" for name, each in said.items() if each["runs"])
    modes = {name: each["mode"] for name, each in said.items()}
    if not why or (missing and mine is None):
        unheard = f"; nothing is known of {brief(missing)}" if missing else ""
        _passed_earlier(spec, record, unheard)
    elif missing:
        yield from _alone(spec, missing, why)
    elif runs:  # a training run has the GPUs of one host, so no host of the group begins
        _put_off(spec, why, f"waits: {runs} on")
    elif len(set(modes.values())) > 1:
        each_as = ", ".join(f"{name} as {mode}" for name, mode in modes.items())
        yield refuse(STAGE, f"{spec.host}: one step cannot run {each_as}: group like hosts")
    else:
        fingerprints = {name: each["fingerprint"] for name, each in said.items()}
        yield from _step_across(spec, record, fingerprints, why)


def _heard(spec: HostSpec, topic: str, mine: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """Tell the other hosts something; return host -> what it told, in the group's order, and who
    told nothing.
    """
    meeting().say(topic, host.name, mine)
    said = meeting().hear(topic, drift.members(spec), _PATIENCE_S)
    told = {name: said[name] for name in drift.members(spec) if name in said}
    return told, [name for name in drift.members(spec) if name not in said]


def _step_across(
    spec: HostSpec, record: Record, fingerprints: Mapping[str, str], why: str
) -> Commands:
    """Make the step with the other hosts.

    + fingerprints: host -> its own
    """
    journal.found(STAGE, drift.unproven_across(spec, why, "note" if "always" in why else "repair"))
    yield from _bundle(spec, record)
    # As with the test of one host: what is not finished must not look proven.
    if drift.across_stamp(record) is not None:
        yield write(STAGE, stamp_file(spec, own_stamp(record)), as_root(spec))
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
    own = [each for each in first["reached"] if each not in alike]
    asked = {
        "hosts": {name: each["ranks"] for name, each in places.items()},
        "address": (own or first["reached"])[0],
        "port": first["port"],
    }
    words = [
        *(spec.paths.python, spec.paths.smoke_bundle, "--mode", drift.across_mode(spec)),
        *("--host", host.name, "--across", json.dumps(asked)),
        *("--deadline", str(first["deadline"]), "--allreduce-mib", str(first["allreduce_mib"])),
        *("--fingerprint", meeting().run_id, "--output", spec.paths.across_verdict),
    ]
    what = f"one step with {drift.others(spec)} ({why})"
    addresses = [each for told in places.values() for each in told["addresses"]]
    yield _started(spec, record, what, words, first["deadline"], addresses)
    yield FunctionCommand(_check_step, (spec, meeting().run_id, fingerprints), {})


def _passed_earlier(spec: HostSpec, record: Record, more: str = "") -> None:
    journal.summary(STAGE, f"with {drift.others(spec)}: passed earlier{more}")
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
    journal.found(STAGE, drift.unproven_across(spec, why, "report"))
    journal.warn(STAGE, f"{spec.host}: the multi-node step is required ({why}) and {until}")
    host.noop("the multi-node step is not made by this run")


def _place(spec: HostSpec, record: Record) -> dict[str, Any]:
    """Return where the other hosts can reach this one, and what must be the same on all: of that
    the first host's is taken.
    """
    across = spec.smoke.across
    assert across is not None  # noqa: S101 - for mypy
    answer = ask(state, host, "hostname -I", as_owner(spec, record), seconds=60)
    has = _addresses(" ".join(answer.stdout).split() if answer.ok else [])
    # IPv6 only where data names an address: most hosts have some that lead nowhere.
    reached = [across.address] if across.address else [each for each in has if ":" not in each]
    return {
        "ranks": 1 if spec.smoke.mode == "rehearsal-1gpu" else drift.ACROSS_RANKS,
        "reached": reached,
        "port": across.port,
        "deadline": spec.smoke.deadline_s,
        "allreduce_mib": spec.smoke.allreduce_mib,
        # Those of all its interfaces: what a rank sends may leave by any of them.
        "addresses": [*has, *reached],
    }


def _addresses(words: Iterable[str]) -> list[str]:
    """Return those of a host's words that are addresses, as a limit can name them.

    A link-local one says nothing of whose it is: on each link there may be another.
    """
    found = []
    for word in words:
        try:
            address = ipaddress.ip_address(word)
        except ValueError:
            continue
        nobodys = address.is_unspecified or address.is_multicast
        if not (nobodys or address.is_link_local or address.is_loopback):
            found.append(str(address))
    return found[:_MOST]


def _check_step(
    state: State, host: Host, spec: HostSpec, run_id: str, fingerprints: Mapping[str, str]
) -> bool:
    """Believe the verdict that the step left on this host; keep what a pass stands for."""
    forget()
    record = look(spec)
    if record is None:
        return failed(host, STAGE, f"{spec.host}: after the step it {unanswered()}")
    path = quoted("head", "-c", str(EVIDENCE_LIMIT), "--", spec.paths.across_verdict)
    answer = ask(state, host, path, as_owner(spec, record), seconds=deadlines.PLAIN)
    verdict = Verdict.read("\n".join(answer.stdout) if answer.ok else None)
    if not isinstance(verdict, Verdict) or verdict.fingerprint != run_id:
        return failed(host, STAGE, f"{spec.host}: {_without_verdict(spec, verdict)}")
    if not verdict.passed:
        journal.across(explained(verdict, record, _evidence(state, host, spec, record, verdict)))
        return _fails(host, verdict)
    journal.across(Explained(verdict))
    stamp = AcrossStamp(hosts=fingerprints, mode=verdict.mode)
    if not (own := own_stamp(record)):  # this step alone proves too little
        why = "its own test has left none"
        return failed(host, STAGE, f"{spec.host}: {_NO_STAMP} ({why})")
    stamp_now = {**own, "across": stamp.as_json()}
    return _stamped(state, host, spec, stamp_now, drift.stale_across)
