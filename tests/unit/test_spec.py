"""What data resolves to: defaults, every key's effect, and the shape of the result."""

from __future__ import annotations

import types

import pytest
from product_code import attributes_read
from pydantic import SecretStr

from pyinfra_gpu.compatibility import resolve
from pyinfra_gpu.facts.probe import asked_by
from pyinfra_gpu.spec import KEYS, Paths
from pyinfra_gpu.spec.presets import Preset

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
        {"tiny": {"file": "train.py"}}, {"tiny": Preset(file="train.py")},
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


def test_a_cpu_stack_has_no_driver_no_cuda_and_no_gpu() -> None:
    spec = resolve(CPU, "h")
    assert (spec.accelerator, spec.gpu.count, spec.gpu.compute_capability) == ("cpu", 0, None)
    assert (spec.driver.branch, spec.driver.minimum, spec.cuda.release) == (None, None, None)
    assert (spec.driver.source, spec.driver.repository) == ("present", None)
    assert (spec.cuda.toolkit, spec.cuda.archs) == (False, ())
    assert (spec.preflight.min_disk_gib, spec.preflight.min_ram_gib) == (2.0, 2.0)


INDEX = "https://download.pytorch.org/whl/"


@pytest.mark.parametrize(
    ("data", "requirement", "full", "index", "extra"),
    [
        ({}, "torch==2.14.1", "2.14.1+cu130", None, None),
        (CPU, "torch==2.13.0+cpu", "2.13.0+cpu", None, f"{INDEX}cpu"),
        ({"pytorch_build": "cu126"}, "torch==2.14.1+cu126", "2.14.1+cu126", None, f"{INDEX}cu126"),
        ({"pytorch_version": "2.12.0"}, "torch==2.12.0", "2.12.0+cu130", None, None),
        ({"pytorch_version": "2.9.1"}, "torch==2.9.1+cu130", "2.9.1+cu130", None, f"{INDEX}cu130"),
        ({"stack": "r570-cu128"}, "torch==2.9.1", "2.9.1+cu128", None, None),
        ({"stack": "r580-cu126"}, "torch==2.14.1+cu126", "2.14.1+cu126", None, f"{INDEX}cu126"),
        ({**CPU, "pytorch_index_url": "file:///w"},
         "torch==2.13.0+cpu", "2.13.0+cpu", "file:///w", None),
        ({**CPU, "pytorch_index_url": "file:///w", "pytorch_extra_index_url": "file:///x"},
         "torch==2.13.0+cpu", "2.13.0+cpu", "file:///w", "file:///x"),
    ],
)  # fmt: skip
def test_torch_is_asked_for_by_build_only_where_an_index_names_it(
    data: dict[str, object], requirement: str, full: str, index: str | None, extra: str | None
) -> None:
    torch = resolve(data, "h").pytorch
    assert (torch.requirement, torch.full_version) == (requirement, full)
    assert (torch.index_url, torch.extra_index_url) == (index, extra)


@pytest.mark.parametrize(
    ("data", "minimum"),
    [
        ({}, "580.65.06"),
        ({"stack": "r595-cu132"}, "595.71.05"),
        ({"stack": "r570-cu128"}, "570.26"),
        ({"driver_branch": 595}, "580.65.06"),  # CUDA 13.0 was made for 580
        ({"driver_branch": 595, "cuda_release": "13.2"}, "595.45.04"),
        ({"cuda_release": "13.1"}, "580"),  # made for 590: minor-version compatibility
        ({"cuda_release": "12.8"}, "570.26"),
    ],
    ids=str,
)
def test_the_oldest_driver_follows_from_branch_and_cuda(
    data: dict[str, object], minimum: str
) -> None:
    assert resolve(data, "h").driver.minimum == minimum


@pytest.mark.parametrize(
    ("data", "mode", "mib"),
    [
        ({}, "gpu", 256),
        ({"gpu_count": 8}, "gpu", 256),
        ({"gpu_count": 1}, "rehearsal-1gpu", 256),
        ({"rehearsal": True}, "rehearsal-cpu", 64),
        (CPU, "rehearsal-cpu", 64),
        ({**CPU, "smoke_allreduce_mib": None}, "rehearsal-cpu", 64),
        ({**CPU, "smoke_allreduce_mib": 256}, "rehearsal-cpu", 256),
        ({"smoke_allreduce_mib": 64}, "gpu", 64),
    ],
    ids=str,
)
def test_the_largest_all_reduce_is_256_mib_on_gpus_and_64_on_the_cpu(
    data: dict[str, object], mode: str, mib: int
) -> None:
    smoke = resolve(data, "h").smoke
    assert (smoke.mode, smoke.allreduce_mib) == (mode, mib)


@pytest.mark.parametrize(
    "repo",
    [
        "https://github.com/karpathy/nanochat",
        "https://github.com/karpathy/nanochat.git",
        "http://10.0.0.1:8080/repo.git",
        "ssh://git@github.com/a/b.git",
        "ssh://git@[fd00::1]:2222/srv/b.git",
        "git://10.0.0.1/repo",
        "file:///srv/git/repo.git",
        "git@github.com:a/b.git",
        "me@lab-1.example.org:~/repo",
        "gitlab.lab:team/x.git",
        "my_alias:team/repo",
    ],
)
def test_every_form_of_git_url_passes(repo: str) -> None:
    training = resolve({**TRAINING, "training_repo": repo}, "h").training
    assert training is not None
    assert training.repo == repo


