"""Each way in which programs would miss the driver's libcuda, with its near misses."""

from __future__ import annotations

import json
from typing import Any

import pytest
from gpu_host import LIB, VERSION, bare_gpu_host
from proven_host import proven_host, record_of

from pyinfra_gpu.drift import libcuda, libcuda_files
from pyinfra_gpu.packages import apt

FILE, ML = f"{LIB}/libcuda.so.{VERSION}", f"{LIB}/libnvidia-ml.so.{VERSION}"
DEEPER = f"{LIB}/nvidia/current/libcuda.so.{VERSION}"
HOME = "/usr/local/cuda-13.0"
STUB, COMPAT = f"{HOME}/lib64/stubs/libcuda.so", f"{HOME}/compat/libcuda.so.580.95.05"
TOOLKIT_LINK = f"{HOME}/lib64/libcuda.so"
REPAIR, REPORT, RESTART = "repair", "report", "restart"


def links(**changed: str) -> list[str]:
    """Rows of the four paths; dev, so1, ml and toolkit say what stands there instead."""
    rows = {
        "dev": f"link {LIB}/libcuda.so => libcuda.so.1 => {FILE}",
        "so1": f"link {LIB}/libcuda.so.1 => libcuda.so.{VERSION} => {FILE}",
        "ml": f"link {LIB}/libnvidia-ml.so.1 => libnvidia-ml.so.{VERSION} => {ML}",
        "toolkit": f"absent {TOOLKIT_LINK} => - => -",
    }
    paths = {name: row.split()[1] for name, row in rows.items()}
    for name, text in changed.items():
        kind, _, rest = text.partition(" ")
        rows[name] = f"{kind} {paths[name]} => {rest or '- => -'}"
    return list(rows.values())


def cache(*first: str) -> list[str]:
    """Rows of a healthy cache, behind these."""
    usual = (("libnvidia-ml.so.1", ML), ("libcuda.so.1", FILE), ("libcuda.so", FILE))
    return [*first, *(f"{name} => {LIB}/{name} => {real}" for name, real in usual)]


def judged(**changes: Any) -> dict[str, str]:
    """Finding -> effect, of a proven host that differs in this; its proof is left out."""
    host = proven_host(**changes)
    found = libcuda.judge(host.spec(), record_of(host))
    for each in found:
        assert each.found and each.expected and each.action
        assert each.stage == "libcuda"
    return {each.id: each.effect for each in found if each.id != "libcuda.unproven"}


AS_DECLARED: dict[str, dict[str, Any]] = {
    "nothing changed": {},
    "the cache names the folder without /usr": {
        "lists": {
            "libcuda.cache": [
                f"libcuda.so.1 => /lib/x86_64-linux-gnu/libcuda.so.1 => {FILE}",
                f"libnvidia-ml.so.1 => /lib/x86_64-linux-gnu/libnvidia-ml.so.1 => {ML}",
            ]
        }
    },
    "a libcuda.so of another folder, which no program loads by that name": {
        "lists": {"libcuda.cache": [*cache(), "libcuda.so => /opt/x/libcuda.so => /opt/x/l"]}
    },
    "the link goes to the whole path": {
        "lists": {"libcuda.link": links(dev=f"link {LIB}/libcuda.so.1 => {FILE}")}
    },
    "Debian's alternatives": {
        "lists": {
            "libcuda.link": links(
                dev=f"link /etc/alternatives/nvidia--libcuda.so => {DEEPER}",
                so1=f"link /etc/alternatives/nvidia--libcuda.so.1 => {DEEPER}",
            ),
            "libcuda.file": [],
            "libcuda.cache": [
                f"libcuda.so.1 => {LIB}/libcuda.so.1 => {DEEPER}",
                f"libnvidia-ml.so.1 => {LIB}/libnvidia-ml.so.1 => {ML}",
            ],
        }
    },
    "an undeclared link in the toolkit that leads to the driver": {
        "lists": {"libcuda.link": links(toolkit=f"link {LIB}/libcuda.so.1 => {FILE}")}
    },
    "the declared link in the toolkit": {
        "data": {"libcuda_toolkit_link": True},
        "lists": {"libcuda.link": links(toolkit=f"link {LIB}/libcuda.so.1 => {FILE}")},
    },
    "a driver with a version of two parts": {
        "lists": {
            "libcuda.link": links(
                dev=f"link libcuda.so.1 => {LIB}/libcuda.so.580.142",
                so1=f"link libcuda.so.580.142 => {LIB}/libcuda.so.580.142",
            ),
            "libcuda.file": [f"{LIB}/libcuda.so.580.142"],
            "libcuda.cache": [
                f"libcuda.so.1 => {LIB}/libcuda.so.1 => {LIB}/libcuda.so.580.142",
                f"libnvidia-ml.so.1 => {LIB}/libnvidia-ml.so.1 => {ML}",
            ],
        }
    },
    "a driver of somebody else's, wherever it is": {
        "data": {"driver_source": "present"},
        "lists": {
            "nvidia.package": [],
            "libcuda.file": [],
            "libcuda.link": [],
            "libcuda.cache": [
                f"libcuda.so.1 => /usr/local/nvidia/libcuda.so.1 => "
                f"/usr/local/nvidia/libcuda.so.{VERSION}"
            ],
        },
    },
}


