"""One root cause out of several messages: the rules, on a small catalogue."""

from __future__ import annotations

import pytest
from diagnosis.small_catalogue import TEXTS, explained, roots, summary, traceback

from pyinfra_gpu.diagnosis.catalogue import read_catalogue
from pyinfra_gpu.on_host.diagnosis.entries import packed, unpacked
from pyinfra_gpu.on_host.diagnosis.log import Source
from pyinfra_gpu.on_host.diagnosis.matcher import diagnose

OOM = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 1 has 31 GiB"
REMOTE = "torch.distributed.DistBackendError: ncclRemoteError: remote process exited"
KEY = "KeyError: 'label'"
SAID = """
HOST-01:
  kind: root
  patterns: ['python \\((?P<range>[^)]{0,40})\\) does not fit']
  samples: ["python (3.9) does not fit"]
  cause: "takes <range>, see `list <range>`"
  fix: ["`list <range>`"]
  source: made up
"""
STEPS = "".join(f"step {n} | loss: 3.2{n} | tok/sec: 4,000\n" for n in range(6))


def test_a_cause_is_named_with_its_line_and_the_values_in_it() -> None:
    found = explained("loading\n" + traceback(OOM))
    assert [f.id for f in found.findings] == ["CUDA-02"]
    assert found.findings[0].evidence == OOM
    assert found.findings[0].cause == "no room for 2.00 GiB"


@pytest.mark.parametrize(
    ("said", "cause", "step"),
    [
        ("27", "takes 27, see `list 27`", "`list 27`"),
        (">=3.10, <3.14", "takes >=3.10, <3.14, see `list RANGE`", "`list RANGE`"),
        ("`rm -rf x`", "takes RANGE, see `list RANGE`", "`list RANGE`"),
        ("", "takes RANGE, see `list RANGE`", "`list RANGE`"),
    ],
)
def test_a_sentence_says_what_the_log_says_and_a_command_what_a_shell_takes_literally(
    said: str, cause: str, step: str
) -> None:
    known = read_catalogue({"host": SAID})
    found = diagnose([Source(f"python ({said}) does not fit\n")], known).findings
    assert [(each.cause, each.fix) for each in found] == [(cause, (step,))]


def test_the_rank_that_failed_first_is_the_cause_and_the_others_are_collateral() -> None:
    for first, second in ((0, 1), (1, 0)):
        log = traceback(REMOTE, prefix=f"[rank{first}]: ") + traceback(
            OOM, prefix=f"[rank{second}]: "
        )
        found = explained(log + summary(second, 1, others={first: -15}))
        assert [(f.id, f.rank) for f in found.findings] == [("CUDA-02", second)]
        assert set(found.suppressed) == {"NCCL-03", "STORE-08", "STORE-10"}


def test_what_the_other_ranks_say_does_not_outweigh_an_unknown_first_failure() -> None:
    log = traceback(OOM, prefix="[rank1]: ") + traceback(KEY, prefix="[rank0]: ")
    assert roots(log) == ["CUDA-02"]
    assert roots(log + summary(0, 1, others={1: 1})) == []
    assert roots(log + summary(1, 1, others={0: 1})) == ["CUDA-02"]


def test_a_weak_cause_of_the_blamed_rank_gives_way_to_an_exception_before_it() -> None:
    late = "[rank1]: NCCL error, unhandled system error\n"
    blamed = summary(1, -6, others={0: -15})
    assert roots(late + blamed) == ["NCCL-02"]
    assert roots(traceback(OOM, prefix="[rank0]: ") + late + blamed) == ["CUDA-02"]
    assert roots(traceback(KEY, prefix="[rank0]: ") + late + blamed) == []
    assert roots(late + traceback(OOM, prefix="[rank0]: ") + blamed) == ["NCCL-02"]


AWAITED = """
STORE-50:
  kind: root
  awaited: yes
  patterns: ['Error: ']
  samples: ["KeyError: 'label'"]
  cause: the program's own
  fix: ["read it"]
  source: made up
"""
WAITING = "[rank{}]:[E1118 10:12:30.114 x.cpp:632] NCCL error, unhandled system error\n"


def left_alone(log: str, *, packed_for_hosts: bool = False) -> list[tuple[str, int | None, str]]:
    """What is named, whose it is, and the line, by a catalogue that has such an entry."""
    known = read_catalogue({**TEXTS, "store": TEXTS["store"] + AWAITED})
    known = unpacked(packed(known)) if packed_for_hosts else known
    return [(f.id, f.rank, f.evidence) for f in diagnose([Source(log)], known).findings]