@pytest.mark.parametrize(
    "prefix",
    ["/opt/x", "/srv/gpu", "/home/ada/gpu", "/data", "/usr/local/gpu", "/var/lib/gpu", "/tmp/a/b"],
)
def test_ordinary_prefixes_pass(prefix: str) -> None:
    assert resolve({"prefix": prefix}, "h").paths.prefix == prefix


@pytest.mark.parametrize("python", ["python", "python3.12", "/usr/bin/python3", "3.10", "3.12.3"])
def test_a_python_is_a_command_a_path_or_a_version(python: str) -> None:
    assert resolve({"pytorch_python": python}, "h").pytorch.python == python


@pytest.mark.parametrize(
    "said", [{}, {"driver_source": "nvidia", "cuda_toolkit": True, "driver_branch": 580}], ids=str
)
def test_without_root_the_driver_is_only_judged_and_no_toolkit_is_installed(
    said: dict[str, object],
) -> None:
    spec = resolve({**said, "privilege": "none"}, "h")
    assert (spec.driver.source, spec.cuda.toolkit) == ("present", False)
    assert (spec.driver.branch, spec.driver.minimum) == (580, "580.65.06")


def test_a_cpu_host_ignores_what_is_said_of_a_gpus_driver_and_names_the_keys() -> None:
    said = {"driver_hold": False, "cuda_release": "13.0", "libcuda_toolkit_link": True}
    spec = resolve({**CPU, **said, "driver_modules": "open", "driver_version": None}, "h")
    assert spec.ignored == tuple(said)
    assert spec.but(ignored=(), declared=CPU) == resolve(CPU, "h")


@pytest.mark.parametrize(("count", "ranks"), [(2, 2), (8, 8), (1, 1)])
def test_where_there_are_gpus_each_has_one_rank_whatever_smoke_ranks_says(
    count: int, ranks: int
) -> None:
    assert resolve({"smoke_ranks": 4, "gpu_count": count}, "h").smoke.ranks == ranks


def test_no_secret_is_in_the_text_of_a_spec() -> None:
    presets = {"t": {"file": "t.py", "variables": {"A": "canary"}}}
    data = {**TRAINING, "training_presets": presets, "environment_variables": {"A": "canary"}}
    spec = resolve({**data, "training_notify": ["/bin/x", "canary"]}, "h")
    assert "canary" not in f"{spec!r} {spec} {spec.environment!r} {spec.training!r}"


@pytest.mark.parametrize(
    ("data", "archs"),
    [
        ({}, (75, 80, 86, 90, 100, 120)),  # those of torch's wheel
        ({"cuda_archs": []}, (75, 80, 86, 90, 100, 120)),
        ({"stack": "r580-cu126"}, (50, 60, 70, 75, 80, 86, 90)),
        ({"pytorch_build": "cu126"}, (75, 80, 86, 90)),  # CUDA 13.0 makes none for the others
        ({"rehearsal": True, "pytorch_version": "2.13.0", "pytorch_build": "cpu"},
         (75, 80, 86, 90, 100, 120)),  # those of the stack's own torch
        ({"gpu_model": "RTX 5090"}, (120,)),
        ({"gpu_model": "H100"}, (90,)),
        ({"gpu_model": "L4"}, (89,)),
        ({"gpu_model": "B300"}, (103,)),
        ({"gpu_model": "B300", "stack": "r580-cu128"}, (100,)),  # 12.8 does not know 10.3 yet
        ({"gpu_model": "RTX 5090", "cuda_archs": ["9.0"]}, (90,)),
    ],
    ids=str,
)  # fmt: skip
def test_nvcc_makes_code_for_the_declared_gpu_or_for_what_torch_serves(
    data: dict[str, object], archs: tuple[int, ...]
) -> None:
    assert resolve(data, "h").cuda.archs == archs


def test_the_repository_of_a_release_and_machine_fills_the_placeholders() -> None:
    repository = resolve({}, "h").driver.repository
    assert repository is not None
    assert repository.url_for("debian12", "sbsa") == (
        "https://developer.download.nvidia.com/compute/cuda/repos/debian12/sbsa"
    )
    flat = resolve({"driver_repository_url": "http://10.0.0.1:8080/cuda/"}, "h").driver.repository
    assert flat is not None
    assert flat.url_for("debian12", "x86_64") == "http://10.0.0.1:8080/cuda"


@pytest.mark.parametrize(
    ("python", "path"),
    [
        ("python3", ""),
        ("3.12", "/usr/bin/python3.12"),
        ("python3.12", "/usr/bin/python3.12"),
        ("3.12.3", "/usr/bin/python3.12"),
        ("/opt/python", "/opt/python"),
    ],
)
def test_a_host_is_asked_for_the_python_that_an_environment_needs(python: str, path: str) -> None:
    assert asked_by(resolve({"pytorch_python": python}, "h"))["python"] == path