@pytest.mark.parametrize("name", AS_DECLARED)
def test_as_declared(name: str) -> None:
    assert judged(**AS_DECLARED[name]) == {}


SECOND: dict[str, dict[str, Any]] = {
    "another path to the driver's own file comes first": {
        "lists": {"libcuda.cache": cache(f"libcuda.so.1 => /opt/x/libcuda.so.1 => {FILE}")}
    },
    "another libcuda.so.1 comes last": {
        "lists": {"libcuda.cache": [*cache(), "libcuda.so.1 => /opt/x/libcuda.so.1 => /opt/x/l"]}
    },
}


@pytest.mark.parametrize("name", SECOND)
def test_a_second_library_is_as_declared_and_named(name: str) -> None:
    """Programs get the driver's; until somebody moves a folder in the loader's settings."""
    assert judged(**SECOND[name]) == {"libcuda.second-in-cache": "note"}
    host = proven_host(**SECOND[name])
    found = libcuda.judge(host.spec(), record_of(host))
    (second,) = [each.found for each in found if each.id == "libcuda.second-in-cache"]
    assert "/opt/x/libcuda.so.1" in second
    (unproven,) = [each.found for each in found if each.id == "libcuda.unproven"]
    assert unproven.endswith("the linker's cache changed since the last proof")


def link_case(**changed: str) -> dict[str, Any]:
    return {"lists": {"libcuda.link": links(**changed)}}


