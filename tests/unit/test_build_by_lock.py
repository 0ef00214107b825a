"""A build by a lock, with a real uv: its tools, and what the wheel needs where it is proven."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from test_build_program import PLAN
from test_lock_installing import uv
from wheels import sha256, wheel

from pyinfra_gpu.on_host.build import prove, requirements
from pyinfra_gpu.on_host.build.commands import Commands
from pyinfra_gpu.on_host.build.errors import BuildError
from pyinfra_gpu.on_host.build.place import Place
from pyinfra_gpu.on_host.build.plan import Plan

TREE = '[build-system]\nrequires = ["backend>=1"]\nbuild-backend = "setuptools.build_meta"\n'


@dataclass(frozen=True)
class Build:
    """A build on this machine that has its source, and a folder of wheels to take from."""

    place: Place
    wheels: Path
    plan: Plan
    run: Commands

    def line(self, name: str, digest: str | None = None) -> str:
        """Return the line of a lock for a wheel of the folder."""
        (path,) = self.wheels.glob(f"{name}-*.whl")
        return f"{name}=={path.name.split('-')[1]} --hash=sha256:{digest or sha256(path)}\n"

    def installed(self, folder: Path) -> set[str]:
        """Return what is in an environment."""
        return {each.name.partition("-")[0] for each in folder.glob("lib/*/*/*.dist-info")}


@pytest.fixture
def build(tmp_path: Path) -> Build:
    place, wheels = Place(tmp_path / "build"), tmp_path / "wheels"
    place.source.mkdir(parents=True)
    (place.source / "pyproject.toml").write_text(TREE)
    for name in ("backend", "cmake", "tiny"):
        wheel(wheels, name, "1.0")
    wheel(place.wheels, "torch", PLAN.version, requires="tiny>=1.0")
    plan = replace(
        PLAN, tools=("cmake==1.0",), sources=("--no-index", "--find-links", str(wheels)),
        python=sys.executable, uv=uv(), cache=str(tmp_path / "cache"),
    )  # fmt: skip
    run = Commands(place.log, {"PATH": os.environ["PATH"], "HOME": str(tmp_path)})
    return Build(place, wheels, plan, run)


def test_what_builds_torch_comes_by_the_lock(build: Build) -> None:
    lock = build.line("backend") + build.line("cmake")
    plan = replace(build.plan, tools_lock=lock)
    requirements.install(plan, build.place, build.run)
    assert build.installed(build.place.environment) == {"backend", "cmake"}
    before = build.place.environment.stat().st_ino
    requirements.install(plan, build.place, build.run)  # it is there
    assert build.place.environment.stat().st_ino == before
    another = replace(build.plan, tools_lock=lock.replace("sha256:", "sha256:00", 1)[:-3])
    with pytest.raises(BuildError, match="installing what builds torch failed"):
        requirements.install(another, build.place, build.run)


def test_a_tool_with_another_digest_than_the_lock_names_is_refused(build: Build) -> None:
    plan = replace(build.plan, tools_lock=build.line("backend", "0" * 64) + build.line("cmake"))
    with pytest.raises(BuildError) as refused:
        requirements.install(plan, build.place, build.run)
    assert "Hash mismatch for `backend==1.0`" in " ".join(refused.value.lines)
    assert build.installed(build.place.environment) == set()


def test_a_lock_that_lacks_what_the_tree_asks_for_is_one_sentence(build: Build) -> None:
    plan = replace(build.plan, tools_lock=build.line("cmake"))
    with pytest.raises(BuildError, match=r"lock does not have what the tree asks for .*backend"):
        requirements.install(plan, build.place, build.run)


def proving(build: Build, lock: str | None) -> set[str]:
    """Install the built wheel where it is proven; return what is there then."""
    plan = replace(build.plan, torch_lock=lock)
    requirements.make_environment(plan, build.place.proof, build.run)
    prove.install(plan, build.place, build.run)
    return build.installed(build.place.proof)


def test_what_the_wheel_needs_comes_by_the_lock_too(build: Build) -> None:
    lock = build.line("tiny")
    wheel(build.wheels, "tiny", "1.1")  # without a lock the newest comes
    assert proving(build, lock) == {"torch", "tiny"}
    (there,) = build.place.proof.glob("lib/*/*/tiny-*.dist-info")
    assert there.name == "tiny-1.0.dist-info"


def test_without_a_lock_it_is_what_the_place_has(build: Build) -> None:
    assert proving(build, None) == {"torch", "tiny"}


def test_a_lock_that_lacks_what_the_wheel_needs_is_one_sentence_and_the_wheel_stays(
    build: Build,
) -> None:
    with pytest.raises(BuildError, match=r"lock does not have what the built wheel .*tiny") as no:
        proving(build, "")
    assert "run `pyinfra-gpu lock INVENTORY` again" in no.value.sentence
    assert [*build.place.wheels.glob("*.whl")]
