"""Each way in which programs would miss the driver's libcuda, with its near misses."""

from __future__ import annotations

from typing import Any

import pytest
from gpu_host import LIB, VERSION, bare_gpu_host
from proven_host import proven_host, record_of

from pyinfra_gpu.drift import libcuda
from pyinfra_gpu.drift.finding import Finding

FILE, ML = f"{LIB}/libcuda.so.{VERSION}", f"{LIB}/libnvidia-ml.so.{VERSION}"
DEEPER = f"{LIB}/nvidia/current/libcuda.so.{VERSION}"
HOME = "/usr/local/cuda-13.0"
STUB, COMPAT = f"{HOME}/lib64/stubs/libcuda.so", f"{HOME}/compat/libcuda.so.580.95.05"
INSIDE = f"{HOME}/lib64/libcuda.so"
LINK, STALE, ANOTHER = "link-differs", "cache-stale", "another"
REPAIR, REPORT, NOTE = "repair", "report", "note"


def links(**changed: str) -> dict[str, list[str]]:
    """Rows of the four paths; dev, so1, ml and toolkit say what stands there instead."""
    rows = {
        "dev": f"link {LIB}/libcuda.so => libcuda.so.1 => {FILE}",
        "so1": f"link {LIB}/libcuda.so.1 => libcuda.so.{VERSION} => {FILE}",
        "ml": f"link {LIB}/libnvidia-ml.so.1 => libnvidia-ml.so.{VERSION} => {ML}",
        "toolkit": f"absent {INSIDE} => - => -",
    }
    for name, text in changed.items():
        kind, _, rest = text.partition(" ")
        rows[name] = f"{kind} {rows[name].split()[1]} => {rest or '- => -'}"
    return {"libcuda.link": list(rows.values())}


def cache(*rows: str, so1: str = FILE, ml: str = ML) -> dict[str, list[str]]:
    """These rows, then the driver's libraries where they are given."""
    usual = (("libnvidia-ml.so.1", ml), ("libcuda.so.1", so1))
    more = [f"{name} => {LIB}/{name} => {real}" for name, real in usual if real]
    return {"libcuda.cache": [*rows, *more]}


