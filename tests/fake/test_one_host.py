"""One host's failure is one host's failure: in the plan, while it is acted on, in the report."""

from __future__ import annotations

from typing import Any

import pytest
from fake_host import FakeHost, FakeRun

from pyinfra_gpu.engine.journal import Journal
from pyinfra_gpu.stages.layout import findings as layout
from pyinfra_gpu.stages.rules import Rules

ERRORS = [RecursionError("too deep"), ValueError("\x1b[2Jodd")]


@pytest.fixture(params=ERRORS, ids=lambda error: type(error).__name__)
def error(request: pytest.FixtureRequest) -> Exception:
    made: Exception = request.param
    return made


def pair(**changes: Any) -> list[FakeHost]:
    return [FakeHost(name="good", **changes), FakeHost(name="odd", **changes)]


def kept(run: FakeRun) -> Journal:
    book = Journal(lambda state, book: None)
    run.state.add_callback_handler(book)  # type: ignore[no-untyped-call]
    return book


def problem_of(book: Journal) -> str:
    entries = [each for host in book.entries for each in book.of(host)]
    (problem,) = [each.problem for each in entries if each.problem]
    return problem


def broken_for(host: str, own: Any, error: Exception) -> Any:
    """Return the function, which raises where it is asked about this host."""

    def judge(spec: Any, *arguments: Any) -> Any:
        if spec.host.endswith(host):
            raise error
        return own(spec, *arguments)

    return judge


def test_a_judge_that_breaks_refuses_its_host_and_no_other(
    error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    alone = FakeRun(FakeHost(name="good", bare=True)).prepare().plan("good")
    monkeypatch.setattr(layout, "judge", Rules(broken_for("odd", layout.judge, error)))
    run = FakeRun(*pair(bare=True))
    book = kept(run)
    run.prepare()
    assert run.plan("good") == alone
    assert run.failed() == {"odd"}
    problem = problem_of(book)
    assert problem.startswith("@fake/odd: layout: this could not be judged")
    assert type(error).__name__ in problem
    assert problem.isprintable()


def test_a_step_that_breaks_fails_its_host_and_the_others_go_on(
    error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    good, odd = pair()
    odd.reported = {"packages.installed": {"git": "1:2.39.5"}}
    run = FakeRun(good, odd).prepare()
    book = kept(run)

    def broken(state: Any, host: Any, stage: str, spec: Any) -> bool:
        raise error

    monkeypatch.setattr("pyinfra_gpu.engine.transaction.wait_for_lock", broken)
    run.execute()
    assert run.failed() == {"odd"}
    problem = problem_of(book)
    assert "this could not be judged" in problem
    assert type(error).__name__ in problem


def test_with_v_the_traceback_is_there_and_without_it_is_not(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(
        layout, "judge", Rules(broken_for("odd", layout.judge, ValueError("\x1b[2Jx")))
    )
    FakeRun(*pair()).prepare()
    assert "Traceback" not in caplog.text
    run = FakeRun(*pair())
    run.state.print_noop_info = True
    run.prepare()
    assert "Traceback" in caplog.text
    assert "in judge" in caplog.text
    assert "\x1b[2J" not in caplog.text


def test_one_machine_under_two_names_is_said_before_anything_is_written() -> None:
    box = {"system.hostname": "box"}
    run = FakeRun(*(FakeHost(name=name, reported=box, bare=True) for name in ("good", "odd")))
    book = kept(run)
    run.prepare()
    assert "is the same machine as @fake/good: declare it by one name" in problem_of(book)
