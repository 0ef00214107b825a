"""The version of the wheel, as PyTorch's own build takes it from the environment."""

from __future__ import annotations

import os


def dynamic_metadata(field: str, settings: object = None) -> str:
    """Return it."""
    del field, settings
    return os.environ["PYTORCH_BUILD_VERSION"]
