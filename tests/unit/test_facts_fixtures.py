"""Each recorded or constructed answer of the probe is read as what it says."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parent / "fixtures" / "probe"))
from recorded import NAMES, record

from pyinfra_gpu.facts.fields import Unknown
from pyinfra_gpu.facts.parse import CUT_OFF, hidden
from pyinfra_gpu.facts.record import Entry
from pyinfra_gpu.facts.verdict import Stamp

PREFIX = "/opt/pyinfra-gpu"


def unknowns(value: object, name: str = "") -> Iterator[str]:
    """The dotted names of all unknown fields."""
    if isinstance(value, Unknown):
        yield name
    elif dataclasses.is_dataclass(value):
        for field in dataclasses.fields(value):
            yield from unknowns(getattr(value, field.name), f"{name}.{field.name}".lstrip("."))
    elif isinstance(value, (tuple, dict)):
        items = value.items() if isinstance(value, dict) else enumerate(value)
        for key, item in items:
            yield from unknowns(item, f"{name}[{key}]")


@pytest.mark.parametrize("name", [name for name in NAMES if name.endswith("-bare")])
def test_a_fresh_host_is_wholly_known(name: str) -> None:
    host = record(name)
    assert list(unknowns(host)) == []
    assert (host.libcuda.libdir, host.environment.text) == ("", None)
    assert host.layout.entry(PREFIX) == Entry(kind="absent")


def test_a_finished_gpu_host_is_read_whole() -> None:
    host = record("ubuntu2404-2x-rtx5090")
    # A verdict of the schema of another day is unknown; test_probe_script reads today's.
    assert {*unknowns(host)} <= {"smoke.verdict"}
    assert host.driver.libcuda == "/usr/lib/x86_64-linux-gnu/libcuda.so.580.95.05"
    assert host.kernel.newest == "6.14.0-29-generic"
    assert set(host.kernel.modules) == {"6.14.0-27-generic", "6.14.0-29-generic"}  # type: ignore[arg-type]
    assert host.nvidia.package("libnvidia-compute-580").held is True  # type: ignore[union-attr]
    assert host.nvidia.package("libnvidia-compute") is None
    assert [source.file for source in host.nvidia.sources] == [  # type: ignore[union-attr]
        "/etc/apt/sources.list.d/pyinfra-gpu-nvidia.list"
    ]
    assert host.torch.distributions["typing-extensions"] == "4.16.0"  # type: ignore[index]
    assert host.environment.text == hidden("# managed by pyinfra-gpu\nOMP_NUM_THREADS=8\n")
    assert host.to_json()["environment"] == {"text": "OMP_NUM_THREADS=***", "for_all": []}  # type: ignore[index]
    assert host.training.dirty == (" M train.py", r'?? "caf\303\251\n.txt"')
    assert isinstance(host.smoke.stamp, Stamp)
    wrapper = host.layout.entry(f"{PREFIX}/bin/torchrun")
    assert isinstance(wrapper, Entry)
    assert (wrapper.kind, wrapper.mode, wrapper.owner, wrapper.size) == ("file", "0755", "root", 10)
    assert host.layout.entry("/etc") == Unknown("/etc was not looked at")


def test_without_root_what_root_hides_is_unknown_and_the_rest_is_told() -> None:
    host = record("debian12-rootless")
    assert (host.system.uid, host.system.user) == (1000, "ubuntu")
    names = set(unknowns(host))
    assert {name for name in names if name.split(".")[0] in ("system", "gpus", "driver")} == set()
    assert {"torch.version", "torch.installing", "smoke.stamp", "training.commit"} <= names
    reason = f"no permission to look at {PREFIX}/env/training.env"
    assert host.environment.text == Unknown(reason)
    assert host.layout.entry(f"{PREFIX}/env/training.env") == Unknown(reason)


@pytest.mark.parametrize("name", ["truncated", "no-probe"])
def test_of_an_answer_without_its_end_nothing_is_known(name: str) -> None:
    host = record(name)
    assert (host.system.kernel, host.layout.entries) == (Unknown(CUT_OFF), Unknown(CUT_OFF))


def test_damaged_lines_cost_their_own_field_only() -> None:
    host, whole = record("garbage"), record("debian12-bare")
    assert {*unknowns(host)} == {
        *("system.uid", "system.boot_id", "system.cpu_count", "driver.on_disk"),
        *("storage.shm_mib", "storage.shm_free_mib", "torch.uv"),
    }
    assert (host.packages, host.layout, host.smoke) == (whole.packages, whole.layout, whole.smoke)
