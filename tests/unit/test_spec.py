"""What data resolves to: defaults, every key's effect, and the shape of the result."""

from __future__ import annotations

import types
from functools import reduce

import pytest
from product_code import attributes_read
from pydantic import SecretStr

from pyinfra_gpu.compatibility import resolve
from pyinfra_gpu.on_host.train.presets import Preset
from pyinfra_gpu.spec import KEYS, Paths

REPO = "https://github.com/karpathy/nanochat"
COMMIT = "92d63d4a1f0e5b7c8d9e0f1a2b3c4d5e6f708192"
TRAINING: dict[str, object] = {"training_repo": REPO, "training_commit": COMMIT}
CPU: dict[str, object] = {"stack": "cpu-torch2.13"}
ACROSS: dict[str, object] = {"smoke_across_hosts": True}
NVIDIA = "https://developer.download.nvidia.com/compute/cuda/repos/{distro}/{arch}"

SOURCE: dict[str, object] = {
    "pytorch_source": "source", "pytorch_git_url": "https://github.com/pytorch/pytorch",
    "pytorch_commit": COMMIT, "gpu_model": "RTX 5090", "pytorch_version": "2.12.0",
}  # fmt: skip
OF_BUILDS = {key.name for key in KEYS.values() if "building" in key.place}
DERIVED: dict[str, object] = {
    "gpu_count": 2, "preflight_min_disk_gib": 15.0, "preflight_min_ram_gib": 8.0,
    "driver_branch": 580, "driver_repository_url": NVIDIA, "cuda_release": "13.0",
    "cuda_archs": (75, 80, 86, 90, 100, 120), "pytorch_version": "2.14.1",
    "pytorch_build": "cu130", "pytorch_index_url": None, "pytorch_extra_index_url": None,
    "pytorch_archs": ("12.0",), "smoke_allreduce_mib": 256,
}  # fmt: skip
"""What keys become that nobody declares, and that have no default of their own."""
BECOMES: dict[str, tuple[object, object]] = {
    "prefix": ("/srv/gpu//lab/", "/srv/gpu/lab"),
    "gpu_count": (4, 4),
    "driver_repository_url": ("file:///srv/m/{distro}/{arch}/", "file:///srv/m/{distro}/{arch}"),
    "driver_version": ("580.142", "580.142"),
    "driver_key_fingerprint": (
        "eb69 3b30 35cd 5710 e231  e123 a4b4 6996 3bf8 63cc",
        "EB693B3035CD5710E231E123A4B469963BF863CC",
    ),
    "driver_keyring_sha256": ("0123456789ABCDEF" * 4, "0123456789abcdef" * 4),
    "packages_extra": (["tmux", "g++-12", "tmux"], ("g++-12", "tmux")),
    "cuda_archs": (["12.0", "9.0", "12.0"], (90, 120)),
    "pytorch_wheels": ("/srv/wheels/", "/srv/wheels"),
    "pytorch_commit": (COMMIT.upper(), COMMIT),
    "pytorch_archs": (["12.0", "9.0"], ("9.0", "12.0")),
    "pytorch_flags": (
        {"USE_MKLDNN": False, "BLAS": "Eigen"}, {"BLAS": "Eigen", "USE_MKLDNN": "0"},
    ),
    "environment_variables": (
        {"NCCL_DEBUG": "WARN", "A": ""}, {"A": SecretStr(""), "NCCL_DEBUG": SecretStr("WARN")},
    ),
    "training_commit": (COMMIT.upper(), COMMIT),
    "training_requirements": ("a/./r.txt", "a/r.txt"),
    "training_presets": (
        {"tiny": {"file": "train.py"}}, {"tiny": Preset(name="tiny", file="train.py")},
    ),
    "training_notify": (["/bin/x", "a"], ("/bin/x", "a")),
}  # fmt: skip
"""Key -> what is declared, and what that becomes; of all others it is their example."""