@pytest.mark.parametrize(
    "message", [KEY, "IndexError: no such row", "data.BadRow: 3 columns", "StopIteration"]
)
def test_an_exception_of_any_type_that_another_rank_waited_for_is_the_cause(message: str) -> None:
    log = traceback(message, prefix="[rank1]: ") + WAITING.format(0)
    named = [("STORE-50", 1, f"[rank1]: {message}")]
    assert left_alone(log) == named
    assert left_alone(log, packed_for_hosts=True) == named
    assert left_alone(log + summary(0, -6, others={1: -15})) == named
    assert roots(log) == []


def test_the_exception_of_a_data_loaders_process_is_shown_not_what_tells_of_it() -> None:
    told = f"KeyError: Caught KeyError in DataLoader worker process 3.\nOriginal {traceback(KEY)}"
    log = traceback(told.rstrip("\n"), prefix="[rank1]: ") + WAITING.format(0)
    assert left_alone(log) == [("STORE-50", 1, f"[rank1]: {KEY}")]


@pytest.mark.parametrize(
    "log",
    [
        traceback(KEY, prefix="[rank1]: "),
        traceback(KEY) + WAITING.format(0),
        WAITING.format(0) + traceback(KEY, prefix="[rank1]: "),
        traceback(KEY, prefix="[rank1]: ") + WAITING.format(1),
        traceback(KEY, prefix="[rank1]: ") + WAITING.format(0) + WAITING.format(1),
        traceback("KeyboardInterrupt", prefix="[rank1]: ") + WAITING.format(0),
        traceback("torch.distributed.DistStoreError: gone", prefix="[rank1]: ") + WAITING.format(0),
    ],
)
def test_an_exception_that_nobody_waited_for_stays_unknown(log: str) -> None:
    assert left_alone(log) == []


def test_a_known_cause_is_named_before_an_exception_that_was_waited_for() -> None:
    log = traceback(OOM, prefix="[rank1]: ") + WAITING.format(0)
    assert [id_ for id_, _, _ in left_alone(log)] == ["CUDA-02"]


def test_a_run_that_went_on_and_finished_did_not_end_there() -> None:
    oom = f"trying batch 128: {OOM}\ntrying batch 64: ok\nstep 1 | loss 3.2\n"
    assert roots(oom) == ["CUDA-02"]
    assert roots(f"{oom}training complete\n") == []
    assert roots(f"{oom}training complete\n{traceback(OOM)}") == ["CUDA-02"]


@pytest.mark.parametrize(
    "end",
    [
        "{'train_runtime': 12.1, 'train_loss': 0.3, 'epoch': 1.0}",
        "exit: 0",
        "8812   COMPLETED      0:0",
        "[INFO] [launch.py:351:main] Process 20110 exits successfully.",
    ],
)
def test_trainers_shells_and_schedulers_say_that_a_run_ended_well(end: str) -> None:
    oom = f"trying batch 128: {OOM}\ntrying batch 64: ok\n{{'loss': 3.2, 'epoch': 0.1}}\n"
    assert roots(oom) == ["CUDA-02"]
    assert roots(f"{oom}{end}\n") == []


def test_interleaved_ranks_are_read_one_by_one() -> None:
    one = traceback(KEY, prefix="[rank0]: ").splitlines()
    other = traceback(OOM, prefix="[rank1]: ").splitlines()
    mixed = "\n".join(line for pair in zip(one, other, strict=True) for line in pair)
    assert roots(mixed + "\n" + summary(1, 1)) == ["CUDA-02"]
    assert roots(mixed + "\n" + summary(0, 1)) == []


def test_ranks_that_wrote_into_one_line_are_told_apart() -> None:
    log = "[rank0]: Traceback (most recent call last):[rank1]: Traceback (most recent call last):\n"
    log += f'[rank1]:   File "a.py", line 1, in f\n[rank0]: {KEY}[rank1]: {OOM}\n'
    assert roots(log + summary(1, 1)) == ["CUDA-02"]
    assert roots(log + summary(0, 1)) == []


def test_a_rank_of_its_own_file_is_the_one_torchrun_blames() -> None:
    files = [Source(summary(1, 1)), Source(traceback(KEY), 0), Source(traceback(OOM), 1)]
    assert roots(*files) == ["CUDA-02"]


