"""The proof: ranks that train one step together, and a verdict on the host that says so."""

from __future__ import annotations

import json
import posixpath
from io import BytesIO
from typing import TYPE_CHECKING, Any

from pyinfra import host, state
from pyinfra.api.command import FunctionCommand
from pyinfra.api.state import StateStage
from pyinfra.operations import files

from pyinfra_gpu.diagnosis import evidence as smoke_evidence
from pyinfra_gpu.drift.finding import Deviation
from pyinfra_gpu.drift.fingerprint import differences, fingerprint
from pyinfra_gpu.engine import journal
from pyinfra_gpu.engine.ask import ask
from pyinfra_gpu.engine.converge import Commands, converging, refuse
from pyinfra_gpu.engine.look import forget, look
from pyinfra_gpu.engine.privilege import as_owner, file_owner
from pyinfra_gpu.engine.steps import failed, quoted, step
from pyinfra_gpu.on_host import smoke_bundle, smoke_digest

if TYPE_CHECKING:
    from pyinfra.api.host import Host
    from pyinfra.api.state import State

    from pyinfra_gpu.facts.record import Record
    from pyinfra_gpu.spec import HostSpec

STAGE = "smoke"
EXIT_CODES = (0, 1, 2, 3)
"""The test's: passed, passed with warnings, failed, proves nothing about GPUs. After each of them
the verdict on the host says more than the code."""

PASSED = ("pass", "warn")
"""A test that only warns has passed: its stamp counts, and its warnings are shown."""

_EVIDENCE_BYTES = 768 * 1024
"""The test itself keeps its evidence below 512 KiB."""

CHANGED = "since it passed, changed: "

FEW_HOSTS = 4
"""Up to so many hosts, each check is shown as it passes; with more it would be a wall of text."""


@converging(STAGE)
def proven(spec: HostSpec, record: Record) -> Commands:
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

        smoke.proven(name="Train one step on all ranks", spec=wanted)
    """
    if spec.smoke.run == "skip":
        journal.found(STAGE, "skipped by data")
        journal.warn(STAGE, f'{spec.host}: smoke = "skip" is declared, so nothing is proven')
        host.noop("the smoke test is switched off by data")
        return
    if spec.smoke.accept == "two-gpus" and spec.smoke.mode != "gpu":
        yield refuse(
            STAGE,
            f"{spec.host}: smoke_accept = 'two-gpus' is declared, and this host's test would be"
            f" {spec.smoke.mode}, which proves nothing about two GPUs: declare two real GPUs, or"
            " smoke_accept = 'proof'",
        )
        return
    owed = owed_because(spec, record)
    journal.found(STAGE, owed or "passed earlier, nothing changed since")
    if owed is None:
        _keep_verdict(read_object(record.smoke.verdict_text))
        host.noop("the smoke test passed with this very configuration")
        return
    journal.deviation(STAGE, _deviation(spec, owed))
    journal.changed(STAGE, f"test of {spec.smoke.ranks} ranks")
    if record.torch.python is None and state.current_stage == StateStage.Execute:
        yield refuse(
            STAGE,
            f"{spec.host}: there is no virtual environment at {spec.paths.venv} to test yet: run"
            " pyinfra INVENTORY deploy.py first",
        )
        return
    yield from _run(spec, record, owed)


def _deviation(spec: HostSpec, owed: str) -> Deviation:
    """Say what is not proven. A reboot owes a test, and yet is not drift: nobody is to be called
    at night because a host was rebooted.
    """
    rebooted = owed == f"{CHANGED}the boot"
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
    return 'smoke = "always"' if spec.smoke.run == "always" else _stale(spec, record)


def _stale(spec: HostSpec, record: Record) -> str | None:
    """Return why the stamp does not count, None if it does."""
    text = record.smoke.stamp_text
    if text is None:
        failed = read_object(record.smoke.verdict_text).get("status") == "fail"
        return "the last test failed" if failed else "never passed here"
    try:
        stamp = json.loads(str(text))
        if stamp["status"] not in PASSED:
            return "the last test did not pass"
        noted = stamp["fingerprint"]
        mode = stamp["mode"]
    except (ValueError, KeyError, TypeError):
        return "the stamp is not readable"
    changed = differences(str(noted), fingerprint(spec, record, smoke_digest()))
    if not changed and mode != spec.smoke.mode:
        return f"it passed as {mode}"
    return f"{CHANGED}{', '.join(changed)}" if changed else None


def _run(spec: HostSpec, record: Record, owed: str) -> Commands:
    yield from bundle(spec, record)
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
        success=EXIT_CODES,
    )
    yield FunctionCommand(_check_verdict, (spec, str(record.smoke.verdict_text)), {})


def bundle(spec: HostSpec, record: Record) -> Commands:
    """Yield what puts the test's program onto the host."""
    yield from files.put._inner(
        src=BytesIO(smoke_bundle()),
        dest=spec.paths.smoke_bundle,
        mode="0644",
        user=file_owner(spec, record),
        create_remote_dir=False,
    )


