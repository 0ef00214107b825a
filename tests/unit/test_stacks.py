"""The compatibility data: that it is coherent, what it says of packages, and a malformed file."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Literal

import pytest
from packaging.version import Version
from product_code import attributes_read

from pyinfra_gpu import stacks
from pyinfra_gpu.compatibility import resolve
from pyinfra_gpu.errors import SpecError
from pyinfra_gpu.stacks import Entry, catalogue

TEXT = stacks.STACKS_FILE.read_text(encoding="utf-8")
KNOWN = catalogue()

# What to change in the file, and what the sentence must say of it.
MALFORMED = [
    ('cuda: "13.0"', "cuda: 13.0", "stacks.r580-cu130.cuda: Input should be a valid string"),
    ('    cuda: "13.0"\n', "", "stacks.r580-cu130.cuda: Field required"),
    ('cuda: "13.0"\n', 'cuda: "13.0"\n    colour: red\n', "r580-cu130.colour: Extra inputs"),
    ("branch: 580,", 'branch: "580",', "driver.branch: Input should be a valid integer"),
    ('version: "2.14.1"', 'version: "newest"', "torch.version: String should match pattern"),
    ('key_fingerprint: "0218', 'key_fingerprint: "0x18', "debian 13.key_fingerprint: String"),
    ("stacks:\n", "stacks: [\n", "line"),
    (TEXT, "", "Input should be a valid dictionary"),
]


@pytest.mark.parametrize(("old", "new", "says"), MALFORMED, ids=[case[1] for case in MALFORMED])
def test_a_malformed_file_is_one_sentence_with_the_place(
    old: str, new: str, says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert old in TEXT
    file = tmp_path / "stacks.yaml"
    monkeypatch.setattr(stacks, "STACKS_FILE", file)
    with pytest.raises(SpecError, match=f"^{file}: .*No such file.*; correct the file$"):
        catalogue.__wrapped__()
    file.write_text(TEXT.replace(old, new, 1), encoding="utf-8")
    with pytest.raises(SpecError) as caught:
        catalogue.__wrapped__()
    message = str(caught.value)
    assert message.isprintable()
    assert message.startswith(f"{file}: ")
    assert says in message


def test_each_name_points_at_an_entry() -> None:
    """A typo there would silently switch a check off."""
    assert KNOWN.default_stack in KNOWN.stacks
    for stack in KNOWN.stacks.values():
        assert (stack.driver is None) == (stack.cuda is None) == (stack.accelerator == "cpu")
        assert stack.driver is None or stack.driver.branch in KNOWN.driver_branches
        assert stack.cuda is None or stack.cuda in KNOWN.cuda
        assert stack.torch.build in KNOWN.torch[stack.torch.version].builds
    for torch in KNOWN.torch.values():
        assert {*torch.builds} <= {*KNOWN.wheel_archs}
        assert {*torch.pypi.values()} <= {*torch.builds}
        assert {*torch.pypi} == {"x86_64", "aarch64"}
    for gpu in KNOWN.gpus.values():
        for figures in gpu.figures:
            assert figures.bounds in KNOWN.speed_bounds
    assert {name.split()[0] for name in KNOWN.repositories.releases} == {*KNOWN.distributions}


def test_no_entry_is_given_twice() -> None:
    """YAML's reader passes over the first of two."""
    for section in re.split(r"^(?=\w+:)", TEXT, flags=re.MULTILINE)[1:]:
        names = re.findall(r"^  (\S.*?):", section, re.MULTILINE)
        assert sorted(names) == sorted(set(names)), section[:20]


@pytest.mark.parametrize("name", KNOWN.stacks)
def test_every_stack_works_as_it_is(name: str) -> None:
    spec, stack = resolve({"stack": name}, "h"), KNOWN.stacks[name]
    assert (spec.pytorch.version, spec.pytorch.uv_version) == (stack.torch.version, stack.uv)
    if stack.driver is not None:
        assert Version(stack.driver.minimum).major == stack.driver.branch
        assert Version(KNOWN.cuda[str(stack.cuda)].minimum_driver) <= Version(stack.driver.minimum)


@pytest.mark.parametrize("gpu", KNOWN.gpus)
def test_every_gpu_has_a_stack_that_serves_it(gpu: str) -> None:
    old = KNOWN.gpus[gpu].open_modules == "unsupported"
    data = {"gpu_model": gpu, "driver_modules": "proprietary" if old else "open"}
    works = []
    for name in [name for name, stack in KNOWN.stacks.items() if stack.driver]:
        try:
            works.append(resolve({**data, "stack": name}, "h").stack)
        except SpecError:
            continue
    assert works
    assert KNOWN.default_stack in works or old


