"""What the host shows decides between two readings of one message."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

sys.path.append(str(Path(__file__).parents[1] / "fixtures" / "probe"))
import recorded

from pyinfra_gpu.diagnosis.catalogue import catalogue
from pyinfra_gpu.diagnosis.command import explain_lines
from pyinfra_gpu.diagnosis.host_facts import FACTS, facts_of
from pyinfra_gpu.facts.fields import Unknown
from pyinfra_gpu.facts.record import CacheEntry, Record
from pyinfra_gpu.on_host.diagnosis.explain import explain

ERROR_803 = (
    "RuntimeError: Unexpected error from cudaGetDeviceCount(). Error 803:"
    " system has unsupported display driver / cuda driver combination"
)


def record(name: str = "ubuntu2404-2x-rtx5090", **changes: dict[str, Any]) -> Record:
    """Return a host as the probe saw one, with other values in some of its parts."""
    seen = recorded.record(name)
    return replace(
        seen, **{part: replace(getattr(seen, part), **new) for part, new in changes.items()}
    )


def test_the_catalogue_asks_for_the_facts_that_there_are() -> None:
    asked = {hint.host for entry in catalogue().entries.values() for hint in entry.when}
    assert asked - {""} == {*FACTS}


def test_a_healthy_host_explains_nothing() -> None:
    assert facts_of(record(driver={"users": ()})) == {}


SOUND = record()
GPUS = SOUND.gpus.devices
assert not isinstance(GPUS, Unknown)
COMPAT = CacheEntry(name="libcuda.so.1", path="/usr/local/cuda-13/compat/libcuda.so.1", real=None)
OWN = replace(COMPAT, path="/usr/lib/libcuda.so.1", real="/usr/lib/libcuda.so.580.95.05")

Parts = dict[str, dict[str, Any]]
NO_DRIVER = {"driver": {"loaded": None, "on_disk": None}}
SECURE = {"system": {"secure_boot": True}}
LOST = (GPUS[0], replace(GPUS[1], driver=None))
NOT_TOLD = (GPUS[0], replace(GPUS[1], driver=Unknown("no link")))
ROWS: tuple[tuple[str, str, str, Any, str, Any], ...] = (
    # a fact, the field that decides, a value of which it is true, what is said, one nearly so
    ("shm-small", "storage", "shm_mib", 64, "/dev/shm has 64 MiB", 1024),
    ("shm-full", "storage", "shm_free_mib", 3, "/dev/shm has 3 MiB free", 64),
    ("memory-low", "system", "ram_mib", 7821, "the host has 7821 MiB of RAM", 16 << 10),
    ("nouveau-loaded", "driver", "nouveau", True, "nouveau is loaded", False),
    ("no-libcuda", "driver", "libcuda", None, "the loader's cache has no", Unknown("no ldconfig")),
    ("gpu-busy", "driver", "users", ("pid 8 (x)",) * 2, "a GPU is used by pid 8 (x), pid 8", ()),
    ("compat-on-path", "libcuda", "cache", (COMPAT, OWN), "the loader takes", (OWN, COMPAT)),
    ("module-differs-from-library", "driver", "loaded", "570.1", "the loaded module is 570", None),
    ("gpu-lost", "gpus", "devices", LOST, "of 2 GPUs on PCI, no driver is bound to", NOT_TOLD),
)
CASES: dict[str, tuple[Parts, str, Parts]] = {
    "module-missing": (
        NO_DRIVER,
        "no nvidia module is loaded, or installed for kernel 6.",
        {**NO_DRIVER, "gpus": {"devices": ()}},
    ),
    "secure-boot": (
        {**SECURE, "driver": {"mok": False}},
        "Secure Boot is on, and the key that signs modules is not enrolled",
        {**SECURE, "driver": {"mok": True}},
    ),
    "disk-full": (
        {"storage": {"free_mib": 7}},
        "the prefix has 7 MiB free",
        {"storage": {"free_mib": 256}},
    ),
    **{
        name: ({part: {field: value}}, said, {part: {field: nearly}})
        for name, part, field, value, said, nearly in ROWS
    },
}


@pytest.mark.parametrize("name", FACTS)
def test_a_fact_is_told_with_its_detail_and_of_no_other_host(name: str) -> None:
    true, said, nearly = CASES[name]
    assert facts_of(record(**true))[name].startswith(said)
    assert name not in facts_of(record(**nearly))


def test_recorded_hosts() -> None:
    assert facts_of(record("no-probe")) == {}
    assert "compat-on-path" not in facts_of(record("truncated"))
    assert "nouveau-loaded" in facts_of(record("ubuntu2404-rtx5080-nouveau"))
    assert "secure-boot" in facts_of(record("ubuntu2204-rtxpro6000-secureboot"))


def test_one_message_has_another_cause_on_another_host() -> None:
    def why(**changes: dict[str, Any]) -> str:
        facts = facts_of(record(**changes))
        (found, *_) = explain({"run.log": ERROR_803}, catalogue(), facts).found
        assert found.name == "cuda-driver-combination"
        return found.cause

    differing, compat_first = (
        CASES[n][0] for n in ("module-differs-from-library", "compat-on-path")
    )
    plain, differs, compat = why(), why(**differing), why(**compat_first)
    assert plain not in (differs, compat)
    assert differs.endswith(": the loaded module is 570.1, libcuda is 580.95.05.")
    assert compat.endswith(f": the loader takes {COMPAT.path}.")


def test_a_failed_command_of_a_deploy_is_explained_with_what_the_last_look_saw() -> None:
    full = record(storage={"var_mib": 3})
    reported = explain_lines(["OSError: [Errno 28] No space left on device"], record=full)
    assert "/var has 3 MiB free" in str(reported)
