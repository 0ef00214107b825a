"""A torch that is built from source: what is judged of it, and which operation acts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from built_host import BUILDING, SOURCE, TORCH_COMMIT, built_host, state_of
from fake_host import PROBE, FakeHost, FakeRun
from pyinfra import host
from pyinfra.api.host import Host
from pyinfra.api.state import State

from pyinfra_gpu.compatibility import resolve
from pyinfra_gpu.engine import wheels
from pyinfra_gpu.spec import HostSpec
from pyinfra_gpu.stages.pytorch import findings as pytorch
from pyinfra_gpu.stages.pytorch_build import findings as pytorch_build
from pyinfra_gpu.stages.pytorch_build import operations
from pyinfra_gpu.stages.pytorch_build.operations import plan

OTHER = {"fingerprint": "0" * 64}
LOG = "`journalctl -u pyinfra-gpu-build.service`"
BUILD, INSTALL = "PyTorch | Build torch", "PyTorch | Install torch"

HOSTS: dict[str, tuple[FakeHost, dict[str, str], list[str]]] = {
    "as declared": (built_host(stamp={}), {}, []),
    "as declared, and its wheel too": (built_host(stamp={}, wheel={}), {}, []),
    "nothing is built": (
        built_host(reported={"torch.version": None}),
        {
            "pytorch.build-missing": "no wheel of this build",
            "pytorch.version-differs": "a torch without a version",
        },
        [BUILD, INSTALL],
    ),
    "another torch is installed": (
        built_host(wheel={}), {"pytorch.build-differs": "torch that was not built here"}, [INSTALL],
    ),
    "the wheel of another build lies there": (
        built_host(wheel=OTHER, stamp={**OTHER, "ingredients": {}}),
        {
            "pytorch.build-missing": "no wheel of this build",
            "pytorch.build-differs": "torch of another build",
        },
        [BUILD, INSTALL],
    ),
    "a torch of another commit was put over it": (
        built_host(
            stamp={}, wheel={},
            reported={"torch.git_version": "cf30"},
        ),
        {"pytorch.build-differs": "torch of commit cf30"}, [INSTALL],
    ),
    "a library was copied into it by hand": (
        built_host(stamp={}, wheel={}, reported={"torch.damaged": ["torch/lib/libtorch_cpu.so"]}),
        {"pytorch.files-damaged": "damaged: torch/lib/libtorch_cpu.so"}, [INSTALL],
    ),
    "its installation was cut off": (
        built_host(stamp={}, reported={"torch.installing": True}),
        {"pytorch.build-missing": "no wheel", "pytorch.files-damaged": "was interrupted"},
        [BUILD, INSTALL],
    ),
    "the build goes on": (
        built_host(state=BUILDING),
        {
            "pytorch.build-missing": f"compile ({LOG} there shows it)",
            "pytorch.build-differs": "not built here",
        },
        [BUILD, INSTALL],
    ),
    "the build failed, or was killed": (
        built_host(state="compile ended"),
        {
            "pytorch.build-missing": f"its build ended in compile ({LOG} there says why)",
            "pytorch.build-differs": "",
        },
        [BUILD, INSTALL],
    ),
    "its notes are half a file": (
        built_host(reported={"build.stamp": '{"fing', "build.wheel": "{"}),
        {"pytorch.build-missing": "no wheel", "pytorch.build-differs": "not built here"},
        [BUILD, INSTALL],
    ),
    "its fallback is installed": (
        built_host(
            data={"pytorch_fallback": "2.12.0"}, wheel=None, stamp=None,
            reported={"torch.version": "2.12.0+cpu", "torch.git_version": "?none"},
        ),
        {"pytorch.build-missing": "no wheel", "pytorch.fallback": "torch 2.12.0+cpu, the fallback"},
        [BUILD, INSTALL],
    ),
    "its fallback is not what is installed": (
        built_host(
            data={"pytorch_fallback": "2.12.0"}, wheel={},
            reported={"torch.version": "2.11.0+cpu", "torch.git_version": "?none"},
        ),
        {"pytorch.version-differs": "torch 2.11.0+cpu"}, [INSTALL],
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", HOSTS)
def test_what_is_found_of_a_build_and_who_acts(what: str) -> None:
    host, expected, operations = HOSTS[what]
    spec, record = host.spec(), host.record()
    found = [*pytorch_build.judge(spec, record), *pytorch.judge(spec, record)]
    assert {each.id: each.found for each in found}.keys() == expected.keys()
    for each in found:
        assert expected[each.id] in each.found
    changing = FakeRun(host).prepare().changing("ws1")
    assert [name for name in changing if name.startswith("PyTorch")] == operations


def test_what_training_needs_leaves_a_fallback_as_it_is() -> None:
    """Held to the declared torch it would be replaced, or nothing could be resolved."""
    for what, torch in (("as declared", "2.13.0+cpu"), ("its fallback is installed", "2.12.0+cpu")):
        host = HOSTS[what][0]
        assert pytorch.held(host.spec(), host.record()) == f"torch=={torch}"


def test_another_build_at_work_stops_the_host_and_is_left_alone() -> None:
    host = built_host(reported={"build.state": state_of(OTHER["fingerprint"], BUILDING)})
    run = FakeRun(host, built_host(name="ws2", stamp={})).prepare().execute()
    assert run.failed() == {"ws1"}
    (found,) = pytorch_build.judge(host.spec(), host.record())
    assert found.stops and "systemctl stop pyinfra-gpu-build.service" in found.action
    assert not [each for each in run.executed("ws1") if "build.sh" in each]


def test_another_python_takes_its_place_before_torch_is_built_for_it() -> None:
    host = built_host(
        stamp={},
        data={"pytorch_python": "3.12"},
        reported={"torch.declared": "/usr/bin/python3.12"},
    )
    run = FakeRun(host, FakeHost(name="ws2")).prepare().execute()
    assert any("switch.sh" in each for each in run.executed("ws1"))


def test_a_build_is_started_with_its_plan_and_four_fifths_of_the_memory() -> None:
    host = built_host(data={"pytorch_flags": {"USE_MKLDNN": 0}})
    made = plan(host.spec(), host.record())
    assert (made.git, made.commit) == ("https://github.com/pytorch/pytorch", TORCH_COMMIT)
    assert made.settings["USE_MKLDNN"] == made.settings["USE_MPI"] == "0"
    assert made.settings["USE_TENSORPIPE"] == "1"
    assert (made.cuda, made.code, made.version) == (None, [], "2.13.0+cpu")
    assert made.memory_mib == 65842092 // 1024 * 4 // 5
    host = built_host(data={"pytorch_build_memory_gib": 3})
    assert plan(host.spec(), host.record()).memory_mib == 3072


GPU = {**{k: v for k, v in SOURCE.items() if k != "stack"}, "gpu_model": "RTX 5090"}
CHANGES: list[tuple[dict[str, object], list[str]]] = [
    ({"pytorch_flags": {"USE_MKLDNN": 0}}, ["flags"]),
    ({"pytorch_commit": "0123456789" * 4}, ["the source"]),
    ({"pytorch_version": "2.12.0"}, ["the version"]),
    ({"pytorch_python": "3.12"}, ["Python"]),
    ({"pytorch_git_url": "https://mirror.example.org/pytorch"}, []),
    ({"pytorch_build_memory_gib": 8}, []),
    ({"pytorch_builder": "ws1"}, []),
    ({**GPU, "pytorch_archs": ["9.0", "12.0"]}, ["architectures"]),
    ({**GPU, "host_compiler": "gcc-13"}, ["the compiler"]),
]


@pytest.mark.parametrize(("data", "names"), CHANGES)
def test_what_makes_another_build_is_named_and_nothing_else_does(
    data: dict[str, object], names: list[str]
) -> None:
    base = GPU if "gpu_model" in data else SOURCE
    one, other = resolve(base, "ws1"), resolve({**base, **data}, "ws1")
    record = built_host().record()
    before, now = (pytorch_build.ingredients(each, record) for each in (one, other))
    assert pytorch_build.changed(before, now) == names
    same = pytorch_build.fingerprint(one, record) == pytorch_build.fingerprint(other, record)
    assert same is (names == [])


MISSING = "ImportError: libtorch.so.2.6: cannot open shared object file: No such file or directory"
FAILED = "torch: failed in"
ENDS: dict[str, tuple[list[str], str]] = {
    "its first error is named": (
        ["torch: compile", f"{FAILED} compile: it failed", "torch: | x.c:1:2: error: odd",
         "torch: | y"],
        "failed in compile: it failed: x.c:1:2: error: odd",
    ),
    "its first error is explained": (
        [f"{FAILED} prove: importing failed", f"torch: | {MISSING}"],
        "failed in prove: importing failed: ",
    ),
    "it was killed": (["torch: fetch", "torch: compile"], "was killed in compile: run again"),
    "it said nothing": ([], "was killed: run again"),
}  # fmt: skip


@pytest.mark.parametrize("what", ENDS)
def test_why_a_build_left_no_wheel_is_one_clause(what: str) -> None:
    lines, expected = ENDS[what]
    why = operations.no_wheel(lines)
    assert why.startswith(expected)
    assert why.count("libtorch.so.2.6") == ("explained" in what)


def test_a_host_that_may_build_needs_more_room_than_one_that_gets_a_wheel() -> None:
    real = {"pytorch_git_url": SOURCE["pytorch_git_url"], "gpu_model": "RTX 5090"}
    real |= {"pytorch_source": "source", "pytorch_commit": TORCH_COMMIT}
    rooms = [
        resolve({**real, **more}, "ws1").preflight.min_disk_gib
        for more in ({}, {"pytorch_builder": "ws1"}, {"pytorch_builder": "ws2"})
    ]
    assert rooms == [65, 65, 15]


MISSING_TORCH: dict[str, Any] = {"reported": {"torch.version": None}}
KINDS = {
    "the first of each kind": (
        [built_host(name=name, **MISSING_TORCH) for name in ("ws1", "ws2")]
        + [built_host(name="ws3", data={"pytorch_flags": {"USE_MKLDNN": 0}}, **MISSING_TORCH)],
        {"ws1": "ws1", "ws2": "ws1", "ws3": "ws3"},
    ),
    "who has the wheel": (
        [built_host(name="ws1", **MISSING_TORCH), built_host(name="ws2", wheel={}, stamp={})],
        {"ws1": "ws2"},
    ),
    "nobody who has torch by way of another host": (
        [built_host(name="ws1", stamp={}), built_host(name="ws2", **MISSING_TORCH)],
        {"ws2": "ws2"},
    ),
}


@pytest.mark.parametrize("what", KINDS)
def test_one_host_of_each_kind_builds_and_the_others_get_its_wheel(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, what: str
) -> None:
    hosts, expected = KINDS[what]
    fetched = dict[str, str]()

    def fetch(state: object, other: Host, *given: object) -> wheels.Kept:
        fetched[host.name.removeprefix("@fake/")] = other.name.removeprefix("@fake/")
        return {tmp_path / "torch-x.whl": "0" * 64}

    def ended(state: State, host: Host, spec: HostSpec, *given: object) -> bool:
        """Have the build leave its wheel."""
        name, data = host.name.removeprefix("@fake/"), host.data.dict()
        data["fake_responses"][PROBE]["stdout"] = built_host(name=name, wheel={}).probe_lines()
        return True

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(wheels, "fetch", fetch)
    monkeypatch.setattr(wheels, "send", lambda *given: None)
    monkeypatch.setattr(operations, "_followed", ended)
    run = FakeRun(*hosts, FakeHost(name="ws9")).prepare().execute()
    began = {each.name for each in hosts if any("build.sh" in x for x in run.executed(each.name))}
    assert began == {name for name, builder in expected.items() if name == builder}
    assert fetched == {name: of for name, of in expected.items() if name != of}
