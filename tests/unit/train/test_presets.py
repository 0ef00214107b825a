"""Presets: what is accepted, what is refused in one sentence, and what a command comes to."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from pydantic import TypeAdapter

from pyinfra_gpu.compatibility import resolve
from pyinfra_gpu.errors import SpecError
from pyinfra_gpu.on_host.train import presets
from pyinfra_gpu.on_host.train.host import TrainError
from pyinfra_gpu.on_host.train.presets import Preset
from pyinfra_gpu.spec.presets import Presets

PROJECT = Path(__file__).resolve().parents[3]
DECLARED = TypeAdapter(Presets)


def whole(given: Any, name: str) -> Preset:
    """Return a preset as a host gets it."""
    return DECLARED.validate_python(given)[name]


EXAMPLES = sorted((PROJECT / "examples/presets").glob("*.json"))
CPU: dict[str, object] = {
    "stack": "cpu-torch2.13",
    "training_repo": "https://example.org/tiny.git",
    "training_commit": "0123456789abcdef0123456789abcdef01234567",
}
BASE: dict[str, Any] = {
    "file": "train.py",
    "arguments": {"steps": 100, "batch": 4, "length": 64, "total": 1024, "fast": True, "tag": None},
}

# What is wrong with preset a, whose file is a.py -> words that the sentence has.
WRONG: list[tuple[dict[str, Any], tuple[str, ...]]] = [
    ({"fil": "a.py"}, ("a.fil is no known key", "write file")),
    ({"file": None}, ("neither a module nor a file",)),
    ({"module": "a"}, ("a module and a file",)),
    ({"file": "../a.py"}, ("a.file leads out",)),
    ({"file": "-c"}, ("a.file leads out",)),
    ({"arguments": {"--x": 1}}, ("a.arguments.--x is not letters, digits",)),
    ({"arguments": {"x": "1\n2"}}, ("a.arguments.x is no text on one line",)),
    ({"arguments": {"lr": float("nan")}}, ("a.arguments.lr is no",)),
    ({"extends": "a"}, ("a -> a", "take 'extends'")),
    ({"extends": "bee"}, ("preset a extends bee, which is not there",)),
    ({"resume_after_reboot": True}, ("'resume_after_reboot' and no 'resume'", "say how")),
    ({"resume": {"resume": "{checkpoint}"}}, ("no 'checkpoints'",)),
    ({"arguments": {"out": "{rnu}/x"}}, ("{rnu}", "did you mean run?")),
    ({"arguments": {"out": "{checkpoint}"}}, ("{checkpoint}",)),
    ({"variables": {"CUDA_VISIBLE_DEVICES": "1"}}, ("CUDA_VISIBLE_DEVICES is not written",)),
    ({"arguments": {"api-key": "0123456789"}}, ("--api-key", "secret")),
    ({"variables": {"DB_PASSWORD": "0123"}}, ("DB_PASSWORD", "secret")),
]


@pytest.mark.parametrize(("given", "words"), WRONG)
def test_a_wrong_preset_is_one_sentence_with_its_remedy(
    given: dict[str, Any], words: tuple[str, ...]
) -> None:
    given = {"file": "a.py", **given}
    with pytest.raises(SpecError) as caught:
        resolve({**CPU, "training_presets": {"a": given}}, "ws1")
    text = str(caught.value)
    assert "0123456789" not in text
    assert text.startswith("host ws1: training_presets = ")
    assert "; fix: " in text
    assert "\n" not in text
    for word in words:
        assert word in text


def test_presets_without_a_repository_are_refused() -> None:
    with pytest.raises(SpecError, match="comes without training_repo"):
        resolve({"training_presets": {"a": {"file": "a.py"}}}, "ws1")


# -- what a preset comes to


def test_extends_merges_arguments_and_replaces_the_rest() -> None:
    given = {
        "a": {**BASE, "words": ["x"], "variables": {"A": "1", "B": "1"}, "ranks": 2},
        "b": {"extends": "a", "arguments": {"batch": 8, "fast": False}, "variables": {"B": "2"}},
        "c": {"extends": "b", "file": "other.py", "words": ["y"], "ranks": None},
    }
    found = whole(given, "c")
    assert (found.file, found.words, found.ranks) == ("other.py", ["y"], None)
    assert found.variables == {"A": "1", "B": "2"}
    assert found.arguments == {**BASE["arguments"], "batch": 8, "fast": False}
    assert presets.from_json("c", json.loads(json.dumps(asdict(found)))).words == ["y"]
    given["d"] = {"extends": "a", "file": None, "module": "b.c"}
    assert (whole(given, "d").file, whole(given, "d").module) == (None, "b.c")


def test_arguments_become_words() -> None:
    arguments = {"a": 1, "b_c": "x y", "on": True, "off": False, "none": None, "run": "{run}/{a}"}
    assert presets.argument_words(arguments, {"run": "/r", "a": 1}) == [
        "--a=1", "--b_c=x y", "--on", "--run=/r/1",
    ]  # fmt: skip


# What stood there, what is set -> what it becomes.
SET: list[tuple[object, str, object]] = [
    *((True, text, False) for text in ("off", "no", "0", "False")),
    *((False, text, True) for text in ("on", "1", "true")),
    *((4, text, text) for text in ("2", "-1", "3e-4", ".5")),
    (None, "a=b", "a=b"), ("x", "b", "b"),
]  # fmt: skip


@pytest.mark.parametrize(("before", "text", "value"), SET)
def test_settings_keep_the_kind_of_what_stood_there(before: object, text: str, value: Any) -> None:
    """`--set compile=off` became `--compile=off`, which the program refused after the start."""
    preset = whole({"a": {"file": "a.py", "arguments": {"x": before, "y": 1}}}, "a")
    changed = presets.with_settings(preset, [f"x={text}", "ranks=3"])
    assert (changed.arguments, changed.ranks) == ({"x": value, "y": 1}, 3)
    assert type(changed.arguments["x"]) is type(value)


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ("batchh=2", "did you mean batch?"),
        ("batch", "write --set NAME=VALUE"),
        ("ranks=none", "give one from 1 to 64"),
        ("rate=fast", "--set rate=fast: in preset a it is 0.5; give a number, or put"),
        ("fast=maybe", "--set fast=maybe: in preset a it is True; give on or off"),
        ("save={rnu}/x", "{rnu}, which stands for nothing: the places are"),
        ("momentum=0.9", "(others go behind --, as -- --momentum=0.9"),
    ],
)
def test_a_wrong_setting_is_refused(setting: str, words: str) -> None:
    arguments = {**BASE["arguments"], "rate": 0.5, "save": "/x", "batch-size": 4}
    given = {"a": {**BASE, "arguments": arguments, "checkpoints": "{save}/step-*"}}
    with pytest.raises(TrainError) as caught:
        presets.with_settings(whole(given, "a"), [setting])
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("words", "found"),
    [
        (["--api-key=0123456789"], "--api-key"),
        (["--token", "0123456789"], "--token"),
        (["--token", "--other"], None),
        (["hf_0123456789abcdefghij"], "a word"),
        (["--monkey=0123456789"], None),
        (["--max-tokens=0123456789"], None),
        (["--key", "short"], None),
        (["-H", "Authorization: Bearer 0123456789"], "a word"),
        (["https://hooks.slack.com/services/T0/B0/0123456789"], "a word"),
        (["https://ada:0123456789@example.org/x"], "a word"),
        (["https://example.org/x?access_token=0123456789"], "a word"),
        (["https://example.org/x?step=0123456789"], None),
    ],
)
def test_a_secret_in_words_is_found(words: list[str], found: str | None) -> None:
    assert presets.secret_in(words) == found


# -- those that ship


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_each_example_is_right_and_says_how_to_resume(path: Path) -> None:
    given = json.loads(path.read_text(encoding="utf-8"))
    assert list(given) == ["conservative", "balanced", "aggressive"]
    resolve({**CPU, "training_presets": given}, "ws1")
    for name in given:
        preset = whole(given, name)
        assert preset.resume
        assert preset.complete


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ("/bin/x", "is not a list"),
        (["/bin/x", 1], "entry 2 is not text"),
        (["x"], "no absolute path"),
        (["/bin/x", "--token=abcdefgh1"], "has a secret in --token"),
    ],
)
def test_a_command_that_cannot_be_run_or_tells_a_secret_is_refused(
    value: object, words: str
) -> None:
    with pytest.raises(SpecError, match=words) as caught:
        resolve({**CPU, "training_notify": value}, "ws1")
    assert "abcdefgh1" not in str(caught.value)