def beside(key: str) -> dict[str, object]:
    """Return the data without which a key is not read."""
    if key in OF_BUILDS or key in ("pytorch_source", "pytorch_fallback"):
        return SOURCE
    if key.startswith("training_"):
        return TRAINING
    return {"smoke_ranks": CPU, "smoke_across_address": ACROSS, "smoke_across_port": ACROSS}.get(
        key, {}
    )


@pytest.mark.parametrize("key", KEYS)
def test_each_key_has_its_default_its_effect_and_an_example(key: str) -> None:
    known, others = KEYS[key], beside(key)
    default = DERIVED.get(key, known.default)
    if key not in others and key != "smoke_across_hosts":
        assert known.of(resolve(others, "h")) == default
        assert known.of(resolve({**others, key: None}, "h")) == default
    given, becomes = BECOMES.get(key, (known.example, known.example))
    assert known.of(resolve({**others, key: given}, "h")) == becomes
    assert becomes != default
    assert known.example != known.default
    resolve({**others, key: known.example}, "h")
    read = "paths" if key == "prefix" else known.place[-1]
    assert read in attributes_read(), f"nothing reads what {key} becomes: use it, or remove it"


def test_pyinfras_own_data_and_code_in_group_data_pass() -> None:
    data = {
        "ssh_user": "ada",
        "_sudo_password": "x",
        "local_shell": 1,
        "fake_responses": {},
        "docker_identifier": "d",
        "pick": lambda: 1,
        "os": types,
        "Thing": dict,
    }
    assert resolve(data, "h") == resolve({}, "h")


def test_all_paths_lie_below_the_prefix_and_no_two_are_the_same() -> None:
    paths = Paths(prefix="/opt/x", name="nano")
    found = [getattr(paths, each) for each in dir(paths) if each[0] != "_" and each != "name"]
    assert all(f"{each}/".startswith("/opt/x/") for each in found)
    assert len({*found}) == len(found) > 30
    assert (paths.env_file, paths.training) == ("/opt/x/env/nano.env", "/opt/x/training/nano")
    assert paths.python == "/opt/x/venv/bin/python"


INDEX = "https://download.pytorch.org/whl/"
LOCAL = {**CPU, "pytorch_index_url": "file:///w"}
NO_ROOT = {"driver.source": "present", "cuda.toolkit": False, "driver.minimum": "580.65.06"}
WHEEL = (75, 80, 86, 90, 100, 120)
NIGHTLY = {
    "pytorch_source": "nightly", "pytorch_version": "2.16.0.dev20261120",
    "pytorch_fallback": "2.14.1",
}  # fmt: skip
SIMULATED = {"rehearsal": True, "pytorch_version": "2.13.0", "pytorch_build": "cpu"}


def torch(version: str, index: str | None = None, extra: str | None = None) -> dict[str, object]:
    """What is asked for, and at which indexes."""
    return {
        "pytorch.requirement": f"torch=={version}", "pytorch.index_url": index,
        "pytorch.extra_index_url": extra,
    }  # fmt: skip


