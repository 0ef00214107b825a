"""One root cause of a log: each entry by its examples, and the rules between several."""

from __future__ import annotations

import json
from itertools import cycle
from pathlib import Path

import pytest

from pyinfra_gpu.diagnosis.catalogue import catalogue
from pyinfra_gpu.on_host.diagnosis.explain import explain

CORPUS = Path(__file__).parent / "corpus"
EXAMPLES = [
    (title.split()[0], text)
    for path in sorted(CORPUS.glob("*.txt"))
    for part in path.read_text(encoding="utf-8").removeprefix("=== ").split("\n=== ")
    for title, _, text in [part.partition("\n")]
]
WRAPPINGS = cycle(
    ("[rank1]: {}", "\x1b[31m{}\x1b[0m", "Nov 28 04:00:00 ws1 train[812]: {}"),
)
"""What stands around a line in logs; the examples take turns."""


def why(*lines: str, **host: str) -> str:
    """Return the root cause of a log; empty where none is found."""
    found = explain({"run.log": "\n".join(lines)}, catalogue(), host).found
    return found[0].name if found else ""


@pytest.mark.parametrize(
    ("name", "text", "wrapping"), [(*each, next(WRAPPINGS)) for each in EXAMPLES]
)
def test_an_example_is_explained_by_its_entry_alone(name: str, text: str, wrapping: str) -> None:
    silent = name == "-" or catalogue().entries[name].wrapper
    for around in ("{}", wrapping):
        root = why(*(around.format(line) for line in text.splitlines()))
        assert root == ("" if silent else name), around


OOM = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB."
GONE = (
    "RuntimeError: [/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:553] Connection closed by"
    " peer [10.77.3.11]:4520"
)
TRACEBACK = "Traceback (most recent call last):"
BUG = "KeyError: 'label'"


def test_who_lost_a_peer_is_not_the_cause() -> None:
    assert why(f"[rank0]: {GONE}", f"[rank1]: {OOM}") == "cuda-out-of-memory"


def test_an_exception_that_nothing_explains_leaves_the_log_unexplained() -> None:
    assert why(TRACEBACK, BUG) == ""
    assert why(TRACEBACK, BUG, TRACEBACK, OOM) == ""
    assert why(TRACEBACK, OOM, TRACEBACK, BUG) == "cuda-out-of-memory"


@pytest.mark.parametrize(
    "after",
    [
        ["step 1 loss 0.5", "step 2 loss 0.4", "step 3 loss 0.3"],
        ["falling back to a smaller batch"],
        ["training finished"],
    ],
)
def test_what_a_run_got_over_is_no_cause(after: list[str]) -> None:
    assert why(TRACEBACK, OOM) == "cuda-out-of-memory"
    assert why(TRACEBACK, OOM, *after) == ""


@pytest.mark.parametrize(
    ("log", "failed"),
    [
        ("step 1 loss 0.5\ntraining finished", False),
        ("WARNING: 3 samples failed to load\nstep 1 loss 0.5", False),
        (f"{TRACEBACK}\n{BUG}", True),
    ],
)
def test_an_answer_without_a_cause_says_whether_anything_failed(log: str, failed: bool) -> None:
    answer = explain({"log": log}, catalogue())
    assert (answer.found, answer.failed) == ((), failed)


def test_the_error_file_of_torchrun_is_read() -> None:
    error = {"message": {"message": OOM, "extraInfo": {"py_callstack": f"{TRACEBACK}\n{OOM}\n"}}}
    assert why(json.dumps(error)) == "cuda-out-of-memory"


def test_another_line_of_the_log_decides() -> None:
    line = "ValueError: ProcessGroupNCCL is only supported with GPUs, no GPUs found!"
    plain = explain({"a": line}, catalogue()).found[0]
    reported = explain({"a": line, "b": "CUDA_VISIBLE_DEVICES=2,3"}, catalogue()).found[0]
    assert plain.cause != reported.cause
    assert "CUDA_VISIBLE_DEVICES=2" in reported.cause


def test_a_full_gpu_is_another_processs_only_where_torch_tells_its_own_beside_it() -> None:
    """In a container torch knows its own process by a number that the driver does not use."""
    free = f"{OOM} GPU 0 has a total capacity of 31.36 GiB of which 0.51 GiB is free."
    one, own = "Process 4711 has 12.80 GiB memory in use.", "this process has 18 GiB memory in use."
    for text, named in [(one, False), (own, False), (f"{one} {own}", True), (f"{own} {one}", True)]:
        cause = explain({"a": f"{free} {text}"}, catalogue()).found[0].cause
        assert ("process 4711" in cause) is named


def test_what_stands_in_a_log_is_put_into_a_step_only_where_a_shell_takes_it_literally() -> None:
    tree = "fatal: reference is not a tree: 0123456789abcdef"
    assert "0123456789abcdef" in explain({"a": tree}, catalogue()).found[0].cause
    evil = explain({"a": "bash: line 3: $(reboot): command not found"}, catalogue()).found
    assert all("$(reboot)" not in step.run for each in evil for step in each.fix)


@pytest.mark.timeout(300)  # what goes back and forth in a line would take days
def test_a_long_log_is_read_through() -> None:
    lines = ["[rank0]: RuntimeError: x" * 20 + f" {n}" for n in range(1000)]
    explain({"a": "\n".join(lines), "b": "x" * (1 << 16), "c": "a:" * (1 << 15)}, catalogue())
