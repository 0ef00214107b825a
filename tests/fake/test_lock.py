"""Hosts with a lock and without: what is judged, what acts, and what is refused."""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from fake_host import FakeHost, FakeRun, entry
from locks import UV, locked, written

from pyinfra_gpu.engine import torch_install
from pyinfra_gpu.errors import SpecError
from pyinfra_gpu.facts.record import Record
from pyinfra_gpu.spec import HostSpec
from pyinfra_gpu.spec.lock import Lock, Platform
from pyinfra_gpu.stages.finding import Findings, Id
from pyinfra_gpu.stages.fingerprint import differences, fingerprint
from pyinfra_gpu.stages.pytorch import findings as pytorch
from pyinfra_gpu.stages.pytorch import lock as pytorch_lock

PREFIX = "/opt/pyinfra-gpu"
TORCH_LOCK = f"{PREFIX}/venv/.pyinfra-gpu-lock.txt"
NUMPY, TORCH = locked("numpy", "2.4.6", "b" * 64), locked("torch", "2.13.0+cpu")
with tempfile.TemporaryDirectory() as made:
    LOCK = written(Path(made), NUMPY, TORCH)
    NEWER = written(Path(made), NUMPY, TORCH, uv=UV.replace("0.13.8", "0.13.7"))
INSTALLED = {TORCH_LOCK: hashlib.sha256(LOCK.requirements.encode()).hexdigest()}
DATA: dict[str, object] = {**FakeHost().data, "pytorch_lock": "if-there"}


def host(digests: dict[str, str] | None = None, **changes: object) -> FakeHost:
    """A host that was installed by a lock, but for what a test changes."""
    noted = INSTALLED if digests is None else digests
    digest = noted.get(TORCH_LOCK)
    entries = {TORCH_LOCK: entry("file", "0644", "ubuntu", sha256=digest) if digest else None}
    data = {**DATA, **changes.pop("data", {})}  # type: ignore[dict-item]
    return FakeHost(data=data, entries=entries, **changes)  # type: ignore[arg-type]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A project of its own, with the lock in it."""
    written(tmp_path, NUMPY, TORCH)
    monkeypatch.chdir(tmp_path)
    yield tmp_path


def seen(of: FakeHost, *locks: Lock) -> tuple[HostSpec, Record]:
    spec = of.spec()
    spec = spec.but(pytorch=spec.pytorch.but(locks=locks))
    return spec, of.record()


def judged(of: FakeHost, *locks: Lock) -> Findings:
    return Findings(pytorch.judge(*seen(of, *locks)))


def test_a_host_that_was_installed_by_its_lock_is_as_declared() -> None:
    assert judged(host(), LOCK) == ()
    run = FakeRun(host(), FakeHost(name="ws2")).prepare()
    # A proof from before there was a lock proves nothing about what is there by it.
    assert run.changing("ws1") == ["Smoke | Run the smoke test"]


OTHER_LOCK = {TORCH_LOCK: "0" * 64}
DIFFERENT = {
    "torch was installed before there was a lock": (
        host({}), Id.PYTORCH_LOCK_DIFFERS, "installed without a lock",
    ),
    "torch was installed by another lock": (
        host(OTHER_LOCK), Id.PYTORCH_LOCK_DIFFERS, "installed by another lock",
    ),
    **{
        f"numpy is {there}": (
            host(reported={"torch.distributions": {"torch": "2.13.0+cpu", **row}}),
            Id.PYTORCH_LOCK_DIFFERS, f"numpy {there}, locked is 2.4.6",
        )
        for there, row in (("1.0", {"numpy": "1.0"}), ("is missing", {}))
    },
}  # fmt: skip


@pytest.mark.parametrize("what", DIFFERENT)
def test_what_is_not_by_the_lock_is_repaired(what: str) -> None:
    of, id_, found = DIFFERENT[what]
    (finding,) = judged(of, LOCK)
    assert (finding.id, finding.effect, finding.found) == (id_, "repair", found)


def test_what_the_owner_may_not_tell_is_not_guessed() -> None:
    of = host()
    of.entries = {}  # the note was not looked at
    assert judged(of, LOCK) == ()
    assert any("was not looked at" in each for each in pytorch.judge.unread(*seen(of, LOCK)))


NO_LOCK = {
    "there is none at all": (),
    "it is for another Python": (
        replace(LOCK, platform=Platform(python="3.12", machine="x86_64")),
    ),
    "it is of another uv": (NEWER,),
}


@pytest.mark.parametrize("why", NO_LOCK)
def test_without_a_lock_it_is_said_and_one_that_has_to_have_one_stops(why: str) -> None:
    (finding,) = judged(host(), *NO_LOCK[why])
    assert (finding.id, finding.effect) == (Id.PYTORCH_LOCK_MISSING, "note")
    assert finding.sentence("ws1") == (
        "ws1: no lock for Python 3.11 on x86_64; expected one of torch 2.13.0+cpu and uv 0.13.8 in"
        " locks/: what the index serves is installed, whatever its digest: `pyinfra-gpu lock"
        " INVENTORY`"
    )
    (finding,) = judged(host(data={"pytorch_lock": "required"}), *NO_LOCK[why])
    assert finding.stops
    assert "pytorch_lock = 'required'" in finding.expected
    assert "`pyinfra-gpu lock INVENTORY`" in finding.action


