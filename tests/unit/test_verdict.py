"""What a host wrote, read on arrival: whole and as it came, or unknown with a reason."""

from __future__ import annotations

import json
from typing import Any

import pytest
import verdicts

from pyinfra_gpu.facts.fields import Unknown, as_json
from pyinfra_gpu.facts.verdict import Stamp, Verdict

FULL = verdicts.document(
    mode="gpu",
    proof=False,
    status="fail",
    gpus=[verdicts.GPU] * 2,
    checks=[verdicts.check("S4.training_step", "fail")],
    allreduce=[{"kind": "float32", "bytes": 4, "seconds": 0.1, "mb_per_s": 0.1}],
    failed=verdicts.failed("S4.training_step", "not finite", rank=1, tail=["one", "two"]),
)  # fmt: skip
ACROSS = verdicts.across(
    status="fail",
    proof=False,
    failed=verdicts.failed("S6.finished", "ws2 did not answer"),
)
WHOLE = [(Verdict, FULL), (Verdict, verdicts.document()), (Verdict, ACROSS)]


@pytest.mark.parametrize(("form", "document"), WHOLE, ids=["failed", "pass", "across"])
def test_what_is_read_gives_back_what_came(form: type[Verdict], document: dict[str, Any]) -> None:
    found = form.read(json.dumps(document))
    assert isinstance(found, form), found
    assert as_json(found) == document


def test_a_stamp_gives_back_what_came_with_and_without_a_step_across_hosts() -> None:
    for document in (verdicts.stamp(), verdicts.stamp(across=["ws1", "ws2"])):
        found = Stamp.read(json.dumps(document))
        assert isinstance(found, Stamp), found
        assert as_json(found) == document


def test_nothing_stays_nothing_and_unknown_stays_unknown() -> None:
    assert Verdict.read(None) is None
    assert Stamp.read(Unknown("no permission")) == Unknown("no permission")


def test_a_key_that_a_host_chose_does_not_reach_a_terminal_as_it_is() -> None:
    found = Verdict.read(json.dumps({**verdicts.document(), "\x1b[2J" + "x" * 500: 1}))
    assert isinstance(found, Unknown)
    assert "\x1b" not in found.reason
    assert len(found.reason) <= 200


@pytest.mark.parametrize(
    "changes",
    [
        {"schema_version": True}, {"mode": "gpu", "proof": 1}, {"status": "pass", "failed": {}},
        {"gpus": [verdicts.GPU]}, {"checks": []}, {"duration_s": "1"}, {"others_kept_out": None},
        {"proof": True}, {"host": None}, {"more": 1}, {"failed": verdicts.failed("S4.x", "y")},
    ],
    ids=str,
)  # fmt: skip
def test_a_verdict_that_contradicts_itself_or_its_types_is_unknown(changes: dict[str, Any]) -> None:
    assert isinstance(Verdict.read(json.dumps(verdicts.document())), Verdict)
    found = Verdict.read(json.dumps(verdicts.document(**changes)))
    assert isinstance(found, Unknown)
    assert found.reason
