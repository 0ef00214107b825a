"""The closed forms against brute force: exact in the type, and wrong for every other order."""

from __future__ import annotations

import itertools
import struct

import pytest

from pyinfra_gpu.on_host.smoke import exactness

_BOUND = {"float32": 2**24, "bfloat16": 2**8}
_ALL_RANKS = range(2, exactness.MAX_RANKS + 1)


def _as_stored(kind: str, value: float) -> float:
    """Return `value` rounded as the type stores it."""
    bits = struct.unpack("<I", struct.pack("<f", value))[0]
    if kind == "bfloat16":
        bits = (bits + 0x7FFF + ((bits >> 16) & 1)) & 0xFFFF0000  # round to nearest, ties to even
    return float(struct.unpack("<f", struct.pack("<I", bits))[0])


@pytest.mark.parametrize("kind", exactness.KINDS)
@pytest.mark.parametrize("ranks", _ALL_RANKS)
def test_the_largest_sum_stays_within_the_consecutive_whole_numbers(kind: str, ranks: int) -> None:
    pattern = exactness.pattern(kind, ranks)
    largest = ranks * (pattern.period - 1) + sum(pattern.offset(rank) for rank in range(ranks))
    assert pattern.largest_sum == largest <= _BOUND[kind]


@pytest.mark.parametrize("kind", exactness.KINDS)
@pytest.mark.parametrize("ranks", [2, 3, 4, 5, 8, 16])
def test_adding_in_any_order_gives_the_closed_form_without_rounding(kind: str, ranks: int) -> None:
    pattern = exactness.pattern(kind, ranks)
    indices = {0, 1, pattern.period // 2, pattern.period - 1}
    forward = list(range(ranks))
    for index, order in itertools.product(indices, (forward, forward[::-1], forward[1::2])):
        rest = [rank for rank in forward if rank not in order]
        total = 0.0
        for rank in [*order, *rest]:
            value = float(index % pattern.period + pattern.offset(rank))
            assert _as_stored(kind, value) == value
            total = _as_stored(kind, total + value)
        assert total == ranks * (index % pattern.period) + pattern.offsets


def test_two_ranks_have_the_published_forms() -> None:
    single, brain = exactness.pattern("float32", 2), exactness.pattern("bfloat16", 2)
    assert (single.period, single.offset(0), single.offset(1)) == (1048573, 2**20, 2**21)
    assert (brain.period, brain.offset(0), brain.offset(1)) == (61, 0, 64)
    assert brain.largest_sum == 184


@pytest.mark.parametrize("kind", exactness.KINDS)
@pytest.mark.parametrize("ranks", _ALL_RANKS)
def test_no_rank_has_a_value_of_another(kind: str, ranks: int) -> None:
    pattern = exactness.pattern(kind, ranks)
    assert pattern.period >= 2
    assert pattern.offset(1) - pattern.offset(0) >= pattern.period


@pytest.mark.parametrize("kind", exactness.KINDS)
def test_periods_are_prime(kind: str) -> None:
    for ranks in _ALL_RANKS:
        period = exactness.pattern(kind, ranks).period
        assert all(period % divisor for divisor in range(2, int(period**0.5) + 1))


def test_a_repeat_never_shows_the_values_of_the_one_before() -> None:
    for kind, ranks in itertools.product(exactness.KINDS, _ALL_RANKS):
        assert exactness.SHIFT % exactness.pattern(kind, ranks).period != 0


def test_more_ranks_than_can_be_exact_are_refused_with_the_bound() -> None:
    with pytest.raises(exactness.BoundError, match="bfloat16 sums over 17 ranks exceed 256"):
        exactness.pattern("bfloat16", 17)


@pytest.mark.parametrize("largest", [1, 2, 4, 8, 64, 256, 1024])
def test_sizes_run_from_one_float_to_what_was_asked_for(largest: int) -> None:
    sizes = exactness.sizes(largest)
    assert sizes[0] == 4
    assert {4, 4096, 2**20, 2**20 + 4} <= set(sizes)
    assert max(sizes) == max(largest * 2**20, 2**20 + 4)
    assert list(sizes) == sorted(set(sizes))
    assert all(size % 4 == 0 for size in sizes)


@pytest.mark.parametrize(
    ("size", "name"),
    [(4, "4 B"), (4096, "4 KiB"), (2**20 + 4, "1 MiB + 4 B"), (2**26, "64 MiB")],
)
def test_sizes_are_named_as_people_write_them(size: int, name: str) -> None:
    assert exactness.size_name(size) == name
