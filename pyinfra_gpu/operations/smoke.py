"""The proof: ranks that train one step together, and a verdict on the host that says so."""

from __future__ import annotations

import json
import posixpath
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from pyinfra import state
from pyinfra.api.command import FunctionCommand
from pyinfra.api.state import StateStage

from pyinfra_gpu.diagnosis.explained import EVIDENCE_LIMIT, Explained, explained
from pyinfra_gpu.drift import smoke as drift
from pyinfra_gpu.drift.finding import Findings, Id
from pyinfra_gpu.drift.fingerprint import fingerprint
from pyinfra_gpu.drift.pytorch import has_fallback
from pyinfra_gpu.drift.rules import if_known
from pyinfra_gpu.engine import deadlines, journal, reach
from pyinfra_gpu.engine.ask import ask
from pyinfra_gpu.engine.converge import Commands, converging, fresh, refuse
from pyinfra_gpu.engine.look import forget, look, unanswered
from pyinfra_gpu.engine.privilege import as_owner, as_root
from pyinfra_gpu.engine.steps import LOCK_WAIT_S, failed, locked, quoted, step
from pyinfra_gpu.engine.write import File, write, written
from pyinfra_gpu.facts.fields import Unknown
from pyinfra_gpu.facts.verdict import Stamp, Verdict
from pyinfra_gpu.host_names import FEW
from pyinfra_gpu.stacks.bundle import smoke_bundle, smoke_digest

if TYPE_CHECKING:
    from pyinfra.api.host import Host
    from pyinfra.api.state import State

    from pyinfra_gpu.facts.record import Record
    from pyinfra_gpu.spec import HostSpec

STAGE = drift.STAGE
EXIT_CODES = (0, 1, 2, 3)
"""The test's: passed, passed with warnings, failed, proves nothing about GPUs. After each of them
the verdict on the host says more than the code."""

_NO_STAMP = "the smoke test passed, and its stamp does not say so"


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
    if record.torch.python is None and state.current_stage == StateStage.Execute:
        yield refuse(
            STAGE,
            f"{spec.host}: there is no virtual environment at {spec.paths.venv} to test yet: run"
            " pyinfra INVENTORY deploy.py first",
        )
        return
    yield from _run(spec, record, found[0].found)


def _run(spec: HostSpec, record: Record, owed: str) -> Commands:
    yield from bundle(spec, record)
    # From here on an earlier pass says nothing: if this test fails, or is cut off, no stamp may be
    # left that calls the host proven.
    if record.smoke.stamp is not None:
        yield write(STAGE, stamp_file(spec, withdrawn(spec, record)), as_root(spec))
    # What was installed by this very run is part of the fingerprint, so look again.
    record = fresh(spec, record)
    # The owner waits for the lock, so nothing that is waited for stands between root and them.
    command = locked(quoted(*_command(spec, record)), spec.paths.lock)
    patience = LOCK_WAIT_S + 2 * spec.smoke.deadline_s
    command, run_as = reach.limited(spec, record, command, patience)
    yield step(
        STAGE,
        f"smoke test, {spec.smoke.ranks} ranks ({owed})",
        command,
        run_as=run_as,
        seconds=patience + deadlines.SERVICE,
        stream=len(state.inventory) <= FEW,
        success=EXIT_CODES,
    )
    yield FunctionCommand(_check_verdict, (spec, record.smoke.verdict), {})


def bundle(spec: HostSpec, record: Record) -> Commands:
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
        *([] if spec.smoke.limit_network else ["--open-network"]),
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
        return _stamped(state, host, spec, stamp_of(verdict, record))
    evidence = _evidence(state, host, spec, record, verdict)
    journal.verdict(explained(verdict, record, evidence))
    return failed(host, STAGE, f"{spec.host}: {_failure(verdict)}{_former_driver(spec, record)}")


def _stamped(state: State, host: Host, spec: HostSpec, stamp: Mapping[str, Any]) -> bool:
    """Keep what this pass stands for, where the owner cannot write; look whether it counts."""
    file = stamp_file(spec, stamp)
    if not written(state, host, STAGE, file, as_root(spec)):
        return False
    forget()
    record = look(spec)
    stale = drift.stale(spec, record) if record else unanswered()
    return stale is None or failed(host, STAGE, f"{spec.host}: {_NO_STAMP} ({stale})")


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


def _failure(verdict: Verdict) -> str:
    """Say which check failed and why."""
    assert verdict.failed is not None  # noqa: S101 - see `Verdict._agrees`
    return f"the smoke test failed at {verdict.failed.id}: {verdict.failed.sentence}"
