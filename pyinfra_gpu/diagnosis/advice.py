"""What to do about a failed check whose figure the smoke test measured itself.

No log explains those: nothing complained, and yet the numbers are wrong.
"""

from __future__ import annotations

from collections.abc import Mapping

_DATA = (
    "run the test again by hand: whether the same element is wrong again tells a fault of the"
    " software from one of memory or link",
    "on GPUs: run it with `NCCL_P2P_DISABLE=1` as well; if that passes, the path from GPU to GPU"
    " damages data (IOMMU or ACS settings, a patched driver)",
    "on a CPU host: test the memory (`memtester 1G 1`)",
)
_STEP = (
    "compare with another host that has the same torch: if the figures differ, suspect this"
    " host's memory or GPU; if not, torch itself",
)
_OTHER_TORCH = (
    "find what leads the ranks to it: `env | grep -E 'PYTHONPATH|PYTHONHOME'`, and .pth files in"
    " the virtual environment",
    "`pyinfra INVENTORY deploy.py` puts the declared torch back",
)
_LIBUV = (
    "install a torch that was built with libuv, as the official wheels are; no variable makes"
    " torchrun do without",
)

_ADVICE: Mapping[str, tuple[str, ...]] = {
    "allreduce_exact": _DATA,
    "allreduce_exact_bf16": _DATA,
    "broadcast": _DATA,
    "all_gather": _DATA,
    "reduce_scatter": _DATA,
    "send_recv": _DATA,
    "pairs_exact": _DATA,
    "grad_bitwise": _DATA,
    "grad_equal": _DATA,
    "params_initial": _DATA,
    "params_equal": _DATA,
    "finite": _STEP,
    "loss_initial": _STEP,
    "loss_drop": _STEP,
    "torch": _OTHER_TORCH,
    "software": (
        "install the same torch on all hosts of the group: `pyinfra INVENTORY deploy.py`",
    ),
    "store_libuv": _LIBUV,
    "libuv": _LIBUV,
    "leftovers": (
        "look at what was left: `ps -o pid,ppid,stat,wchan:20,cmd -e | grep smoke_test`",
    ),
}


def advice(check_id: str) -> tuple[str, ...]:
    """Return the steps to take after this check has failed; empty where its sentence says all.

    + check_id: as in the verdict, such as "S4.grad_equal"
    """
    return _ADVICE.get(check_id.rpartition(".")[2], ())
