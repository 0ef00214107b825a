"""What is taken off a line before it is searched, and whose line it is."""

from __future__ import annotations

import pytest
from diagnosis.small_catalogue import KNOWN, explained, roots, traceback

from pyinfra_gpu.diagnosis.matcher import diagnose
from pyinfra_gpu.on_host.diagnosis.log import MOST_STREAMS, Source, read, streams, unwrapped

MESSAGE = "RuntimeError: No CUDA GPUs are available"


def line(text: str) -> tuple[str, int | None, str]:
    """The message, the rank and the label of a log of one line."""
    (found,) = read([Source(text)])
    return found.text, found.rank, found.label


@pytest.mark.parametrize(
    ("prefix", "rank", "label"),
    [
        ("[rank3]: ", 3, ""),
        ("[default1]:", 1, ""),
        ("[default0]:[rank2]: ", 2, ""),
        ("[1,5]<stderr>:", 5, ""),
        ("2026-11-21T12:33:44.123456789Z ", None, ""),
        ("2026-11-21T12:33:44.123456+01:00 ws1 kernel: ", None, ""),
        ("2026-11-21 12:33:44,123 ", None, ""),
        ("[2026-11-21 12:33:44,123] ", None, ""),
        ("2026-11-21T12:33:44.1Z stderr F ", None, ""),
        ("12:33:44 ", None, ""),
        ("Nov 21 12:33:44 ws1 train.sh[4242]: ", None, ""),
        ("Nov  1 02:03:04 ws1 kernel: [   12.345678] ", None, ""),
        ("[12345.678901] ", None, ""),
        ("[Fri Nov 21 12:33:44 2025] ", None, ""),
        ("trainer-1  | ", None, "trainer-1"),
        ("trainer-1  | 2026-11-21T12:33:44Z [rank1]: ", 1, "trainer-1"),
        ("[pod/train-0/main] 2026-11-21T12:33:44Z ", None, "train-0/main"),
        ("E1121 12:33:44.123000 4242 torch/distributed/run.py:774] ", None, ""),
        ("[rank1]:[E1121 12:33:44.123456789 ProcessGroupNCCL.cpp:616] ", 1, ""),
        ("[E ProcessGroupNCCL.cpp:475] ", None, ""),
        ("(RayTrainWorker pid=4242, ip=10.0.0.2) ", None, "RayTrainWorker pid=4242, ip=10.0.0.2"),
        ("ERROR 11-21 12:33:44 [core.py:120] ", None, ""),
        ("2026-11-21 12:33:44.123 | ERROR | train:main:12 - ", None, ""),
    ],
)
def test_what_stands_before_a_message_is_taken_off(
    prefix: str, rank: int | None, label: str
) -> None:
    assert line(prefix + MESSAGE) == (MESSAGE, rank, label)
    assert roots("".join(prefix + text for text in traceback(MESSAGE).splitlines(True))) == [
        "CUDA-09"
    ]


@pytest.mark.parametrize("text", [MESSAGE, "Error: x", "0 errors", "ws1:41:42 [0] NCCL INFO x"])
def test_a_message_without_prefix_is_left_as_it_is(text: str) -> None:
    assert line(text) == (text, None, "")


@pytest.mark.parametrize("labels", [("0: ", "1: "), ("node03: ", "node04: ")])
def test_launchers_labels_are_seen_where_all_lines_have_one(labels: tuple[str, str]) -> None:
    one = traceback("KeyError: 1", prefix=labels[0]).splitlines()
    other = traceback(MESSAGE, prefix=labels[1]).splitlines()
    mixed = [text for pair in zip(one, other, strict=True) for text in pair]
    found = read([Source("\n".join(mixed))])
    assert {item.label for item in found} == {label.rstrip(": ") for label in labels}
    assert found[-1].text == MESSAGE


@pytest.mark.parametrize("labels", [("0: ", "1: "), ("[node-a] ", "[node-b] ")])
def test_labels_on_some_lines_tell_writers_where_a_traceback_has_them(
    labels: tuple[str, str],
) -> None:
    one = traceback("KeyError: 1", prefix=labels[0]).splitlines()
    other = traceback(MESSAGE, prefix=labels[1]).splitlines()
    mixed = [text for pair in zip(one, other, strict=True) for text in pair]
    shell = ["+ pip install torch", "$ ldd --version | head -1", "ldd (GNU libc) 2.28"] * 4
    found = read([Source("\n".join([*shell, *mixed, *shell]))])
    names = {label.strip(" :[]") for label in labels}
    assert {item.label for item in found} == names | {""}
    assert [item.text for item in found if item.label == labels[1].strip(" :[]")][-1] == MESSAGE


@pytest.mark.parametrize("start", ["[ERROR] ", "[info] ", "2: "])
def test_levels_and_numbers_of_lists_are_no_labels(start: str) -> None:
    log = f"{start}loading\n{start}lo: <LOOPBACK,UP>\n"
    log += traceback("KeyError: 1", prefix="[ERROR] ") if start == "[ERROR] " else ""
    assert {item.label for item in read([Source(log)])} == {""}


@pytest.mark.parametrize("name", ["pane 0", "trainer", "Window 2"])
def test_a_name_before_all_that_a_terminal_shows_is_its_label(name: str) -> None:
    log = f"me@ws1:~$ ./launch.sh\n\n{traceback(MESSAGE)}".splitlines(keepends=True)
    found = read([Source("".join(f"[{name}] {text}" for text in log))])
    assert [item.text for item in found][:1] == ["me@ws1:~$ ./launch.sh"]
    assert {item.label for item in found} == {name}
    assert found[-1].whole == f"[{name}] {MESSAGE}"
    nobody_typed = f"[{name}] loading\n" * 4
    assert {item.label for item in read([Source(nobody_typed)])} == {""}


