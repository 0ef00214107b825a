"""Each recorded or constructed answer of the probe is read as what it says."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path

import pytest

from pyinfra_gpu.facts.fields import Unknown
from pyinfra_gpu.facts.parse import CUT_OFF, hidden, parse
from pyinfra_gpu.facts.record import Entry, Record
from pyinfra_gpu.facts.verdict import Stamp

FOLDER = Path(__file__).parent / "fixtures" / "probe"
FILES = sorted(path.name for path in FOLDER.glob("*.txt"))
PREFIX = "/opt/pyinfra-gpu"


def record(name: str) -> Record:
    """The record of one fixture."""
    return parse((FOLDER / name).read_text().splitlines())


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


@pytest.mark.parametrize("name", FILES)
def test_every_fixture_says_where_it_comes_from(name: str) -> None:
    first = (FOLDER / name).read_text().splitlines()[0]
    assert first.startswith(("# recorded: ", "# constructed: "))
    assert first.startswith("# recorded: ") == name.startswith("debian1") or "h100" in name


@pytest.mark.parametrize("name", [name for name in FILES if name.endswith("-bare.txt")])
def test_a_fresh_host_is_wholly_known(name: str) -> None:
    host = record(name)
    assert list(unknowns(host)) == []
    assert (host.libcuda.libdir, host.environment.text) == ("", None)
    assert host.layout.entry(PREFIX) == Entry(kind="absent")


def test_a_finished_gpu_host_is_read_whole() -> None:
    host = record("ubuntu2404-2x-rtx5090.txt")
    # A verdict of the schema of another day is unknown; test_probe_script reads today's.
    assert {*unknowns(host)} <= {"smoke.verdict"}
    assert host.driver.libcuda == "/usr/lib/x86_64-linux-gnu/libcuda.so.580.95.05"
    assert host.driver.libml == "/usr/lib/x86_64-linux-gnu/libnvidia-ml.so.580.95.05"
    assert host.driver.users == ("pid 812 (python3)",)
    assert host.kernel.newest == "6.14.0-29-generic"
    assert host.kernel.modules == {
        "6.14.0-27-generic": "580.95.05",
        "6.14.0-29-generic": "580.95.05",
    }
    assert host.nvidia.package("libnvidia-compute-580").held is True  # type: ignore[union-attr]
    assert host.nvidia.package("libnvidia-compute") is None
    assert [source.file for source in host.nvidia.sources] == [  # type: ignore[union-attr]
        "/etc/apt/sources.list.d/pyinfra-gpu-nvidia.list"
    ]
    assert (host.cuda.nvcc, host.cuda.gcc, host.cuda.compiler) == ("13.0", "13.3.0", "13.3.0")
    assert host.libcuda.files == ("/usr/lib/x86_64-linux-gnu/libcuda.so.580.95.05",)
    assert host.power.sessions == ("alice on pts/0",)
    assert (host.storage.free_mib, host.storage.shm_mib) == (1575458, 64199)
    assert (host.torch.python, host.torch.uv) == ("3.12.3", "0.9.9")
    assert (host.torch.version, host.torch.cuda) == ("2.14.1+cu130", "13.0")
    assert host.torch.distributions == {
        "nvidia-nccl-cu13": "2.30.7",
        "torch": "2.14.1",
        "triton": "3.8.0",
        "typing-extensions": "4.16.0",
    }
    assert host.environment.text == hidden("# managed by pyinfra-gpu\nOMP_NUM_THREADS=8\n")
    assert host.to_json()["environment"] == {"text": "OMP_NUM_THREADS=***", "for_all": []}  # type: ignore[index]
    assert host.training.commit == "ea0306bebbfe134cb489eb1d185a8da843dcacb9"
    assert host.training.dirty == (" M train.py", r'?? "caf\303\251\n.txt"')
    assert host.training.dirty_count == 2
    assert isinstance(host.smoke.stamp, Stamp)
    assert (host.smoke.stamp.fingerprint, host.smoke.stamp.status) == ("00ff", "pass")
    wrapper = host.layout.entry(f"{PREFIX}/bin/torchrun")
    assert isinstance(wrapper, Entry)
    assert (wrapper.kind, wrapper.mode, wrapper.owner, wrapper.size) == ("file", "0755", "root", 10)
    assert wrapper.sha256 == "a8076d3d28d21e02012b20eaf7dbf75409a6277134439025f282e368e3305abf"
    assert host.layout.entry(f"{PREFIX}/cache") == Entry(kind="absent")
    assert host.layout.entry("/etc") == Unknown("/etc was not looked at")


def test_without_root_what_root_hides_is_unknown_and_the_rest_is_told() -> None:
    host = record("debian12-rootless.txt")
    assert host.system.uid == 1000
    assert host.system.user == "ubuntu"
    assert host.packages.installed != {}
    assert host.layout.entry(PREFIX) == Entry(kind="dir", mode="0700", owner="root")
    names = set(unknowns(host))
    assert {name for name in names if name.split(".")[0] in ("system", "gpus", "driver")} == set()
    assert {"torch.version", "torch.installing", "environment.text", "smoke.stamp"} <= names
    assert {"training.commit", "training.dirty"} <= names
    reason = f"no permission to look at {PREFIX}/env/training.env"
    assert host.environment.text == Unknown(reason)
    assert host.layout.entry(f"{PREFIX}/env/training.env") == Unknown(reason)


@pytest.mark.parametrize("name", ["truncated.txt", "no-probe.txt"])
def test_of_an_answer_without_its_end_nothing_is_known(name: str) -> None:
    host = record(name)
    late = Unknown(CUT_OFF)
    assert (host.system.kernel, host.driver.loaded, host.packages.installed) == (late, late, late)
    assert host.layout.entries == late


def test_damaged_lines_cost_their_own_field_only() -> None:
    host, whole = record("garbage.txt"), record("debian12-bare.txt")
    names = {
        "system.uid",
        "system.boot_id",
        "system.cpu_count",
        "driver.on_disk",
        "storage.shm_mib",
        "storage.shm_free_mib",
        "torch.uv",
    }
    assert set(unknowns(host)) == names
    assert host.system.hostname == whole.system.hostname
    assert host.system.kernel == whole.system.kernel
    assert (host.packages, host.layout, host.smoke) == (whole.packages, whole.layout, whole.smoke)
    assert host.system.boot_id == Unknown("the probe reported it more than once")
