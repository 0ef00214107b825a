"""Each way in which programs would miss the driver's libcuda, with its near misses."""

from __future__ import annotations

from typing import Any

import pytest
from gpu_host import LIB, VERSION, bare_gpu_host
from proven_host import changed, marked

from pyinfra_gpu.stages.finding import Finding
from pyinfra_gpu.stages.libcuda import findings as libcuda

FILE, ML = f"{LIB}/libcuda.so.{VERSION}", f"{LIB}/libnvidia-ml.so.{VERSION}"
DEEPER = f"{LIB}/nvidia/current/libcuda.so.{VERSION}"
HOME = "/usr/local/cuda-13.0"
STUB, COMPAT = f"{HOME}/lib64/stubs/libcuda.so", f"{HOME}/compat/libcuda.so.580.95.05"
INSIDE = f"{HOME}/lib64/libcuda.so"


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
    return {"libcuda.links": list(rows.values())}


def cache(*rows: str, so1: str = FILE, ml: str = ML) -> dict[str, list[str]]:
    """These rows, then the driver's libraries where they are given."""
    usual = (("libnvidia-ml.so.1", ml), ("libcuda.so.1", so1))
    more = [f"{name} => {LIB}/{name} => {real}" for name, real in usual if real]
    return {"libcuda.cache": [*rows, *more]}


OPT, TOOLKIT_LINK = "libcuda.so.1 => /opt/x/libcuda.so.1 => ", {"libcuda_toolkit_link": True}
TWO_PARTS = f"{LIB}/libcuda.so.580.142"
PRESENT, NO_FILES = {"driver_source": "present"}, {"nvidia.packages": []}
UPGRADED = cache(so1=f"{LIB}/libcuda.so.580.105.08", ml=f"{LIB}/libnvidia-ml.so.580.105.08")
CASES: dict[str, tuple[dict[str, Any], str]] = {
    "nothing changed": ({}, ""),
    "the cache names the folder without /usr": (
        cache(
            f"libcuda.so.1 => {LIB.removeprefix('/usr')}/libcuda.so.1 => {FILE}",
            f"libnvidia-ml.so.1 => {LIB.removeprefix('/usr')}/libnvidia-ml.so.1 => {ML}", so1="",
            ml="",
        ),
        "",
    ),
    "a libcuda.so elsewhere, which no program loads by that name": (
        cache("libcuda.so => /opt/x/libcuda.so => /opt/x/l"), "",
    ),
    "the link goes to the whole path": (links(dev=f"link {LIB}/libcuda.so.1 => {FILE}"), ""),
    "Debian's alternatives": (
        {
            **links(
                dev=f"link /etc/alternatives/nvidia--libcuda.so => {DEEPER}",
                so1=f"link /etc/alternatives/nvidia--libcuda.so.1 => {DEEPER}",
            ),
            **cache(so1=DEEPER),
        },
        "",
    ),
    "a driver with a version of two parts": (
        {
            **links(
                dev=f"link libcuda.so.1 => {TWO_PARTS}",
                so1=f"link libcuda.so.580.142 => {TWO_PARTS}",
            ),
            **cache(so1=TWO_PARTS),
        },
        "",
    ),
    "another path to the driver's own file comes first": (cache(f"{OPT}{FILE}"), ""),
    "another libcuda.so.1 comes last": (
        {"libcuda.cache": [*cache()["libcuda.cache"], f"{OPT}/opt/x/l"]}, "",
    ),
    "a foreign library comes first": (cache(f"{OPT}/opt/x/l.so"), "another!"),
    "a compat folder on the loader's path": (
        {"libcuda.loader_paths": [f"/etc/ld.so.conf.d/nv.conf: {HOME}/compat"]}, "another!",
    ),
    "a second library in a folder that a file sets, which is said once": (
        {**cache(f"{OPT}{FILE}"), "libcuda.loader_paths": ["/etc/ld.so.conf.d/x.conf: /opt/x"]},
        "another!",
    ),
    "libcuda.so is missing": (links(dev="absent"), "link-differs"),
    "libcuda.so dangles": (links(dev="link libcuda.so.570.00 => -"), "link-differs"),
    "libcuda.so.1 leads to a stub": (
        links(so1=f"link {STUB} => {STUB}"), "link-differs cache-stale",
    ),
    "libcuda.so leads to a compat library": (
        links(dev=f"link {COMPAT} => {COMPAT}"), "link-differs",
    ),
    "libcuda.so leads to a version": (
        links(dev=f"link libcuda.so.{VERSION} => {FILE}"), "link-differs",
    ),
    "libcuda.so leads to somebody's library": (
        links(dev="link /opt/x/libcuda.so => /opt/x/libcuda.so"), "link-differs",
    ),
    "libcuda.so leads to another folder that ends alike": (
        links(dev=f"link /opt{FILE} => /opt{FILE}"), "link-differs",
    ),
    "libcuda.so is a copy": (links(dev=f"file - => {LIB}/libcuda.so"), "link-differs"),
    "libnvidia-ml.so.1 is missing": (links(ml="absent"), "link-differs"),
    "the files are gone, the package says it is there": (
        {**links(dev="absent", so1="absent"), **cache(so1="")},
        "link-differs link-differs",
    ),
    "the cache lacks libcuda": (cache(so1=""), "cache-stale"),
    "the cache lacks libnvidia-ml": (cache(ml=""), "cache-stale"),
    "the cache names what is gone": (cache(f"libcuda.so => {INSIDE} => -"), "cache-stale"),
    "a driver of somebody else's, wherever it is": (
        {
            **PRESENT, **NO_FILES, "libcuda.links": [],
            **cache(f"{OPT}/opt/x/libcuda.so.{VERSION}", so1="", ml=""),
        },
        "",
    ),
    "nothing may be written outside the prefix": (
        {"privilege": "none", "prefix": "/home/u/p", **links(dev="absent")}, "link-differs!",
    ),
    "the declared link in the toolkit": (
        {**TOOLKIT_LINK, **links(toolkit=f"link {LIB}/libcuda.so.1 => {FILE}")}, "",
    ),
    "the declared link in the toolkit is missing": (TOOLKIT_LINK, "link-differs"),
    "the declared link in the toolkit leads to a compat library": (
        {**TOOLKIT_LINK, **links(toolkit=f"link {COMPAT} => {COMPAT}")}, "link-differs",
    ),
}  # fmt: skip


