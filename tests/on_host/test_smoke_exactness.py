"""The closed forms against brute force: exact in the type, and wrong for every other order."""

from __future__ import annotations

import struct

import pytest

from pyinfra_gpu.on_host.smoke import exactness


def _as_stored(kind: str, value: float) -> float:
    """Return `value` rounded as the type stores it."""
    bits = struct.unpack("<I", struct.pack("<f", value))[0]
    if kind == "bfloat16":
        bits = (bits + 0x7FFF + ((bits >> 16) & 1)) & 0xFFFF0000  # round to nearest, ties to even
    return float(struct.unpack("<f", struct.pack("<I", bits))[0])


@pytest.mark.parametrize("kind", exactness.KINDS)
@pytest.mark.parametrize("ranks", range(2, exactness.MAX_RANKS + 1))
def test_adding_in_any_order_gives_the_closed_form_without_rounding(kind: str, ranks: int) -> None:
    period = exactness.period(kind, ranks)
    assert period >= 2
    assert all(period % divisor for divisor in range(2, int(period**0.5) + 1))
    assert exactness.SHIFT % period, "a repeat would show the values of the one before"
    forward = list(range(ranks))
    for index in {0, 1, period // 2, period - 1}:
        for order in (forward, forward[::-1], [*forward[1::2], *forward[::2]]):
            total = 0.0
            for rank in order:
                value = float(index + rank * period)
                assert _as_stored(kind, value) == value
                total = _as_stored(kind, total + value)
            assert total == ranks * index + exactness.offset_of_sum(period, ranks)


def test_more_ranks_than_can_be_exact_are_refused_with_the_bound() -> None:
    with pytest.raises(exactness.BoundError, match="bfloat16 sums over 17 ranks exceed 256"):
        exactness.period("bfloat16", 17)


@pytest.mark.parametrize("largest", [1, 2, 64, 256])
def test_sizes_run_from_one_float_to_what_was_asked_for(largest: int) -> None:
    sizes = exactness.sizes(largest)
    assert sizes[0] == 4
    assert {4096, 2**20, 2**20 + 4} <= set(sizes)
    assert max(sizes) == max(largest * 2**20, 2**20 + 4)
    assert list(sizes) == sorted(set(sizes))


def test_sizes_are_named_as_people_write_them() -> None:
    assert [*map(exactness.size_name, (4, 4096, 2**20 + 4))] == ["4 B", "4 KiB", "1 MiB + 4 B"]
