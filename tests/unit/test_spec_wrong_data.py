"""Wrong data: each mistake is one sentence with host, key, value, what is allowed and the
remedy.
"""
# ruff: noqa: E501 (a table: one case per line)

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Mapping

import pytest

from pyinfra_gpu.compatibility import resolve
from pyinfra_gpu.spec import SpecError
from pyinfra_gpu.spec.resolving import SSH_KEYS
from pyinfra_gpu.spec.types import FORBIDDEN

REPO = "https://github.com/karpathy/nanochat"
COMMIT = "92d63d4a1f0e5b7c8d9e0f1a2b3c4d5e6f708192"
HIDDEN = "(not shown"
GIT = "https://github.com/pytorch/pytorch"
GIT_SOURCE: dict[str, object] = {"pytorch_git_url": GIT, "pytorch_commit": COMMIT}
NIGHTLY: dict[str, object] = {
    "pytorch_source": "nightly",
    "pytorch_version": "2.16.0.dev20261120",
}
SOURCE: dict[str, object] = {"pytorch_source": "source", **GIT_SOURCE, "gpu_model": "RTX 5090"}
CPU_SOURCE = {**SOURCE, "gpu_model": None, "stack": "cpu-torch2.13"}

# Data whose last key is the wrong one; how its value is shown, in the problem, in the remedy.
WRONG: list[tuple[dict[str, object], str, str, str]] = [
    # keys that are not ours
    ({"smok_ranks": 2}, "2", "is no known key", "write smoke_ranks"),
    ({"Stack": "x"}, "'x'", "is no known key", "write stack"),
    ({"torch_version": "2.14.1"}, "'2.14.1'", "is no known key", "write pytorch_version"),
    ({"smoke": {"ranks": 4}}, "{'ranks': 4}", "is not one of the allowed words", "set e.g. smoke = 'always', or remove it"),
    ({"ssh_host": "10.0.0.1"}, "'10.0.0.1'", "is no known key", "write ssh_hostname"),
    ({"ssh_prt": 22}, "22", "is no known key", "write ssh_port"),
    ({"shh_user": "alice"}, "'alice'", "is no known key", "write ssh_user"),
    # general
    ({"stack": "r580-cu13"}, "'r580-cu13'", "is none of r580-cu130, r580-cu128, r580-cu12", "set stack = 'r580-cu130'"),
    ({"stack": ["r580-cu130"]}, "['r580-cu130']", "is not text", "set e.g. stack = 'cpu-torch2.13', or rem"),
    ({"rehearsal": 1}, "1", "is not True or False", "set e.g. rehearsal = True, or remove it"),
    ({"prefix": "/"}, "'/'", "others use too", "set e.g. prefix ="),
    ({"prefix": "/opt/" + "x" * 200}, "'/opt/xxxx", "longer than 200", "set e.g. prefix = '/srv/gpu/lab', or rem"),
    ({"privilege": "none", "owner": "ada"}, "'ada'", "privilege = 'none'", "remove owner"),
    ({"prefix": "/root/x", "owner": "ada"}, "'ada'", "enter /root", "prefix = '/opt/pyinfra-gpu'"),
    # preflight
    ({"gpu_model": "RTX5090"}, "'RTX5090'", "is not known", "set gpu_model = 'RTX 5090'"),
    ({"gpu_count": 17}, "17", "should be less than or equal to 16", "set e.g. gpu_count = 4, or remove it for"),
    ({"preflight_min_ram_gib": "64"}, "'64'", "is not a number", "set e.g. preflight_min_ram_gib = 64, or"),
    # driver and cuda
    ({"driver_branch": 581}, "581", "is none of 535, 550, 570, 575, 580, 590, 595", "set driver_branch = 580"),
    ({"cuda_release": "13"}, "'13'", "is none of 12.6, 12.8, 12.9, 13.0, 13.1, 13.", "set cuda_release = '13.3'"),
    ({"cuda_release": 13.0}, "13.0", "not text", "quotes, cuda_release = '13.0', on the command line"),
    ({"stack": "cpu-torch2.13", "gpu_model": "T4"}, "'T4'", "not read", "remove gpu_model"),
    ({"driver_version": "595.71.05"}, "'595.71.05'", "not a version of branch 580", "driver_branch = 595"),
    ({"driver_version": "580.65.05"}, "'580.65.05'", "too old for CUDA 13.0", "driver_version = None"),
    ({"driver_repository_url": "https://me:pw@h/s"}, "'https://***@h/s'", "in logs", "auth.conf.d"),
    ({"cuda_version": "13.2.1"}, "'13.2.1'", "not a version of CUDA 13.0", "cuda_release = '13.2'"),
    ({"cuda_archs": [12.0]}, "[12.0]", "entry 1 is not a compute capability as text", "correct entry 1, or remove it"),
    ({"cuda_archs": ["12.0", "7.0"]}, "['12.0', '7.0']", "7.0, for which CUDA 13.0", "cuda_archs = ['12.0']"),
    ({"cuda_toolkit": False, "cuda_version": "13.0.3"}, "'13.0.3'", "is not read with cuda_toolkit = False", "remove cuda_version, or set cuda_toolkit"),
    ({"privilege": "none", "libcuda_toolkit_link": True}, "True", "is not read with privilege = 'none'", "remove libcuda_toolkit_link, or set priv"),
    # packages
    ({"packages_extra": ["tmux", 7]}, "['tmux', 7]", "entry 2 is not text", "correct entry 2, or remove it"),
    ({"packages_extra": ["tmux=3.3"]}, "['tmux=3.3']", "entry 1 is not the name of a package alone", "correct entry 1, or remove it"),
    ({"packages_extra": ["nvidia-driver"]}, "['nvidia-driver']", "entry 1 is a package of driver or toolkit, w", "remove it; the keys driver_... and cuda_"),
    ({"privilege": "none", "packages_extra": ["tmux"]}, "['tmux']", "privilege = 'none'", "remove pack"),
    # pytorch
    ({"pytorch_source": "nightly", "pytorch_version": "2.14.1"}, "'2.14.1'", "names no nightly", "'2.14.1.dev20261120', with"),
    ({"pytorch_fallback": "2.13.0"}, "'2.13.0'", "not read with pytorch_source = 'wheel'", "remove"),
    ({**NIGHTLY, "pytorch_fallback": "2.99.0"}, "'2.99.0'", "is no other release of which", "remove it, or set another"),
    ({**SOURCE, "pytorch_version": "2.13.0", "pytorch_fallback": "2.13.0"}, "'2.13.0'", "is no other release", "another"),
    ({**NIGHTLY, "pytorch_lock": "required", "pytorch_fallback": "2.12.0"}, "'2.12.0'", "without a lock", "remove it"),
    ({**NIGHTLY, "pytorch_wheels": "/srv/w"}, "'/srv/w'", "is not read with pytorch_source = 'nightly'", "remove pytorch_wheels, or set pytorch_so"),
    ({**NIGHTLY, "pytorch_commit": COMMIT}, f"'{COMMIT}'", "with pytorch_source = 'nightly'", "remove"),
    ({**NIGHTLY, "pytorch_source": "wheel"}, "'2.16.0.dev20261120'", "is a nightly", "= 'nightly'"),
    ({"pytorch_source": "source"}, "'source'", "comes without pytorch_git_url", "set pytorch_git_url"),
    ({"pytorch_commit": "main"}, "'main'", "is no commit", "set pytorch_commit to what `git ls-remot"),
    ({"pytorch_git_url": GIT}, f"'{GIT}'", "not read with pytorch_source = 'wheel'", "remove pytorch_git"),
    ({"pytorch_source": "source", "pytorch_git_url": GIT}, f"'{GIT}'", "comes without pytorch_commit", "set pytorch_commit, or remove pytorch_gi"),
    ({**SOURCE, "pytorch_lock": "required"}, "'required'", "is in no lock", "remove pytorch_lock"),
    ({**SOURCE, "cuda_toolkit": False}, "False", "needs nvcc", "set cuda_toolkit = True"),
    ({**SOURCE, "privilege": "none"}, "'none'", "needs nvcc", "set cuda_toolkit = True"),
    ({"gpu_model": None, **GIT_SOURCE, "pytorch_source": "source"}, "'source'", "for which GPUs", "['12.0']"),
    ({**CPU_SOURCE, "pytorch_archs": ["12.0"]}, "['12.0']", "is not read with stack = 'cpu-torch2.13'", "remove pytorch_archs, or set stack = 'r5"),
    ({**SOURCE, "pytorch_archs": ["5.0"]}, "['5.0']", "has no code for RTX 5090", "set pytorch_archs"),
    ({**SOURCE, "pytorch_flags": {"use": 1}}, "{'use': 1}", "use has another form than is allowed", "correct use, or remove it"),
    ({**SOURCE, "pytorch_flags": {"BLAS": 3}}, "{'BLAS': 3}", "BLAS is not text", "correct BLAS, or remove it"),
    ({**SOURCE, "pytorch_flags": {"USE_TENSORPIPE": 0}}, "{'USE_TE", "USE_TENSORPIPE is what other keys say, or", "remove it: see pytorch_archs"),
    ({**SOURCE, "cuda_release": "13.2", "pytorch_build": "cu130"}, "'cu130'", "would be built with CUDA 13.2", "'cu132'"),
    ({"pytorch_extra_index_url": "https://me:pw@h/s"}, "'https://***@h/s'", "in logs", "~/.netrc"),
    # environment
    ({"environment_variables": ["A=1"]}, "(not shown, it may", "is not a dict", "set e.g. environment_variables = {'NCCL_"),
    ({"environment_variables": {"A": 1}}, "(not shown, it may", "A is not text", "correct A, or remove it"),
    ({"environment_variables": {"A B": "x"}}, "(not shown, it may", "(no name) has another form than is allowed", "correct (no name), or remove it"),
    ({"environment_variables": {"A": "x\x00"}}, "(not shown, it may", "A has a line break or another character whic", "correct A, or remove it"),
    ({"environment_variables": {"A": "x" * 4097}}, "(not shown, it may", "A is too long", "correct A, or remove it"),
    ({"environment_variables": {"HF_TOKEN": "s3cr3t\n"}}, "(not shown, it may", "HF_TOKEN has a line break or another charact", "correct HF_TOKEN, or remove it"),
    # training
    ({"training_repo": REPO}, f"'{REPO}'", "without training_commit", f"`git ls-remote {REPO} main`"),
    ({"training_commit": COMMIT}, f"'{COMMIT}'", "without training_repo", "set training_repo"),
    ({"training_requirements": "r.txt"}, "'r.txt'", "without training_repo", "set training_repo"),
    ({"training_commit": COMMIT, "training_repo": "https://u:pw@h/r"}, "'https://***@", "logs", "SSH key"),
    ({"training_commit": COMMIT, "training_repo": "https://ghp_x@h/r"}, HIDDEN, "logs", "SSH key"),
    ({"training_requirements": "-r.txt"}, "'-r.txt'", "a dash", "set e.g. training_requirements"),
    # smoke
    ({"smoke_allreduce_mib": 65}, "65", "is none of 1, 2, 4, 8, 16, 32, 64, 128, 256,", "set e.g. smoke_allreduce_mib = 128, or r"),
    ({"smoke_across_hosts": "my hosts"}, "'my hosts'", "nor the name of a group", "set e.g."),
    ({"smoke_across_address": "ws1"}, "'ws1'", "not an IP address", "set e.g. smoke_across_address"),
    ({"smoke_across_address": "127.0.0.1"}, "'127.0.0.1'", "can reach", "set e.g."),
    # one from compatibility: it comes the same way
    ({"gpu_model": "RTX 5090", "pytorch_build": "cu126"}, "'cu126'", "no code for RTX 5090", "remove pytorch_build"),
]  # fmt: skip


