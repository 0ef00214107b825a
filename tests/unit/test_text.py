"""The one writer: 80 columns, nothing lost, and no escape sequence of a host on a terminal."""

from __future__ import annotations

import pytest

from pyinfra_gpu import text

HOSTILE = {
    "colour": ("\x1b[31mred\x1b[0m", "red"),
    "clear": ("\x1b[2Ja", "a"),
    "title": ("\x1b]0;gotcha\x07a", "a"),
    "half an escape": ("a\x1b", "a"),
    "C1": ("a\x9b2Jb", "a 2Jb"),
    "carriage return": ("good\rbad", "good bad"),
    "breaks": ("a\n\tb\u2028c", "a b c"),
    "backwards": ("a\u202eb", "a b"),
    "isolates": ("a\u2066b", "a b"),
    "without width": ("a\u200bb", "a b"),
    "half a character": ("a\ud800b", "a b"),
    "NUL": ("a\x00b", "a b"),
    "letters": ("caf\u00e9 \u2713", "caf\u00e9 \u2713"),
}


@pytest.mark.parametrize("kind", HOSTILE)
def test_what_a_host_wrote_does_nothing_to_a_terminal(kind: str) -> None:
    written, shown = HOSTILE[kind]
    assert text.one_line(written) == shown
    for lines in (
        text.paragraph(written, "  ", "    "),
        text.command(written, "  "),
        [text.shortened(written, 50)],
    ):
        joined = "\n".join(lines)
        assert joined.encode("utf-8")
        assert not set(joined) & set("\x1b\x9b\x00\r\u202e\u2066\u200b")


@pytest.mark.parametrize("kind", HOSTILE)
def test_a_logs_lines_and_tabs_are_kept(kind: str) -> None:
    cleaned = text.without_escapes(f"one\n\t{HOSTILE[kind][0]}\nthree")
    assert cleaned.startswith("one\n\t")
    assert cleaned.endswith("\nthree")
    assert "\x1b" not in cleaned


def test_a_paragraph_keeps_all_its_words_within_the_columns() -> None:
    words = [f"word{n}" for n in range(90)]
    lines = text.paragraph(" ".join(words), "  ", "    ")
    assert max(map(len, lines)) <= text.WIDTH
    assert " ".join(lines).split() == words
    assert text.paragraph("", "  > ", "") == ["  >"]


def test_of_many_the_first_are_named_and_the_rest_counted() -> None:
    assert text.some(["a"], 2) == "a"
    assert text.some(["a", "b"], 2) == "a, b"
    assert text.some(["a", "b", "c"], 2) == "a, b and 1 more"
    assert text.some(["a", "b"], 2, total=9) == "a, b and 7 more"
    assert text.some([], 0) == ""


def test_a_command_stands_on_lines_that_a_shell_takes() -> None:
    long = "run " + "--option value " * 12
    lines = text.command(long, "     ")
    assert max(map(len, lines)) <= text.WIDTH
    assert "\n".join(lines).replace("\\\n", " ").split() == long.split()


@pytest.mark.parametrize("width", [20, 40, 85])
def test_a_command_in_a_sentence_is_never_broken(width: int) -> None:
    command = "`pyinfra-gpu train inventories/rehearsal.py why --limit gpu1 -- 20261122-200000-x`"
    said = text.paragraph(f"1 failed: {command}, {'word ' * 30}", "! ", "  ", width=width)
    assert sum(command in line for line in said) == 1
    assert all(len(line) <= width for line in said if command not in line)