OPT, TOOLKIT_LINK = "libcuda.so.1 => /opt/x/libcuda.so.1 => ", {"libcuda_toolkit_link": True}
TWO_PARTS = f"{LIB}/libcuda.so.580.142"
PRESENT, NO_FILES = {"driver_source": "present"}, {"libcuda.file": [], "nvidia.package": []}
UPGRADED = cache(so1=f"{LIB}/libcuda.so.580.105.08", ml=f"{LIB}/libnvidia-ml.so.580.105.08")
Case = tuple[dict[str, Any], dict[str, str]]
CASES: dict[str, Case] = {
    "nothing changed": ({}, {}),
    "the cache names the folder without /usr": (
        cache(
            f"libcuda.so.1 => {LIB.removeprefix('/usr')}/libcuda.so.1 => {FILE}",
            f"libnvidia-ml.so.1 => {LIB.removeprefix('/usr')}/libnvidia-ml.so.1 => {ML}", so1="",
            ml="",
        ),
        {},
    ),
    "a libcuda.so elsewhere, which no program loads by that name": (
        cache("libcuda.so => /opt/x/libcuda.so => /opt/x/l"), {},
    ),
    "the link goes to the whole path": (links(dev=f"link {LIB}/libcuda.so.1 => {FILE}"), {}),
    "Debian's alternatives": (
        {
            **links(
                dev=f"link /etc/alternatives/nvidia--libcuda.so => {DEEPER}",
                so1=f"link /etc/alternatives/nvidia--libcuda.so.1 => {DEEPER}",
            ),
            **cache(so1=DEEPER), "libcuda.file": [],
        },
        {},
    ),
    "a driver with a version of two parts": (
        {
            **links(
                dev=f"link libcuda.so.1 => {TWO_PARTS}",
                so1=f"link libcuda.so.580.142 => {TWO_PARTS}",
            ),
            **cache(so1=TWO_PARTS), "libcuda.file": [TWO_PARTS],
        },
        {},
    ),
    "another path to the driver's own file comes first": (cache(f"{OPT}{FILE}"), {ANOTHER: NOTE}),
    "another libcuda.so.1 comes last": (
        {"libcuda.cache": [*cache()["libcuda.cache"], f"{OPT}/opt/x/l"]}, {ANOTHER: NOTE},
    ),
    "a foreign library comes first": (cache(f"{OPT}/opt/x/l.so"), {ANOTHER: REPORT}),
    "a compat folder on the loader's path": (
        {"libcuda.loader_path": [f"/etc/ld.so.conf.d/nv.conf: {HOME}/compat"]}, {ANOTHER: REPORT},
    ),
    "a second library in a folder that a file sets, which is said once": (
        {**cache(f"{OPT}{FILE}"), "libcuda.loader_path": ["/etc/ld.so.conf.d/x.conf: /opt/x"]},
        {ANOTHER: REPORT},
    ),
    "libcuda.so is missing": (links(dev="absent"), {LINK: REPAIR}),
    "libcuda.so dangles": (links(dev="link libcuda.so.570.00 => -"), {LINK: REPAIR}),
    "libcuda.so.1 leads to a stub": (
        links(so1=f"link {STUB} => {STUB}"), {LINK: REPAIR, STALE: REPAIR},
    ),
    "libcuda.so leads to a compat library": (
        links(dev=f"link {COMPAT} => {COMPAT}"), {LINK: REPAIR},
    ),
    "libcuda.so leads to a version": (
        links(dev=f"link libcuda.so.{VERSION} => {FILE}"), {LINK: REPAIR},
    ),
    "libcuda.so leads to somebody's library": (
        links(dev="link /opt/x/libcuda.so => /opt/x/libcuda.so"), {LINK: REPAIR},
    ),
    "libcuda.so is a copy": (links(dev=f"file - => {LIB}/libcuda.so"), {LINK: REPAIR}),
    "libnvidia-ml.so.1 is missing": (links(ml="absent"), {LINK: REPAIR}),
    "the files are gone, the package says it is there": (
        {**links(dev="absent", so1="absent"), **cache(so1=""), "libcuda.file": []}, {LINK: REPAIR},
    ),
    "the cache lacks libcuda": (cache(so1=""), {STALE: REPAIR}),
    "the cache lacks libnvidia-ml": (cache(ml=""), {STALE: REPAIR}),
    "the cache names what is gone": (cache(f"libcuda.so => {INSIDE} => -"), {STALE: REPAIR}),
    "an undeclared link in the toolkit that leads to the driver": (
        links(toolkit=f"link {LIB}/libcuda.so.1 => {FILE}"), {},
    ),
    "an undeclared link in the toolkit that leads to a compat library": (
        links(toolkit=f"link {COMPAT} => {COMPAT}"), {LINK: REPORT},
    ),
}  # fmt: skip
WITH_DATA: dict[str, tuple[dict[str, Any], dict[str, Any], dict[str, str]]] = {
    "a driver of somebody else's, wherever it is": (
        PRESENT,
        {
            **NO_FILES, "libcuda.link": [],
            **cache(f"{OPT}/opt/x/libcuda.so.{VERSION}", so1="", ml=""),
        },
        {},
    ),
    "no driver, and somebody else is to keep it": (
        PRESENT,
        {**NO_FILES, **links(dev="absent", so1="absent", ml="absent"), **cache(so1="", ml="")},
        {LINK: REPORT},
    ),
    "nothing may be written outside the prefix": (
        {"privilege": "none", "prefix": "/home/u/p"}, links(dev="absent"), {LINK: REPORT},
    ),
    "the declared link in the toolkit": (
        TOOLKIT_LINK, links(toolkit=f"link {LIB}/libcuda.so.1 => {FILE}"), {},
    ),
    "the declared link in the toolkit is missing": (TOOLKIT_LINK, {}, {LINK: REPAIR}),
    "the declared link in the toolkit leads to a compat library": (
        TOOLKIT_LINK, links(toolkit=f"link {COMPAT} => {COMPAT}"), {LINK: REPAIR},
    ),
}  # fmt: skip


def judged(**changes: Any) -> list[Finding]:
    host = proven_host(**changes)
    return libcuda.judge(host.spec(), record_of(host))


