"""Who ended a run, told from journals and from torchrun's summary as torch 2.13 prints it."""

from __future__ import annotations

import pytest
from pyinfra_gpu.on_host.smoke.judge import failure
from pyinfra_gpu.on_host.smoke.launcher import hang

from pyinfra_gpu.on_host.smoke.journal import Journal

_SUMMARY = """\
torch.distributed.elastic.multiprocessing.errors.ChildFailedError:
============================================================
smoke_test.pyz FAILED
------------------------------------------------------------
Failures:
{others}
------------------------------------------------------------
Root Cause (first observed failure):
{root}
============================================================
"""
_ENTRY = """\
[{index}]:
  time      : 2026-11-21_08:21:20
  host      : box
  rank      : {rank} (local_rank: {rank})
  exitcode  : {code} (pid: {pid}) {name}
  error_file: <N/A>
  traceback : To enable traceback see: https://pytorch.org/docs/stable/elastic/errors.html"""


def _log(*codes: tuple[int, int]) -> str:
    entries = [
        _ENTRY.format(index=index, rank=rank, code=code, pid=100 + rank, name="")
        for index, (rank, code) in enumerate(codes)
    ]
    return _SUMMARY.format(root=entries[0], others="\n".join(entries[1:]) or "  <NO_OTHER>")


def _journal(rank: int, *steps: str, **known: object) -> Journal:
    journal = Journal(rank, pid=100 + rank, started=1.0, steps=list(steps))
    for name, value in known.items():
        setattr(journal, name, value)
    return journal


def _ended(log: str, *journals: Journal, code: int = 1) -> failure.Failure:
    return failure.ended({journal.rank: journal for journal in journals}, 2, code, log)


def test_exit_codes_and_signals_are_read_from_the_summary() -> None:
    assert failure.exit_codes(_log((1, -9), (0, 1), (12, -15))) == {1: -9, 0: 1, 12: -15}


def test_a_log_without_a_summary_has_no_exit_codes() -> None:
    assert failure.exit_codes("Traceback (most recent call last):\n rank failed\n") == {}


def test_a_killed_rank_is_named_although_its_peer_raised() -> None:
    found = _ended(
        _log((0, 1), (1, -9)),
        _journal(0, "send_recv", error="RuntimeError: connection closed", error_time=5.0),
        _journal(1, "send_recv", gone=4.9),
    )
    assert found == failure.Failure(
        "rank 1 (pid 101) was ended by signal 9 (SIGKILL) at 'send_recv', before its work was done",
        1,
    )


def test_the_rank_that_torchrun_ended_is_not_blamed() -> None:
    found = _ended(
        _log((0, 1), (1, -15)),
        _journal(0, "broadcast", error="ValueError: no\nmore lines", error_time=5.0),
        _journal(1, "broadcast", gone=5.2),
    )
    assert found == failure.Failure("rank 0 (pid 100) raised at 'broadcast': ValueError: no", 0)


def test_a_rank_that_aborts_after_its_peer_was_lost_is_not_blamed() -> None:
    found = _ended(
        _log((1, -6), (0, 1)),
        _journal(0, "broadcast", error="ValueError: no", error_time=5.0),
        _journal(1, "broadcast", error="RuntimeError: closed", error_time=5.1, gone=5.1),
    )
    assert found.rank == 0


def test_a_rank_that_left_in_silence_is_named_although_its_peer_raised() -> None:
    found = _ended(
        _log((0, 1)),
        _journal(0, "broadcast", error="RuntimeError: connection closed", error_time=5.0),
        _journal(1, "store", gone=4.0),
    )
    assert found.sentence == (
        "rank 1 (pid 101) ended without an error at 'store', before its work was done"
    )


def test_of_two_that_raised_the_first_is_named() -> None:
    found = _ended(
        _log((0, 1), (1, 1)),
        _journal(0, "gradients", error="RuntimeError: second", error_time=5.1),
        _journal(1, "gradients", error="RuntimeError: first", error_time=5.0),
    )
    assert found.rank == 1


def test_of_two_that_were_killed_the_one_that_went_first_is_named() -> None:
    found = _ended(
        _log((0, -6), (1, -11)), _journal(0, "init", gone=3.2), _journal(1, "init", gone=3.1)
    )
    assert found.rank == 1
    assert "signal 11 (SIGSEGV)" in found.sentence


def test_an_exit_code_is_told() -> None:
    found = _ended(_log((1, 7)), _journal(0, finished=True), _journal(1, "import", gone=2.0))
    assert "rank 1 (pid 101) ended with exit code 7 at 'import'" in found.sentence


