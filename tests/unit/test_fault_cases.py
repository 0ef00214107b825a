"""The cases of a fault at a boundary: their names, and which a run has."""

from __future__ import annotations

import pytest
from boundaries import FAULTS, Case, Numbered, cases_of
from gate import Command

SUDO = "sudo -H -n sh -c "
RUN = Numbered(
    (Command(1, "one", 100.0), Command(2, "two", 100.5), Command(3, "three", 103.0)), reboots=1
)


def test_a_case_reads_back_what_it_is_called() -> None:
    for case in cases_of("update", RUN):
        assert Case.read(str(case)) == case
    assert str(Case("deploy", 37, "before", "power")) == "deploy:37:before:power"


@pytest.mark.parametrize("text", ["", "deploy:37:before", "deploy:x:before:power", "a:1:within:x"])
def test_a_text_that_names_no_case_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="one is deploy:37:before:power"):
        Case.read(text)


def test_every_command_has_each_fault_before_it_and_a_long_one_also_within() -> None:
    cases = cases_of("deploy", RUN)
    assert len(cases) == len(set(cases)) == len(FAULTS) * 4
    assert {case.number for case in cases if case.moment == "before"} == {1, 2, 3}
    assert {case.number for case in cases if case.moment == "within"} == {2}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (f"{SUDO}'apt-get update -q'", "apt-get update -q"),
        ("sudo -H -n -u ubuntu sh -c 'head -- /a'", "head -- /a"),
        (f"{SUDO}'sh -c '\"'\"'\nat=$1\n'\"'\"' write.sh /etc/a 5 0644'", "write.sh /etc/a 5 0644"),
    ],
)
def test_a_command_is_recognised_by_its_last_line(text: str, words: str) -> None:
    assert Command(1, text, 0.0).words == words


def test_commands_of_two_runs_are_alike_but_for_random_words() -> None:
    one, two = (f"mv /tmp/pyinfra-{word * 10} /etc/a" for word in "ab")
    assert Command(1, one, 0.0).likeness == Command(9, two, 1.0).likeness
    assert Command(1, one, 0.0).likeness != Command(1, "mv /tmp/x /etc/a", 0.0).likeness


def test_the_way_to_a_boundary_is_known_by_what_is_sent_once() -> None:
    texts = ("look", "write a", "look", "write b", "look")
    commands = tuple(Command(number, text, 0.0) for number, text in enumerate(texts, 1))
    run = Numbered(commands, reboots=0)
    assert run.single(1, 5) == {"write a", "write b"}
    assert run.single(3, 5) == {"write b"}
    assert run.single(2, 2) == run.single(5, 5) == set()


def test_a_reboot_may_begin_after_the_command_that_orders_it_and_before_the_next() -> None:
    texts = ("look", ': pyinfra-gpu-restart; eval "$(cat)"', "boot_id", "look")
    commands = tuple(Command(number, text, 0.0) for number, text in enumerate(texts, 1))
    run = Numbered(commands, reboots=1)
    assert [run.may_have_ordered_a_reboot(number) for number in (1, 2, 3, 4)] == [
        False, True, True, False,
    ]  # fmt: skip