DIFFERENT: dict[str, tuple[dict[str, Any], dict[str, str]]] = {
    "libcuda.so is missing": (link_case(dev="absent"), {"libcuda.missing": REPAIR}),
    "libcuda.so dangles": (
        link_case(dev="link libcuda.so.570.00 => -"),
        {"libcuda.link-wrong": REPAIR},
    ),
    "libcuda.so.1 leads to a stub": (
        link_case(so1=f"link {STUB} => {STUB}"),
        {"libcuda.link-wrong": REPAIR, "libcuda.cache-stale": REPAIR},
    ),
    "libcuda.so leads to a compat library": (
        link_case(dev=f"link {COMPAT} => {COMPAT}"),
        {"libcuda.link-wrong": REPAIR},
    ),
    "libcuda.so leads to a version": (
        link_case(dev=f"link libcuda.so.{VERSION} => {FILE}"),
        {"libcuda.link-wrong": REPAIR},
    ),
    "libcuda.so leads to somebody's library": (
        link_case(dev="link /opt/x/libcuda.so => /opt/x/libcuda.so"),
        {"libcuda.link-wrong": REPAIR},
    ),
    "libcuda.so is a copy": (
        link_case(dev=f"file - => {LIB}/libcuda.so"),
        {"libcuda.link-wrong": REPAIR},
    ),
    "the cache is stale": (
        {"lists": {"libcuda.cache": [f"libnvidia-ml.so.1 => {LIB}/libnvidia-ml.so.1 => {ML}"]}},
        {"libcuda.cache-stale": REPAIR},
    ),
    "the cache lacks libnvidia-ml": (
        {"lists": {"libcuda.cache": [f"libcuda.so.1 => {LIB}/libcuda.so.1 => {FILE}"]}},
        {"libcuda.cache-stale": REPAIR},
    ),
    "the cache names what is gone": (
        {"lists": {"libcuda.cache": cache(f"libcuda.so => {TOOLKIT_LINK} => -")}},
        {"libcuda.cache-stale": REPAIR},
    ),
    "a foreign library comes first": (
        {"lists": {"libcuda.cache": cache("libcuda.so.1 => /opt/x/libcuda.so.1 => /opt/x/l.so")}},
        {"libcuda.foreign-first": REPORT},
    ),
    "a stub comes first": (
        {
            "lists": {
                "libcuda.cache": cache(f"libcuda.so.1 => {STUB}.1 => {STUB}"),
                "libcuda.loader_path": [f"/etc/ld.so.conf.d/999-stubs.conf: {HOME}/lib64/stubs"],
            }
        },
        {"libcuda.foreign-first": REPORT, "libcuda.loader-path": REPORT},
    ),
    "a compat folder on the loader's path": (
        {"lists": {"libcuda.loader_path": [f"/etc/ld.so.conf.d/nv.conf: {HOME}/compat"]}},
        {"libcuda.loader-path": REPORT},
    ),
    "the declared link in the toolkit is missing": (
        {"data": {"libcuda_toolkit_link": True}},
        {"libcuda.toolkit-link-differs": REPAIR},
    ),
    "the declared link in the toolkit leads to a version": (
        {
            "data": {"libcuda_toolkit_link": True},
            "lists": {"libcuda.link": links(toolkit=f"link {FILE} => {FILE}")},
        },
        {"libcuda.toolkit-link-differs": REPAIR},
    ),
    "an undeclared link in the toolkit leads to a compat library": (
        link_case(toolkit=f"link {COMPAT} => {COMPAT}"),
        {"libcuda.toolkit-link-differs": REPORT},
    ),
    "the files are gone, the package says it is there": (
        {
            "lists": {
                "libcuda.link": links(dev="absent", so1="absent"),
                "libcuda.file": [],
                "libcuda.cache": [f"libnvidia-ml.so.1 => {LIB}/libnvidia-ml.so.1 => {ML}"],
            }
        },
        {"libcuda.missing": REPAIR},
    ),
    "no driver, and somebody else is to keep it": (
        {
            "data": {"driver_source": "present"},
            "lists": {
                "nvidia.package": [],
                "libcuda.link": links(dev="absent", so1="absent", ml="absent"),
                "libcuda.file": [],
                "libcuda.cache": [],
            },
        },
        {"libcuda.missing": REPORT},
    ),
    "nothing may be written outside the prefix": (
        {
            "data": {"privilege": "none", "prefix": "/home/u/p"},
            "lists": {"libcuda.link": links(dev="absent")},
        },
        {"libcuda.missing": REPORT},
    ),
}


@pytest.mark.parametrize("name", DIFFERENT)
def test_a_difference_is_named(name: str) -> None:
    changes, expected = DIFFERENT[name]
    assert judged(**changes) == expected


def proof_of(**changes: Any) -> str | None:
    """The effect of libcuda.unproven on such a host, None where the proof holds."""
    host = proven_host(**changes)
    found = libcuda.judge(host.spec(), record_of(host))
    return next((each.effect for each in found if each.id == "libcuda.unproven"), None)


UPGRADED = {
    "libcuda.cache": [
        f"libcuda.so.1 => {LIB}/libcuda.so.1 => {LIB}/libcuda.so.580.105.08",
        f"libnvidia-ml.so.1 => {LIB}/libnvidia-ml.so.1 => {LIB}/libnvidia-ml.so.580.105.08",
    ]
}


@pytest.mark.parametrize(
    ("changes", "effect"),
    [
        ({}, None),
        ({"plain": {"driver.loaded": None}}, None),
        ({"plain": {"libcuda.proof": None}}, REPAIR),
        ({"plain": {"libcuda.proof": json.dumps({"status": "pass", "state": {}})}}, REPAIR),
        ({"plain": {"cuda.gcc": "13.1.0"}}, REPAIR),
        ({"lists": {"libcuda.link": links(dev=f"link {FILE} => {FILE}")}}, REPAIR),
        ({"lists": UPGRADED}, RESTART),
        ({"lists": UPGRADED, "plain": {"driver.loaded": None}}, RESTART),
        ({"lists": UPGRADED, "plain": {"driver.loaded": "580.105.08"}}, REPAIR),
    ],
)
def test_the_proof_holds_for_one_state_and_waits_for_the_module(
    changes: dict[str, Any], effect: str | None
) -> None:
    assert proof_of(**changes) == effect