# What is declared, and what follows from it.
FOLLOWS: list[tuple[dict[str, object], dict[str, object]]] = [
    (CPU, {"accelerator": "cpu", "gpu.count": 0, "gpu.compute_capability": None}),
    (CPU, {"driver.branch": None, "driver.minimum": None, "driver.repository": None}),
    (CPU, {"driver.source": "present", "cuda.release": None, "cuda.toolkit": False}),
    (CPU, {"preflight.min_disk_gib": 2.0, "preflight.min_ram_gib": 2.0, "cuda.archs": ()}),
    ({"privilege": "none"}, NO_ROOT),
    ({"privilege": "none", "driver_source": "nvidia", "cuda_toolkit": True}, NO_ROOT),
    # torch is asked for by build only where an index names it
    ({}, torch("2.14.1") | {"pytorch.full_version": "2.14.1+cu130"}),
    (CPU, torch("2.13.0+cpu", extra=f"{INDEX}cpu") | {"pytorch.full_version": "2.13.0+cpu"}),
    ({"pytorch_build": "cu126"}, torch("2.14.1+cu126", extra=f"{INDEX}cu126")),
    ({"pytorch_version": "2.12.0"}, torch("2.12.0")),
    ({"pytorch_version": "2.9.1"}, torch("2.9.1+cu130", extra=f"{INDEX}cu130")),
    ({"stack": "r570-cu128"}, torch("2.9.1") | {"pytorch.full_version": "2.9.1+cu128"}),
    (LOCAL, torch("2.13.0+cpu", "file:///w")),
    ({**LOCAL, "pytorch_extra_index_url": "file:///x"},
     torch("2.13.0+cpu", "file:///w", "file:///x")),
    (NIGHTLY, torch("2.16.0.dev20261120+cu130", f"{INDEX}nightly/cu130")),
    # what takes its place: PyTorch's own index names the build, another need not
    (NIGHTLY, {"pytorch.fallback_from": (
        "torch==2.14.1+cu130", "--extra-index-url", f"{INDEX}cu130")}),
    ({**NIGHTLY, "pytorch_extra_index_url": "file:///w"},
     {"pytorch.fallback_from": ("torch==2.14.1",)}),
    ({**NIGHTLY, "pytorch_index_url": "file:///w", "pytorch_build": "cu126"},
     {"pytorch.fallback_from": ("torch==2.14.1+cu126",)}),
    # the oldest driver follows from branch and CUDA
    ({}, {"driver.minimum": "580.65.06"}),
    ({"stack": "r595-cu132"}, {"driver.minimum": "595.71.05"}),
    ({"driver_branch": 595}, {"driver.minimum": "580.65.06"}),  # CUDA 13.0 was made for 580
    ({"driver_branch": 595, "cuda_release": "13.2"}, {"driver.minimum": "595.45.04"}),
    ({"cuda_release": "13.1"}, {"driver.minimum": "580"}),  # made for 590: minor versions fit
    ({"cuda_release": "12.8"}, {"driver.minimum": "570.26"}),
    # the smoke test: a rank a GPU whatever smoke_ranks says, and the largest all-reduce
    ({}, {"smoke.mode": "gpu", "smoke.allreduce_mib": 256, "smoke.ranks": 2}),
    ({"gpu_count": 8, "smoke_ranks": 4}, {"smoke.mode": "gpu", "smoke.ranks": 8}),
    ({"gpu_count": 1, "smoke_ranks": 4}, {"smoke.mode": "rehearsal-1gpu", "smoke.ranks": 1}),
    ({"gpu_count": 1}, {"smoke.allreduce_mib": 256}),
    ({"rehearsal": True}, {"smoke.mode": "rehearsal-cpu", "smoke.allreduce_mib": 64}),
    ({**CPU, "smoke_ranks": 4}, {"smoke.mode": "rehearsal-cpu", "smoke.ranks": 4}),
    ({**CPU, "smoke_allreduce_mib": 256}, {"smoke.allreduce_mib": 256}),
    ({"smoke_allreduce_mib": 64}, {"smoke.allreduce_mib": 64}),
    # nvcc makes code for the declared GPU, or for what torch's wheel serves
    ({"cuda_archs": []}, {"cuda.archs": WHEEL}),
    ({"stack": "r580-cu126"}, {"cuda.archs": (50, 60, 70, 75, 80, 86, 90)}),
    ({"pytorch_build": "cu126"}, {"cuda.archs": (75, 80, 86, 90)}),  # 13.0 makes no older code
    (SIMULATED, {"cuda.archs": WHEEL}),  # those of the stack's own torch
    ({"gpu_model": "RTX 5090"}, {"cuda.archs": (120,)}),
    ({"gpu_model": "L4"}, {"cuda.archs": (89,)}),
    ({"gpu_model": "B300"}, {"cuda.archs": (103,)}),
    ({"gpu_model": "B300", "stack": "r580-cu128"}, {"cuda.archs": (100,)}),  # 12.8 knows no 10.3
    ({"gpu_model": "RTX 5090", "cuda_archs": ["9.0"]}, {"cuda.archs": (90,)}),
    # the Python that an environment is made from, where data names its place or version
    ({}, {"pytorch.interpreter": ""}),
    ({"pytorch_python": "3.12"}, {"pytorch.interpreter": "/usr/bin/python3.12"}),
    ({"pytorch_python": "python3.12"}, {"pytorch.interpreter": "/usr/bin/python3.12"}),
    ({"pytorch_python": "3.12.3"}, {"pytorch.interpreter": "/usr/bin/python3.12"}),
    ({"pytorch_python": "/opt/python"}, {"pytorch.interpreter": "/opt/python"}),
    # a build: the GPU's architecture, and room for the tree on who may build
    (SOURCE, {"pytorch.building.archs": ("12.0",), "preflight.min_disk_gib": 65.0}),
    ({**SOURCE, "pytorch_builder": "other"}, {"preflight.min_disk_gib": 15.0}),
]  # fmt: skip


