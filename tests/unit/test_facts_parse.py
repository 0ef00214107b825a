"""Reading a host's answer: no field is ever wrong, whatever became of the answer on its way."""

from __future__ import annotations

import dataclasses
import json
import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parent / "fixtures" / "probe"))
import recorded

from pyinfra_gpu.facts.fields import Unknown
from pyinfra_gpu.facts.parse import CUT_OFF, NOT_REPORTED, parse
from pyinfra_gpu.facts.record import Entry, Record
from pyinfra_gpu.facts.verdict import Stamp
from pyinfra_gpu.on_host.probe.look import FIRST_LINE, LAST_LINE, NVIDIA_KEYS

WHOLE = "\n".join(recorded.lines("ubuntu2404-2x-rtx5090"))
TOLD = recorded.document("ubuntu2404-2x-rtx5090")


def answered(**changes: object) -> Record:
    """The record of that host, had it told this; keys with "__" for the dot."""
    changed = {key.replace("__", "."): value for key, value in changes.items()}
    theirs = {key: value for key, value in changed.items() if key.startswith(("torch", "training"))}
    owner = json.dumps({**json.loads(TOLD["owner"]), **theirs})
    return read(json.dumps({**TOLD, "owner": owner, **changed}))


def read(text: str) -> Record:
    """The record of an answer."""
    return parse(["a banner", FIRST_LINE, *text.splitlines(), LAST_LINE])


def fields_of(record: Record) -> dict[str, object]:
    return {
        f"{part.name}.{field.name}": getattr(value, field.name)
        for part in dataclasses.fields(record)
        for value in [getattr(record, part.name)]
        for field in dataclasses.fields(value)
    }


def test_an_answer_without_one_of_its_keys_lacks_that_field_alone() -> None:
    whole = fields_of(read(json.dumps(TOLD)))
    for key in whole.keys() & TOLD.keys():
        less = {name: value for name, value in TOLD.items() if name != key}
        assert fields_of(read(json.dumps(less))) == {**whole, key: Unknown(NOT_REPORTED)}


WRONG: dict[str, object] = {
    "a number": 7,
    "a text": "x",
    "a list in a list": [[["x"]]],
    "an object": {"x": {"y": 1}},
    "null in a list": [None],
    "more rows than there are": ["x"] * 10_001,
    "an unknown that says more": {"?": "x", "y": 1},
    "a reason that is none": {"?": 7},
}


@pytest.mark.parametrize("what", WRONG)
@pytest.mark.parametrize(
    "key", ["driver__users", "gpus__devices", "kernel__modules", "torch__damaged", "launcher__runs"]
)
def test_a_wrong_type_costs_its_own_field_and_is_never_a_shorter_list(key: str, what: str) -> None:
    part, _, field = key.partition("__")
    record, whole = answered(**{key: WRONG[what]}), read(json.dumps(TOLD))
    assert isinstance(getattr(getattr(record, part), field), Unknown)
    assert record.storage == whole.storage


def test_what_nobody_looks_at_without_nvidia_is_known_and_what_was_not_told_is_not() -> None:
    less = {key: value for key, value in TOLD.items() if key not in NVIDIA_KEYS}
    record = read(json.dumps(less))
    assert (record.storage.usr_mib, record.driver.users) == (Unknown(NOT_REPORTED),) * 2
    record = read(json.dumps({**less, "nvidia": False}))
    assert (record.storage.usr_mib, record.driver.users) == (None, ())
    assert record.driver.loaded == read(json.dumps(TOLD)).driver.loaded


HOSTILE: dict[str, str] = {
    "no JSON": "Killed",
    "a list": "[]",
    "deep": '{"torch.uv": ' + "[" * 5000 + "]" * 5000 + "}",
    "a number without end": '{"torch.touched": ' + "9" * 5000 + "}",
    "cut off": '{"torch.python": "3.1',
    "not a number": '{"torch.touched": NaN}',
}


@pytest.mark.parametrize("what", HOSTILE)
def test_a_hostile_owner_costs_the_owners_fields_alone(what: str) -> None:
    whole = read(json.dumps(TOLD))
    record = read(json.dumps({**TOLD, "owner": HOSTILE[what]}))
    assert isinstance(record.torch.python, Unknown)
    assert isinstance(record.training.dirty, Unknown)
    assert (record.packages, record.gpus) == (whole.packages, whole.gpus)
    assert isinstance(read(HOSTILE[what]).launcher.runs, Unknown)


