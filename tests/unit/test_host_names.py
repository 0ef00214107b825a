"""Names of hosts as people read them: in natural order, and many of them in few words."""

from __future__ import annotations

import random

import pytest

from pyinfra_gpu.host_names import brief, natural

LAB = [f"ws{number}.lab.example" for number in range(1, 101)]


@pytest.mark.parametrize(
    ("names", "words"),
    [
        (["gpu2", "gpu1"], "gpu1, gpu2"),
        (["gpu10", "gpu9", "gpu8", "gpu2"], "gpu2, gpu8-gpu10"),
        (["gpu8", "gpu09", "gpu10"], "gpu8, gpu09, gpu10"),
        (["rack1-gpu9", "rack1-gpu10", "rack1-gpu11"], "rack1-gpu9 to rack1-gpu11"),
        (LAB[:20], "ws1.lab.example to ws20.lab.example"),
        (["10.0.0.9", "10.0.0.10", "10.0.0.11", "10.0.1.11"], "10.0.0.9 to 10.0.0.11, 10.0.1.11"),
        (["a1b1", "a1b2", "a2b2"], "a1b1, a1b2, a2b2"),
        (["n\u00b2", "n1", "n" + "9" * 5000], None),
        ([], ""),
    ],
)
def test_names_are_natural_ranges(names: list[str], words: str | None) -> None:
    shuffled = random.Random(7).sample(names, len(names))
    reported = brief(shuffled)
    assert all(name in reported for name in names) if words is None else reported == words


def test_gpu2_comes_before_gpu10() -> None:
    assert sorted(["gpu10", "gpu2", "b", "gpu1"], key=natural) == ["b", "gpu1", "gpu2", "gpu10"]