def test_each_kind_of_gpu_is_known_by_one_model_alone() -> None:
    names = {
        "GeForce RTX 5090": "RTX 5090", "GeForce RTX 5090 D": "RTX 5090 D",
        "GeForce RTX 5090 D v2": "RTX 5090 D v2", "GeForce RTX 4090": "RTX 4090",
        "GeForce RTX 3090": "RTX 3090", "B200": "B200", "H100 80GB HBM3": "H100",
        "H100 PCIe": "H100", "H200": "H200", "H200 NVL": "H200", "L4": "L4", "L40S": "L40S",
        "A100-SXM4-80GB": "A100", "A100-PCIE-40GB": "A100",
    }  # fmt: skip
    for name, model in names.items():
        patterns = {gpu.name: [f.pattern for f in gpu.figures] for gpu in KNOWN.gpus.values()}
        found = f"NVIDIA {name}"
        known = [one for one, all_ in patterns.items() if any(re.search(p, found) for p in all_)]
        assert known == [model], name
    assert {gpu.name for gpu in KNOWN.gpus.values() if gpu.figures} == set(names.values())


@pytest.mark.parametrize("branch", KNOWN.driver_branches.values(), ids=lambda b: str(b.branch))
def test_each_driver_branch_has_packages_of_just_the_flavours_that_it_offers(
    branch: stacks.DriverBranch,
) -> None:
    for release in KNOWN.cuda.values():
        if release.release == branch.cuda and release.toolkit_drivers:
            assert {Version(d).major for d in release.toolkit_drivers.values()} == {branch.branch}
    flavours: tuple[stacks.Flavour, ...] = ("open", "proprietary")
    for system, known in KNOWN.distributions.items():
        offered = {each for each in flavours if known.driver(branch.branch, each, "compute")}
        none = system == "debian" and branch.branch < 570
        assert offered == (set() if none else {*branch.modules})


def test_each_supported_release_has_its_own_repository_and_the_key_that_signs_it() -> None:
    releases = KNOWN.repositories.releases
    assert {name: each.distro for name, each in releases.items()} == {
        name: name.replace(" ", "").replace(".", "") for name in releases
    }
    for name, each in releases.items():
        assert each.key_fingerprint[-8:] == ("8793F200" if name == "debian 13" else "3BF863CC")
    assert KNOWN.supported_releases() == {
        "debian": ("12", "13"), "ubuntu": ("22.04", "24.04", "26.04"),
    }  # fmt: skip
    assert KNOWN.repository("debian", "13") is releases["debian 13"]
    assert KNOWN.repository("debian", "11") is KNOWN.repository("fedora", "43") is None


def test_every_supported_release_has_a_digest_of_its_own_for_its_keyring() -> None:
    repositories = KNOWN.repositories.releases.values()
    assert len({each.keyring_sha256 for each in repositories}) == len(repositories) == 5
    machines = ("x86_64", "aarch64", "riscv64")
    assert [*map(KNOWN.repository_arch, machines)] == ["x86_64", "sbsa", None]


def test_every_field_of_the_data_is_read_by_the_product() -> None:
    entries = [each for one in Entry.__subclasses__() for each in (one, *one.__subclasses__())]
    fields = {f"{entry.__name__}.{name}" for entry in entries for name in entry.model_fields}
    unread = [each for each in fields if each.partition(".")[2] not in attributes_read()]
    assert unread == []  # use it, or take it out of stacks.yaml


UBUNTU_580 = "libnvidia-compute-580 nvidia-dkms-580-open nvidia-utils-580 nvidia-compute-utils-580"


@pytest.mark.parametrize(
    ("system", "branch", "modules", "packages", "names"),
    [
        ("ubuntu", 580, "open", "compute", UBUNTU_580),
        ("ubuntu", 580, "open", "full", "nvidia-driver-580-open"),
        ("ubuntu", 595, "open", "compute",
         "libnvidia-compute nvidia-dkms-open nvidia-persistenced"),
        ("ubuntu", 595, "proprietary", "full", "cuda-drivers"),
        ("ubuntu", 620, "proprietary", "full", None),
        ("debian", 580, "open", "compute",
         "nvidia-driver-cuda nvidia-kernel-open-dkms nvidia-persistenced"),
        ("debian", 595, "open", "full", "nvidia-open nvidia-persistenced"),
        ("debian", 550, "open", "compute", None),
        ("fedora", 580, "open", "compute", None),
    ],
)  # fmt: skip
def test_the_packages_of_a_driver_by_distribution_branch_flavour_and_extent(
    system: str,
    branch: int,
    modules: Literal["open", "proprietary"],
    packages: Literal["compute", "full"],
    names: str | None,
) -> None:
    found = KNOWN.driver_packages(system, branch, modules, packages)
    assert (found and " ".join(found)) == names