@pytest.mark.parametrize("log", ["", "all is well\n", STEPS, "WARNING: something unusual\n"])
def test_a_log_without_failure_names_none(log: str) -> None:
    found = explained(log)
    assert found.unclassified
    assert found.findings == ()


def test_an_unknown_failure_is_shown_not_guessed() -> None:
    log = "".join(f"line {n}\n" for n in range(60)) + traceback(KEY)
    found = explained(log)
    assert found.unclassified
    assert len(found.tail) == 30
    assert found.tail[-1] == KEY


@pytest.mark.parametrize(
    "survived",
    [
        "WARNING: bind failed: Address already in use\n",
        "bind failed: Address already in use, retrying on another port\n",
        "bind failed: Address already in use\ntrying next port\n",
        "W1121 12:00:00.123000 42 torch/x.py:12] bind: Address already in use\n",
        "[W1121 12:00:00.123456789 socket.cpp:512] bind: Address already in use\n",
        "bind: Address already in use\n" + STEPS,
        "ws1:41:42 [0] NCCL WARN Call to posix_fallocate failed : No space left on device\n",
        traceback("OSError: Address already in use") + "falling back to another port\n",
        traceback("OSError: Address already in use") + STEPS,
        "Exception in thread Thread-3 (_monitor):\n" + traceback("OSError: Address already in use"),
        "ws1:41:42 [0] NCCL WARN Call to posix_fallocate failed : No space left on device\n"
        + STEPS,
    ],
)
def test_what_was_survived_is_not_the_cause_of_an_unknown_failure(survived: str) -> None:
    assert roots(survived + "loading data\n" + traceback(KEY)) == []


def test_a_file_of_the_traceback_says_nothing_about_going_on() -> None:
    frame = 'File "/v/lib/fallback.py", line 816, in pack'
    assert roots(f"bind: Address already in use\n  {frame}\n") == ["STORE-01"]


def test_what_was_survived_is_not_the_cause_of_a_known_failure_either() -> None:
    log = "bind failed: Address already in use, retrying\n" + STEPS + traceback(OOM)
    assert roots(log) == ["CUDA-02"]


def test_a_warning_counts_where_it_explains_what_ended_the_run() -> None:
    warning = "x.py:1: UserWarning: CUDA initialization: unsupported display driver\n"
    assert roots(warning + traceback("RuntimeError: No CUDA GPUs are available")) == ["CUDA-01"]
    assert roots(warning + traceback(OOM)) == ["CUDA-02"]
    assert roots(warning + traceback(KEY)) == []


def test_a_warning_at_the_end_is_the_cause_and_one_in_a_run_that_goes_on_a_remark() -> None:
    warning = "x.py:1: UserWarning: CUDA initialization: unsupported display driver\n"
    assert roots(warning + "  return torch._C._cuda_getDeviceCount() > 0\nFalse\n") == ["CUDA-01"]
    found = explained(warning + "using the CPU\n" + STEPS)
    assert [(f.id, f.kind) for f in found.findings] == [("CUDA-01", "warn")]


def test_what_the_program_recovered_from_is_never_the_cause() -> None:
    found = explained("bind failed: Address already in use, retrying\nlistening on 29501\n")
    assert [(f.id, f.kind) for f in found.findings] == [("STORE-01", "warn")]


def test_an_error_right_before_an_unknown_exception_is_its_cause() -> None:
    error = "train.py: error: bind: Address already in use\n"
    assert roots(error + traceback("CalledProcessError: train.py failed")) == ["STORE-01"]
    assert roots(error + "one more line\n" * 40 + traceback(KEY)) == []


def test_the_kernel_outweighs_an_exception_that_is_not_known() -> None:
    log = "[ 812.123456] Out of memory: Killed process 4242 (python) total-vm:1kB\n" + traceback(
        KEY
    )
    found = explained(log)
    assert [f.id for f in found.findings] == ["HOST-02"]
    assert found.findings[0].fix == ("fewer workers than `ps -p 4242` has",)


def test_a_signal_counts_only_where_nothing_else_does() -> None:
    killed = summary(1, -9, others={0: -15})
    assert roots(killed) == ["STORE-09"]
    assert roots("kernel: Out of memory: Killed process 4001 (python)\n" + killed) == ["HOST-02"]
    assert roots(traceback(KEY, prefix="[rank1]: ") + killed) == []


