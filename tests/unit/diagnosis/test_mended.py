"""What somebody put right later is still what ended the run; what it worked on after is not."""

from __future__ import annotations

import pytest
from diagnosis.small_catalogue import TEXTS, roots, traceback

from pyinfra_gpu.diagnosis.catalogue import read_catalogue
from pyinfra_gpu.on_host.diagnosis.entries import packed, unpacked
from pyinfra_gpu.on_host.diagnosis.log import Source
from pyinfra_gpu.on_host.diagnosis.matcher import diagnose

WARNING = "x.py:1: UserWarning: CUDA initialization: unsupported display driver\n"
NO_GPU = traceback("RuntimeError: No CUDA GPUs are available")
AGAIN = "$ sudo modprobe nvidia_uvm\n$ python train.py\ntraining finished\n"
STEPS = "".join(f"step {n} | loss: 3.2{n} | tok/sec: 4,000\n" for n in range(6))


def test_a_warning_of_what_ended_its_program_counts_whatever_ended_well_later() -> None:
    assert roots(f"$ python train.py\n{WARNING}{NO_GPU}{AGAIN}") == ["CUDA-01"]
    assert roots(f"$ python train.py\n{WARNING}{AGAIN}") == []
    assert roots(f"$ python a.py\n{WARNING}$ python b.py\n{NO_GPU}{AGAIN}") == ["CUDA-09"]


def test_a_warning_that_a_line_typed_afterwards_decides_explains_an_unknown_exception() -> None:
    warned = "x.py:1: UserWarning: No CUDA GPUs are available\n"
    own = traceback("DeviceError: wanted 2")
    decides = "$ lspci -k\nvfio-pci holds 01:00.0\n"
    assert roots(f"$ python a.py\n{warned}{own}{decides}") == ["CUDA-09"]
    assert roots(f"$ python a.py\n{warned}{own}$ date\nMonday\n") == []
    assert roots(f"$ python a.py\n{warned}$ python b.py\n{own}{decides}") == []
    assert roots(f"$ python a.py\n{own}{decides}{warned}") == []


def test_a_warning_explains_a_time_out_only_where_nothing_was_done_after_it() -> None:
    warned = "WARNING: Call to posix_fallocate failed : No space left on device\n"
    late = traceback("torch.distributed.DistBackendError: NCCL error, unhandled system error")
    assert roots(warned + late) == ["NCCL-01"]
    assert roots(warned + STEPS + late) == ["NCCL-02"]
    of_a_rank = "".join(f"[rank0]: {line}\n" for line in STEPS.splitlines())
    assert roots(warned + of_a_rank + late) == ["NCCL-02"]
    assert roots(warned + late + "$ python train.py\n" + STEPS) == ["NCCL-01"]
    assert roots(f"ada@h1:~$ run\n{late}ada@h1:~$ check\n{warned}") == ["NCCL-02"]
    assert roots(f"ada@h1:~$ run\n{late}ada@h2:~$ run\n{warned}") == ["NCCL-01"]


@pytest.mark.parametrize(
    ("log", "named"),
    [
        (f"bind: Address already in use\n{NO_GPU}", "STORE-01"),
        (f"{NO_GPU}bind: Address already in use\n", "CUDA-09"),
    ],
)
def test_what_precedes_its_consequences_explains_none_that_was_there_before(
    log: str, named: str
) -> None:
    store = TEXTS["store"].replace("STORE-08:", "  precedes: yes\n  explains: [CUDA-09]\nSTORE-08:")
    known = read_catalogue({**TEXTS, "store": store})
    assert unpacked(packed(known)).by_id["STORE-01"].precedes
    assert [f.id for f in diagnose([Source(log)], known).findings] == [named]
