"""What a program had got over before its own good end is no cause: which ends count for what."""

from __future__ import annotations

import pytest
from diagnosis.small_catalogue import explained, roots, summary, traceback

OOM = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 1 has 31 GiB"
ERROR = f"error: {OOM}\n"
AGAIN = "[default] Worker group FAILED. 3/3 attempts left; will restart worker group\n"
ENDED = "[default] worker group successfully finished. Waiting 300 seconds for other agents.\n"


@pytest.mark.parametrize(
    "end",
    [
        "Successfully installed flash_attn-2.8.3",
        "Successfully installed x-1\n[notice] A new release of pip is there\n[notice] To update",
        " + torch==2.8.0",
        "Executing transaction: ...working... done",
        "DKMS: install completed.",
        "-- Build files have been written to: /home/u/build",
        "[73/73] Linking CXX shared library libx.so",
        "[100%] Built target nccl-tests",
        "Successfully tagged lab/train:3",
        "288 passed, 4 warnings in 61.22s",
        "OK (skipped=2)",
        "`Trainer.fit` stopped: `max_epochs=3` reached.",
        "3 epochs completed in 0.312 hours.",
        "Epoch 5/5 loss 0.31",
        "best.pt saved (42.7MB), results in runs/exp12",
    ],
)
def test_an_error_before_the_good_end_of_the_same_program_is_over(end: str) -> None:
    assert roots(f"$ build\n{ERROR}{end}\n") == []
    assert roots(f"$ build\n{ERROR}{end}\n$ ls\nx\n") == []
    assert roots(f"$ build\n{end}\n{ERROR}") == ["CUDA-02"]
    assert roots(f"$ run\n{ERROR}$ build\n{end}\n") == ["CUDA-02"]  # another program's end


@pytest.mark.parametrize("end", ["Epoch 4/5 loss 0.31", "Epoch 5/5:  12%|#  | 3/25", "building x"])
def test_what_is_no_end_leaves_the_error_a_cause(end: str) -> None:
    assert roots(f"$ build\n{ERROR}{end}\n") == ["CUDA-02"]


def test_an_exception_is_over_by_an_installers_end_and_not_by_a_trainers() -> None:
    failed = f"$ run\n{traceback(OOM)}"
    assert roots(f"{failed}Successfully installed x-1\n") == []
    assert roots(f"{failed}training finished\n") == ["CUDA-02"]
    assert roots(f"{failed}Done\n") == roots(f"{failed}exit code: 0\n") == ["CUDA-02"]


def test_what_ended_ranks_that_torchrun_began_anew_is_over_once_they_end_well() -> None:
    failed = traceback(OOM, prefix="[rank1]: ")
    assert roots(f"{failed}{AGAIN}[rank0]: epoch 1\n{ENDED}") == []
    assert roots(f"{failed}{AGAIN}{failed}") == ["CUDA-02"]
    assert roots(f"{failed}[rank0]: epoch 1\n{ENDED}") == ["CUDA-02"]  # nothing was begun anew
    assert roots(f"{failed}{AGAIN}{ENDED}{failed}{summary(1, 1, others={0: -15})}") == ["CUDA-02"]


def test_a_command_that_was_typed_again_and_answered_well_tells_of_what_is_mended() -> None:
    asked = f"u@h:~$ probe\n{ERROR}"
    mended = "u@h:~$ sudo reboot\nu@h:~$ sudo probe -L\nGPU 0\n"
    passed = "u@h:~$ pytest -q\n18 passed in 21.47s\n"
    assert explained(f"{asked}{mended}{passed}").findings == ()
    assert roots(f"{asked}{mended}") == ["CUDA-02"]  # no program was seen to work since
    assert roots(f"{asked}{asked}{passed}") == ["CUDA-02"]
    assert roots(f"{asked}{passed}") == ["CUDA-02"]
    assert roots(f"{asked}{traceback('KeyError: 1')}{mended}{passed}") == roots(
        f"{traceback('KeyError: 1')}{asked}"
    )


def test_progress_of_the_next_command_does_not_say_that_the_last_one_went_on() -> None:
    steps = "".join(f"step {n} | loss: 3.2\n" for n in range(6))
    assert [f.kind for f in explained(f"{OOM}\n$ env -u X python t.py\n{steps}").findings] == [
        "root"
    ]
    assert [f.kind for f in explained(f"{OOM}\n{steps}").findings] == ["warn"]


@pytest.mark.parametrize("prompt", ["[2025-06-16 08:02] u@h:~$ ", "[08:02] u@h:~$ ", "north $ "])
def test_prompts_with_a_clock_or_a_blank_are_known(prompt: str) -> None:
    assert roots(f"{prompt}run\n{ERROR}{prompt}build\n[1/1] cc\n") == ["CUDA-02"]
    assert roots(f"{prompt}build\n{ERROR}[1/1] cc\n{prompt}ls\n") == []
