"""What a host wrote, read on arrival: whole and as it came, or unknown with a reason."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from typing import Any

import jsonschema
import pytest
import verdicts

from pyinfra_gpu.facts import verdict_schema
from pyinfra_gpu.facts.fields import TEXT_LIMIT, Unknown, as_json
from pyinfra_gpu.facts.verdict import AcrossVerdict, Stamp, Verdict, finite

FULL = verdicts.document(
    mode="gpu",
    proof=False,
    status="fail",
    gpus=[verdicts.gpu(0), verdicts.gpu(1, uuid=None, cc=None)],
    ranks=[
        verdicts.rank(
            0,
            store={
                "class": "TCPStore", "host": "127.0.0.1", "port": 29500, "agent_pid": 11,
                "master_addr": "127.0.0.1", "master_port": 29500, "server_pid": None,
                "server_threads": ["pt_tcpstore_uv"],
            },
        ),
        verdicts.rank(1, exit=None, signal=9, finished=False, log="/tmp/log"),
    ],
    checks=[verdicts.check("S4.loss_drop", "fail")],
    metrics={
        "label": "gpu",
        "seconds": {"launch": 1.5},
        "loss0": "nan",
        "loss1": 9.0,
        "link": {"0": {"gen": 5, "width": None, "samples": 3, "gb_s": 63.0}},
        "transport": {"SHM/direct": 4},
        "nccl": ["2.28.9"],
        "precision": {"bf16": {"status": "native", "tflops": 210}},
        "precision_best": None,
        "allreduce": [{"kind": "float32", "bytes": 4, "seconds": 0.1, "mb_per_s": 0.1}],
    },
    xids_new=[
        {"kind": "Xid", "number": 79, "pci": "0000:01:00", "serious": True, "text": "t",
         "advice": "a"}
    ],
    failed=verdicts.failed("S4.loss_drop", "not finite", rank=1, tail=["one", "two"]),
    reruns=[{"name": "unchanged", "result": "hung", "seconds": 3.0}],
)  # fmt: skip
ACROSS = verdicts.across(
    status="fail",
    proof=False,
    failed={**verdicts.failed("S6.finished", "ws2 did not answer"), "host": "ws2"},
)
WHOLE = [(Verdict, FULL), (Verdict, verdicts.document()), (AcrossVerdict, ACROSS)]


@pytest.mark.parametrize(("form", "document"), WHOLE, ids=["failed", "pass", "across"])
def test_what_is_read_gives_back_what_came(form: type[Verdict], document: dict[str, Any]) -> None:
    found = form.read(json.dumps(document))
    assert isinstance(found, form), found
    assert found.as_json() == document
    assert as_json(found) == document


def test_a_stamp_gives_back_what_came_with_and_without_a_step_across_hosts() -> None:
    for document in (verdicts.stamp(), verdicts.stamp(across=verdicts.across_stamp())):
        found = Stamp.read(json.dumps(document))
        assert isinstance(found, Stamp), found
        assert found.as_json() == document
        assert found.passed


@pytest.mark.parametrize("form", [Verdict, AcrossVerdict, Stamp])
@pytest.mark.parametrize(
    "text",
    [
        *("", "{", "null", "[]", "7", "{}", "[" * 60_000, '{"a":' * 60_000, "\x00", "\ud800"),
        *('{"status": "fail"}', '{"a": "\\ud800"}', "1" * 5000, " " * (TEXT_LIMIT + 1)),
    ],
    ids=lambda text: repr(text[:12]),
)
def test_any_text_is_unknown_with_a_reason_and_never_an_error(
    form: type[Verdict], text: str
) -> None:
    found = form.read(text)
    assert isinstance(found, Unknown)
    assert 0 < len(found.reason) <= 200
    assert found.reason.isprintable()


def test_nothing_stays_nothing_and_unknown_stays_unknown() -> None:
    assert Verdict.read(None) is None
    assert Stamp.read(Unknown("no permission")) == Unknown("no permission")


@pytest.mark.parametrize("number", ["1e999", "NaN", "-Infinity", "9" * 400, "1e400"])
@pytest.mark.parametrize("place", ['"duration_s": 18.9', '"loss0": 1.5', '"gb_s": 2.5'])
def test_a_number_that_nobody_could_show_is_refused(place: str, number: str) -> None:
    metrics = {"loss0": 1.5, "link": {"0": {"gen": 5, "width": 16, "gb_s": 2.5}}}
    text = json.dumps(verdicts.document(metrics=metrics))
    assert isinstance(Verdict.read(text), Verdict)
    assert place in text
    assert isinstance(
        Verdict.read(text.replace(place, f"{place.split(':')[0]}: {number}")), Unknown
    )


def test_a_key_that_a_host_chose_does_not_reach_a_terminal_as_it_is() -> None:
    found = Verdict.read(json.dumps({**verdicts.document(), "\x1b[2J" + "x" * 500: 1}))
    assert isinstance(found, Unknown)
    assert "\x1b" not in found.reason
    assert len(found.reason) <= 200


def test_a_figure_that_is_no_number_is_not_shown() -> None:
    assert [finite(each) for each in (1.5, "nan", "inf", "-inf", None)] == [1.5, *[None] * 4]


@pytest.mark.parametrize("path", verdict_schema.FILES, ids=lambda path: path.name)
def test_the_published_schema_is_the_types(path: Any) -> None:
    text = path.read_text(encoding="utf-8")
    assert text == verdict_schema.schema(verdict_schema.FILES[path])
    jsonschema.Draft202012Validator.check_schema(json.loads(text))


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The places in a document down to three keys; of a list's items, which are alike, the first's.

    Below that the schema is the types' own, and what differs would differ above as well.
    """
    yield path
    if isinstance(value, dict | list) and len(path) < 3:
        items = value.items() if isinstance(value, dict) else enumerate(value[:1])
        for key, each in items:
            yield from places(each, (*path, key))


def changed(document: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """The document with each of its values replaced, left out, or joined by another."""
    for path in places(document):
        if not path:
            continue
        for value in (None, -3, True, "", {"x": 1}):
            yield f"{path} = {value!r}", _with(document, path, value)
        yield f"{path} left out", _with(document, path, None, gone=True)
        if isinstance(_at(document, path), dict):
            yield f"{path} with more", _with(document, (*path, "more"), 1)


def _at(value: Any, path: tuple[Any, ...]) -> Any:
    for key in path:
        value = value[key]
    return value


def _with(
    document: dict[str, Any], path: tuple[Any, ...], value: Any, *, gone: bool = False
) -> dict[str, Any]:
    result = copy.deepcopy(document)
    owner = _at(result, path[:-1])
    if gone:
        del owner[path[-1]]
    else:
        owner[path[-1]] = value
    return result


@pytest.mark.parametrize(
    ("form", "document"), [(Verdict, FULL), (AcrossVerdict, verdicts.across())], ids=["one", "two"]
)
def test_the_types_take_what_the_schema_takes_and_nothing_else(
    form: type[Verdict], document: dict[str, Any]
) -> None:
    path = next(path for path, each in verdict_schema.FILES.items() if each is form)
    validator = jsonschema.Draft202012Validator(json.loads(path.read_text(encoding="utf-8")))
    taken = refused = 0
    for what, each in changed(document):
        read = form.read(json.dumps(each))
        valid = validator.is_valid(each)
        assert isinstance(read, form) is valid, (what, read)
        taken, refused = taken + valid, refused + (not valid)
        if isinstance(read, form):
            assert read.as_json() == each, what
    assert taken > 10
    assert refused > 100