def test_a_consequence_gives_way_to_its_cause() -> None:
    gone = "kernel: NVRM: Xid (PCI:0000:01:00): 79, pid=1\n"
    found = explained(traceback("RuntimeError: No CUDA GPUs are available") + gone)
    assert [f.id for f in found.findings] == ["DRV-01"]
    assert found.findings[0].cause == "the card is gone"
    assert found.suppressed == ("CUDA-09",)


def test_of_two_messages_in_one_place_the_longer_is_meant() -> None:
    warn = "ws1:41:42 [0] NCCL WARN Call to posix_fallocate failed : No space left on device\n"
    error = "[rank0]: torch.distributed.DistBackendError: NCCL error, unhandled system error\n"
    found = explained(warn + error)
    assert [f.id for f in found.findings] == ["NCCL-01"]
    assert found.suppressed == ("NCCL-02",)
    assert roots(traceback("OSError: [Errno 28] No space left on device")) == ["HOST-01"]


def test_an_exception_comes_before_a_line_that_nobody_failed_at() -> None:
    log = "probing: Address already in use\nport 29501 it is\n" + traceback(OOM)
    assert roots(log) == ["CUDA-02"]


def test_independent_statements_of_the_host_are_both_reported() -> None:
    gone = "kernel: NVRM: Xid (PCI:0000:01:00): 79, pid=1\n"
    killed = "kernel: Out of memory: Killed process 7 (x)\n"
    assert roots(gone + killed) == ["DRV-01", "HOST-02"]


def test_remarks_are_reported_only_where_nothing_failed() -> None:
    xid = "kernel: NVRM: Xid (PCI:0000:01:00): 13, pid=1\n"
    assert [(f.id, f.kind) for f in explained(xid + "done\n").findings] == [("DRV-01", "evidence")]
    assert explained(xid + traceback(KEY)).unclassified
    assert roots(xid + traceback(OOM)) == ["CUDA-02"]


def test_an_xid_that_is_not_in_the_table_is_reported_with_its_number() -> None:
    found = explained("kernel: NVRM: Xid (PCI:0000:01:00): 987, pid=1\n")
    assert [(f.kind, f.cause) for f in found.findings] == [("root", "Xid 987 is not known")]


def test_an_expected_limit_is_reported_as_that() -> None:
    found = explained(traceback("RuntimeError: MXFP4 scaling only supported in CUDA for B200/B300"))
    assert [(f.id, f.kind) for f in found.findings] == [("CUDA-10", "expected")]


def test_a_consequence_alone_is_no_cause() -> None:
    found = explained(traceback(REMOTE, prefix="[rank0]: "))
    assert found.unclassified
    assert found.suppressed == ("NCCL-03",)


def test_a_log_cut_at_either_end_still_shows_its_cause() -> None:
    whole = traceback(OOM, prefix="[rank1]: ") + traceback(REMOTE, prefix="[rank0]: ")
    whole += summary(1, 1, others={0: -15})
    lines = whole.splitlines()
    cause = next(n for n, line in enumerate(lines) if "OutOfMemoryError" in line)
    for start in range(cause + 1):
        assert roots("\n".join(lines[start:])) == ["CUDA-02"], start
    for end in range(cause + 1, len(lines) + 1):
        assert roots("\n".join(lines[:end])) == ["CUDA-02"], end


def test_the_rank_is_known_from_torchrun_even_where_its_summary_was_cut_off() -> None:
    log = traceback(KEY, prefix="[rank0]: ") + traceback(OOM, prefix="[rank1]: ")
    failed = "E1121 12:00:00.123000 1 torch/x/api.py:874] failed (exitcode: 1) local_rank: 1"
    failed += " (pid: 9) of binary: /x\n"
    assert roots(log) == []
    assert roots(log + failed) == ["CUDA-02"]


def test_a_crash_in_foreign_code_is_not_explained_by_its_signal() -> None:
    crash = (
        "Fatal Python error: Segmentation fault\n\nCurrent thread 0x01 (most recent call first):\n"
    )
    ours = crash + '  File "/v/lib/site-packages/torch/autograd/graph.py", line 9 in run\n'
    foreign = crash + '  File "/v/lib/site-packages/decoder/_native.py", line 9 in next_packet\n'
    assert roots(ours + summary(0, -9)) == ["STORE-09"]
    assert roots(foreign + summary(0, -9)) == []


