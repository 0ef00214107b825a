"""What a host wrote as JSON comes in as its type, or as `Unknown` with a reason; nothing raises."""

from __future__ import annotations

import pytest

from pyinfra_gpu.diagnosis.explained import of_file
from pyinfra_gpu.facts.fields import Unknown
from pyinfra_gpu.facts.stamps import Proof, TrainingStamp, outdated
from pyinfra_gpu.facts.verdict import Stamp, Verdict

ODD = {
    "deep lists": ("[" * 60_000, "recursion limit"),
    "deep and closed": ("[" * 5_000 + "]" * 5_000, "recursion limit"),
    "400 digits": ('{"fingerprint": ' + "9" * 400 + "}", "too large"),
    "a float that is not finite": ('{"fingerprint": 1e999}', "too large"),
    "NaN": ('{"fingerprint": NaN}', "JSON"),
    "half a character": ('{"fingerprint": "\ud800"}', "no text"),
    "half a character, escaped": ('{"fingerprint": "\\ud800"}', "hex escape"),
    "raw control characters": ('{"fingerprint": "\x1b[2J"}', "JSON"),
    "long": ('"' + "a" * 70_000 + '"', "64 KiB"),
    "long in bytes": ('"' + "\u2713" * 30_000 + '"', "64 KiB"),
    "cut off": ('{"fingerprint": "a', "JSON"),
    "no JSON": ("yes", "JSON"),
    "a list": ("[1]", "object"),
    "other types": (
        '{"fingerprint": 3, "state": 3, "status": "pass", "requirements_sha256": []}',
        "",
    ),
}


@pytest.mark.parametrize("kind", ODD)
def test_what_no_program_of_ours_writes_is_unknown_and_says_why(kind: str) -> None:
    text, reason = ODD[kind]
    for form in (Stamp, Verdict, Proof, TrainingStamp):
        found = form.read(text)
        assert isinstance(found, Unknown)
        assert found.reason.isprintable()
        assert 0 < len(found.reason) <= 200
        assert reason in found.reason
    assert outdated(text, {}) == "the proof is not readable"
    assert of_file(text) == {}