def refusal(data: Mapping[str, object]) -> str:
    with pytest.raises(SpecError) as caught:
        resolve(data, "lab-1")
    return str(caught.value)


@pytest.mark.parametrize(
    ("data", "value", "problem", "remedy"), WRONG, ids=[str(case[0])[:70] for case in WRONG]
)
def test_wrong_data_is_one_sentence_with_host_key_value_problem_and_remedy(
    data: dict[str, object], value: str, problem: str, remedy: str
) -> None:
    message = refusal(data)
    key = list(data)[-1]
    parts = re.fullmatch(r"host lab-1: (\S+) = (.*); allowed: (.+); fix: (.+)", message)
    assert parts is not None, message
    assert message.startswith(f"host lab-1: {key} = {value}"), message
    assert problem in parts[2], message
    assert remedy in parts[4], message
    assert message.isprintable(), message


REFUSED: dict[str, list[object]] = {
    "prefix": [
        "/", "/etc/x", "/root", "/home/ada", "/usr/local/", "/usr/x", "/var/lib/dpkg/gpu", "opt/x",
        "/opt/../etc", "/opt/./x", "~/gpu", "/opt/a;b", "/opt/gpu\n", "/opt/a b", "", 5,
    ],
    "owner": ["ada lovelace"],
    "host_compiler": ["gcc", "icc-12"],
    "driver_version": ["580"],
    "cuda_version": ["13.0"],
    "driver_key_fingerprint": ["3bf863cc"],
    "driver_keyring_sha256": ["a" * 40],
    "driver_repository_url": [
        "mirror.org/cuda", "https://h/{codename}", "https:///s", "https://{distro}/x",
        "https://h/a'b", "https://h/a?x=1", "https://h/{arch", "https://h/a\n", "https://h/a b",
    ],
    "packages_extra": [
        ["sudo-"], ["-y"], ["a b"], ["libcuda1"], ["cuda-toolkit-13-0"], ["x\n"], "tmux",
    ],
    "pytorch_version": ["2.16.0.dev1"],
    "pytorch_build": ["13.0"],
    "pytorch_python": ["2.7", "-x"],
    "pytorch_index_url": ["https://h:x/", "https://h/#x", "file://x/y", "-i"],
    "pytorch_wheels": ["w", "file:///w", "/srv/../w", "ftp://h/w", "/srv/a b", "/srv/w\n"],
    "pytorch_flags": [
        {name: 0} for name in (
            "USE_LIBUV", "USE_CUDA", "USE_TENSORPIPE", "USE_DISTRIBUTED", "USE_SYSTEM_LIBS", "CXX",
            "TORCH_CUDA_ARCH_LIST", "CMAKE_CUDA_ARCHITECTURES", "MAX_JOBS", "CUDA_HOME",
        )
    ],
    "environment_name": ["My Env"],
    "training_repo": [
        "--upload-pack=x", "ext::sh -c x", "/srv/r.git", "../r", "github.com/a/b", "ftp://h/r",
        "https://h", "ssh://-oX=y/r", "file://r", "-x@h:p", "-oX=y:p", "a:", "https::h/x",
        "h:x y", "https://h/r\n", "git@-h:x",
    ],
    "training_requirements": [
        "/r.txt", "../r.txt", "a/../../r.txt", "setup.py", "a b.txt", "r.txt\n", ".txt/x",
    ],
    "cuda_archs": [["sm_120"], ["90a"], ["12.0\n"], [12.0], "12.0"],
    "preflight_min_disk_gib": [float("nan"), float("inf"), -1, True],
    "smoke_across_hosts": ["true", "False", 1, "a-b"],
}  # fmt: skip


