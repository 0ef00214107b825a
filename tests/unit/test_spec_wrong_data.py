"""Wrong data: each mistake is one sentence with host, key, value, what is allowed and the
remedy.
"""
# ruff: noqa: E501 (a table: one case per line)

from __future__ import annotations

import re
from collections.abc import Mapping

import pytest

from pyinfra_gpu.compatibility import resolve
from pyinfra_gpu.spec import SpecError, check_data
from pyinfra_gpu.spec.variables import FORBIDDEN

REPO = "https://github.com/karpathy/nanochat"
COMMIT = "92d63d4a1f0e5b7c8d9e0f1a2b3c4d5e6f708192"
HIDDEN = "(not shown"
GIT, TAR, SHA = "https://github.com/pytorch/pytorch", "https://m.org/t.tar.gz", "ab" * 32
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
    ({"smok_ranks": 2}, "2", "nothing reads", "write smoke_ranks"),
    ({"Stack": "x"}, "'x'", "nothing reads", "write stack"),
    ({"smoke-ranks": 2}, "2", "nothing reads", "write smoke_ranks"),
    ({"torch_version": "2.14.1"}, "'2.14.1'", "nothing reads", "write pytorch_version"),
    ({"torch_build": "cu130"}, "'cu130'", "nothing reads", "write pytorch_build"),
    ({"driver_repository": "x"}, "'x'", "nothing reads", "write driver_repository_url"),
    ({"xyzzy": 1}, "1", "nothing reads", "remove it"),
    ({"wandb_api_key": "0123456789abcdef"}, HIDDEN, "nothing reads", "remove it"),
    ({"note": "hf_abcdefghijklmnop"}, HIDDEN, "nothing reads", "remove it"),
    ({7: 1}, "1", "nothing reads", "remove it"),  # type: ignore[dict-item]
    ({"driver": {"branch": 580}}, "{'branch': ...}", "nothing reads", "flat keys such as driver_..."),
    ({"smoke": {"ranks": 4}}, "{'ranks': 4}", "a dict, not text", "set e.g. smoke = 'always'"),
    ({"user": "ada"}, "'ada'", "nothing reads", "write ssh_user"),
    ({"ssh_host": "10.0.0.1"}, "'10.0.0.1'", "nothing reads", "write ssh_hostname"),
    ({"deadline_s": 60}, "60", "nothing reads", "write smoke_deadline_s"),
    # general
    ({"stack": "r580-cu13"}, "'r580-cu13'", "is not a stack", "set stack = 'r580-cu130'"),
    ({"stack": "R580-CU130"}, "'R580-CU130'", "is not a stack", "set stack = 'r580-cu130'"),
    ({"stack": ""}, "''", "is empty", "set e.g. stack ="),
    ({"stack": ["r580-cu130"]}, "['r580-cu130']", "a list, not text", "set e.g. stack ="),
    ({"stack": None}, "None", "nothing (None), not text", "set e.g. stack ="),
    ({"rehearsal": 1}, "1", "a whole number, not True or False", "set rehearsal = True"),
    ({"rehearsal": "no"}, "'no'", "text, not True or False", "set rehearsal = False"),
    ({"rehearsal": None}, "None", "not True or False", "set e.g. rehearsal = True"),
    ({"prefix": "opt/gpu"}, "'opt/gpu'", "relative path", "set e.g. prefix ="),
    ({"prefix": "/"}, "'/'", "others use too", "set e.g. prefix ="),
    ({"prefix": "/usr"}, "'/usr'", "belongs to the system", "set e.g. prefix ="),
    ({"prefix": "/usr/local/"}, "'/usr/local/'", "others use", "prefix = '/usr/local/pyinfra-gpu'"),
    ({"prefix": "/home/ada"}, "'/home/ada'", "others use", "prefix = '/home/ada/pyinfra-gpu'"),
    ({"prefix": "/var/lib/dpkg/gpu"}, "'/var/lib/dpkg/gpu'", "is in /var/lib/dpkg", "set e.g. prefix ="),
    ({"prefix": "/opt/../etc"}, "'/opt/../etc'", "hides where it points", "set e.g. prefix ="),
    ({"prefix": "/opt/gpu\n"}, "'/opt/gpu\\n'", "line break", "set e.g. prefix ="),
    ({"prefix": "~/gpu"}, "'~/gpu'", "relative path", "set e.g. prefix ="),
    ({"prefix": "/opt/a;b"}, "'/opt/a;b'", "reads specially", "set e.g. prefix ="),
    ({"prefix": "/opt/" + "x" * 200}, "'/opt/xxxx", "205 characters long", "set e.g. prefix ="),
    ({"prefix": 5}, "5", "a whole number, not text", "prefix = '5'"),
    ({"owner": "ada lovelace"}, "'ada lovelace'", "another form", "set e.g. owner"),
    ({"owner": 1000}, "1000", "a whole number, not text", "put it in quotes"),
    ({"privilege": "none", "owner": "ada"}, "'ada'", "privilege = 'none'", "remove owner"),
    ({"prefix": "/root/x", "owner": "ada"}, "'ada'", "enter /root", "prefix = '/opt/pyinfra-gpu'"),
    ({"privilege": "root"}, "'root'", "not one of", "set e.g. privilege = 'none'"),
    ({"privilege": True}, "True", "a yes/no value, not text", "set e.g. privilege = 'none'"),
    # preflight
    ({"gpu_model": "RTX5090"}, "'RTX5090'", "not a GPU", "set gpu_model = 'RTX 5090'"),
    ({"gpu_model": "GTX 1080"}, "'GTX 1080'", "not a GPU", "set gpu_model = 'GTX 1080 Ti'"),
    ({"gpu_model": "Radeon"}, "'Radeon'", "not a GPU", "set e.g. gpu_model = 'RTX 5090'"),
    ({"gpu_count": 17}, "17", "too large", "set gpu_count = 16"),
    ({"gpu_count": -1}, "-1", "too small", "set gpu_count = 0"),
    ({"gpu_count": "2"}, "'2'", "text, not a whole number", "set gpu_count = 2"),
    ({"gpu_count": True}, "True", "a yes/no value, not a whole", "set e.g. gpu_count = 4"),
    ({"gpu_count": 2.0}, "2.0", "a decimal point, not a whole", "set gpu_count = 2"),
    ({"preflight_min_disk_gib": -1}, "-1", "too small", "set e.g. preflight_min_disk_gib = 40"),
    ({"preflight_min_disk_gib": float("nan")}, "nan", "not a number", "set e.g. preflight_min"),
    ({"preflight_min_ram_gib": float("inf")}, "inf", "too large", "set e.g. preflight_min_ram"),
    ({"preflight_min_ram_gib": True}, "True", "not a number", "set e.g. preflight_min_ram_gib = 64"),
    ({"preflight_min_ram_gib": "64"}, "'64'", "text, not a number", "set e.g. preflight_min_ram"),
    # driver and cuda
    ({"driver_branch": 581}, "581", "not a known driver branch", "set driver_branch = 580"),
    ({"driver_branch": "580"}, "'580'", "not a whole number", "set driver_branch = 580"),
    ({"driver_branch": 580.95}, "580.95", "not a whole number", "set e.g. driver_branch = 595"),
    ({"driver_modules": "Open"}, "'Open'", "not one of", "set driver_modules = 'open'"),
    ({"cuda_release": 13.0}, "13.0", "a decimal point, not text", "cuda_release = '13.0'"),
    ({"cuda_release": "13"}, "'13'", "not a CUDA release", "set cuda_release = '13."),
    ({"cuda_release": "11.8"}, "'11.8'", "not a CUDA release", "set "),
    ({"host_compiler": "gcc"}, "'gcc'", "another form", "set e.g. host_compiler"),
    ({"stack": "cpu-torch2.13", "gpu_model": "T4"}, "'T4'", "not read", "remove gpu_model"),
    ({"driver_version": "580"}, "'580'", "another form", "set e.g. driver_version"),
    ({"driver_version": 580.95}, "580.95", "not text", "put it in quotes"),
    ({"driver_version": "595.71.05"}, "'595.71.05'", "not a version of branch 580", "driver_branch = 595"),
    ({"driver_version": "999.71.05"}, "'999.71.05'", "not a version of branch", "driver_version = None"),
    ({"driver_version": "580.65.05"}, "'580.65.05'", "too old for CUDA 13.0", "driver_version = None"),
    ({"driver_repository_url": "mirror.org/cuda"}, "'mirror.org/cuda'", "not an http", "set e.g. dri"),
    ({"driver_repository_url": "https://h/{codename}"}, "'https://h/{codename}'", "placeholder", "e.g."),
    ({"driver_repository_url": "https://{distro}/x"}, "'https://{distro}/x'", "host name", "set e.g."),
    ({"driver_repository_url": "https://h/a b"}, "'https://h/a b'", "a space", "set e.g. driver_rep"),
    ({"driver_repository_url": "https://h/a'b"}, '"https://h/a\'b"', "apt reads", "set e.g. driver_r"),
    ({"driver_repository_url": "https://h/a?x=1"}, "'https://h/a?x=1'", "? or # part", "set e.g. dri"),
    ({"driver_repository_url": "https://me:pw@h/s"}, "'https://***@h/s'", "in logs", "auth.conf.d"),
    ({"driver_repository_url": "https:///s"}, "'https:///s'", "names no host", "set e.g. driver_rep"),
    ({"driver_repository_url": ["https://h/s"]}, "['https://h/s']", "not text", "set e.g. driver_rep"),
    ({"driver_key_fingerprint": "3bf863cc"}, "'3bf863cc'", "another form", "set e.g. driver_key_fingerprint"),
    ({"driver_keyring_sha256": "a" * 40}, "'aaaa", "another form", "set e.g. driver_keyring_sha256"),
    ({"driver_hold": "yes"}, "'yes'", "not True or False", "set driver_hold = True"),
    ({"driver_persistence": 0}, "0", "not True or False", "set driver_persistence = False"),
    ({"cuda_version": "13.0"}, "'13.0'", "another form", "set e.g. cuda_version"),
    ({"cuda_version": "13.2.1"}, "'13.2.1'", "not a version of CUDA 13.0", "cuda_release = '13.2'"),
    ({"cuda_version": "13.9.1"}, "'13.9.1'", "not a version of CUDA 13.0", "cuda_version = None"),
    ({"cuda_archs": "12.0"}, "'12.0'", "text, not a list", "set cuda_archs = ['12.0']"),
    ({"cuda_archs": {"12.0": 1}}, "{'12.0': 1}", "a dict, not a list", "set e.g. cuda_archs = ['12.0']"),
    ({"cuda_archs": [12.0]}, "[12.0]", "decimal point, not text", "quotes, cuda_archs = ['12.0']"),
    ({"cuda_archs": ["sm_120"]}, "['sm_120']", "not a compute capability", "set cuda_archs = ['12.0']"),
    ({"cuda_archs": ["90a"]}, "['90a']", "not a compute capability", "set cuda_archs = ['9.0']"),
    ({"cuda_archs": ["Blackwell"]}, "['Blackwell']", "'Blackwell', which is not", "set e.g. cuda_archs"),
    ({"cuda_archs": ["12.0", "7.0"]}, "['7.0', '12.0']", "7.0, for which CUDA 13.0", "cuda_archs = ['12.0']"),
    ({"cuda_archs": ["5.0", "10.9"]}, "['5.0', '10.9']", "5.0, 10.9, for", "set cuda_archs = None"),
    ({"cuda_toolkit": False, "cuda_version": "13.0.3"}, "'13.0.3'", "needs a toolkit", "cuda_toolkit = True"),
    ({"cuda_toolkit": False, "cuda_archs": ["12.0"]}, "['12.0']", "needs a toolkit", "remove cuda_archs"),
    ({"privilege": "none", "libcuda_toolkit_link": True}, "True", "outside prefix", "privilege = 'sudo'"),
    # packages
    ({"packages_extra": "tmux, htop"}, "'tmux, htop'", "text, not a list", "= ['tmux', 'htop']"),
    ({"packages_extra": {"tmux"}}, "{'tmux'}", "a set, not a list", "set e.g. packages_extra ="),
    ({"packages_extra": ["tmux", 7]}, "['tmux', 7]", "holds a whole number", "put each in quotes"),
    ({"packages_extra": ["tmux=3.3"]}, "['tmux=3.3']", "name of a package alone", "set e.g. pack"),
    ({"packages_extra": ["sudo-"]}, "['sudo-']", "name of a package alone", "set e.g. packages_ex"),
    ({"packages_extra": ["nvidia-driver"]}, "['nvidia-driver']", "stages of their", "remove 'nvidia-"),
    ({"packages_extra": ["libcuda1"]}, "['libcuda1']", "stages of their own", "remove 'libcuda1'"),
    ({"privilege": "none", "packages_extra": ["tmux"]}, "['tmux']", "privilege = 'none'", "remove pack"),
    # pytorch
    ({"pytorch_source": "nightly", "pytorch_version": "2.14.1"}, "'2.14.1'", "names no nightly", "'2.14.1.dev20261120', with"),
    ({"pytorch_fallback": "2.13.0"}, "'2.13.0'", "not read with pytorch_source = 'wheel'", "remove"),
    ({**NIGHTLY, "pytorch_fallback": "2.99.0"}, "'2.99.0'", "is no release of which", "set pytorch_fallback = '2."),
    ({**NIGHTLY, "pytorch_fallback": "2.16.0.dev20261119"}, "'2.16.0.dev", "another form", "set e.g. pytorch_fallback"),
    ({**SOURCE, "pytorch_version": "2.13.0", "pytorch_fallback": "2.13.0"}, "'2.13.0'", "called too", "another"),
    ({**NIGHTLY, "pytorch_lock": "required", "pytorch_fallback": "2.12.0"}, "'2.12.0'", "without a lock", "remove pyt"),
    ({**NIGHTLY, "pytorch_wheels": "/srv/w"}, "'/srv/w'", "not asked for a nightly", "remove pytorch_wh"),
    ({**NIGHTLY, "pytorch_commit": COMMIT}, f"'{COMMIT}'", "with pytorch_source = 'nightly'", "remove"),
    ({**NIGHTLY, "pytorch_source": "wheel"}, "'2.16.0.dev20261120'", "is a nightly", "= 'nightly'"),
    ({**NIGHTLY, "pytorch_version": "2.16.0.dev1"}, "'2.16.0.dev1'", "another form", "set e.g. pytorch_version"),
    ({"pytorch_source": "source"}, "'source'", "does not say from what", "set pytorch_git_url and"),
    ({"pytorch_commit": "main"}, "'main'", "another form", "ls-remote"),
    ({"pytorch_git_url": GIT}, f"'{GIT}'", "not read with pytorch_source = 'wheel'", "remove pytorch_git"),
    ({"pytorch_builder": "ws1"}, "'ws1'", "not read with", "set pytorch_source = 'source'"),
    ({"pytorch_source": "source", "pytorch_git_url": GIT}, f"'{GIT}'", "without pytorch_commit", "too"),
    ({**SOURCE, "cuda_toolkit": False}, "False", "needs nvcc", "set cuda_toolkit = True"),
    ({**SOURCE, "privilege": "none"}, "'none'", "needs nvcc", "set cuda_toolkit = True"),
    ({"gpu_model": None, **GIT_SOURCE, "pytorch_source": "source"}, "'source'", "for which GPUs", "['12.0']"),
    ({**CPU_SOURCE, "pytorch_archs": ["12.0"]}, "['12.0']", "with the cpu stack", "remove pytorch_archs"),
    ({**SOURCE, "pytorch_archs": "12.0"}, "'12.0'", "is text", "set pytorch_archs = ['12.0']"),
    ({**SOURCE, "pytorch_archs": ["5.0"]}, "['5.0']", "CUDA 13.0 makes no code", "set pytorch_archs"),
    ({**SOURCE, "pytorch_flags": ["USE_MKLDNN"]}, "['USE_MKLDNN']", "not a dict", "set e.g. pytorch_fl"),
    ({**SOURCE, "pytorch_flags": {"use": 1}}, "{'use': 1}", "not the name of an option", "set e.g."),
    ({**SOURCE, "pytorch_flags": {"BLAS": 3}}, "{'BLAS': 3}", "a whole number", "set e.g."),
    ({**SOURCE, "pytorch_flags": {"USE_LIBUV": 1}}, "{'USE_LIBUV': 1}", "no effect", "remove USE_LIBUV"),
    ({**SOURCE, "pytorch_flags": {"CUDA_ARCH_LIST": "12.0"}}, "{'CUDA", "no effect", "set pytorch_archs"),
    ({**SOURCE, "pytorch_flags": {"MAX_JOBS": "4"}}, "{'MAX_JOBS'", "is what", "pytorch_build_memory_gib"),
    ({**SOURCE, "pytorch_flags": {"USE_TENSORPIPE": 0}}, "{'USE_TE", "has no libuv", "remove USE_TENS"),
    ({**SOURCE, "pytorch_flags": {"USE_SYSTEM_LIBS": "ON"}}, "{'USE_SYS", "has no libuv", "remove USE_SYS"),
    ({**SOURCE, "pytorch_flags": {"USE_CUDA": 0}}, "{'USE_CUDA': 0}", "contradicts the stack", "remove"),
    ({**SOURCE, "cuda_release": "13.2", "pytorch_build": "cu130"}, "'cu130'", "would be built with CUDA 13.2", "'cu132'"),
    ({"pytorch_version": "2.16.0.dev20261101"}, "'2.16.0.dev20261101'", "is a nightly", "set pytorch_source"),
    ({"pytorch_version": 2.14}, "2.14", "not text", "pytorch_version=\"2.14\""),
    ({"pytorch_build": "13.0"}, "'13.0'", "another form", "set e.g. pytorch_build"),
    ({"pytorch_wheels": "wheels"}, "'wheels'", "neither a URL nor", "set e.g. pytorch_wheels ="),
    ({"pytorch_wheels": "/srv/../w"}, "'/srv/../w'", "plain characters", "pytorch_wheels = '/srv/w"),
    ({"pytorch_wheels": "file:///w"}, "'file:///w'", "not a path", "set pytorch_wheels = '/w'"),
    ({"pytorch_wheels": "ftp://h/w"}, "'ftp://h/w'", "not an http", "set e.g. pytorch_wheels ="),
    ({"pytorch_lock": True}, "True", "not", "set e.g. pytorch_lock ="),
    ({"pytorch_lock": "requierd"}, "'requierd'", "", "set pytorch_lock = 'required'"),
    ({"pytorch_python": "2.7"}, "'2.7'", "another form", "set e.g. pytorch_python"),
    ({"pytorch_index_url": "https://h:x/"}, "'https://h:x/'", "not a URL", "set e.g. pytorch_index"),
    ({"pytorch_index_url": "https://h/#x"}, "'https://h/#x'", "# part", "set e.g. pytorch_index_url"),
    ({"pytorch_index_url": "file://x/y"}, "'file://x/y'", "absolute path", "file:///ABSOLUTE"),
    ({"pytorch_extra_index_url": "https://me:pw@h/s"}, "'https://***@h/s'", "in logs", "~/.netrc"),
    ({"pytorch_extra_index_url": "https://h/?token=abc"}, "'https://h/?token=***'", "logs", "~/.netrc"),
    # environment
    ({"environment_name": "My Env"}, "'My Env'", "another form", "set e.g. environment_name"),
    ({"environment_variables": ["A=1"]}, "(not shown, it may", "a list, not a dict", "set e.g. environment_var"),
    ({"environment_variables": {"A": 1}}, "{'A': ...}", "gives A a whole number", "quotes, 'A': 'TEXT'"),
    ({"environment_variables": {"A": True}}, "{'A': ...}", "gives A a yes/no", "quotes, 'A': 'TEXT'"),
    ({"environment_variables": {"A": None}}, "{'A': ...}", "nothing (None)", "quotes, 'A': 'TEXT'"),
    ({"environment_variables": {"1A": "x"}}, "{'1A': ...}", "not letters, digits", "rename or remove"),
    ({"environment_variables": {"A B": "x"}}, "{(no name): ...}", "not letters, digits", "rename or remove"),
    ({"environment_variables": {3: "x"}}, "{(no name): ...}", "in its entry 1", "rename or remove"),
    ({"environment_variables": {"A": "x\x00"}}, "{'A': ...}", "NUL", "on one line"),
    ({"environment_variables": {"A": "\ud800"}}, "{'A': ...}", "cannot hold", "on one line"),
    ({"environment_variables": {"A": "x" * 4097}}, "{'A': ...}", "4097 characters", "into a file"),
    ({"environment_variables": {"HF_TOKEN": "s3cr3t\n"}}, "{'HF_TOKEN': ...}", "break", "on one line"),
    (
        {"environment_variables": {"PYTORCH_ALLOC_CONF": "a", "PYTORCH_CUDA_ALLOC_CONF": "b"}},
        "{'PYTORCH_ALLOC_CONF'", "reads only the first", "remove one of the two",
    ),
    (
        {"environment_variables": {"TORCHDYNAMO_SUPPRESS_ERRORS": "0"}},
        "{'TORCHDYNAMO_SUPPRESS_ERRORS': ...}", "switches it on", "remove TORCHDYNAMO",
    ),
    (
        {"environment_variables": {"TRITON_LIBCUDA_PATH": "/usr/local/cuda/lib64/stubs"}},
        "{'TRITON_LIBCUDA_PATH'", "not the driver's", "remove TRITON_LIBCUDA_PATH",
    ),
    # training
    ({"training_repo": REPO}, f"'{REPO}'", "without training_commit", f"`git ls-remote {REPO} main`"),
    ({"training_commit": COMMIT}, f"'{COMMIT}'", "without training_repo", "set training_repo"),
    ({"training_requirements": "r.txt"}, "'r.txt'", "without training_repo", "set training_repo"),
    ({"training_commit": "v1.0"}, "'v1.0'", "another form", "ls-remote"),
    ({"training_commit": COMMIT, "training_repo": "--upload-pack=x"}, "'--upload", "a dash", "set e.g."),
    ({"training_commit": COMMIT, "training_repo": "ext::sh -c x"}, "'ext::sh", "a program for git", "set e.g."),
    ({"training_commit": COMMIT, "training_repo": "/srv/r.git"}, "'/srv/", "path", "'file:///srv/r.git'"),
    ({"training_commit": COMMIT, "training_repo": "../r"}, "'../r'", "not a git URL", "set e.g. training"),
    ({"training_commit": COMMIT, "training_repo": "github.com/a/b"}, "'git", "scheme", "'https://github"),
    ({"training_commit": COMMIT, "training_repo": "a:"}, "'a:'", "not a git URL", "set e.g."),
    ({"training_commit": COMMIT, "training_repo": "ftp://h/r"}, "'ftp://h/r'", "not an https", "set e.g."),
    ({"training_commit": COMMIT, "training_repo": "https://h"}, "'https://h'", "no repository", "set e.g."),
    ({"training_commit": COMMIT, "training_repo": "ssh://-oX=y/r"}, "'ssh://-o", "no host", "set e.g."),
    ({"training_commit": COMMIT, "training_repo": "file://r"}, "'file://r'", "absolute", "file:///ABS"),
    ({"training_commit": COMMIT, "training_repo": "https://u:pw@h/r"}, "'https://***@", "logs", "SSH key"),
    ({"training_commit": COMMIT, "training_repo": "https://ghp_x@h/r"}, HIDDEN, "logs", "SSH key"),
    ({"training_requirements": "/r.txt"}, "'/r.txt'", "absolute", "training_requirements = 'r.txt'"),
    ({"training_requirements": "../r.txt"}, "'../r.txt'", "out of the repo", "set e.g. training_req"),
    ({"training_requirements": "-r.txt"}, "'-r.txt'", "a dash", "set e.g. training_requirements"),
    ({"training_requirements": "setup.py"}, "'setup.py'", "neither", "set e.g. training_requirements"),
    ({"training_requirements": "a b.txt"}, "'a b.txt'", "shell", "set e.g. training_requirements"),
    # smoke
    ({"smoke_allreduce_mib": 65}, "65", "not a power of two", "set smoke_allreduce_mib = 64"),
    ({"smoke_across_hosts": "my hosts"}, "'my hosts'", "nor the name of a group", "set e.g."),
    ({"smoke_across_address": "ws1"}, "'ws1'", "not an IP address", "set e.g. smoke_across_address"),
    ({"smoke_across_address": "127.0.0.1"}, "'127.0.0.1'", "can reach", "set e.g."),
    # one from compatibility: it comes the same way
    ({"gpu_model": "RTX 5090", "pytorch_build": "cu126"}, "'cu126'", "no code for RTX 5090", "'cu130'"),
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