def test_a_word_and_a_colon_in_some_lines_is_no_label() -> None:
    found = read([Source(traceback("KeyError: 1") + "ValueError: x\nwandb: hello\n")])
    assert {item.label for item in found} == {""}


@pytest.mark.parametrize(
    "broken",
    [
        f"\x1b[31m\x1b[1m{MESSAGE}\x1b[0m",
        "\x1b]0;title\x07" + MESSAGE,
        MESSAGE.replace("CUDA", "CU\x1b[KDA"),
        MESSAGE.replace("GPUs", "G\x00PUs\u200b"),
        "\ufeff" + MESSAGE,
        MESSAGE + "\r",
        "progress 10%\rprogress 20%\r" + MESSAGE,
    ],
)
def test_colours_and_control_characters_are_not_seen(broken: str) -> None:
    found = explained("a\r\n" + broken + "\r\n")
    assert [f.id for f in found.findings] == ["CUDA-09"]
    assert found.findings[0].evidence == MESSAGE


def test_typographic_quotes_are_plain_ones() -> None:
    assert line("couldn\u2019t open \u201cx\u201d") == ('couldn\'t open "x"', None, "")


def test_what_a_terminal_broke_at_its_width_is_joined() -> None:
    message = f"RuntimeError: {'the server socket has failed ' * 2}at Address already in use"
    log = f"{'a line longer than the terminal is wide ' * 3}\n" + traceback(message)
    wrapped = "\n".join(row[n : n + 80] for row in log.splitlines() for n in range(0, len(row), 80))
    assert "Addre\nss already" in wrapped
    assert roots(wrapped) == ["STORE-01"]


def test_a_cause_that_a_terminal_broke_comes_before_an_effect_that_it_did_not() -> None:
    warning = f"{'x' * 62} UserWarning: CUDA initialization: unsupported display driver\n"
    log = f"{'a line longer than the terminal is wide ' * 3}\n" + warning
    log += traceback("RuntimeError: No CUDA GPUs are available")
    wrapped = "\n".join(
        row[n : n + 110] for row in log.splitlines() for n in range(0, len(row), 110)
    )
    assert "unsupported d\nisplay" in wrapped
    assert roots(wrapped) == roots(log) == ["CUDA-01"]


@pytest.mark.parametrize("quote", ["    ", "> ", "\t", "> > "])
def test_a_quoted_log_is_read_like_the_log(quote: str) -> None:
    log = "\n" + traceback("KeyError: 1") + "\n" + traceback(MESSAGE, prefix="[rank1]: ")
    quoted = "".join(f"{quote}{text}\n" if text else "\n" for text in log.splitlines())
    found = [(item.text, item.rank) for item in read([Source(quoted)])]
    assert found == [(item.text, item.rank) for item in read([Source(log)])]


def test_lines_that_only_have_one_length_are_not_taken_for_broken_ones() -> None:
    assert unwrapped(read([Source("short\nlines\n")])) is None
    assert unwrapped(read([Source("x" * 200 + "\ny\n")])) is None


def test_two_files_lines_are_not_read_as_one_text() -> None:
    one, other = Source("RuntimeError: No CUDA"), Source("GPUs are available")
    assert diagnose([one, other], known=KNOWN).unclassified
    assert not diagnose([Source(one.text + "\n" + other.text)], known=KNOWN).unclassified


def test_very_many_writers_share_a_stream() -> None:
    lines = read([Source("".join(f"[rank{n}]: hello\n" for n in range(5000)))])
    assert len(streams(lines)) == MOST_STREAMS + 1


@pytest.mark.parametrize(
    ("prompt", "plain"),
    [
        ("❯ ", "$ "),  # noqa: RUF001
        ("(vit) ~/run main ❯ ", "(vit) $ "),  # noqa: RUF001
        ("➜  run git:(main) ✗ ", "$ "),
        ("➜  ~ ", "$ "),
        ("»ws1 ~»% ", "$ "),
        ("└─$ ", "$ "),
        ("~/run % ", "$ "),
        ("ws1:~ # ", "$ "),
        ("ada@ws1 ~/run> ", "$ "),
        ("bash-5.1$ ", "$ "),
        ("[10:12] ada@ws1:~/run$ ", "ada@ws1:~/run$ "),
        ("10:12 (venv) ada@ws1:~$ ", "(venv) ada@ws1:~$ "),
        ("(base) (venv) ❯ ", "(base) $ "),  # noqa: RUF001
        ("In [12]: ", ">>> "),
        ("ada@ws1:~/run$ ", "ada@ws1:~/run$ "),
    ],
)
def test_prompts_of_other_forms_are_read_like_the_usual_ones(prompt: str, plain: str) -> None:
    (found,) = read([Source(f"{prompt}dmesg")])
    assert (found.text, found.whole) == (f"{plain}dmesg", f"{prompt}dmesg")


def test_what_ipython_answers_is_read_without_its_number() -> None:
    assert line("Out[3]: '2.4.0+cpu'") == ("'2.4.0+cpu'", None, "")


def test_the_first_line_of_a_prompt_of_two_is_one_where_nothing_was_typed() -> None:
    assert line("┌──(ada㉿ws1)-[~/run]") == ("$", None, "")


@pytest.mark.parametrize(
    "text",
    [
        "└─ pytorch =2.7.1 is not installable",
        "/dev/sda2 469G 201G 46% /data",
        "├── train.py",
        "at x » y",
        "In [the] beginning",
    ],
)
def test_what_only_resembles_a_prompt_is_left_as_it_is(text: str) -> None:
    assert line(text) == (text, None, "")
