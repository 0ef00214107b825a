"""Who wrote what, in the shapes in which people put several hosts' logs together."""

from __future__ import annotations

from functools import cache

import pytest
from diagnosis.small_catalogue import TEXTS, traceback

from pyinfra_gpu.diagnosis.catalogue import read_catalogue
from pyinfra_gpu.on_host.diagnosis.entries import Catalogue
from pyinfra_gpu.on_host.diagnosis.log import Source, read
from pyinfra_gpu.on_host.diagnosis.matcher import diagnose

STEPS = "step 1 | loss 3.1\nstep 2 | loss 3.0\nstep 3 | loss 2.9\n"
GONE = "ncclRemoteError: remote process exited\n"
KEY = "KeyError: 'label'"
FAILED = STEPS + traceback(KEY)
LEFT = STEPS + GONE
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
LOST = """
STORE-60:
  kind: root
  weak: yes
  lends: yes
  patterns: ['lost its daemon']
  samples: ["mpirun lost its daemon"]
  cause: a host went away
  fix: ["look there"]
  source: made up
  explains: [NCCL-02, NCCL-03]
  cases:
    - seen: 'system will reboot now'
      seen_in: "The system will reboot now!"
      kind: root
      cause: a host was restarted
      fix: ["ask who did"]
"""


@cache
def known(more: str) -> Catalogue:
    """The small catalogue and these entries."""
    return read_catalogue({**TEXTS, "store": TEXTS["store"] + more})


def named(log: str, more: str = AWAITED) -> list[tuple[str, str]]:
    """What is named as a cause, and in which words."""
    findings = diagnose([Source(log)], known(more)).findings
    return [(f.id, f.cause) for f in findings if f.kind == "root"]


def behind(prefix: str, text: str) -> str:
    return "".join(prefix + line for line in text.splitlines(True))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("gpu-a: ", "gpu-b: "),
        ("[gpu-a] ", "[gpu-b] "),
        ("(gpu-a) ", "(gpu-b) "),
        ("gpu-a> ", "gpu-b> "),
        ("me@gpu-a: ", "me@gpu-b: "),
        ("0: ", "1: "),
        ("[0] ", "[1] "),
        ("[0]: ", "[1]: "),
        ("Rank 0: ", "Rank 1: "),
        ("[rank 0] ", "[rank 1] "),
        ("rank=0 | ", "rank=1 | "),
        ("[1,0]<stdout>:", "[1,1]<stdout>:"),
        ("[prterun-a-41@1,0]<stdout>: ", "[prterun-a-41@1,1]<stderr>: "),
        ("gpu-a: [default0]:", "gpu-b: [default0]:"),
        ("[pod/train-0/main] ", "[pod/train-1/main] "),
        ("Nov 03 10:41:20 gpu-a train[41]: ", "Nov 03 10:41:20 gpu-b train[42]: "),
        ("2025-11-03T10:41:20+0100 gpu-a t[41]: ", "2025-11-03T10:41:20+0100 gpu-b t[42]: "),
    ],
)
def test_a_label_on_each_line_tells_which_host_or_rank_was_left(one: str, other: str) -> None:
    log = behind(one, STEPS) + behind(other, FAILED) + behind(one, GONE)
    assert named(log) == [("STORE-50", "the program's own")]
    assert named(behind(one, STEPS) + behind(other, FAILED)) == []
    asked = "me@gpu-a:~$ cat /etc/motd\nwelcome\nto this\ncluster\nof ours\n"
    assert named(log + asked * 3) == [("STORE-50", "the program's own")]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("== gpu-a ==", "== gpu-b =="),
        ("----- node 1 -----", "----- node 2 -----"),
        ("### gpu-a (rank 0)", "### gpu-b (rank 1)"),
        ("Host A:", "Host B:"),
        ("[node 0]", "[node 1]"),
        ("=== Output of gpu-a ===", "=== Output of gpu-b ==="),
        ("==> run/rank0.err <==", "==> run/rank1.err <=="),
        ("gpu-a | FAILED | rc=1 >>", "gpu-b | FAILED | rc=1 >>"),
        ("[1] 10:41:22 [FAILURE] gpu-a Exited with", "[2] 10:41:22 [FAILURE] gpu-b Exited with"),
        ("---------------\ngpu-a\n---------------", "---------------\ngpu-b\n---------------"),
        ("me@gpu-a:~$ torchrun t.py", "me@gpu-b:~$ torchrun t.py"),
        ("gpu-a:~/run$ torchrun t.py", "gpu-b:~/run$ torchrun t.py"),
        ("$ cat rank_0.log", "$ cat rank_1.log"),
        ("$ ssh gpu-a tail run.log", "$ ssh gpu-b tail run.log"),
        ("$ kubectl logs train-0", "$ kubectl logs train-1"),
    ],
)
def test_below_headings_and_prompts_the_order_of_the_hosts_tells_nothing(
    one: str, other: str
) -> None:
    whole = [("STORE-50", "the program's own")]
    assert named(f"{one}\n{LEFT}\n{other}\n{FAILED}") == whole
    assert named(f"{other}\n{FAILED}\n{one}\n{LEFT}") == whole
    assert named(f"{one}\n{FAILED}\n{one}\n{LEFT}") == []


