"""Ranks that wait for a compiler wait at the store, where no collective's watchdog ends them."""

from __future__ import annotations

import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from pyinfra_gpu.on_host.smoke.journal import Writer
from pyinfra_gpu.on_host.smoke.options import REHEARSAL_CPU

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch


def test_the_others_begin_when_the_first_has_compiled_and_no_collective_waits_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pyinfra_gpu.on_host.smoke.ranks.rank import Rank
    from torch import distributed
    from torch.distributed import distributed_c10d

    from pyinfra_gpu.on_host.smoke.ranks import compiled_step

    def collective(*_: object, **__: object) -> None:
        raise AssertionError("a rank waits in a collective, under NCCL's timeout")

    began: list[str] = []
    first_may_end = threading.Event()

    def step(*_: object) -> dict[str, float | int]:
        name = threading.current_thread().name
        began.append(name)
        if name == "rank 0":
            assert first_may_end.wait(60)
        return {"loss": 1.0, "missing": 0, "non_finite": 0}

    store = distributed.HashStore()
    monkeypatch.setattr(distributed, "barrier", collective)
    monkeypatch.setattr(distributed_c10d, "_get_default_store", lambda: store)
    monkeypatch.setattr(compiled_step, "_step", step)
    monkeypatch.setattr(compiled_step, "importlib", SimpleNamespace(import_module=lambda _: None))
    options = cast("Any", SimpleNamespace(compiled=True, mode=REHEARSAL_CPU, deadline=60))
    ended: list[int] = []

    def run(rank: int) -> None:
        journal = Writer(tmp_path, rank)
        compiled_step.measure(Rank(options, journal, rank, 2, torch.device("cpu")))
        ended.append(rank)

    threads = [threading.Thread(target=run, args=(n,), name=f"rank {n}") for n in (0, 1)]
    for thread in threads:
        thread.start()
    threads[1].join(2)
    assert (began, ended) == (["rank 0"], [])
    first_may_end.set()
    for thread in threads:
        thread.join(60)
    assert began == ["rank 0", "rank 1"]
    assert sorted(ended) == [0, 1]