@pytest.mark.parametrize(
    ("key", "value"), [(key, each) for key in REFUSED for each in REFUSED[key]]
)
def test_what_would_be_read_otherwise_by_a_program_is_refused(key: str, value: object) -> None:
    message = refusal({"training_commit": COMMIT, key: value})
    assert message.startswith(f"host lab-1: {key} = "), message


@pytest.mark.parametrize("name", sorted(FORBIDDEN))
def test_a_forbidden_variable_is_refused_with_its_own_reason(name: str) -> None:
    message = refusal({"environment_variables": {name: "1"}})
    assert f"{name} is not written because {FORBIDDEN[name]}" in message
    assert message.endswith(f"fix: remove {name} from it")


@pytest.mark.parametrize(
    "data",
    [
        {"wandb_api_key": "tops3cret"},
        {"training_repo": "https://me:tops3cret@github.com/a/b"},
        {"training_repo": "https://github.com/a/b?access_token=tops3cret"},
        {"pytorch_index_url": "https://me:tops3cret@mirror/simple"},
        {"driver_repository_url": "https://mirror/{distro}?token=tops3cret"},
        {"environment_variables": {"HF_TOKEN": "tops3cret\n"}},
        {"environment_variables": {"WANDB_API_KEY": "tops3cret", "RANK": "0"}},
        {"pytorch": {"index_password": "tops3cret"}},
        {"environment_variables": ["tops3cret"]},
        {"environment_variables": {"WHAT": {"tops3cret": 1}}},
        {"environment_variables": {"A=tops3cret": "x"}},
        {"environment_variabels": ["tops3cret"]},
        {"packages_extra": "--token=tops3cret"},
        {"training": {"presets": {"t": {"words": ["tops3cret"]}}}},
        {"training_presets": {"t": {"arguments": {"api-key": "hunter2tops3cret"}, "file": "t.py"}}},
        {"training_presets": {"t": {"words": ["--token=hunter2tops3cret"], "file": "t.py"}}},
        {"training_presets": {"t": {"token=tops3cret": 1}}},
        {"training_presets": ["tops3cret"]},
        {"training_notify": ["token=tops3cret"]},
        {"training_repo": "me:tops3cret@github.com:a/b"},
        {"note": "-----BEGIN OPENSSH PRIVATE KEY----- tops3cret"},
    ],
    ids=str,
)
def test_a_secret_is_never_printed(data: dict[str, object]) -> None:
    assert "tops3cret" not in refusal(data)


def test_a_long_value_is_shortened_to_60_characters() -> None:
    shown = refusal({"gpu_model": "x" * 500}).partition(" = ")[2].partition(" is not")[0]
    assert len(shown) == 60
    assert shown.endswith("...")
    whole = "x" * 58
    assert refusal({"gpu_model": whole}).startswith(f"host lab-1: gpu_model = '{whole}' is not")


def test_a_host_name_with_a_line_break_does_not_break_the_line() -> None:
    with pytest.raises(SpecError) as caught:
        resolve({"gpu_count": 99}, "lab\n1")
    assert str(caught.value).startswith("host lab 1: gpu_count = 99 ")


def test_every_key_of_pyinfras_connector_is_known() -> None:
    program = "from pyinfra.connectors.ssh import SSHConnector as each; print(*each.data_cls.__annotations__)"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert {*done.stdout.split()} == SSH_KEYS
