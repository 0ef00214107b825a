"""NVIDIA's side of a spec: what driver, toolkit and libcuda keys become, and what they refuse."""
# ruff: noqa: E501 (a table: one case per line)

from __future__ import annotations

import re

import pytest

from pyinfra_gpu.compatibility import resolve
from pyinfra_gpu.spec import SpecError

CPU: dict[str, object] = {"stack": "cpu-torch2.13"}

# Data whose last key is the wrong one; how its value is shown, in the problem, in the remedy.
WRONG: list[tuple[dict[str, object], str, str, str]] = [
    ({"driver_source": "ubuntu"}, "'ubuntu'", "not one of", "set e.g. driver_source = 'present'"),
    ({"driver_version": "580"}, "'580'", "a branch, not a version", "set driver_branch = 580"),
    ({"driver_version": 580.95}, "580.95", "not text", "put it in quotes"),
    ({"driver_version": "latest"}, "'latest'", "not a whole driver", "set e.g. driver_version ="),
    ({"driver_version": "580.95.05-1"}, "'580.95.05-1'", "revision", "driver_version = '580.95.05'"),
    ({"driver_version": "580.95.05; x"}, "'580.95.05; x'", "not a whole driver", "set e.g. driver_v"),
    ({"driver_version": "595.71.05"}, "'595.71.05'", "not a version of branch 580", "driver_branch = 595"),
    ({"driver_version": "999.71.05"}, "'999.71.05'", "not a version of branch", "driver_version = None"),
    ({"driver_version": "580.65.05"}, "'580.65.05'", "too old for CUDA 13.0", "driver_version = None"),
    ({"driver_packages": "headless"}, "'headless'", "not one of", "set e.g. driver_packages = 'full'"),
    ({"driver_repository_url": "mirror.org/cuda"}, "'mirror.org/cuda'", "not an http", "set e.g. dri"),
    ({"driver_repository_url": "https://h/{codename}"}, "'https://h/{codename}'", "placeholder", "e.g."),
    ({"driver_repository_url": "https://{distro}/x"}, "'https://{distro}/x'", "host name", "set e.g."),
    ({"driver_repository_url": "https://h/a b"}, "'https://h/a b'", "a space", "set e.g. driver_rep"),
    ({"driver_repository_url": "https://h/a'b"}, '"https://h/a\'b"', "apt reads", "set e.g. driver_r"),
    ({"driver_repository_url": "https://h/a?x=1"}, "'https://h/a?x=1'", "? or # part", "set e.g. dri"),
    ({"driver_repository_url": "https://me:pw@h/s"}, "'https://***@h/s'", "in logs", "auth.conf.d"),
    ({"driver_repository_url": "https:///s"}, "'https:///s'", "names no host", "set e.g. driver_rep"),
    ({"driver_repository_url": ["https://h/s"]}, "['https://h/s']", "not text", "set e.g. driver_rep"),
    ({"driver_key_fingerprint": "3bf863cc"}, "'3bf863cc'", "8 digits, and a short id", "set e.g. dri"),
    ({"driver_key_fingerprint": "a" * 41}, "'aaaa", "has 41 digits", "set e.g. driver_key_finger"),
    ({"driver_key_fingerprint": "EB69-3B30"}, "'EB69-3B30'", "not a key fingerprint", "set e.g. driver"),
    ({"driver_keyring_sha256": "a" * 40}, "'aaaa", "has 40 digits", "set e.g. driver_keyring_sha256"),
    ({"driver_keyring_sha256": "md5:1"}, "'md5:1'", "not a SHA-256", "set e.g. driver_keyring_sha256"),
    ({"driver_hold": "yes"}, "'yes'", "not True or False", "set driver_hold = True"),
    ({"driver_persistence": 0}, "0", "not True or False", "set driver_persistence = False"),
    ({"driver_reboot": True}, "True", "not text", "set e.g. driver_reboot = 'never'"),
    ({"driver_reboot": "idle"}, "'idle'", "not one of", "set driver_reboot = 'if-idle'"),
    ({"driver_reboot_wait_s": 29}, "29", "too small", "set driver_reboot_wait_s = 30"),
    ({"driver_reboot_wait_s": 7201}, "7201", "too large", "set driver_reboot_wait_s = 7200"),
    ({"cuda_toolkit": "13.0"}, "'13.0'", "not True or False", "set e.g. cuda_toolkit = False"),
    ({"cuda_version": "13.0"}, "'13.0'", "a release, not a version", "set cuda_release = '13.0'"),
    ({"cuda_version": "13.0.3-1"}, "'13.0.3-1'", "revision", "set cuda_version = '13.0.3'"),
    ({"cuda_version": "13.x"}, "'13.x'", "three numbers", "set e.g. cuda_version = '13.0.3'"),
    ({"cuda_version": "13.2.1"}, "'13.2.1'", "not a version of CUDA 13.0", "cuda_release = '13.2'"),
    ({"cuda_version": "13.9.1"}, "'13.9.1'", "not a version of CUDA 13.0", "cuda_version = None"),
    ({"cuda_archs": "12.0"}, "'12.0'", "text, not a list", "set cuda_archs = ['12.0']"),
    ({"cuda_archs": {"12.0": 1}}, "{'12.0': 1}", "a dict, not a list", "set e.g. cuda_archs = ['12.0']"),
    ({"cuda_archs": [12.0]}, "[12.0]", "decimal point, not text", "in quotes, cuda_archs = ['12.0']"),
    ({"cuda_archs": ["sm_120"]}, "['sm_120']", "not a compute capability", "set cuda_archs = ['12.0']"),
    ({"cuda_archs": ["90a"]}, "['90a']", "not a compute capability", "set cuda_archs = ['9.0']"),
    ({"cuda_archs": ["Blackwell"]}, "['Blackwell']", "'Blackwell', which is not", "set e.g. cuda_archs"),
    ({"cuda_archs": ["12.0", "7.0"]}, "['7.0', '12.0']", "7.0, for which CUDA 13.0", "cuda_archs = ['12.0']"),
    ({"cuda_archs": ["5.0", "10.9"]}, "['5.0', '10.9']", "5.0, 10.9, for", "set cuda_archs = None"),
    ({"cuda_toolkit": False, "cuda_version": "13.0.3"}, "'13.0.3'", "needs a toolkit", "cuda_toolkit = True"),
    ({"cuda_toolkit": False, "cuda_archs": ["12.0"]}, "('12.0',)", "needs a toolkit", "remove cuda_archs"),
    ({"cuda_toolkit": False, "libcuda_toolkit_link": True}, "True", "needs a toolkit", "remove libcuda"),
    ({"privilege": "none", "libcuda_toolkit_link": True}, "True", "outside prefix", "privilege = 'sudo'"),
    ({"libcuda_toolkit_link": 1}, "1", "not True or False", "set libcuda_toolkit_link = True"),
    ({"stack": "cpu-torch2.13", "driver_source": "present"}, "'present'", "not read", "remove driver_so"),
    ({"stack": "cpu-torch2.13", "driver_version": "580.95.05"}, "'580.95.05'", "not read", "remove driver"),
    ({"stack": "cpu-torch2.13", "driver_packages": "full"}, "'full'", "not read", "remove driver_pack"),
    ({"stack": "cpu-torch2.13", "driver_repository_url": "http://h/r"}, "'http://h/r'", "not read", "remove"),
    ({"stack": "cpu-torch2.13", "driver_key_fingerprint": "A" * 40}, "'AAAA", "not read", "remove driver_k"),
    ({"stack": "cpu-torch2.13", "driver_keyring_sha256": "a" * 64}, "'aaaa", "not read", "remove driver_k"),
    ({"stack": "cpu-torch2.13", "driver_hold": False}, "False", "not read", "remove driver_hold"),
    ({"stack": "cpu-torch2.13", "driver_persistence": False}, "False", "not read", "remove driver_pers"),
    ({"stack": "cpu-torch2.13", "driver_reboot": "never"}, "'never'", "not read", "remove driver_reboot"),
    ({"stack": "cpu-torch2.13", "driver_reboot_wait_s": 60}, "60", "not read", "remove driver_reboot_wait"),
    ({"stack": "cpu-torch2.13", "cuda_toolkit": False}, "False", "not read", "remove cuda_toolkit"),
    ({"stack": "cpu-torch2.13", "cuda_version": "13.0.3"}, "'13.0.3'", "not read", "remove cuda_version"),
    ({"stack": "cpu-torch2.13", "cuda_archs": ["12.0"]}, "('12.0',)", "not read", "remove cuda_archs"),
    ({"stack": "cpu-torch2.13", "libcuda_toolkit_link": True}, "True", "not read", "remove libcuda"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("data", "value", "problem", "remedy"), WRONG, ids=[str(case[0])[:70] for case in WRONG]
)
def test_wrong_data_is_one_sentence_with_host_key_value_problem_and_remedy(
    data: dict[str, object], value: str, problem: str, remedy: str
) -> None:
    with pytest.raises(SpecError) as caught:
        resolve(data, "lab-1")
    message = str(caught.value)
    parts = re.fullmatch(r"host lab-1: (\S+) = (.*); allowed: (.+); fix: (.+)", message)
    assert parts is not None, message
    assert message.startswith(f"host lab-1: {list(data)[-1]} = {value}"), message
    assert problem in parts[2], message
    assert remedy in parts[4], message
    assert message.isprintable(), message


@pytest.mark.parametrize(
    "said", [{}, {"driver_source": "nvidia", "cuda_toolkit": True, "driver_branch": 580}], ids=str
)
def test_without_root_the_driver_is_only_judged_and_no_toolkit_is_installed(
    said: dict[str, object],
) -> None:
    spec = resolve({**said, "privilege": "none"}, "h")
    assert (spec.driver.source, spec.cuda.toolkit) == ("present", False)
    assert (spec.driver.branch, spec.driver.minimum) == (580, "580.65.06")


def test_a_value_that_says_what_is_so_anyway_passes_on_a_cpu_stack() -> None:
    said = {"cuda_archs": [], "driver_version": None, "driver_hold": True, "cuda_toolkit": True}
    assert resolve({**CPU, **said}, "h") == resolve(CPU, "h")


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
