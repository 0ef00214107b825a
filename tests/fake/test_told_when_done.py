"""What is told as done was done: nothing of it in a plan, or where it failed before."""

from __future__ import annotations

from dataclasses import replace

import pytest
from gpu_host import GpuHost, GpuRun

from pyinfra_gpu.engine.journal import Journal
from pyinfra_gpu.stages.driver import operations
from tasks.stages import base, driver, preflight

MINE = "f" * 40
KEPT = "/opt/x was at ffffffffffff, which no branch or tag had: branch y keeps it"


def reported(host: GpuHost, *, plan: bool = False, task: object = base) -> list[str]:
    made = GpuRun(host, GpuHost(name="ws2"), tasks=(task,))  # type: ignore[arg-type]
    journal = Journal(lambda state, journal: None)
    made.state.add_callback_handler(journal)  # type: ignore[no-untyped-call]
    made.prepare()
    if not plan:
        made.execute()
        assert made.failed() == {"ws1"}  # a fake host stays as it is
    entries = [each for name in journal.entries for each in journal.of(name)]
    return [warning for entry in entries for warning in entry.warnings]


def elsewhere(*said: str, works: bool = True) -> GpuHost:
    """A host whose checkout is at another commit, and what the command says that moves it."""
    answer = {"success": works, "stdout": list(said)}
    data = {
        **GpuHost().data,
        "training_repo": "https://example.org/tiny.git",
        "training_commit": "0123456789abcdef0123456789abcdef01234567",
    }
    return GpuHost(data=data, reported={"training.commit": MINE}, responses={"checkout.sh": answer})


def test_a_commit_is_called_kept_when_the_host_says_so_and_not_before() -> None:
    note = f"pyinfra-gpu-note: {KEPT}"
    assert reported(elsewhere(note), plan=True) == []
    assert reported(elsewhere()) == []
    assert reported(elsewhere("fatal: no such host", works=False)) == []
    for works in (True, False):
        (warning,) = reported(elsewhere("before", note, "after", works=works))
        assert warning.endswith(f"ws1: {KEPT}")


def test_a_plan_refuses_a_host_whose_training_repository_cannot_be_fetched() -> None:
    host, answer = elsewhere(), {"success": False, "stdout": ["it has no commit 0123"]}
    host = replace(host, responses={"reachable.sh": answer})
    run = GpuRun(host, GpuHost(name="ws2"), tasks=(preflight, base)).prepare().execute()
    assert run.failed() == {"ws1"}
    assert "checkout.sh" not in "".join(run.executed("ws1"))


@pytest.mark.parametrize("rebooted", [True, False])
def test_a_reboot_that_was_refused_has_ended_nobodys_work(
    rebooted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def restart(*_: object) -> bool:
        return None if rebooted else "refused"

    monkeypatch.setattr(operations, "restart", restart)
    host = GpuHost(
        data={**GpuHost().data, "driver_reboot": "always"},
        reported={
            "driver.loaded": None,
            "driver.open_modules": None,
            "driver.nouveau": True,
            "driver.users": ["pid 812 (python3) of alice"],
        },
    )
    ended = [each for each in reported(host, task=driver) if "alice" in each]
    words = "the reboot ended pid 812 (python3) of alice, as driver_reboot = 'always' says"
    assert [each.partition(": ")[2] for each in ended] == ([words] if rebooted else [])
