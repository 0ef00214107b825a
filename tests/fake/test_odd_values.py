"""What single values of a host broke before: each ended the look at it, or took all the time."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any, get_args, get_type_hints

import pytest
from fake_host import FakeHost
from proven_host import proven_host

from pyinfra_gpu.facts.fields import Unknown
from pyinfra_gpu.report.check.answer import judge
from pyinfra_gpu.stages import host as drift
from pyinfra_gpu.stages.finding import Id
from pyinfra_gpu.stages.pytorch import findings as pytorch


@pytest.mark.parametrize("version", ["3.11.2+", "3.14.0rc1", "g++ 4:12.2.0-3", "²", "9" * 5000])
@pytest.mark.parametrize("key", ["torch.python", "driver.loaded"])
def test_a_version_that_no_comparison_can_read_is_judged(key: str, version: str) -> None:
    host = FakeHost(reported={key: version})
    reported = judge(host.spec(), host.record())
    assert reported.stages


def _each_unknown(record: Any) -> Iterator[tuple[str, Any]]:
    """Yield the record once for each of its facts, which alone is unknown."""
    for part in dataclasses.fields(record):
        concern = getattr(record, part.name)
        for name, hint in get_type_hints(type(concern)).items():
            if Unknown in get_args(hint):
                unknown = dataclasses.replace(concern, **{name: Unknown("no permission")})
                yield f"{part.name}.{name}", dataclasses.replace(record, **{part.name: unknown})


ALWAYS = """
    layout.entries layout.open packages.half_configured packages.installed system.ram_mib
    system.user torch.damaged torch.damaged_others torch.installing torch.python_problem torch.uv
    torch.version"""
TRAINING = """
    launcher.linger launcher.manager launcher.runs
    torch.distributions training.commit training.dirty_count training.requirements_sha256
    training.stamp_text training.submodules"""
GPUS = """
    cuda.alternative cuda.link cuda.missing cuda.nvcc cuda.toolkits
    driver.loaded driver.nouveau driver.nova driver.on_disk driver.persistenced
    driver.persistenced_enabled gpus.devices kernel.headers kernel.initramfs kernel.installed
    kernel.modules libcuda.cache libcuda.links libcuda.loader_paths nvidia.packages
    nvidia.sources system.kernel system.os_id"""
ANEW = {
    *(Id.CUDA_UNPROVEN, Id.LIBCUDA_UNPROVEN, Id.SMOKE_UNPROVEN, Id.SMOKE_PROOF_BEFORE_BOOT),
    Id.DRIVER_KEYRING_REPLACED,  # what is no keyring cannot be read
}
"""What is made again where nobody can say that it holds."""


@pytest.mark.parametrize(
    ("host", "needed"),
    [(FakeHost(), ALWAYS + TRAINING), (proven_host(), ALWAYS + GPUS)],
    ids=["cpu", "gpu"],
)
def test_a_fact_that_is_unknown_is_said_in_words_and_never_guessed(
    host: FakeHost, needed: str
) -> None:
    """Without a needed fact a host is not as declared; without another, proofs are made again."""
    spec, undetermined = host.spec(), set()
    for name, record in _each_unknown(host.record()):
        stages = drift.judge(spec, record)
        assert "Unknown(" not in str([judge(spec, record).as_json(), stages]), name
        reported = [each for stage in stages if not stage.unread for each in stage.findings]
        assert {each.id for each in reported if each.acts} <= ANEW, name
        if any(stage.unread for stage in stages):
            undetermined.add(name)
    assert undetermined == set(needed.split())


def test_a_version_line_that_is_damaged_is_installed_again() -> None:
    host = FakeHost(reported={"torch.version": None})
    found = pytorch.judge(host.spec(), host.record())
    assert [(each.id, each.found) for each in found] == [
        (Id.PYTORCH_VERSION_DIFFERS, "a torch without a version")
    ]


def test_a_requirements_file_that_cannot_be_read_has_not_changed() -> None:
    host = FakeHost()
    record = host.record()
    unread = dataclasses.replace(record.training, requirements_sha256=Unknown("no permission"))
    answer = judge(host.spec(), dataclasses.replace(record, training=unread))
    assert answer.verdict == "unknown"
    assert Id.TRAINING_REQUIREMENTS_DIFFER not in [each.id for each in answer.findings]