def test_the_owner_tells_nothing_of_what_is_roots() -> None:
    forged = {"system.ram_mib": 0, "driver.loaded": "1", "smoke.stamp": "{}", "launcher.runs": []}
    record = read(json.dumps({"owner": json.dumps(forged)}))
    assert isinstance(record.system.ram_mib, Unknown)
    assert isinstance(record.driver.loaded, Unknown)
    assert isinstance(record.smoke.stamp, Unknown)
    assert isinstance(record.launcher.runs, Unknown)


def test_what_would_move_a_cursor_is_visible_and_texts_of_files_are_whole() -> None:
    record = answered(system__kernel="a\x1b[2Jb", training__stamp_text="a\n\x1b")
    assert record.system.kernel == r"a\x1b[2Jb"
    assert record.training.stamp_text == "a\n\x1b"


def test_a_name_of_a_run_or_a_distribution_that_is_none_is_not_believed() -> None:
    record = answered(launcher__runs=["a-1", "../x"], torch__damaged_others={"-x": "y", "z": "w"})
    assert isinstance(record.launcher.runs, Unknown)
    assert isinstance(record.torch.damaged_others, Unknown)


PREFIX = "/opt/pyinfra-gpu"


def test_a_finished_gpu_host_is_read_whole() -> None:
    host = recorded.record("ubuntu2404-2x-rtx5090")
    # A verdict of the schema of another day is unknown; test_probe_script reads today's.
    assert {*recorded.unknowns(host)} <= {"smoke.verdict"}
    assert host.driver.libcuda == "/usr/lib/x86_64-linux-gnu/libcuda.so.580.95.05"
    assert host.kernel.newest == "6.14.0-29-generic"
    assert set(host.kernel.modules) == {"6.14.0-27-generic", "6.14.0-29-generic"}  # type: ignore[arg-type]
    assert host.nvidia.package("libnvidia-compute-580").held is True  # type: ignore[union-attr]
    assert host.nvidia.package("libnvidia-compute") is None
    assert [source.file for source in host.nvidia.sources] == [  # type: ignore[union-attr]
        "/etc/apt/sources.list.d/pyinfra-gpu-nvidia.list"
    ]
    assert host.torch.distributions["typing-extensions"] == "4.16.0"  # type: ignore[index]
    assert host.training.dirty == (" M train.py", r'?? "caf\303\251\n.txt"')
    assert isinstance(host.smoke.stamp, Stamp)
    wrapper = host.layout.entry(f"{PREFIX}/bin/torchrun")
    assert isinstance(wrapper, Entry)
    assert (wrapper.kind, wrapper.mode, wrapper.owner, wrapper.size) == ("file", "0755", "root", 10)
    assert host.layout.entry("/etc") == Unknown("/etc was not looked at")


def test_without_root_what_root_hides_is_unknown_and_the_rest_is_told() -> None:
    host = recorded.record("debian12-rootless")
    assert host.system.user == "ubuntu"
    names = set(recorded.unknowns(host))
    assert {name for name in names if name.split(".")[0] in ("system", "gpus", "driver")} == set()
    assert {"torch.version", "torch.installing", "smoke.stamp", "training.commit"} <= names
    reason = f"no permission to look at {PREFIX}/env/training.env"
    assert host.layout.entry(f"{PREFIX}/env/training.env") == Unknown(reason)


def test_of_an_answer_without_its_end_nothing_is_known() -> None:
    host = recorded.record("truncated")
    assert (host.system.kernel, host.layout.entries) == (Unknown(CUT_OFF), Unknown(CUT_OFF))


def test_damaged_lines_cost_their_own_field_only() -> None:
    host, whole = recorded.record("garbage"), recorded.record("debian12-bare")
    assert {*recorded.unknowns(host)} == {
        *("system.boot_id", "system.cpu_count", "driver.on_disk"),
        *("storage.shm_mib", "storage.shm_free_mib", "torch.uv"),
    }
    assert (host.packages, host.layout, host.smoke) == (whole.packages, whole.layout, whole.smoke)