def _command(spec: HostSpec, record: Record) -> list[str]:
    paths, smoke = spec.paths, spec.smoke
    gpus = [] if smoke.mode == "rehearsal-cpu" else ["--gpus", str(spec.gpu.count)]
    return [
        *(paths.python, paths.smoke_bundle, "--mode", smoke.mode, *gpus),
        *("--ranks", str(smoke.ranks), "--deadline", str(smoke.deadline_s)),
        *("--allreduce-mib", str(smoke.allreduce_mib), "--host", spec.host),
        *("--fingerprint", fingerprint(spec, record, smoke_digest())),
        *("--output", paths.verdict, "--stamp", paths.stamp),
        *([] if spec.environment.dynamo else ["--no-compile"]),
    ]


def _check_verdict(state: State, host: Host, spec: HostSpec, before: str) -> bool:
    """Believe the stamp on the host, not the exit code of a command.

    + before: the verdict that stood there before the test: it does not count
    """
    forget()
    record = look(spec)
    if record is None:
        return False
    verdict = read_object(record.smoke.verdict_text)
    current = fingerprint(spec, record, smoke_digest())
    if verdict.get("fingerprint") != current or str(record.smoke.verdict_text) == before:
        verdict = {}
    if verdict and _stale(spec, record) is None:
        _keep_verdict(verdict)
        return True
    if verdict:
        evidence = _evidence(state, host, spec, record, verdict)
        verdict = smoke_evidence.explained(verdict, record, evidence)
        _keep_verdict(verdict)
    return failed(host, STAGE, f"{spec.host}: {_failure(spec, verdict)}")


def _evidence(
    state: State, host: Host, spec: HostSpec, record: Record, verdict: dict[str, Any]
) -> str:
    """Fetch what a failed test has left on the host, as far as it can be read."""
    path = posixpath.normpath(str(verdict.get("evidence") or ""))
    if not path.startswith(f"{spec.paths.smoke}/"):
        return ""  # the verdict names a file, and not just any file belongs into a report
    command = quoted("head", "-c", str(_EVIDENCE_BYTES), "--", path)
    answer = ask(state, host, command, as_owner(spec, record), _timeout=30)
    return "\n".join(answer.stdout) if answer.ok else ""


def _failure(spec: HostSpec, verdict: dict[str, Any]) -> str:
    """Say which check failed and why, if this very test wrote that down."""
    failed = verdict.get("failed")
    if not isinstance(failed, dict):
        return (
            "the smoke test ended without a verdict for what is installed now;"
            f" run it again, or look at {spec.paths.smoke} there"
        )
    return f"the smoke test failed at {failed.get('id')}: {failed.get('sentence')}"


def _keep_verdict(verdict: dict[str, Any]) -> None:
    if verdict:
        journal.verdict(verdict)


def read_object(text: object) -> dict[str, Any]:
    """Read a JSON object; anything else, half a file for instance, is an empty one."""
    try:
        value = json.loads(str(text))
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}
