"""Hosts with a lock and without: what is judged, what acts, and what is refused."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from built_host import TORCH_COMMIT, built_host
from fake_host import FakeHost, FakeRun

from pyinfra_gpu.drift import pytorch, pytorch_build, pytorch_lock
from pyinfra_gpu.drift.finding import Findings, Id
from pyinfra_gpu.drift.fingerprint import differences, fingerprint
from pyinfra_gpu.engine import nightlies
from pyinfra_gpu.engine.uv import constraint
from pyinfra_gpu.errors import SpecError
from pyinfra_gpu.facts.fields import read_fields
from pyinfra_gpu.facts.record import Record, from_fields
from pyinfra_gpu.operations.pytorch_build import plan
from pyinfra_gpu.spec import HostSpec
from pyinfra_gpu.spec.lock import Lock, Locked, Platform, sha256

PREFIX = "/opt/pyinfra-gpu"
UV_LOCK = f"{PREFIX}/tools/lock.txt"
TORCH_LOCK = f"{PREFIX}/venv/.pyinfra-gpu-lock.txt"
LOCK = Lock(
    torch="2.13.0+cpu",
    platform=Platform(python="3.11", machine="x86_64"),
    installer=Locked(name="uv", version="0.13.8", digests=("d" * 64,)),
    packages=(
        Locked(name="numpy", version="2.4.6", digests=("b" * 64,)),
        Locked(name="torch", version="2.13.0+cpu", digests=("a" * 64,)),
    ),
)
FILE = str(LOCK.path)
INSTALLED = {UV_LOCK: sha256(f"{LOCK.installer.line}\n"), TORCH_LOCK: LOCK.sha256}
DATA: dict[str, object] = {**FakeHost().data, "pytorch_lock": "if-there"}


def host(digests: dict[str, str] | None = None, **changes: object) -> FakeHost:
    """A host that was installed by a lock, but for what a test changes."""
    noted = INSTALLED if digests is None else digests
    rows: dict[str, str | None] = {
        UV_LOCK: f"81a4 0 root 90 {UV_LOCK}",
        TORCH_LOCK: f"81a4 1000 ubuntu 900 {TORCH_LOCK}",
    }
    entries = {path: row if path in noted else None for path, row in rows.items()}
    data = {**DATA, **changes.pop("data", {})}  # type: ignore[dict-item]
    return FakeHost(data=data, entries=entries, digests=noted, **changes)  # type: ignore[arg-type]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A project of its own, with the lock in it."""
    (tmp_path / LOCK.path).parent.mkdir()
    (tmp_path / LOCK.path).write_text(LOCK.text)
    monkeypatch.chdir(tmp_path)
    yield tmp_path


def seen(of: FakeHost, *locks: Lock) -> tuple[HostSpec, Record]:
    spec = of.spec()
    spec = replace(spec, pytorch=replace(spec.pytorch, locks=locks))
    return spec, from_fields(read_fields(of.probe_lines()))


def judged(of: FakeHost, *locks: Lock) -> Findings:
    return Findings(pytorch.judge(*seen(of, *locks)))


def test_a_host_that_was_installed_by_its_lock_is_as_declared() -> None:
    assert judged(host(), LOCK) == ()
    run = FakeRun(host(), FakeHost(name="ws2")).prepare()
    # A proof from before there was a lock proves nothing about what is there by it.
    assert run.changing("ws1") == ["Smoke | Train one checked step"]


