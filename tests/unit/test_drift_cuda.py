"""Each way in which toolkit and compiler differ from what is declared, with its near misses."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from gpu_host import bare_gpu_host
from proven_host import proofs, proven_host, record_of

from pyinfra_gpu.drift import compilers, cuda
from pyinfra_gpu.drift.finding import Findings, Id
from pyinfra_gpu.drift.proof import outdated
from pyinfra_gpu.facts.fields import Unknown

HOME = "/usr/local/cuda-13.0"
TOOLKIT = ["cuda-toolkit-13-0 13.0.3-1 0 1", "cuda-nvcc-13-0 13.0.88-1 0 1"]


def judged(**changes: Any) -> dict[str, str]:
    """Finding -> effect, of a proven host that differs in this."""
    host = proven_host(**changes)
    found = cuda.judge(host.spec(), record_of(host))
    assert len({each.id for each in found}) == len(found)
    for each in found:
        assert each.found and each.expected and each.action
        assert each.stage == "cuda"
        assert each.effect != "report" or each.command
    return {each.id: each.effect for each in found}


def packages(*rows: str) -> dict[str, list[str]]:
    return {"nvidia.package": list(rows)}


AS_DECLARED: dict[str, dict[str, Any]] = {
    "nothing changed": {},
    "another toolkit stands beside it": {"lists": {"cuda.toolkit": ["13.0", "13.1"]}},
    "the alternative ends in a slash": {"plain": {"cuda.alternative": f"{HOME}/"}},
    "its own nvcc is on PATH": {"plain": {"cuda.nvcc_on_path": f"{HOME}/bin/nvcc"}},
    "the version is the declared one": {"data": {"cuda_version": "13.0.3"}},
    "the oldest gcc that will do": {
        "data": {"host_compiler": "gcc-6"},
        "plain": {"cuda.compiler": "6.5.0"},
    },
    "a declared compiler that is in range": {
        "data": {"host_compiler": "gcc-15"},
        "plain": {"cuda.compiler": "15.2.0"},
    },
    "clang in range": {"data": {"host_compiler": "clang-20"}, "plain": {"cuda.compiler": "20.1"}},
    "an own gcc that nvcc would refuse, beside a declared one": {
        "data": {"host_compiler": "gcc-13"},
        "plain": {"cuda.gcc": "16.1.0", "cuda.compiler": "13.2.0"},
    },
    "no toolkit is wanted, and none is there": {
        "data": {"cuda_toolkit": False},
        "plain": {"cuda.nvcc": None, "cuda.link": None, "cuda.alternative": None},
        "lists": {"cuda.toolkit": [], "nvidia.package": []},
    },
    "no toolkit is wanted, and gcc is newer than any": {
        "data": {"cuda_toolkit": False},
        "plain": {"cuda.gcc": "16.1.0"},
    },
    "no toolkit is wanted, and there is no g++": {
        "data": {"cuda_toolkit": False},
        "plain": {"cuda.gxx": "0"},
    },
}

# What depends on the compiler's version is proven anew; here only the rest counts.
_REPROVEN = {
    "the oldest gcc that will do",
    "a declared compiler that is in range",
    "clang in range",
    "an own gcc that nvcc would refuse, beside a declared one",
}


@pytest.mark.parametrize("name", AS_DECLARED)
def test_as_declared(name: str) -> None:
    expected = {"cuda.unproven": "repair"} if name in _REPROVEN else {}
    assert judged(**AS_DECLARED[name]) == expected


REPAIR, REPORT = "repair", "report"
DIFFERENT: dict[str, tuple[dict[str, Any], dict[str, str]]] = {
    "no toolkit at all": (
        {
            "plain": {"cuda.nvcc": None, "cuda.link": None, "cuda.alternative": None},
            "lists": {"cuda.toolkit": [], "cuda.missing": ["bin/nvcc"], "nvidia.package": []},
        },
        {"cuda.not-installed": REPAIR, "cuda.unproven": REPAIR},
    ),
    "only the runtime of the release": (
        {"lists": packages("cuda-cudart-13-0 13.0.96-1 0 1")},
        {"cuda.not-installed": REPAIR, "cuda.unproven": REPAIR},
    ),
    "a toolkit that no package brought": (
        {"lists": packages()},
        {"cuda.not-from-package": REPORT, "cuda.unproven": REPAIR},
    ),
    "another version than the declared one": (
        {"data": {"cuda_version": "13.0.2"}},
        {"cuda.version-differs": REPAIR},
    ),
    "a file is gone": ({"lists": {"cuda.missing": ["bin/ptxas"]}}, {"cuda.half-removed": REPAIR}),
    "the whole folder is gone": (
        {
            "plain": {"cuda.nvcc": None, "cuda.link": "/etc/alternatives/cuda"},
            "lists": {"cuda.missing": ["bin/nvcc", "bin/ptxas"], "cuda.toolkit": []},
        },
        {"cuda.half-removed": REPAIR, "cuda.unproven": REPAIR},
    ),
    "a package is half installed": (
        {"lists": packages(TOOLKIT[0], "cuda-nvcc-13-0 13.0.88-1 0 0")},
        {"cuda.half-removed": REPAIR},
    ),
    "its folder is root's alone, and the owner finds no nvcc": (
        {"plain": {"cuda.nvcc": None}},
        {"cuda.closed": REPORT, "cuda.unproven": REPAIR},
    ),
    "its nvcc is another release's": (
        {"plain": {"cuda.nvcc": "Cuda compilation tools, release 13.1, V13.1.80"}},
        {"cuda.half-removed": REPAIR, "cuda.unproven": REPAIR},
    ),
    "the alternative was moved": (
        {"plain": dict.fromkeys(("cuda.link", "cuda.alternative"), "/usr/local/cuda-13.1")},
        {"cuda.link-differs": REPAIR},
    ),
    "there is no plain path": (
        {"plain": {"cuda.link": None, "cuda.alternative": None}},
        {"cuda.link-differs": REPAIR},
    ),
    "the plain path was removed": (
        {"plain": {"cuda.link": None}},
        {"cuda.link-differs": REPAIR},
    ),
    "a link by hand to the same toolkit": (
        {"plain": {"cuda.alternative": None}},
        {"cuda.link-differs": REPAIR},
    ),
    "a link by hand that dangles": (
        {"plain": {"cuda.link": "/opt/cuda", "cuda.alternative": None}},
        {"cuda.link-differs": REPAIR},
    ),
    "a folder is in the way": (
        {"plain": {"cuda.link": "/usr/local/cuda"}},
        {"cuda.link-differs": REPORT},
    ),
    "another nvcc is first on PATH": (
        {"plain": {"cuda.nvcc_on_path": "/usr/bin/nvcc"}},
        {"cuda.nvcc-shadowed": REPORT},
    ),
    "a toolkit whose name begins alike is first on PATH": (
        {"plain": {"cuda.nvcc_on_path": "/usr/local/cuda-13.01/bin/nvcc"}},
        {"cuda.nvcc-shadowed": REPORT},
    ),
    "a profile puts another toolkit first": (
        {
            "lists": {
                "cuda.shell": ["/etc/profile.d/a.sh:export PATH=/usr/local/cuda-12.4/bin:$PATH"]
            }
        },
        {"cuda.shell-path": REPORT},
    ),
    "a profile puts the declared one first": (
        {
            "lists": {
                "cuda.shell": ["/home/u/.bashrc:PATH=/usr/local/cuda-13.0/bin:/usr/local/cuda/bin"]
            }
        },
        {},
    ),
    "a profile has programs load the toolkit's libraries in the place of torch's": (
        {"lists": {"cuda.shell": ["/home/u/.bashrc:export LD_LIBRARY_PATH=/usr/local/cuda/lib64"]}},
        {"cuda.shell-path": REPORT},
    ),
    "a library of the toolkit is gone": (
        {
            "lists": {
                "nvidia.file": ["libcublas-13-0 gone /usr/local/cuda-13.0/lib64/libcublas.so.13"]
            }
        },
        {"cuda.half-removed": REPAIR},
    ),
    "a file of another toolkit is gone": (
        {
            "lists": {
                "nvidia.file": ["libcublas-12-9 gone /usr/local/cuda-12.9/lib64/libcublas.so.12"]
            }
        },
        {},
    ),
    "gcc is too new": (
        {"plain": {"cuda.gcc": "16.1.0"}},
        {"cuda.compiler-out-of-range": REPORT, "cuda.unproven": REPAIR},
    ),
    "gcc is too old": (
        {"plain": {"cuda.gcc": "5.4.0"}},
        {"cuda.compiler-out-of-range": REPORT, "cuda.unproven": REPAIR},
    ),
    "there is no gcc": (
        {"plain": {"cuda.gcc": None, "cuda.gxx": "0"}},
        {"cuda.compiler-missing": REPAIR, "cuda.unproven": REPAIR},
    ),
    "there is no g++": ({"plain": {"cuda.gxx": "0"}}, {"cuda.compiler-missing": REPAIR}),
    "the declared compiler is not there": (
        {"data": {"host_compiler": "gcc-13"}},
        {"cuda.compiler-missing": REPAIR},
    ),
    "no toolkit is wanted, and there is no gcc": (
        {"data": {"cuda_toolkit": False}, "plain": {"cuda.gcc": None, "cuda.gxx": "0"}},
        {"cuda.compiler-missing": REPAIR},
    ),
    "nothing may be installed, and there is no gcc": (
        {
            "data": {"privilege": "none", "prefix": "/home/u/p"},
            "plain": {"cuda.gcc": None, "cuda.gxx": "0"},
        },
        {"cuda.compiler-missing": REPORT},
    ),
    "the package that pulls drivers": (
        {"lists": packages(*TOOLKIT, "cuda-13-0 13.0.3-1 0 1")},
        {"cuda.metapackage-installed": REPORT, "cuda.unproven": REPAIR},
    ),
    "the package that pulls anything": (
        {"lists": packages(*TOOLKIT, "cuda 13.1.0-1 0 1")},
        {"cuda.metapackage-installed": REPORT},
    ),
    "never proven": ({"plain": {"cuda.proof": None}}, {"cuda.unproven": REPAIR}),
    "other GPUs are to be compiled for": (
        {"data": {"cuda_archs": ["9.0"]}, "plain": proofs({**bare_gpu_host().data})},
        {"cuda.unproven": REPAIR},
    ),
}


@pytest.mark.parametrize("name", DIFFERENT)
def test_a_difference_is_named(name: str) -> None:
    changes, expected = DIFFERENT[name]
    assert judged(**changes) == expected


def test_a_bare_host_lacks_toolkit_and_compiler() -> None:
    host = bare_gpu_host()
    found = [each.id for each in cuda.judge(host.spec(), record_of(host))]
    assert found == ["cuda.not-installed", "cuda.compiler-missing", "cuda.unproven"]


def test_a_cpu_host_has_no_toolkit_to_judge() -> None:
    host = bare_gpu_host(data={"stack": "cpu-torch2.13"})
    wanted = host.spec().but(accelerator="cpu")
    assert cuda.judge(wanted, record_of(host)) == []
    assert cuda.judge.unread(wanted, record_of(host)) == ()


@pytest.mark.parametrize(
    "key", ["cuda.gcc", "cuda.compiler", "cuda.gxx", "cuda.nvcc", "cuda.link", "cuda.alternative"]
)
def test_what_cannot_be_read_is_neither_a_deviation_nor_passed_over(key: str) -> None:
    host = proven_host(plain={key: "?no permission"})
    spec, record = host.spec(), record_of(host)
    found = {each.id for each in cuda.judge(spec, record)}
    assert found <= {"cuda.unproven"}
    assert cuda.judge.unread(spec, record)


@pytest.mark.parametrize("key", ["nvidia.package", "cuda.toolkit", "cuda.missing"])
def test_a_list_that_cannot_be_read_is_treated_alike(key: str) -> None:
    host = proven_host(lists={key: ["?no permission"]})
    spec, record = host.spec(), record_of(host)
    assert {each.id for each in cuda.judge(spec, record)} <= {"cuda.unproven"}
    assert cuda.judge.unread(spec, record)


@pytest.mark.parametrize(
    ("declared", "there", "packages"),
    [
        (None, {"gcc": None, "gxx": False, "compiler": None}, ["g++"]),
        (None, {"gcc": "12.2.0", "gxx": False, "compiler": None}, ["g++"]),
        (None, {"gcc": "12.2.0", "gxx": True, "compiler": None}, []),
        ("gcc-13", {"gcc": "12.2.0", "gxx": True, "compiler": None}, ["gcc-13", "g++-13"]),
        ("clang-18", {"gcc": "12.2.0", "gxx": True, "compiler": None}, ["clang-18"]),
        ("clang-18", {"gcc": None, "gxx": False, "compiler": None}, ["clang-18", "g++"]),
        ("gcc-13", {"gcc": "12.2.0", "gxx": True, "compiler": "13.2.0"}, []),
    ],
)
def test_the_packages_of_a_compiler(
    declared: str | None, there: dict[str, Any], packages: list[str]
) -> None:
    host = proven_host(data={"host_compiler": declared})
    record = record_of(host)
    record = replace(record, cuda=replace(record.cuda, **there))
    assert compilers.compiler_packages(host.spec(), record) == packages


@pytest.mark.parametrize(
    ("declared", "name"), [(None, "g++"), ("gcc-13", "g++-13"), ("clang-18", "clang++-18")]
)
def test_nvcc_gets_the_compiler_for_cpp(declared: str | None, name: str) -> None:
    assert compilers.compiler_name(proven_host(data={"host_compiler": declared}).spec()) == name


def test_the_packages_of_nvcc_are_those_of_the_declared_release() -> None:
    rows = [*TOOLKIT, "cuda-cudart-13-0 13.0.96-1 0 1", "libnvvm-13-0 13.0.88-1 0 1"]
    rows += ["libcublas-13-0 13.1.1.3-1 0 0", "cuda-nvcc-13-1 13.1.80-1 0 0"]
    host = proven_host(lists=packages(*rows))
    spec, record = host.spec(), record_of(host)
    assert cuda.nvcc_packages(spec, record) == ["cuda-nvcc-13-0", "libnvvm-13-0"]
    assert cuda.incomplete(spec, record) == ["libcublas-13-0"]


@pytest.mark.parametrize(
    ("rows", "owed"),
    [
        (["cuda-cccl-13-0 13.0.85-1 0 0"], True),  # a power cut while apt unpacked
        ([TOOLKIT[0], "cuda-nvcc-13-0 13.0.88-1 0 0"], False),
    ],
)
def test_of_a_toolkit_that_was_cut_off_the_rest_is_installed_too(
    rows: list[str], owed: bool
) -> None:
    host = proven_host(lists=packages(*rows))
    spec, record = host.spec(), record_of(host)
    found = Findings(cuda.judge(spec, record))
    assert found.of(Id.CUDA_HALF_REMOVED)
    assert cuda.toolkit_owed(spec, record, found) is owed
    assert not cuda.toolkit_owed(spec, record, Findings())
    bare = bare_gpu_host()
    missing = Findings(cuda.judge(bare.spec(), record_of(bare))).of(Id.CUDA_NOT_INSTALLED)
    assert cuda.toolkit_owed(spec, record, missing)


def test_an_nvcc_that_was_forced_off_is_asked_for_by_its_name() -> None:
    host = proven_host(lists=packages(TOOLKIT[0], "cuda-crt-13-0 13.0.88-1 0 1"))
    assert cuda.nvcc_packages(host.spec(), record_of(host)) == ["cuda-nvcc-13-0", "cuda-crt-13-0"]


@pytest.mark.parametrize(
    ("text", "state"),
    [
        (None, "never tried on this host"),
        (Unknown("no permission"), "the proof cannot be read (no permission)"),
        ("", "the proof is not readable"),
        ("[1]", "the proof is not readable"),
        ('{"state": {"gcc": "12"}, "status": "fail"}', "the proof is not readable"),
        ('{"status": "pass"}', "gcc changed since the last proof"),
        (
            '{"state": {"gcc": "12", "x": 1}, "status": "pass"}',
            "something it depends on changed since the last proof",
        ),
        ('{"state": {"gcc": "12"}, "status": "pass"}', None),
    ],
)
def test_a_proof_holds_for_the_state_it_was_made_on(
    text: str | Unknown | None, state: str | None
) -> None:
    assert outdated(text, {"gcc": "12"}) == state


BEFORE = {"gcc": "12.2.0", "the toolkit": ["a 1", "b 1"], "cuda_archs": ["9.0"], "what": "old"}
CHANGED: dict[str, tuple[dict[str, object], str]] = {
    "one": ({"gcc": "13.1.0"}, "gcc"),
    "two": ({"gcc": "13.1.0", "the toolkit": ["b 1", "a 1"]}, "gcc and the toolkit"),
}


@pytest.mark.parametrize("what", CHANGED)
def test_what_changed_since_a_proof_is_named(what: str) -> None:
    changes, told = CHANGED[what]
    now = {**BEFORE, **changes}
    text = json.dumps({"status": "pass", "state": BEFORE})
    assert outdated(text, now) == f"{told} changed since the last proof"
    assert outdated(text, BEFORE) is None