def judged(changes: dict[str, Any]) -> list[Finding]:
    host = changed(changes)
    return libcuda.judge(host.spec(), host.record())


@pytest.mark.parametrize("name", CASES)
def test_a_difference_is_named_and_a_near_miss_is_not(name: str) -> None:
    changes, expected = CASES[name]
    found = [each for each in judged(changes) if each.id != "libcuda.unproven"]
    assert all(each.found and each.expected and each.action for each in found)
    assert marked(found) == expected


def test_a_library_that_comes_first_stops_the_run() -> None:
    (first,) = [each for each in judged(cache(f"{OPT}/opt/x/l")) if each.stops]
    assert first.found == "programs load /opt/x/libcuda.so.1"
    (unproven,) = judged(cache(f"{OPT}{FILE}"))
    assert unproven.found.endswith("the linker's cache changed since the last proof")


@pytest.mark.parametrize(
    ("changes", "effect"),
    [
        ({}, None),
        ({"driver.loaded": None}, None),
        ({"libcuda.proof": None}, "repair"),
        ({"libcuda.proof": '{"status": "pass"}'}, "repair"),
        ({"cuda.gcc": "13.1.0"}, "repair"),
        (links(dev=f"link {FILE} => {FILE}"), "repair"),
        (UPGRADED, "restart"),
        ({"driver.loaded": None, **UPGRADED}, "restart"),
        ({"driver.loaded": "580.105.08", **UPGRADED}, "repair"),
    ],
)
def test_the_proof_holds_for_one_state_and_waits_for_the_module(
    changes: dict[str, Any], effect: str | None
) -> None:
    found = [each.effect for each in judged(changes) if each.id == "libcuda.unproven"]
    assert found == [effect] * bool(effect)


def test_a_bare_host_only_lacks_the_proof_and_one_without_a_gpu_nothing() -> None:
    host = bare_gpu_host()
    found = libcuda.judge(host.spec(), host.record())
    assert [(each.id, each.effect) for each in found] == [("libcuda.unproven", "repair")]
    assert libcuda.judge(host.spec().but(accelerator="cpu"), host.record()) == []