OTHER_UV = {**INSTALLED, UV_LOCK: "0" * 64}
OTHER_LOCK = {**INSTALLED, TORCH_LOCK: "0" * 64}
DIFFERENT = {
    "torch was installed before there was a lock": (
        host({UV_LOCK: INSTALLED[UV_LOCK]}), Id.PYTORCH_LOCK_DIFFERS, "installed without a lock",
    ),
    "torch was installed by another lock": (
        host(OTHER_LOCK), Id.PYTORCH_LOCK_DIFFERS, "installed by another lock",
    ),
    "a package was exchanged": (
        host(lists={"torch.distribution": ["torch-2.13.0+cpu.dist-info", "numpy-1.0.dist-info"]}),
        Id.PYTORCH_LOCK_DIFFERS, "numpy 1.0, locked is 2.4.6",
    ),
    "a package is gone": (
        host(lists={"torch.distribution": ["torch-2.13.0+cpu.dist-info"]}),
        Id.PYTORCH_LOCK_DIFFERS, "numpy is gone, locked is 2.4.6",
    ),
    "uv was installed before there was a lock": (
        host({TORCH_LOCK: LOCK.sha256}), Id.PYTORCH_INSTALLER_DIFFERS,
        "uv 0.13.8, not installed by the lock",
    ),
    "uv was installed by another lock": (
        host(OTHER_UV), Id.PYTORCH_INSTALLER_DIFFERS, "uv 0.13.8, installed by another lock",
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", DIFFERENT)
def test_what_is_not_by_the_lock_is_repaired(what: str) -> None:
    of, id_, found = DIFFERENT[what]
    (finding,) = judged(of, LOCK)
    assert (finding.id, finding.effect, finding.found) == (id_, "repair", found)


def test_versions_are_compared_as_versions() -> None:
    packages = (*LOCK.packages, Locked(name="fsspec", version="2026.9.0", digests=("f" * 64,)))
    lock = replace(LOCK, packages=packages)
    rows = ["torch-2.13.0+cpu.dist-info", "numpy-2.4.6.dist-info", "fsspec-2026.09.0.dist-info"]
    noted = {**INSTALLED, TORCH_LOCK: lock.sha256}
    assert judged(host(noted, lists={"torch.distribution": rows}), lock) == ()


def test_what_the_owner_may_not_tell_is_not_guessed() -> None:
    of = host()
    of.entries = {UV_LOCK: of.entries[UV_LOCK]}  # the other was not looked at
    of.digests = {UV_LOCK: INSTALLED[UV_LOCK]}
    assert judged(of, LOCK) == ()
    assert any("was not looked at" in str(each) for each in pytorch.needed(*seen(of, LOCK)))


NO_LOCK = {
    "there is none at all": (),
    "it is for another Python": (
        replace(LOCK, platform=Platform(python="3.12", machine="x86_64")),
    ),
    "it is for another machine": (
        replace(LOCK, platform=Platform(python="3.11", machine="aarch64")),
    ),
    "it is of another uv": (replace(LOCK, installer=replace(LOCK.installer, version="0.13.7")),),
}


@pytest.mark.parametrize("why", NO_LOCK)
def test_without_a_lock_it_is_said_and_is_no_drift(why: str) -> None:
    (finding,) = judged(host(), *NO_LOCK[why])
    assert (finding.id, finding.effect) == (Id.PYTORCH_LOCK_MISSING, "note")
    assert finding.sentence("ws1") == (
        "ws1: no lock for Python 3.11 on x86_64; expected one of torch 2.13.0+cpu and uv 0.13.8 in"
        " locks/: what the index serves is installed, whatever its digest: `pyinfra-gpu lock"
        " INVENTORY`"
    )


@pytest.mark.parametrize("why", NO_LOCK)
def test_a_host_that_has_to_have_a_lock_stops_without_one(why: str) -> None:
    (finding,) = judged(host(data={"pytorch_lock": "required"}), *NO_LOCK[why])
    assert finding.stops
    assert "pytorch_lock = 'required'" in finding.expected
    assert "`pyinfra-gpu lock INVENTORY`" in finding.action


def test_data_can_ignore_locks(folder: Path) -> None:
    ignoring = host(data={"pytorch_lock": "ignore"})
    assert judged(ignoring) == ()
    assert FakeRun(ignoring, FakeHost(name="ws2")).prepare().changing("ws1") == []


def test_which_python_an_environment_will_have() -> None:
    def python(data: dict[str, object], **plain: str | None) -> str | None:
        of = host(data=data, plain={key.replace("__", "."): each for key, each in plain.items()})
        platform = pytorch_lock.platform_of(*seen(of))
        return platform and platform.python

    assert python({}) == "3.11"  # that of the environment
    assert python({}, system__python3="Python 3.13.1") == "3.11"
    assert python({}, torch__python=None, system__python3="Python 3.13.1") == "3.13"
    assert python({}, torch__python=None, system__python3=None) is None
    # What does not run is made anew, from the host's own.
    assert python({}, torch__python="?no", torch__python_problem="it is gone") == "3.11"
    assert python({}, torch__python="?no permission") is None
    assert python({"pytorch_python": "3.12"}) == "3.12"
    assert python({"pytorch_python": "/usr/local/bin/python3.14"}) == "3.14"
    assert python({"pytorch_python": "/usr/bin/pypy"}, torch__python=None) is None
    assert python({}, system__architecture="?no") is None


def test_a_lock_that_is_none_is_one_sentence_before_any_host_is_contacted(folder: Path) -> None:
    (folder / LOCK.path).write_text("torch==2.13.0\n")
    with pytest.raises(SpecError, match="line 1 is no package with its version and digest"):
        FakeRun(host(), FakeHost(name="ws2")).prepare()


def test_by_a_lock_everything_is_fetched_and_compared_before_it_is_installed() -> None:
    run = FakeRun(host(OTHER_LOCK), FakeHost(name="ws2")).prepare().execute()
    commands = [
        each for each in run.executed("ws1") if "--require-hashes" in each or ".new" in each
    ]
    written, fetched, installed = commands
    assert f"{TORCH_LOCK}.new" in written
    assert f"fetch.sh {PREFIX}/cache/pyinfra-gpu-fetched" in fetched
    for each in (fetched, installed):
        assert "--no-deps --only-binary :all:" in each
        assert f"--requirement {TORCH_LOCK}.new" in each
    assert "touch" not in fetched
    assert "--reinstall" in installed
    assert f"mv -f -T {TORCH_LOCK}.new {TORCH_LOCK} &&" in installed


@pytest.mark.parametrize("rows", [[], ["numpy-2.4.6.dist-info"]])
def test_what_is_there_without_torch_was_not_compared_either(rows: list[str]) -> None:
    lists = {"torch.version_line": [], "torch.distribution": rows}
    of = host({UV_LOCK: INSTALLED[UV_LOCK]}, lists=lists)
    run = FakeRun(of, FakeHost(name="ws2")).prepare().execute()
    (command,) = [each for each in run.executed("ws1") if f"-T {TORCH_LOCK}.new" in each]
    assert ("--reinstall" in command) == bool(rows)


def test_the_installer_comes_by_the_line_of_the_lock() -> None:
    run = FakeRun(host(OTHER_UV), FakeHost(name="ws2")).prepare().execute()
    (command,) = [each for each in run.executed("ws1") if "installer.sh" in each]
    assert LOCK.installer.line in command


def test_what_training_adds_keeps_to_the_lock() -> None:
    changed = {"training.stamp": '{"requirements_sha256": "0", "distributions": {}}'}
    run = FakeRun(host(plain=changed), FakeHost(name="ws2")).prepare().execute()
    (command,) = [each for each in run.executed("ws1") if "--override" in each]
    assert f"--constraint {TORCH_LOCK}" in command


def test_without_a_lock_no_note_of_one_is_left() -> None:
    data = {**FakeHost().data, "pytorch_lock": "ignore"}
    damaged = FakeHost(data=data, plain={"torch.installing": "1"})
    run = FakeRun(damaged, FakeHost(name="ws2")).prepare().execute()
    commands = [each for each in run.executed("ws1") if "--reinstall-package torch" in each]
    assert all(f"rm -f {TORCH_LOCK}" in each for each in commands)
    assert commands


def test_a_folder_of_wheels_is_all_that_is_asked() -> None:
    data = {"pytorch_wheels": "/srv/wheels", "pytorch_index_url": "https://m.example.org/simple"}
    noted = {UV_LOCK: "0" * 64, TORCH_LOCK: "0" * 64}
    run = FakeRun(host(noted, data=data), FakeHost(name="ws2")).prepare().execute()
    commands = [each for each in run.executed("ws1") if "--find-links" in each]
    assert len(commands) == 1  # the fake host's uv stays as it was, so the run ends there
    assert "--no-index --find-links /srv/wheels" in commands[0]
    assert not [each for each in run.executed("ws1") if "m.example.org" in each]


def test_with_a_required_lock_an_unknown_python_does_not_install_without_one() -> None:
    """The environment is made first, and says which Python it has: one without a lock."""
    data = {"pytorch_lock": "required", "pytorch_python": "/opt/own/python"}
    of = FakeHost(data={**DATA, **data}, bare=True)
    run = FakeRun(of, FakeHost(name="ws2")).prepare()
    assert "PyTorch | Install torch" in run.changing("ws1")
    run.execute()
    assert run.failed() == {"ws1"}
    assert not [each for each in run.executed("ws1") if "uv pip install" in each]


def test_another_lock_means_another_smoke_test() -> None:
    one = fingerprint(*seen(host(), LOCK), "")
    other = replace(LOCK, packages=LOCK.packages[1:])
    assert differences(one, fingerprint(*seen(host(), other), "")) == ["installed packages"]
    assert differences(one, fingerprint(*seen(host(), LOCK), "")) == []


# -- a torch that is built, and a nightly

BUILT = replace(
    LOCK, source=TORCH_COMMIT, packages=LOCK.packages[:1],
    tools=(Locked(name="cmake", version="4.1", digests=("c" * 64,)),),
)  # fmt: skip
ASKED = {"pytorch_lock": "if-there"}
NIGHTLY = {**ASKED, "pytorch_source": "nightly", "pytorch_version": "2.16.0.dev20261120"}


def built(digests: dict[str, str] | None = None, **changes: Any) -> FakeHost:
    """A host whose torch was built and installed by a lock, but for what a test changes."""
    noted = {**INSTALLED, TORCH_LOCK: BUILT.sha256} if digests is None else digests
    entries = {UV_LOCK: f"81a4 0 root 90 {UV_LOCK}", TORCH_LOCK: None}
    if TORCH_LOCK in noted:
        entries[TORCH_LOCK] = f"81a4 1000 ubuntu 900 {TORCH_LOCK}"
    data = {**ASKED, **changes.pop("data", {})}
    return built_host(data=data, entries=entries, digests=noted, **changes)


def test_a_built_torch_that_was_installed_by_its_lock_is_as_declared() -> None:
    assert judged(built(stamp={}), BUILT) == ()


def test_what_a_built_torch_needs_is_repaired_where_it_is_not_by_the_lock() -> None:
    for digests in ({UV_LOCK: INSTALLED[UV_LOCK]}, {**INSTALLED, TORCH_LOCK: "0" * 64}):
        (finding,) = judged(built(digests, stamp={}), BUILT)
        assert (finding.id, finding.effect) == (Id.PYTORCH_LOCK_DIFFERS, "repair")


def test_without_a_lock_for_a_build_or_a_nightly_it_is_said_or_stops() -> None:
    (finding,) = judged(built(stamp={}))
    assert (finding.id, finding.effect) == (Id.PYTORCH_LOCK_MISSING, "note")
    assert "one of torch 2.13.0+cpu built from 5c4886908584 and uv 0.13.8 in" in finding.expected
    nightly = [each.id for each in judged(host(data=NIGHTLY))]
    assert Id.PYTORCH_LOCK_MISSING in nightly
    for each in (built(stamp={}, data={"pytorch_lock": "required"}),
                 host(data={**NIGHTLY, "pytorch_lock": "required"})):  # fmt: skip
        (stop,) = [one for one in judged(each) if one.id == Id.PYTORCH_LOCK_MISSING]
        assert stop.stops


def test_a_build_is_not_begun_where_a_required_lock_is_missing(folder: Path) -> None:
    """Which Python it is for is known only when there is an environment."""
    data = {"pytorch_lock": "required", "pytorch_python": "/opt/own/python"}
    of = FakeHost(data={**built().data, **data}, bare=True)
    run = FakeRun(of, FakeHost(name="ws2")).prepare().execute()
    assert run.failed() == {"ws1"}
    assert not [each for each in run.executed("ws1") if "start.sh" in each]


def test_a_build_is_told_its_lock(folder: Path) -> None:
    of = built()
    made = plan(*seen(of, BUILT))
    assert (made["tools_lock"], made["torch_lock"]) == (
        BUILT.build_requirements, BUILT.requirements,
    )  # fmt: skip
    assert (plan(*seen(of))["tools_lock"], plan(*seen(of))["torch_lock"]) == (None, None)
    one, other = (pytorch_build.fingerprint(*seen(of, *locks)) for locks in ((), (BUILT,)))
    assert one == other  # hours are not spent again for another version of a tool


def test_a_built_wheel_is_installed_without_what_it_needs_and_that_by_the_lock(
    folder: Path,
) -> None:
    (folder / BUILT.path).write_text(BUILT.text)
    run = FakeRun(built({UV_LOCK: INSTALLED[UV_LOCK]}, wheel={}), FakeHost(name="ws2"))
    run.prepare().execute()
    commands = [
        each for each in run.executed("ws1") if "--require-hashes" in each or ".new" in each
    ]
    written, fetched, installed = commands
    assert f"{TORCH_LOCK}.new" in written
    assert "fetch.sh" in fetched
    assert "proven.sh" in installed
    wheel = "torch-2.13.0+cpu-cp311-cp311-linux_x86_64.whl"
    assert f"{wheel} --reinstall-package torch --no-deps && cp -T" in installed
    assert installed.index("--require-hashes") < installed.index(f"{wheel} --reinstall")
    assert f"mv -f -T {TORCH_LOCK}.new {TORCH_LOCK} &&" in installed


def test_where_its_fallback_is_installed_the_lock_holds_nothing() -> None:
    lists = {"torch.version_line": ["__version__ = '2.12.0+cpu'", "cuda = None"]}
    of = built({UV_LOCK: INSTALLED[UV_LOCK]}, data={"pytorch_fallback": "2.12.0"}, lists=lists)
    assert constraint(*seen(of, BUILT)) == []
    assert constraint(*seen(built(stamp={}), BUILT)) == ["--constraint", TORCH_LOCK]


def test_a_nightly_is_installed_by_its_lock_from_the_files_that_were_kept(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    version = f"{NIGHTLY['pytorch_version']}+cpu"
    packages = (LOCK.packages[0], replace(LOCK.packages[1], version=version))
    lock = replace(LOCK, torch=version, packages=packages)
    (folder / lock.path).write_text(lock.text)
    names = [f"torch-{version}-cp311-cp311-linux_x86_64.whl", "pytorch_triton-3.6.0-x.whl"]

    def brought(state: object, host: object, spec: object, record: object, came: list[str]) -> bool:
        came.extend(names)
        return True

    monkeypatch.setattr(nightlies, "brought", brought)
    run = FakeRun(host(data=NIGHTLY), FakeHost(name="ws2")).prepare().execute()
    commands = [each for each in run.executed("ws1") if "--require-hashes" in each]
    assert len(commands) == 2  # fetched and compared, then installed
    kept = f"{PREFIX}/build/nightly"
    for each in commands:
        assert f"--find-links {kept}/torch --find-links {kept}/pytorch_triton" in each
    assert f"mv -f -T {TORCH_LOCK}.new {TORCH_LOCK}" in commands[1]