def test_time_outs_after_a_thread_ended_for_an_unknown_reason_wait_for_that() -> None:
    late = "[rank1]: NCCL error, unhandled system error\n"
    thread = "Exception in thread Thread-3 (_producer):\n" + traceback(KEY)
    assert roots(late) == ["NCCL-02"]
    assert roots(thread + "step 7 | loss: 3\n" + late) == []
    assert roots(late + thread) == ["NCCL-02"]


def test_what_is_known_to_have_ended_a_thread_is_what_they_waited_for() -> None:
    late = "[rank1]: NCCL error, unhandled system error\n"
    thread = "Exception in thread Thread-3 (_producer):\n" + traceback(OOM)
    assert roots(thread + "step 7 | loss: 3\n" + late) == ["CUDA-02"]
    assert roots(late + thread) == ["NCCL-02"]


def test_what_the_kernel_says_of_another_program_is_no_cause_of_an_unknown_exception() -> None:
    xid = "[  100.000001] NVRM: Xid (PCI:0000:01:00): 79, pid=4, name={}, fallen off\n"
    assert roots(xid.format("python3") + traceback(KEY)) == ["DRV-01"]
    assert roots(xid.format("blender") + traceback(KEY)) == []
    assert roots(xid.format("blender") + "lost\n") == ["DRV-01"]


def test_what_the_kernel_says_of_another_program_is_not_told_beside_a_known_cause() -> None:
    full = traceback("OSError: [Errno 28] No space left on device")
    xid = "[  100.000001] NVRM: Xid (PCI:0000:01:00): 79, pid=4, name={}, fallen off\n"
    assert roots(full + xid.format("python3")) == ["HOST-01", "DRV-01"]
    assert roots(full + xid.format("blender")) == ["HOST-01"]


def test_the_last_try_after_waits_is_the_end_of_the_run() -> None:
    waits = "".join(f"Retrying in {2**n}s [Retry {n}/3].\n" for n in range(1, 4))
    assert roots(waits + traceback(OOM)) == ["CUDA-02"]
    assert roots("step failed, retrying\n" + traceback(OOM) + STEPS) == []


def test_a_notice_of_apt_is_no_failure() -> None:
    assert roots("N: CUDA out of memory. Tried to allocate 2.00 GiB\n") == []
    assert roots("E: CUDA out of memory. Tried to allocate 2.00 GiB\n") == ["CUDA-02"]


def test_what_a_launcher_says_after_a_traceback_is_no_exception_of_it() -> None:
    cut = "Traceback (most recent call last):\n"
    log = f"{cut}srun: error: gn14: tasks 0-1: Exited with exit code 1\n"
    assert roots(f"CUDA out of memory. Tried to allocate 2.00 GiB\n{log}") == ["CUDA-02"]


def test_of_two_warnings_the_one_that_explains_the_other_is_told() -> None:
    seen, why = "No CUDA GPUs are available", "Error 803: system has unsupported display driver"
    for first, second in ((seen, why), (why, seen)):
        log = f"WARNING: {first}\nWARNING: {second}\n"
        assert [f.id for f in explained(log).findings] == ["CUDA-01"]


def test_conda_s_second_way_of_solving_is_no_sign_that_the_failure_after_it_was_survived() -> None:
    log = "Solving environment: failed with initial frozen solve. Retrying with flexible solve.\n"
    assert roots(f"{log}\n{OOM}\n") == ["CUDA-02"]
    assert roots(f"fetching failed. Retrying with another server.\n\n{OOM}\n{STEPS}") == []


@pytest.mark.parametrize(
    "prompt", ["$ ", "ada@ws1:~/run$ ", "[ada@ws1 run]$ ", "(venv) ada@ws1:~$ "]
)
def test_what_a_person_was_told_afterwards_explains_an_unknown_exception(prompt: str) -> None:
    asked = f"{prompt}python -c 'import torch; torch.zeros(1).cuda()'\n"
    assert roots(traceback(KEY) + asked + "No CUDA GPUs are available\n") == ["CUDA-09"]
    assert roots(traceback(KEY) + asked + traceback(OOM)) == ["CUDA-02"]


def test_a_line_that_decides_and_was_asked_for_afterwards_explains_an_unknown_exception() -> None:
    seen = "No CUDA GPUs are available\n"
    log = seen + traceback("AssertionError: a GPU is needed")
    assert roots(log) == []
    assert roots(log + "$ lspci -k\nvfio-pci holds 01:00.0\n") == ["CUDA-09"]
    assert roots(log + "vfio-pci holds 01:00.0\n") == []
    assert roots("vfio-pci holds 01:00.0\n" + log + "$ date\nMonday\n") == []