def test_a_rank_that_never_started_is_named_with_torchruns_exit_code() -> None:
    found = _ended("no such file", code=2)
    assert found == failure.Failure("rank 0 never started, torchrun ended with exit code 2", None)


def test_an_abort_after_the_work_is_called_that() -> None:
    found = _ended(_log((1, -6)), _journal(0, finished=True), _journal(1, finished=True))
    assert found.sentence == "rank 1 was ended by signal 6 (SIGABRT) after its work was done"


def test_an_abort_after_the_work_is_blamed_before_the_peer_that_torchrun_then_ended() -> None:
    found = _ended(_log((0, -6), (1, -15)), _journal(0, finished=True), _journal(1, "teardown"))
    assert found.sentence == "rank 0 was ended by signal 6 (SIGABRT) after its work was done"


def test_torchrun_is_named_when_all_ranks_did_their_work() -> None:
    found = _ended("", _journal(0, finished=True), _journal(1, finished=True), code=3)
    assert found.sentence == "torchrun ended with exit code 3"


@pytest.mark.parametrize("code", [-15, -64])
def test_odd_signals_are_told_by_number(code: int) -> None:
    log = _log((0, code), (1, code))
    found = _ended(log, _journal(0, "init", gone=3.0), _journal(1, "init", gone=3.1))
    assert f"signal {-code}" in found.sentence


def test_at_the_deadline_the_rank_that_has_come_least_far_is_named() -> None:
    journals = {0: _journal(0, "import", "init", "store"), 1: _journal(1, "import", "init")}
    found = failure.at_deadline(journals, 2, 60)
    assert found == failure.Failure("rank 1 was still at 'init' after 60 s (the deadline)", 1)


def test_at_the_deadline_no_rank_is_singled_out_where_all_stand_together() -> None:
    journals = {rank: _journal(rank, "import", "init") for rank in (0, 1)}
    found = failure.at_deadline(journals, 2, 60)
    assert found.sentence == "all ranks were still at 'init' after 60 s (the deadline)"
    assert found.rank is None


def test_a_process_that_tries_a_device_is_called_that() -> None:
    names = failure.SINGLES
    one = {0: _journal(0, "import", "compile")}
    assert failure.at_deadline(one, 1, 36, names, "S3's deadline") == failure.Failure(
        "process 0 was still at 'compile' after 36 s (S3's deadline)", None
    )
    log = "process : 1\n  exitcode : -11 (pid: 101)"
    died = {0: _journal(0, finished=True), 1: _journal(1, "import", gone=2.0)}
    assert failure.ended(died, 2, 1, log, names).sentence == (
        "process 1 (pid 101) was ended by signal 11 (SIGSEGV) at 'import', before its work was done"
    )
    assert failure.ended({}, 1, 1, "", names).sentence == (
        "process 0 never started, their starter ended with exit code 1"
    )


def test_at_the_deadline_a_rank_that_never_started_is_named() -> None:
    assert failure.at_deadline({0: _journal(0)}, 2, 60).sentence == (
        "rank 1 had not started after 60 s (the deadline)"
    )


def test_a_stack_is_turned_round_and_its_calls_are_short() -> None:
    dump = (
        "Thread 0x00007f (most recent call first):\n"
        '  File "/usr/lib/python3.11/threading.py", line 324 in wait\n'
        "\n"
        "Current thread 0x00007e (most recent call first):\n"
        '  File "/opt/x/venv/lib/python3.11/site-packages/torch/distributed/c10d.py", line 7 in a\n'
        '  File "/opt/x/smoke/smoke_test.pyz/smoke/worker.py", line 95 in main\n'
        '  File "<frozen runpy>", line 88 in _run_code\n'
    ).splitlines()
    shown = [
        "it stood here, the innermost call last:",
        "  <frozen runpy>:88 in _run_code",
        "  smoke/worker.py:95 in main",
        "  torch/distributed/c10d.py:7 in a",
    ]
    assert hang.main_stack(dump) == shown
    assert hang.main_stack([*dump[3:], "", *dump[:2]]) == shown
    assert hang.main_stack(["no stack"]) == ["no stack"]


def test_all_processes_that_hang_are_named_in_plain_english() -> None:
    journals = {number: Journal(number, pid=1, steps=["import"]) for number in (0, 1)}
    found = failure.at_deadline(journals, 2, 40, failure.SINGLES, "S1's deadline")
    assert found.sentence == "all processes were still at 'import' after 40 s (S1's deadline)"
