"""What to do about a failed check of the smoke test that no log explains: its figure is wrong."""

from __future__ import annotations

from pyinfra_gpu.on_host.diagnosis.causes import Step

_WRONG_DATA = (
    Step(
        "Run the test again by hand. The same wrong element again means a software fault, another"
        " one a fault of memory or link."
    ),
    Step(
        "On GPUs, run it with `NCCL_P2P_DISABLE=1` as well. If that passes, the path from GPU to"
        " GPU damages data (IOMMU or ACS settings, a patched driver)."
    ),
    Step("On a CPU host, test the memory", "memtester 1G 1"),
)
_WRONG_STEP = (
    Step(
        "Compare with another host that has the same torch. If the figures differ, suspect this"
        " host's memory or GPU, otherwise torch itself."
    ),
)
_OTHER_TORCH = (
    Step(
        "Find what leads the ranks to it, .pth files too", "env | grep -E 'PYTHONPATH|PYTHONHOME'"
    ),
    Step("Install the declared torch again", "pyinfra INVENTORY deploy.py"),
)
_NO_LIBUV = (Step("Install a torch that was built with libuv, as the official wheels are."),)

ADVICE = {
    "S1.import": _OTHER_TORCH,
    "S2.libuv": _NO_LIBUV,
    "S4.collectives": _WRONG_DATA,
    "S4.grad_bitwise": _WRONG_DATA,
    "S4.loss_drop": _WRONG_STEP,
    "S4.store": _NO_LIBUV,
    "S4.training_step": _WRONG_STEP,
    "S5.leftovers": (
        Step("See what was left", "ps -o pid,ppid,stat,wchan:20,cmd -e | grep smoke_test"),
    ),
    "S6.software": (
        Step("Install the same torch on all hosts of the group", "pyinfra INVENTORY deploy.py"),
    ),
}
"""Check's id, as in the verdict -> the steps to take after it has failed."""