def test_what_the_program_prints_after_an_unknown_exception_does_not_explain_it() -> None:
    assert roots(traceback(KEY) + traceback(OOM)) == []
    assert roots(traceback(KEY) + "# no more\n" + traceback(OOM)) == []
    assert roots("$ python train.py\n" + traceback(KEY) + traceback(OOM)) == []


def test_an_unknown_exception_of_a_command_typed_later_is_unknown_again() -> None:
    again = "$ python train.py\n" + traceback(KEY)
    assert roots(traceback(KEY) + again + traceback(OOM)) == []


def test_a_signal_typed_about_afterwards_explains_nothing() -> None:
    assert roots(traceback(KEY) + "$ tail -1 log\n" + "NCCL: unhandled system error\n") == []


def test_a_line_of_slurm_s_daemon_is_no_exception_of_the_program_before_it() -> None:
    log = 'Traceback (most recent call last):\n  File "a.py", line 1, in f\n'
    assert roots(f"bind: Address already in use\n{log}slurmd: done with step 7\n") == ["STORE-01"]


def test_what_python_ignored_while_it_ended_does_not_say_that_the_run_goes_on() -> None:
    ignored = "Exception ignored in: <function Engine.__del__ at 0x7f31b2d0e7a0>\n"
    log = traceback(OOM) + ignored + traceback("AttributeError: no attribute 'engine'")
    assert roots(log) == ["CUDA-02"]


def test_a_warning_at_which_the_program_ended_before_the_next_prompt_is_the_cause() -> None:
    warning = "x.py:1: UserWarning: CUDA initialization: unsupported display driver\n"
    typed = "$ nvidia-smi -L\n" + "GPU 0: NVIDIA RTX A5000\n" * 9
    assert roots(f"{warning}False\n{typed}") == ["CUDA-01"]


def test_a_step_that_the_loss_scaler_skips_does_not_say_that_the_run_goes_on() -> None:
    skipped = "OVERFLOW! Rank 0 Skipping step. Attempted loss scale: 2, reducing to 1\n"
    assert roots(skipped + traceback(OOM)) == ["CUDA-02"]


def test_what_decides_between_causes_decides_where_only_their_consequence_is_in_the_log() -> None:
    case = "{seen: 'cache: (?P<of>compat)', seen_in: 'cache: compat', kind: root,"
    lent = f"    - {case} cause: <of> is in it, fix: [remove it]}}\n"
    cuda = TEXTS["cuda"].replace("  cases:\n", f"  lends: yes\n  cases:\n{lent}", 1)
    known = read_catalogue({**TEXTS, "cuda": cuda})
    assert unpacked(packed(known)).by_id["CUDA-01"].lends
    for message in ("RuntimeError: No CUDA GPUs are available", "unsupported display driver"):
        found = diagnose([Source(f"{message}\n$ ldconfig -p\ncache: compat\n")], known).findings
        assert [(each.cause, each.decided_by) for each in found] == [
            ("compat is in it", "cache: compat")
        ]
    log = "No CUDA GPUs are available: cache: compat\n"
    assert [each.cause for each in diagnose([Source(log)], known).findings] == ["none is seen"]


def test_what_the_run_got_over_before_it_ended_well_is_not_told() -> None:
    found = f"[WARNING] batch 64: {OOM}\n{STEPS}"
    for end in ("training finished in 1:02\n", "$ echo $?\n0\n$ ls\nconfig.json\n"):
        assert explained(found + end).findings == ()
    assert [f.kind for f in explained(found).findings] == ["warn"]
    asked = "$ tail -1 log\nNCCL: unhandled system error\n$ pytest -q test_norm.py\n"
    assert roots(f"{asked}18 passed in 21.47s\n") == []
    assert roots(f"{asked}1 failed, 17 passed in 21.47s\n") == ["NCCL-02"]
    killed = "exitcode  : -9 (pid: 31087)\n$ python train.py --workers 2\ntraining finished\n"
    assert roots(killed) == ["STORE-09"]
    assert roots(f"{traceback(OOM)}$ echo $?\n1\n") == ["CUDA-02"]
    assert roots(f"{traceback(OOM)}$ true; echo $?\n0\n") == ["CUDA-02"]


def test_what_the_next_command_prints_does_not_say_that_the_last_one_went_on() -> None:
    assert roots(f"{traceback(OOM)}host$ pip download x\nWARNING: Retrying\n") == ["CUDA-02"]