def test_a_bare_host_only_lacks_the_proof() -> None:
    host = bare_gpu_host()
    found = libcuda.judge(host.spec(), record_of(host))
    assert [(each.id, each.effect) for each in found] == [("libcuda.unproven", REPAIR)]


def test_a_cpu_host_has_no_libcuda_to_judge() -> None:
    host = bare_gpu_host()
    wanted = host.spec().but(accelerator="cpu")
    assert libcuda.judge(wanted, record_of(host)) == []


@pytest.mark.parametrize(
    "key", ["libcuda.cache", "libcuda.link", "libcuda.file", "libcuda.loader_path"]
)
def test_what_cannot_be_read_is_neither_a_deviation_nor_passed_over(key: str) -> None:
    host = proven_host(lists={key: ["?no permission"]})
    record = record_of(host)
    found = {each.id for each in libcuda.judge(host.spec(), record)}
    assert found <= {"libcuda.unproven"}
    assert libcuda.judge.unread(host.spec(), record)


def test_the_remedy_of_a_compat_package_is_to_remove_it() -> None:
    host = proven_host(
        lists={
            "libcuda.loader_path": [f"/etc/ld.so.conf.d/nv.conf: {HOME}/compat"],
            "nvidia.package": ["cuda-compat-13-0 580.95.05-1 0 1", "libcuda1 580.95.05-1 1 1"],
        }
    )
    (found,) = (
        each
        for each in libcuda.judge(host.spec(), record_of(host))
        if each.id == "libcuda.loader-path"
    )
    assert found.command == "sudo apt-get remove cuda-compat-13-0"


def test_the_remedy_of_a_line_in_the_loaders_settings_names_its_file() -> None:
    host = proven_host(
        lists={"libcuda.loader_path": [f"/etc/ld.so.conf.d/my.conf: {HOME}/lib64/stubs"]}
    )
    (found,) = libcuda.judge(host.spec(), record_of(host))
    assert found.command == "dpkg -S /etc/ld.so.conf.d/my.conf"
    assert found.sentence("ws1").startswith("ws1: /etc/ld.so.conf.d/my.conf has the loader search")


@pytest.mark.parametrize(
    ("file", "is_drivers"),
    [
        (FILE, True),
        (f"{LIB}/libcuda.so.580.142", True),
        (f"{LIB}/nvidia/current/libcuda.so.550.163.01", True),
        (ML, True),
        (f"{LIB}/libcuda.so.1", False),
        (f"{LIB}/libcuda.so.1.0", False),
        (f"{LIB}/stubs/libcuda.so.580.95.05", False),
        (f"/opt{LIB}/libcuda.so.580.95.05", False),
        ("/usr/local/cuda-13.0/compat/libcuda.so.580.95.05", False),
        (f"{LIB}/libcudart.so.13.0.96", False),
        (None, False),
    ],
)
def test_what_counts_as_the_drivers_file(file: str | None, is_drivers: bool) -> None:
    assert libcuda_files.is_drivers(record_of(proven_host()), file) is is_drivers


def test_packages_are_told_the_most_telling_first() -> None:
    rows = ["libnvidia-ml1 580.95.05-1 0 1", "libcuda1 580.95.05-1 0 1", "libcuda2 1 0 1"]
    rows.append("libnvidia-compute-580 580.95.05-0ubuntu1 0 1")
    record = record_of(proven_host(lists={"nvidia.package": rows}))
    assert libcuda_files.library_packages(record) == [
        "libcuda1",
        "libnvidia-ml1",
        "libnvidia-compute-580",
    ]


@pytest.mark.parametrize(
    ("lines", "owners"),
    [
        ((f"libcuda1:amd64: {LIB}/libcuda.so",), ["libcuda1:amd64"]),
        ((f"a, b: {LIB}/libcuda.so",), ["a", "b"]),
        ((f"diversion by glx from: {LIB}/libcuda.so", f"libcuda1: {LIB}/libcuda.so"), ["libcuda1"]),
        (("dpkg-query: no path found matching pattern /x",), []),
        ((), []),
    ],
)
def test_the_owners_of_paths(lines: tuple[str, ...], owners: list[str]) -> None:
    assert apt.owners_in(lines) == owners
