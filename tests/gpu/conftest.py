"""Tests on real GPUs, with this interpreter's torch. Where there are none they are skipped.

Run them on a GPU host, in the environment that trains there (with pydantic and PyYAML):
python -m pytest tests/gpu
Each full run leaves what was measured in tests/gpu/evidence, or in the folder GPU_EVIDENCE.
"""

from __future__ import annotations

import importlib.util

import pytest


def why_not(needed: int) -> str | None:
    """Return why `needed` GPUs cannot be used here, None if they can or none is needed."""
    if needed == 0:
        return None
    if importlib.util.find_spec("torch") is None:
        return "torch is not installed"
    import torch

    if torch.version.cuda is None:
        return f"torch {torch.__version__} is built for the CPU"
    found = torch.cuda.device_count()
    return f"{found} GPUs are here, {needed} are needed" if found < needed else None


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip a test that asks for more GPUs, by `gpu(number)`, than are here; before its fixtures."""
    marker = item.get_closest_marker("gpu")
    reason = why_not(marker.args[0] if marker is not None and marker.args else 1)
    if reason is not None:
        pytest.skip(reason)