def test_there_are_enough_wrong_data_cases_and_none_twice() -> None:
    assert len({str(case[0]) for case in WRONG}) == len(WRONG) >= 60


@pytest.mark.parametrize("name", sorted(FORBIDDEN))
def test_a_forbidden_variable_is_refused_with_its_own_reason(name: str) -> None:
    message = refusal({"environment_variables": {name: "1"}})
    assert f"sets {name}, which is not written because {FORBIDDEN[name]}" in message
    assert message.endswith(f"fix: remove {name} from it")


def test_the_forbidden_variables_are_at_least_those_that_break_torchrun() -> None:
    ranks = {"WORLD_SIZE", "RANK", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT"}
    idle = {"USE_LIBUV", "TORCHELASTIC_USE_AGENT_STORE", "TORCH_COMPILE"}
    assert ranks | idle | {"LD_LIBRARY_PATH", "PYTHONPATH", "NCCL_ALGO"} <= set(FORBIDDEN)


@pytest.mark.parametrize(
    "data",
    [
        {"wandb_api_key": "tops3cret"},
        {"git_password": "tops3cret"},
        {"training_repo": "https://me:tops3cret@github.com/a/b"},
        {"training_repo": "https://tops3cret@github.com/a/b"},
        {"training_repo": "https://github.com/a/b?access_token=tops3cret"},
        {"training_repo": "https://me:tops3cret@h/r", "training_commit": "main"},
        {"training_commit": "main", "training_repo": "https://me:tops3cret@h/r"},
        {"pytorch_index_url": "https://me:tops3cret@mirror/simple"},
        {"driver_repository_url": "https://me:tops3cret@mirror/{distro}/{arch}"},
        {"driver_repository_url": "https://mirror/{distro}?token=tops3cret"},
        {"environment_variables": {"HF_TOKEN": "tops3cret\n"}},
        {"environment_variables": {"HF_TOKEN": ["tops3cret"]}},
        {"environment_variables": {"WANDB_API_KEY": "tops3cret", "RANK": "0"}},
        {"pytorch": {"index_password": "tops3cret"}},
        {"environment_variables": "HF_WHAT=tops3cret"},
        {"environment_variables": '{"WHAT": "tops3cret'},
        {"environment_variables": ["tops3cret"]},
        {"environment_variables": {"WHAT": ["tops3cret"]}},
        {"environment_variables": {"WHAT": {"tops3cret": 1}}},
        {"environment_variables": {"A=tops3cret": "x"}},
        {"environment_variables": {"tops3cret more": "x"}},
        {"environment_variables": {("TOKEN", "tops3cret"): "x"}},
        {"environment_variables": {"TRITON_LIBCUDA_PATH": "/tops3cret/stubs"}},
        {"environment": {"T": "tops3cret"}},
        {"environment": {"variables": {"T": "tops3cret"}}},
        {"environment": "T=tops3cret"},
        {"Environment_Variables": {"T": "tops3cret"}},
        {"Environment_Variables": "T=tops3cret"},
        {"environment_variabels": ["tops3cret"]},
        {"settings": {"T": "tops3cret"}},
        {"settings": [["tops3cret"]]},
        {"packages_extra": "--token=tops3cret"},
        {"training": {"presets": {"t": {"words": ["tops3cret"]}}}},
        {"training_presets": {"t": {"arguments": {"api-key": "hunter2tops3cret"}, "file": "t.py"}}},
        {"training_presets": {"t": {"words": ["--token=hunter2tops3cret"], "file": "t.py"}}},
        {"training_presets": {"t": {"words": "tops3cret", "file": "t.py"}}},
        {"training_presets": {"t": {"arguments": {"key=tops3cret": 1}, "file": "t.py"}}},
        {"training_presets": {"t": {"token=tops3cret": 1}}},
        {"training_presets": ["tops3cret"]},
        {"training_notify": ["token=tops3cret"]},
        {"training_repo": "me:tops3cret@github.com:a/b"},
        {"pytorch_index_url": "me:tops3cret@mirror/simple"},
        {"packages_extra": "https://me:tops3cret@mirror/simple"},
        {"note": "-----BEGIN OPENSSH PRIVATE KEY----- tops3cret"},
    ],
    ids=str,
)
def test_a_secret_is_never_printed(data: dict[str, object]) -> None:
    assert "tops3cret" not in refusal(data)


@pytest.mark.parametrize("value", [12345678, 1234.5678, True])
def test_a_variable_that_is_no_text_is_not_shown(value: object) -> None:
    assert str(value) not in refusal({"environment_variables": {"A": value}})


def test_a_value_whose_repr_fails_is_still_one_sentence() -> None:
    class Broken:
        def __repr__(self) -> str:
            raise RuntimeError("no")

    assert refusal({"gpu_count": Broken()}).startswith("host lab-1: gpu_count = <Broken> is Broken")


def test_a_long_value_is_shortened_to_60_characters() -> None:
    message = refusal({"gpu_model": "x" * 500})
    shown = message.removeprefix("host lab-1: gpu_model = ").partition(" is not")[0]
    assert len(shown) == 60
    assert shown.endswith("...")


def test_a_value_of_exactly_60_characters_is_shown_whole() -> None:
    value = "x" * 58
    assert refusal({"gpu_model": value}).startswith(f"host lab-1: gpu_model = '{value}' is not")


def test_few_allowed_names_are_listed_and_many_are_described() -> None:
    assert "; allowed: r580-cu130, r580-cu128, " in refusal({"stack": "x"})
    assert "; allowed: the name of a GPU in stacks.yaml" in refusal({"gpu_model": "x"})


def test_a_host_name_with_a_line_break_does_not_break_the_line() -> None:
    with pytest.raises(SpecError) as caught:
        resolve({"gpu_count": 99}, "lab\n1")
    assert str(caught.value).startswith("host lab 1: gpu_count = 99 ")


def test_a_layer_of_data_is_checked_by_itself_and_named_in_the_error() -> None:
    assert check_data({"training_commit": COMMIT, "ssh_user": "ada"}, "group_data/gpu.py") == {
        "training_commit": COMMIT
    }
    with pytest.raises(SpecError) as caught:
        check_data({"smoke_ranks": 1}, "group_data/gpu.py")
    assert str(caught.value).startswith(
        "group_data/gpu.py: smoke_ranks = 1 is too small; allowed: "
    )
