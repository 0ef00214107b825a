"""The compatibility data: what it says, and that a malformed file is one sentence."""

from __future__ import annotations

import re
from itertools import product
from pathlib import Path
from typing import Literal

import pytest
from packaging.version import Version
from product_code import attributes_read
from pydantic import ValidationError
from pyinfra.api.exceptions import DeployError

from pyinfra_gpu import stacks
from pyinfra_gpu.compatibility import resolve
from pyinfra_gpu.spec import KEYS, SpecError
from pyinfra_gpu.stacks import StacksError, catalogue
from pyinfra_gpu.stacks.model import Entry

TEXT = stacks.STACKS_FILE.read_text(encoding="utf-8")
KNOWN = catalogue()

# What to change in the file, and what the sentence must say of it.
MALFORMED = [
    ('cuda: "13.0"', "cuda: 13.0", "stacks.r580-cu130.cuda: Input should be a valid string"),
    ('cuda: "13.0"', 'cuda: "13.9"', "stacks.r580-cu130.cuda = '13.9' is none of 12.6, 12.8"),
    ('    cuda: "13.0"\n', "", "stacks.r580-cu130.cuda: Field required"),
    ('cuda: "13.0"\n', 'cuda: "13.0"\n    colour: red\n', "r580-cu130.colour: Extra inputs"),
    ('cuda: "13.0"', "cuda: null", "stacks.r580-cu130: driver and cuda belong to an nvidia stack"),
    ("accelerator: cpu", "accelerator: tpu", "'nvidia' or 'cpu'"),
    ("branch: 580,", 'branch: "580",', "driver.branch: Input should be a valid integer"),
    ("branch: 580,", "branch: 581,", "driver.branch = 581 is none of 535, 550"),
    ('version: "2.14.1"', 'version: "newest"', "torch.version: String should match pattern"),
    ("build: cu130,", "build: cu999,", "r580-cu130.torch.build = 'cu999' is none of cpu, cu126"),
    ("default_stack: r580-cu130", "default_stack: r580", "default_stack = 'r580' is none of r580"),
    ("bounds: card", "bounds: cart", "RTX 5090.figures = 'cart' is none of card, server"),
    ('key_fingerprint: "0218', 'key_fingerprint: "0x18', "debian 13.key_fingerprint: String"),
    ("dkms-{branch}-open", "dkms {branch}", "rules.0.open.compute.1: String should match"),
    ("    debian 12: {", "    debian_12: {", "repositories.releases.debian_12.[key]: String"),
    ("stacks:\n", "stacks: [\n", "line"),
    (TEXT, "", "Input should be a valid dictionary"),
]


