"""What a rank makes of a collective that its torch does not have."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("torch")

from pyinfra_gpu.on_host.smoke.ranks import collectives

pytestmark = pytest.mark.torch
REFUSED = "ProcessGroupGloo does not support reduce_scatter"


def _refused(*_: Any) -> dict[str, Any]:
    raise RuntimeError(REFUSED)


def test_what_gloo_lacks_is_noted_and_the_other_collectives_follow(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(collectives.dist, "get_backend", lambda: "gloo")
    found = collectives._tried(_refused, None, 0)  # type: ignore[arg-type]
    assert found == {"elements": 0, "wrong": 0, "unsupported": REFUSED}


def test_nothing_is_passed_over_with_nccl(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collectives.dist, "get_backend", lambda: "nccl")
    with pytest.raises(RuntimeError, match="does not support"):
        collectives._tried(_refused, None, 0)  # type: ignore[arg-type]
