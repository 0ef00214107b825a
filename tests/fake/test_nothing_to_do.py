"""A host with nothing to do gets no operations, and the report says what it ever did."""

from __future__ import annotations

from typing import Any

import pytest
import test_stages
from fake_host import FakeHost, FakeRun
from gpu_host import GpuHost
from proven_host import proven_host
from pyinfra.api.state import StateStage
from pyinfra.context import ctx_state

from pyinfra_gpu.engine.journal import Journal
from pyinfra_gpu.report import run as report
from pyinfra_gpu.stages.layout import findings as layout
from pyinfra_gpu.stages.rules import Rules

CPU = FakeHost().data
HOSTS: dict[str, FakeHost] = {
    "as declared": FakeHost(),
    "with GPUs": proven_host(),
    "bare": FakeHost(bare=True),
    "silent": FakeHost(answers=False),
    "with a run that trains": FakeHost(reported={"launcher.runs": ["1 balanced running"]}),
    "bare, in the middle of apt": FakeHost(
        bare=True,
        reported={"packages.lock_holder": "apt (pid 8)"},
        data={**CPU, "preflight_apt_wait_s": 0},
    ),
    "with a full disk": FakeHost(reported={"storage.free_mib": 0}),
    **{f"refused: {name}": each for name, each in [*test_stages.REFUSED.items()][:1]},
    "that does not tell": GpuHost(reported={"driver.loaded": "?no permission"}),
}


def operations(run: FakeRun, name: str) -> int:
    """Return how many operations pyinfra has for a host."""
    return len(run.state.ops[run.state.inventory.get_host(f"@fake/{name}")])


def ended(host: FakeHost, *, asks: bool, leaves_alone: bool) -> tuple[FakeRun, dict[str, Any]]:
    """Go through a run as far as a host may; return it, and what is reported of the host."""
    run = FakeRun(host, FakeHost(name="other"), asks=asks)
    book = Journal(lambda state, book: None)
    run.state.add_callback_handler(book)  # type: ignore[no-untyped-call]
    with ctx_state.use(run.state):
        run.prepare(leaves_alone=leaves_alone).execute()
        run.state.current_stage = StateStage.Disconnect
        reported = report.as_json(run.state, book)["hosts"][f"@fake/{host.name}"]
    for stage in reported["stages"]:
        del stage["seconds"]
    return run, reported


@pytest.mark.parametrize("asks", [True, False], ids=["after a plan", "with -y"])
@pytest.mark.parametrize("name", HOSTS)
def test_what_is_reported_is_the_same_and_a_host_is_left_alone_only_where_nothing_acts(
    name: str, asks: bool
) -> None:
    before, told_before = ended(HOSTS[name], asks=asks, leaves_alone=False)
    after, reported = ended(HOSTS[name], asks=asks, leaves_alone=True)
    assert reported == told_before
    done = [run.executed(HOSTS[name].name) for run in (after, before)]
    assert done[0] == done[1]
    if not operations(after, HOSTS[name].name):
        assert reported["status"] in ("as declared", "left alone")
        assert done[1] == []


@pytest.mark.parametrize("name", ["as declared", "with GPUs"])
@pytest.mark.parametrize("asks", [True, False], ids=["after a plan", "with -y"])
def test_a_host_with_nothing_to_do_is_looked_at_once_and_takes_no_operation(
    name: str, asks: bool
) -> None:
    run, reported = ended(HOSTS[name], asks=asks, leaves_alone=True)
    assert reported["status"] == "as declared"
    assert operations(run, "ws1") == 0
    assert run.looks("ws1") == 1


def test_of_a_host_with_work_nothing_is_told_before_its_operations() -> None:
    """A deploy that ends there, by whatever error, must not call it as declared."""
    run = FakeRun(FakeHost(bare=True), FakeHost(name="other"), asks=False)
    book = Journal(lambda state, book: None)
    run.state.add_callback_handler(book)  # type: ignore[no-untyped-call]
    with ctx_state.use(run.state):
        run.prepare(leaves_alone=True)
        reported = report.as_json(run.state, book)["hosts"]
    assert (book.of("@fake/ws1"), [*book.looks]) == ([], ["@fake/other"])
    assert reported["@fake/ws1"]["status"] == "not looked at"
    assert reported["@fake/other"]["status"] == "as declared"


@pytest.mark.parametrize("why", ["somebody asks to see each operation", "there is no report"])
def test_each_operation_is_there_where(why: str) -> None:
    run = FakeRun(FakeHost())
    if why.startswith("somebody"):
        run.state.print_noop_info = True
        run.state.add_callback_handler(Journal(lambda state, book: None))  # type: ignore[no-untyped-call]
    assert operations(run.prepare(leaves_alone=True), "ws1")


def test_a_host_that_cannot_be_judged_fails_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(spec: Any, record: Any) -> Any:
        if spec.host.endswith("ws1"):
            raise RecursionError("too deep")
        return ()

    monkeypatch.setattr(layout, "judge", Rules(broken, layout.judge))
    run, reported = ended(FakeHost(), asks=False, leaves_alone=True)
    assert reported["status"] == "failed"
    assert run.failed() == {"ws1"}
    assert operations(run, "other") == 0