@pytest.mark.parametrize(("old", "new", "says"), MALFORMED, ids=[case[1] for case in MALFORMED])
def test_a_malformed_file_is_one_sentence_with_the_place(
    old: str, new: str, says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert old in TEXT
    file = tmp_path / "stacks.yaml"
    file.write_text(TEXT.replace(old, new, 1), encoding="utf-8")
    monkeypatch.setattr(stacks, "STACKS_FILE", file)
    with pytest.raises(StacksError) as caught:
        catalogue.__wrapped__()
    message = str(caught.value)
    assert message.isprintable()
    assert message.startswith(f"{file}: ")
    assert message.endswith("; correct the file")
    assert says in message


def test_a_file_that_cannot_be_read_is_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    latin = tmp_path / "latin.yaml"
    latin.write_bytes(b"\xe9")
    for file in (tmp_path / "absent.yaml", latin):
        monkeypatch.setattr(stacks, "STACKS_FILE", file)
        with pytest.raises(StacksError, match=f"^{file}: "):
            catalogue.__wrapped__()


def test_no_entry_is_given_twice() -> None:
    """YAML's reader passes over the first of two."""
    for section in re.split(r"^(?=\w+:)", TEXT, flags=re.MULTILINE)[1:]:
        names = re.findall(r"^  (\S.*?):", section, re.MULTILINE)
        assert sorted(names) == sorted(set(names)), section[:20]


def test_the_catalogue_is_read_once_and_cannot_be_changed() -> None:
    assert issubclass(StacksError, DeployError)
    assert catalogue() is catalogue()
    with pytest.raises(TypeError):
        catalogue().stacks["mine"] = None  # type: ignore[index]
    with pytest.raises(ValidationError):
        catalogue().default_stack = "mine"  # type: ignore[misc]


def test_the_documented_default_stack_is_the_one_of_the_data() -> None:
    assert KEYS["stack"].default == KNOWN.default_stack == "r580-cu130"


@pytest.mark.parametrize("name", KNOWN.stacks)
def test_every_stack_works_as_it_is(name: str) -> None:
    spec = resolve({"stack": name}, "h")
    assert spec.pytorch.version == KNOWN.stacks[name].torch.version
    assert spec.pytorch.uv_version == KNOWN.stacks[name].uv


@pytest.mark.parametrize("gpu", KNOWN.gpus)
def test_every_gpu_has_a_stack_that_serves_it(gpu: str) -> None:
    old = KNOWN.gpus[gpu].open_modules == "unsupported"
    data = {"gpu_model": gpu, "driver_modules": "proprietary" if old else "open"}
    works = []
    for name, stack in KNOWN.stacks.items():
        if stack.accelerator == "nvidia":
            try:
                works.append(resolve({**data, "stack": name}, "h").stack)
            except SpecError:
                continue
    assert works
    assert KNOWN.default_stack in works or old


@pytest.mark.parametrize("name", [n for n, s in KNOWN.stacks.items() if s.driver])
def test_a_stacks_driver_belongs_to_its_branch_and_can_run_its_cuda(name: str) -> None:
    stack = KNOWN.stacks[name]
    assert stack.driver is not None
    minimum = Version(stack.driver.minimum)
    assert minimum.major == stack.driver.branch
    assert Version(KNOWN.cuda[str(stack.cuda)].minimum_driver) <= minimum


def test_pci_ids_are_given_where_all_that_a_model_has_are_known() -> None:
    """Each was seen on a real one, or is in NVIDIA's table or the PCI ID database: a missing one
    refuses a host.
    """
    ids = {gpu.name: gpu.pci_ids for gpu in KNOWN.gpus.values() if gpu.pci_ids}
    assert ids == {
        "RTX 5090": ("10de:2b85",),
        "RTX 5090 D": ("10de:2b87",),
        "RTX 5090 D v2": ("10de:2b8c",),
        "RTX 5080": ("10de:2c02",),
        "RTX 5070 Ti": ("10de:2c05",),
        "RTX 5070": ("10de:2f04",),
        "RTX 5060 Ti": ("10de:2d04",),
        "RTX PRO 6000 Blackwell": ("10de:2bb1", "10de:2bb4", "10de:2bb5"),
        "L40S": ("10de:26b9",),
        "RTX 4090": ("10de:2684",),
        "RTX 3090": ("10de:2204",),
        "B200": ("10de:2901",),
        "H200": ("10de:2335", "10de:233b"),
        "GTX 1080 Ti": ("10de:1b06",),
    }


def test_each_kind_of_gpu_is_known_by_one_model_alone() -> None:
    names = {
        "NVIDIA GeForce RTX 5090": "RTX 5090",
        "NVIDIA GeForce RTX 5090 D": "RTX 5090 D",
        "NVIDIA GeForce RTX 5090 D v2": "RTX 5090 D v2",
        "NVIDIA GeForce RTX 4090": "RTX 4090",
        "NVIDIA GeForce RTX 3090": "RTX 3090",
        "NVIDIA B200": "B200",
        "NVIDIA H100 80GB HBM3": "H100",
        "NVIDIA H100 PCIe": "H100",
        "NVIDIA H200": "H200",
        "NVIDIA H200 NVL": "H200",
        "NVIDIA L4": "L4",
        "NVIDIA L40S": "L40S",
        "NVIDIA A100-SXM4-80GB": "A100",
        "NVIDIA A100-PCIE-40GB": "A100",
    }
    for name, model in names.items():
        patterns = {gpu.name: [f.pattern for f in gpu.figures] for gpu in KNOWN.gpus.values()}
        known = [one for one, all_ in patterns.items() if any(re.search(p, name) for p in all_)]
        assert known == [model], name
    assert {gpu.name for gpu in KNOWN.gpus.values() if gpu.figures} == set(names.values())


@pytest.mark.parametrize("release", KNOWN.torch.values(), ids=lambda r: r.version)
def test_each_torch_release_is_coherent(release: stacks.TorchRelease) -> None:
    oldest, newest = (Version(python) for python in release.python)
    assert oldest < newest
    assert "cpu" in release.builds
    assert set(release.pypi) == {"x86_64", "aarch64"}
    assert set(release.pypi.values()) <= set(release.builds)


@pytest.mark.parametrize("branch", KNOWN.driver_branches.values(), ids=lambda b: str(b.branch))
def test_each_driver_branch_is_coherent(branch: stacks.DriverBranch) -> None:
    assert "open" in branch.modules
    assert ("proprietary" in branch.modules) == (branch.branch < 615)
    assert (branch.oldest == "5.0") == (branch.branch <= 580)
    assert (branch.newest is None) == (branch.branch >= 570)
    for release in KNOWN.cuda.values():
        if release.release == branch.cuda and release.toolkit_drivers:
            assert {Version(d).major for d in release.toolkit_drivers.values()} == {branch.branch}


@pytest.mark.parametrize(
    ("system", "distro", "key"),
    [
        (("ubuntu", "22.04"), "ubuntu2204", "3BF863CC"),
        (("ubuntu", "24.04"), "ubuntu2404", "3BF863CC"),
        (("ubuntu", "26.04"), "ubuntu2604", "3BF863CC"),
        (("debian", "12"), "debian12", "3BF863CC"),
        (("debian", "13"), "debian13", "8793F200"),
        (("debian", "11"), None, ""),
        (("debian", "13.1"), None, ""),
        (("fedora", "43"), None, ""),
    ],
)
def test_each_supported_release_has_its_own_repository_and_the_key_that_signs_it(
    system: tuple[str, str], distro: str | None, key: str
) -> None:
    repository = KNOWN.repository(*system)
    assert (repository.distro if repository else None) == distro
    assert (system[1] in KNOWN.supported_releases().get(system[0], ())) == bool(distro)
    if repository is not None:
        assert repository.key_fingerprint.endswith(key)
        assert system[0] in KNOWN.distributions


def test_a_machine_that_nvidia_has_nothing_for_has_no_repository() -> None:
    machines = ("x86_64", "aarch64", "riscv64")
    assert [KNOWN.repository_arch(machine) for machine in machines] == ["x86_64", "sbsa", None]


FIELDS = sorted({(e.__name__, f) for e in Entry.__subclasses__() for f in e.model_fields})


def test_every_field_of_the_data_is_read_by_the_product() -> None:
    unread = [f"{entry}.{field}" for entry, field in FIELDS if field not in attributes_read()]
    assert unread == []  # use it, or take it out of stacks.yaml


def test_every_supported_release_carries_a_whole_stack() -> None:
    """What is refused on one for its driver or toolkit names the stack that works there."""
    for repository in KNOWN.repositories.releases.values():
        assert any(
            repository.carries(stack.driver.branch) and repository.carries_toolkit(stack.cuda)
            for stack in KNOWN.stacks.values()
            if stack.driver is not None and stack.cuda is not None
        ), repository.distro


def test_ranges_patterns_and_keyring_packages_are_sound() -> None:
    repositories = KNOWN.repositories.releases.values()
    assert len({each.keyring_sha256 for each in repositories}) == len(repositories) == 5
    ranges = [each.branches for each in repositories]
    ranges += [rule.branches for each in KNOWN.distributions.values() for rule in each.rules]
    ranges += [each for cuda in KNOWN.cuda.values() for each in (cuda.gcc, cuda.clang) if each]
    assert all(highest is None or lowest <= highest for lowest, highest in ranges)
    for gpu in KNOWN.gpus.values():
        for figures in gpu.figures:
            re.compile(figures.pattern)
            assert gpu.memory_mib or not figures.memory_as_listed


Packages = tuple[str, ...] | None
PERSISTENCED = "nvidia-persistenced"
UBUNTU_580 = ("libnvidia-compute-580", "nvidia-dkms-580-open", "nvidia-utils-580")


@pytest.mark.parametrize(
    ("system", "branch", "modules", "packages", "names"),
    [
        ("ubuntu", 580, "open", "compute", (*UBUNTU_580, "nvidia-compute-utils-580")),
        ("ubuntu", 580, "open", "full", ("nvidia-driver-580-open",)),
        ("ubuntu", 570, "proprietary", "full", ("nvidia-driver-570",)),
        ("ubuntu", 595, "open", "compute", ("libnvidia-compute", "nvidia-dkms-open", PERSISTENCED)),
        ("ubuntu", 595, "proprietary", "full", ("cuda-drivers",)),
        ("ubuntu", 620, "open", "full", ("nvidia-open",)),
        ("ubuntu", 620, "proprietary", "full", None),
        ("debian", 580, "open", "compute",
         ("nvidia-driver-cuda", "nvidia-kernel-open-dkms", PERSISTENCED)),
        ("debian", 580, "proprietary", "compute",
         ("nvidia-driver-cuda", "nvidia-kernel-dkms", PERSISTENCED)),
        ("debian", 595, "open", "full", ("nvidia-open", PERSISTENCED)),
        ("debian", 550, "open", "compute", None),
        ("debian", 615, "proprietary", "compute", None),
        ("fedora", 580, "open", "compute", None),
    ],
)  # fmt: skip
def test_the_packages_of_a_driver_by_distribution_branch_flavour_and_extent(
    system: str,
    branch: int,
    modules: Literal["open", "proprietary"],
    packages: Literal["compute", "full"],
    names: Packages,
) -> None:
    assert KNOWN.driver_packages(system, branch, modules, packages) == names


@pytest.mark.parametrize("system", KNOWN.distributions)
@pytest.mark.parametrize("branch", KNOWN.driver_branches.values(), ids=lambda b: str(b.branch))
def test_a_branch_has_packages_of_just_the_flavours_it_offers(
    branch: stacks.DriverBranch, system: str
) -> None:
    rules = [rule for rule in KNOWN.distributions[system].rules if rule.covers(branch.branch)]
    assert len(rules) == (0 if (system, branch.branch < 570) == ("debian", True) else 1)
    for rule in rules:
        offered = {name for name in ("open", "proprietary") if getattr(rule, name) is not None}
        assert offered == set(branch.modules)


def test_headers_and_toolkit_packages_follow_their_templates() -> None:
    assert KNOWN.headers_package("debian", "6.1.0-9-amd64") == "linux-headers-6.1.0-9-amd64"
    assert KNOWN.toolkit_package("13.0") == "cuda-toolkit-13-0"
    with pytest.raises(KeyError):
        KNOWN.headers_package("fedora", "6.1.0")


@pytest.mark.parametrize(
    ("gpu", "release"), [*product(KNOWN.gpus.values(), KNOWN.cuda.values())], ids=lambda each: ""
)
def test_default_code_runs_on_the_gpu_or_there_is_none(
    gpu: stacks.Gpu, release: stacks.CudaRelease
) -> None:
    stack = KNOWN.stacks[KNOWN.default_stack]
    archs = KNOWN.default_archs(release.release, gpu.compute_capability, stack, "cu130")
    own = int(gpu.compute_capability.replace(".", ""))
    fitting = [arch for arch in release.archs if arch // 10 == own // 10 and arch <= own]
    assert archs == tuple(fitting[-1:])


SOURCE = re.compile("metadata|wheel|notes|guide|table|release|reported|inferred|nvidia-smi")


@pytest.mark.parametrize(
    "section",
    [
        "wheel_archs", "gpus", "speed_bounds", "driver_branches", "nccl_minimum", "repositories",
        "distributions",
    ],
)  # fmt: skip
def test_each_line_of_facts_names_its_source(section: str) -> None:
    body = TEXT.split(f"\n{section}:\n")[1].split("\n\n")[0].split("\n#")[0]
    lines = [line for line in body.splitlines() if "{" in line or '": "' in line]
    assert lines
    if section == "wheel_archs":
        lines = [line for line in lines if "archs: []" not in line]  # said for the block
    for line in lines:
        assert SOURCE.search(line.partition("#")[2]) or "source: " in line, line
