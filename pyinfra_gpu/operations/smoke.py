"""The proof: ranks that train one step together, and a verdict on the host that says so."""

from __future__ import annotations

import json
from io import BytesIO
from typing import TYPE_CHECKING, Any

from pyinfra import host, state
from pyinfra.api.command import FunctionCommand
from pyinfra.api.state import StateStage
from pyinfra.operations import files

from pyinfra_gpu import journal
from pyinfra_gpu.deviation import Deviation
from pyinfra_gpu.facts.look import forget, look
from pyinfra_gpu.fingerprint import differences, fingerprint
from pyinfra_gpu.on_host import smoke_bundle, smoke_digest
from pyinfra_gpu.operations.converge import Commands, converging, refuse
from pyinfra_gpu.operations.steps import failed, quoted, step
from pyinfra_gpu.privilege import as_owner, file_owner

if TYPE_CHECKING:
    from pyinfra.api.host import Host
    from pyinfra.api.state import State

    from pyinfra_gpu.facts.record import Record
    from pyinfra_gpu.spec import HostSpec

STAGE = "smoke"
FAILED = 2
"""The test's exit code for "failed"."""

NOT_PROOF = 3
"""The test's exit code for "passed, but proves nothing about GPUs" (a rehearsal mode)."""

_CHANGED = "since it passed, changed: "

FEW_HOSTS = 4
"""Up to so many hosts, each check is shown as it passes; with more it would be a wall of text."""


@converging(STAGE)
def proven(spec: HostSpec, record: Record) -> Commands:
    """Ensure that the smoke test passed on this host as it is now.

    + spec: the host's resolved specification

    A pass leaves a stamp on the host, keyed by a fingerprint of all that the result depends on.
    While the fingerprint is the same there is nothing to do; ``smoke = "always"`` runs the test
    anyway, ``smoke = "skip"`` leaves it out, and says so.

    **Example:**

    .. code:: python

        smoke.proven(name="Train one step on all ranks", spec=wanted)
    """
    if spec.smoke.run == "skip":
        journal.found(STAGE, "skipped by data")
        journal.warn(STAGE, f'{spec.host}: smoke = "skip" is declared, so nothing is proven')
        host.noop("the smoke test is switched off by data")
        return
    if spec.accelerator == "nvidia" and not spec.rehearsal:
        yield refuse(
            STAGE,
            f"{spec.host}: everything before the smoke test is done; the GPU smoke test is not part"
            ' of this release, so nothing is proven: declare `smoke = "skip"` to accept that',
        )
        return
    owed = owed_because(spec, record)
    journal.found(STAGE, owed or "passed earlier, nothing changed since")
    if owed is None:
        _keep_verdict(record)
        host.noop("the smoke test passed with this very configuration")
        return
    journal.deviation(STAGE, _deviation(spec, owed))
    journal.changed(STAGE, f"test of {spec.smoke.ranks} ranks")
    yield from _run(spec, record, owed)


def _deviation(spec: HostSpec, owed: str) -> Deviation:
    """Say what is not proven. A reboot owes a test, and yet is not drift: nobody is to be called
    at night because a host was rebooted.
    """
    rebooted = owed == f"{_CHANGED}the boot"
    asked = spec.smoke.run == "always"
    return Deviation(
        id="smoke.proof-before-boot" if rebooted else "smoke.unproven",
        found=owed,
        expected="a smoke test that passed on what is there now",
        effect="note" if rebooted or asked else "repair",
        action=f"test of {spec.smoke.ranks} ranks",
    )


def owed_because(spec: HostSpec, record: Record) -> str | None:
    """Return why the test has to run, in a few words, or None when its stamp is good."""
    if spec.smoke.run == "always":
        return 'smoke = "always"'
    text = record.smoke.stamp_text
    if text is None:
        failed = _object(record.smoke.verdict_text).get("status") == "fail"
        return "the last test failed" if failed else "never passed here"
    try:
        stamp = json.loads(str(text))
        if stamp["status"] != "pass":
            return "the last test did not pass"
        noted = stamp["fingerprint"]
    except (ValueError, KeyError, TypeError):
        return "the stamp is not readable"
    changed = differences(str(noted), fingerprint(spec, record, smoke_digest()))
    return f"{_CHANGED}{', '.join(changed)}" if changed else None


def _run(spec: HostSpec, record: Record, owed: str) -> Commands:
    owner = file_owner(spec, record)
    yield from files.put._inner(
        src=BytesIO(smoke_bundle()),
        dest=spec.paths.smoke_bundle,
        mode="0644",
        user=owner,
        create_remote_dir=False,
    )
    # What was installed by this very run is part of the fingerprint, so look again.
    if state.current_stage == StateStage.Execute:
        forget()
        record = look(spec) or record
    yield step(
        STAGE,
        f"smoke test, {spec.smoke.ranks} ranks ({owed})",
        quoted(*_command(spec, record)),
        run_as=as_owner(spec, record),
        lock=spec.paths.lock,
        stream=len(state.inventory) <= FEW_HOSTS,
        success=(0, FAILED, NOT_PROOF),  # a failed test has written its reason down
    )
    yield FunctionCommand(_check_verdict, (spec,), {})


def _command(spec: HostSpec, record: Record) -> list[str]:
    paths = spec.paths
    return [
        *(paths.python, paths.smoke_bundle, "--mode", "rehearsal-cpu"),
        *("--ranks", str(spec.smoke.ranks), "--deadline", str(spec.smoke.deadline_s)),
        *("--allreduce-mib", str(spec.smoke.allreduce_mib), "--host", spec.host),
        *("--fingerprint", fingerprint(spec, record, smoke_digest())),
        *("--output", paths.verdict, "--stamp", paths.stamp),
    ]


def _check_verdict(state: State, host: Host, spec: HostSpec) -> bool:
    """Believe the stamp on the host, not the exit code of a command."""
    forget()
    record = look(spec)
    if record is None:
        return False
    _keep_verdict(record)
    current = fingerprint(spec, record, smoke_digest())
    stamp, verdict = _object(record.smoke.stamp_text), _object(record.smoke.verdict_text)
    passed = verdict.get("status") == "pass" and verdict.get("fingerprint") == current
    if passed and stamp.get("fingerprint") == current:
        return True
    return failed(host, STAGE, f"{spec.host}: {_failure(spec, verdict, current)}")


def _failure(spec: HostSpec, verdict: dict[str, Any], current: str) -> str:
    """Say which check failed and why, if this very test wrote that down."""
    failed = verdict.get("failed")
    if verdict.get("fingerprint") != current or not isinstance(failed, dict):
        return (
            "the smoke test ended without a verdict for what is installed now;"
            f" run it again, or look at {spec.paths.smoke} there"
        )
    tail = [line for line in failed.get("tail") or () if str(line).strip()]
    last = f" ({str(tail[-1]).strip()[:200]})" if tail else ""
    return (
        f"the smoke test failed at {failed.get('id')}: {failed.get('sentence')}{last};"
        f" the verdict is {spec.paths.verdict}, the ranks' logs are below"
        f" {verdict.get('logs', spec.paths.smoke)}"
    )


def _keep_verdict(record: Record) -> None:
    if value := _object(record.smoke.verdict_text):
        journal.verdict(value)


def _object(text: object) -> dict[str, Any]:
    """Read a JSON object; anything else, half a file for instance, is an empty one."""
    try:
        value = json.loads(str(text))
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}