@pytest.mark.parametrize("name", [*CASES, *WITH_DATA])
def test_a_difference_is_named_and_a_near_miss_is_not(name: str) -> None:
    data, lists, expected = WITH_DATA.get(name) or ({}, *CASES[name])
    found = judged(data=data, lists=lists)
    assert all(each.found and each.expected and each.action for each in found)
    effects = {each.id.partition(".")[2]: each.effect for each in found}
    effects.pop("unproven", None)
    assert effects == expected


def test_what_comes_first_stops_the_run_and_what_comes_later_does_not() -> None:
    (first,) = [each for each in judged(lists=cache(f"{OPT}/opt/x/l")) if each.stops]
    assert first.found == "programs load /opt/x/libcuda.so.1"
    second, unproven = judged(lists=cache(f"{OPT}{FILE}"))
    assert "/opt/x/libcuda.so.1" in second.found
    assert unproven.found.endswith("the linker's cache changed since the last proof")


@pytest.mark.parametrize(
    ("plain", "lists", "effect"),
    [
        ({}, {}, None),
        ({"driver.loaded": None}, {}, None),
        ({"libcuda.proof": None}, {}, "repair"),
        ({"libcuda.proof": '{"status": "pass"}'}, {}, "repair"),
        ({"cuda.gcc": "13.1.0"}, {}, "repair"),
        ({}, links(dev=f"link {FILE} => {FILE}"), "repair"),
        ({}, UPGRADED, "restart"),
        ({"driver.loaded": None}, UPGRADED, "restart"),
        ({"driver.loaded": "580.105.08"}, UPGRADED, "repair"),
    ],
)
def test_the_proof_holds_for_one_state_and_waits_for_the_module(
    plain: dict[str, str | None], lists: dict[str, list[str]], effect: str | None
) -> None:
    found = judged(plain=plain, lists=lists)
    assert [each.effect for each in found if "unproven" in each.id] == [effect] * bool(effect)


def test_a_bare_host_only_lacks_the_proof_and_one_without_a_gpu_nothing() -> None:
    host = bare_gpu_host()
    found = libcuda.judge(host.spec(), record_of(host))
    assert [(each.id, each.effect) for each in found] == [("libcuda.unproven", "repair")]
    assert libcuda.judge(host.spec().but(accelerator="cpu"), record_of(host)) == []


@pytest.mark.parametrize("key", ["cache", "link", "file", "loader_path"])
def test_what_cannot_be_read_is_neither_a_deviation_nor_passed_over(key: str) -> None:
    host = proven_host(lists={f"libcuda.{key}": ["?no permission"]})
    record = record_of(host)
    assert {each.id for each in libcuda.judge(host.spec(), record)} <= {"libcuda.unproven"}
    assert libcuda.judge.unread(host.spec(), record)


@pytest.mark.parametrize(
    ("folder", "packages", "command"),
    [
        ("compat", ["cuda-compat-13-0 1 0 1"], "sudo apt-get remove cuda-compat-13-0"),
        ("compat", [], "dpkg -S /etc/ld.so.conf.d/my.conf"),
        ("lib64/stubs", ["cuda-compat-13-0 1 0 1"], "dpkg -S /etc/ld.so.conf.d/my.conf"),
    ],
)
def test_the_remedy_names_the_package_or_the_file(
    folder: str, packages: list[str], command: str
) -> None:
    found = judged(
        lists={
            "libcuda.loader_path": [f"/etc/ld.so.conf.d/my.conf: {HOME}/{folder}"],
            "nvidia.package": [*packages, "libcuda1 580.95.05-1 1 1"],
        }
    )
    assert [each.command for each in found if "another" in each.id] == [command]


@pytest.mark.parametrize(
    ("file", "is_drivers"),
    [
        (FILE, True),
        (ML, True),
        (f"{LIB}/nvidia/current/libcuda.so.550.163.01", True),
        (f"{LIB}/libcuda.so.1", False),
        (f"{LIB}/stubs/libcuda.so.580.95.05", False),
        (f"/opt{LIB}/libcuda.so.580.95.05", False),
        (f"{LIB}/libcudart.so.13.0.96", False),
        (None, False),
    ],
)
def test_what_counts_as_the_drivers_file(file: str | None, is_drivers: bool) -> None:
    assert libcuda.is_drivers(record_of(proven_host()), file) is is_drivers