def test_what_a_program_calls_its_parts_are_no_hosts() -> None:
    assert {
        line.label for line in read([Source(f"=== Training ===\n{STEPS}== Test ==\n{GONE}")])
    } == {""}
    assert {line.label for line in read([Source(behind("[trainer] ", STEPS * 3))])} == {""}
    table = "$ cat c.conf\n" + "lxc.allow: c 195\nlxc.allow: c 508\nlxc.mount: /dev/a\n" * 2
    assert {line.label for line in read([Source(STEPS + table)])} == {""}


def test_one_heading_is_a_title_and_one_hosts_journal_has_no_labels() -> None:
    journal = behind("Nov 03 10:41:20 gpu-a train[41]: ", STEPS)
    for log in (f"== gpu-a ==\n{STEPS}", journal):
        assert {line.label for line in read([Source(log)])} == {""}


def test_steps_of_the_next_program_that_was_typed_are_not_those_of_the_one_that_failed() -> None:
    failed = traceback("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.")
    assert named(f"{failed}{STEPS}") == []
    again = f"{failed}me@gpu-a:~$ python t.py --small\n{STEPS}"
    assert named(again) == [("CUDA-02", "no room for 2.00 GiB")]


def test_what_names_no_cause_takes_what_is_lent_and_stays_weak() -> None:
    restarted = "The system will reboot now!\n"
    assert named(GONE + restarted, LOST) == [("NCCL-03", "a host was restarted")]
    assert named(GONE, LOST) == []
    assert named(traceback(KEY) + GONE + restarted, LOST) == []
    failed = traceback("RuntimeError: No CUDA GPUs are available")
    assert named(GONE + restarted + failed, LOST) == [("CUDA-09", "none is seen")]


def test_of_weak_causes_those_count_that_another_line_decides() -> None:
    killed = "  exitcode  : -9 (pid: 31087)  (SIGKILL)\n"
    assert named(killed + GONE, LOST) == [("STORE-09", "the rank was killed")]
    decided = killed + GONE + "The system will reboot now!\n"
    assert named(decided, LOST) == [("NCCL-03", "a host was restarted")]


@pytest.mark.parametrize(
    "line",
    [
        '"message": "KeyError: \'label\'",',
        '{"level": "error", "exc": "Traceback (most recent call last):\\n  x\\nKeyError: 1\\n"}',
    ],
)
def test_an_exception_in_json_is_one(line: str) -> None:
    log = behind("gpu-a: ", STEPS) + behind("gpu-b: ", f"{STEPS}{line}\n") + behind("gpu-a: ", GONE)
    log = behind("gpu-b: ", "[rank1]: up\n") + log
    assert named(log) == [("STORE-50", "the program's own")]
