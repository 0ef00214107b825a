"""Messages are searched near an anchor: what that needs of a pattern, and what it finds."""

from __future__ import annotations

import random

import pytest

from pyinfra_gpu.on_host.diagnosis.patterns import LONG, PatternError, Text, check, pattern


@pytest.mark.parametrize(
    ("source", "anchor"),
    [
        ("Address already in use", "Address already in use"),
        (r"exitcode {1,3}: -9 \(pid", ": -9 (pid"),
        (r"lib[^\]\s]{0,40}\.so: cannot open", ".so: cannot open"),
        (r"(?:some|other) thing is missing", " thing is missing"),
        (r"colou?r settings", "r settings"),
        (r"[]a]{1,3} is a bracket", " is a bracket"),
        (r"(?P<name>\w{1,20}) has no attribute", " has no attribute"),
    ],
)
def test_the_anchor_is_the_longest_text_that_every_match_holds(source: str, anchor: str) -> None:
    assert pattern(source).anchor == anchor


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("(unclosed text", "not a regular expression"),
        (r"\w{1,9}: \d", "no text of 6 characters"),
        ("first message|second message", "no text of 6 characters"),
        ("message .* with a tail", "without a bound"),
        (r"message \d+ with a tail", "without a bound"),
        ("(?i)message in any case", "ignores case"),
    ],
)
def test_a_pattern_that_cannot_be_searched_quickly_is_refused(source: str, reason: str) -> None:
    with pytest.raises(PatternError, match=reason):
        check(pattern(source))


def test_a_blank_also_matches_the_break_between_two_lines() -> None:
    found = list(
        pattern("already in use by another").find(Text("x already\nin use by\nanother"), 9)
    )
    assert [match.span() for match in found] == [(2, 27)]


def test_of_very_many_anchors_those_at_both_ends_are_looked_at() -> None:
    text = Text("".join(f"number {n} here\n" for n in range(1000)))
    found = [int(match[1]) for match in pattern(r"number (\d{1,4}) here").find(text, 3)]
    assert found == [0, 1, 2, 997, 998, 999]


def test_a_match_is_found_once_however_often_its_anchor_stands_in_it() -> None:
    text = Text("number number number 7 end\nnumber 8 end")
    found = pattern(r"number (?P<value>\d) end").find(text, 9)
    assert [match["value"] for match in found] == ["7", "8"]


@pytest.mark.parametrize("behind", [0, LONG])
def test_the_anchors_that_a_text_holds_are_told_wherever_they_stand(behind: int) -> None:
    fuzz = random.Random(4)
    for _ in range(30):
        anchors = ["".join(fuzz.choices("ab ", k=fuzz.randrange(1, 20))) for _ in range(50)]
        words = "".join(fuzz.choices("ab \n", k=200)) + "." * behind + fuzz.choice(anchors)
        there = {each for each in anchors if each in words.replace("\n", " ")}
        assert Text(words).holding(anchors) == there
        assert there < {*anchors}