@pytest.mark.parametrize(("data", "values"), FOLLOWS, ids=str)
def test_what_follows_from_the_stack_and_from_other_keys(
    data: dict[str, object], values: dict[str, object]
) -> None:
    spec = resolve(data, "h")
    assert {name: reduce(getattr, name.split("."), spec) for name in values} == values


ACCEPTED = {
    "training_repo": [
        "https://github.com/karpathy/nanochat", "https://github.com/karpathy/nanochat.git",
        "http://10.0.0.1:8080/repo.git", "ssh://git@github.com/a/b.git",
        "ssh://git@[fd00::1]:2222/srv/b.git", "git://10.0.0.1/repo", "file:///srv/git/repo.git",
        "git@github.com:a/b.git", "me@lab-1.example.org:~/repo", "gitlab.lab:team/x.git",
        "my_alias:team/repo",
    ],
    "prefix": [
        "/opt/x", "/srv/gpu", "/home/ada/gpu", "/data", "/usr/local/gpu", "/var/lib/gpu",
        "/tmp/a/b",
    ],
    "pytorch_python": ["python", "python3.12", "/usr/bin/python3", "3.10", "3.12.3"],
}  # fmt: skip


@pytest.mark.parametrize(("key", "value"), [(k, each) for k in ACCEPTED for each in ACCEPTED[k]])
def test_every_ordinary_form_of_a_value_passes(key: str, value: str) -> None:
    assert KEYS[key].of(resolve({**beside(key), key: value}, "h")) == value


def test_a_cpu_host_ignores_what_is_said_of_a_gpus_driver_and_names_the_keys() -> None:
    said = {"driver_hold": False, "cuda_release": "13.0", "libcuda_toolkit_link": True}
    spec = resolve({**CPU, **said, "driver_modules": "open", "driver_version": None}, "h")
    assert spec.ignored == tuple(said)
    assert spec.but(ignored=(), declared=CPU) == resolve(CPU, "h")


def test_no_secret_is_in_the_text_of_a_spec() -> None:
    presets = {"t": {"file": "t.py", "variables": {"A": "canary"}}}
    data = {**TRAINING, "training_presets": presets, "environment_variables": {"A": "canary"}}
    spec = resolve({**data, "training_notify": ["/bin/x", "canary"]}, "h")
    assert "canary" not in f"{spec!r} {spec} {spec.environment!r} {spec.training!r}"


def test_the_repository_of_a_release_and_machine_fills_the_placeholders() -> None:
    repository = resolve({}, "h").driver.repository
    assert repository is not None
    assert repository.url_for("debian12", "sbsa") == (
        "https://developer.download.nvidia.com/compute/cuda/repos/debian12/sbsa"
    )
    flat = resolve({"driver_repository_url": "http://10.0.0.1:8080/cuda/"}, "h").driver.repository
    assert flat is not None
    assert flat.url_for("debian12", "x86_64") == "http://10.0.0.1:8080/cuda"