PYTHONS: list[tuple[dict[str, object], dict[str, str | None], str | None]] = [
    ({}, {"system.python3": "3.13.1"}, "3.11"),  # that of the environment
    ({}, {"torch.python": None, "system.python3": "3.13.1"}, "3.13"),
    # What does not run is made anew, from the host's own.
    ({}, {"torch.python": "?no", "torch.python_problem": "it is gone"}, "3.11"),
    ({}, {"system.architecture": "?no"}, None),
    ({"pytorch_python": "3.12"}, {}, "3.12"),
    ({"pytorch_python": "/usr/local/bin/python3.14"}, {}, "3.14"),
]


@pytest.mark.parametrize(("data", "reported", "python"), PYTHONS)
def test_which_python_an_environment_will_have(
    data: dict[str, object], reported: dict[str, str | None], python: str | None
) -> None:
    platform = pytorch_lock.platform_of(*seen(host(data=data, reported=reported)))
    assert (platform and platform.python) == python


def test_a_lock_that_is_none_is_one_sentence_before_any_host_is_contacted(folder: Path) -> None:
    (folder / LOCK.path).write_text("torch==2.13.0\n")
    with pytest.raises(SpecError, match=r"'torch==2\.13\.0' is not a package with its version"):
        FakeRun(host(), FakeHost(name="ws2")).prepare()


def commands(of: FakeHost, word: str) -> list[str]:
    """Return what a run has such a host do, as far as it names something."""
    run = FakeRun(of, FakeHost(name="ws2")).prepare().execute()
    return [each for each in run.executed("ws1") if word in each]


def test_by_a_lock_everything_is_installed_anew_with_its_digest() -> None:
    _, command = commands(host(OTHER_LOCK), f"{TORCH_LOCK}.new")
    assert "--require-hashes" in command and "--reinstall" in command


def test_uv_and_what_training_adds_come_by_the_lock() -> None:
    (command,) = commands(host(reported={"torch.uv": None}), "installer.sh")
    assert UV in command
    changed = {"training.stamp_text": '{"requirements_sha256": "0", "distributions": {}}'}
    (command,) = commands(host(reported=changed), "--override")
    assert f"--constraint {TORCH_LOCK}" in command


REQUIRED: dict[str, object] = {**DATA, "pytorch_lock": "required"}
UNKNOWN = {
    # The environment is made first, and says which Python it has: one without a lock.
    "a Python of its own": FakeHost(
        data={**REQUIRED, "pytorch_python": "/opt/own/python"}, bare=True,
        reported={"torch.declared": "/opt/own/python"},
    ),
    "a machine of an unknown kind": FakeHost(
        data=REQUIRED, reported={"torch.version": None, "system.architecture": "?no"}
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", UNKNOWN)
def test_with_a_required_lock_nothing_is_installed_without_one(what: str) -> None:
    run = FakeRun(UNKNOWN[what], FakeHost(name="ws2")).prepare().execute()
    assert run.failed() == {"ws1"}
    assert not [each for each in run.executed("ws1") if "uv pip install" in each]


def test_another_lock_means_another_smoke_test() -> None:
    one = fingerprint(*seen(host(), LOCK), "")
    other = replace(LOCK, lines={"torch": TORCH})
    assert differences(one, fingerprint(*seen(host(), other), "")) == ["installed packages"]
    assert differences(one, fingerprint(*seen(host(), LOCK), "")) == []


# -- a torch that is built, and a nightly

NIGHTLY = {
    "pytorch_lock": "if-there",
    "pytorch_source": "nightly",
    "pytorch_version": "2.16.0.dev20261120",
}


def test_a_nightly_is_installed_by_its_lock_from_the_files_that_were_kept(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    version = f"{NIGHTLY['pytorch_version']}+cpu"
    written(folder, NUMPY, locked("torch", version), torch=version)
    kept = f"{PREFIX}/build/wheels"
    files = [f"{kept}/torch-x.whl", f"{kept}/pytorch_triton-3.6.0-x.whl"]

    def brought(state: object, host: object, spec: object, record: object, came: list[str]) -> bool:
        came.extend(files)
        return True

    monkeypatch.setattr(torch_install, "bring", brought)
    run = FakeRun(host(data=NIGHTLY), FakeHost(name="ws2")).prepare().execute()
    (command,) = [each for each in run.executed("ws1") if "--require-hashes" in each]
    assert f"--find-links {kept}" in command
    assert f"mv -f -T {TORCH_LOCK}.new {TORCH_LOCK}" in command
