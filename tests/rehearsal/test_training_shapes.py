"""The training stage with repositories of other people's shapes, whole, on a real host."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from running import Deployer, OnlyStage, written_files
from training import CHECKOUT, PREFIX
from wheels import index, wheel

from pyinfra_gpu_rehearsal import Lab, LabHost
from pyinfra_gpu_rehearsal.git_repository import publish

pytestmark = pytest.mark.rehearsal

HOST, GIT_SERVER = "gpu1", "gpu2"
TORCH = "cd {}/venv/lib/python3*/site-packages && find torch torch-*.dist-info -type f -printf '{}'"
PINNED = "2.9.1"  # by nanochat; the hosts have another
NANOCHAT = """
[project]
name = "nanoshape"
version = "0.1.0"
requires-python = ">=3.10"
dependencies = ["tinydata>=1.0", "tinytokens==0.2.0", "torch==2.9.1"]

[dependency-groups]
dev = ["tinytest>=3"]

[project.optional-dependencies]
gpu = ["torch==2.9.1"]

[tool.uv.sources]
torch = [{ index = "pytorch-cu128", extra = "gpu" }]

[[tool.uv.index]]
name = "pytorch-cu128"
url = "https://download.pytorch.org/whl/cu128"
explicit = true
"""
"""In the words of its pyproject.toml; that index no host of a lab can reach."""
LOCKED = """
version = 1
revision = 3
requires-python = ">=3.10"

[[package]]
name = "torch"
version = "2.9.1"
source = { registry = "https://download.pytorch.org/whl/cpu" }
"""
PLAIN = '[project]\nname = "plain"\nversion = "1"\ndependencies = []\n'


@dataclass(frozen=True)
class Shapes:
    """A host that was proven with another repository, and what serves those of other shapes."""

    lab: Lab
    deployer: Deployer
    host: LabHost
    sources: Path

    def source(self, name: str, **files: str) -> Path:
        """Make a folder of files with these names and texts, and a pyproject.toml in any case."""
        folder = self.sources / name
        folder.mkdir()
        (folder / "pyproject.toml").write_text(files.pop("pyproject", PLAIN))
        for path, text in files.items():
            (folder / path).write_text(text)
        return folder

    def serve(self, name: str, **submodules: str) -> tuple[str, str]:
        """Serve such a folder as a repository; return its URL and its commit."""
        bare = self.lab.directory / "www/git" / f"{name}.git"
        commit = publish(self.sources / name, bare, submodules=submodules)
        return f"{self.lab.url}/git/{bare.name}", commit

    def declared(self, repo: str, commit: str, *more: str) -> OnlyStage:
        """Return what deploys this repository's stage; the one before is gone from the host."""
        self.host.run(f"rm -rf {CHECKOUT}")
        of_it = (f"training_repo={repo}", f"training_commit={commit}", "smoke=skip", *more)
        data = (*self.deployer.data, *of_it)
        return OnlyStage(self.lab, self.deployer.folder, data=data, stage="training")

    def git(self, *words: str) -> str:
        """Run git in the checkout, as its owner."""
        return self.host.run(f"git -C {CHECKOUT} {' '.join(words)}", root=False).stdout.strip()


@pytest.fixture
def shapes(
    lab: Lab, deployer: Deployer, proven: Callable[[str], LabHost], tmp_path: Path
) -> Shapes:
    return Shapes(lab, deployer, proven(HOST), tmp_path)


def as_declared(stage: OnlyStage) -> None:
    """A second run changes nothing, and a check finds nothing."""
    assert stage.converge(limit=HOST).changed(HOST) == []
    assert deviations(stage, code=0) == {}


def deviations(stage: OnlyStage, *, code: int) -> dict[str, str]:
    """Return what a check finds, by its id, but that no smoke test is asked for."""
    checked = stage.check(limit=HOST)
    assert checked.code == code, checked.answer
    found = {id_: str(each["found"]) for id_, each in checked.deviations(HOST).items()}
    assert found.pop("smoke.skipped")
    return found


def installed(host: LabHost) -> dict[str, str]:
    """Return what the environment has, by name."""
    program = (
        "import importlib.metadata as m, json;"
        "print(json.dumps({each.name: each.version for each in m.distributions()}))"
    )
    said = host.run(f"{PREFIX}/venv/bin/python -I -c '{program}'", root=False).stdout
    return dict(json.loads(said))


def test_one_that_pins_another_torch_gets_the_rest_and_torch_is_not_touched(
    shapes: Shapes, tmp_path: Path
) -> None:
    """As nanochat: its pin, its indexes of torch and its lock are for a machine without ours."""
    wheels = tmp_path / "wheels"
    wheel(wheels, "torch", PINNED)  # to be had, so that nothing but the override keeps it away
    wheel(wheels, "tinydata", "1.1", requires="numpy")
    wheel(wheels, "tinytokens", "0.2.0", requires="torch>=2.0")
    wheel(wheels, "tinytest", "3.0")
    index(wheels, shapes.lab.directory / "www/shapes")
    shapes.source("nanoshape", pyproject=NANOCHAT, **{"uv.lock": LOCKED})
    extra = f"pytorch_extra_index_url={shapes.lab.url}/shapes/"
    repo, commit = shapes.serve("nanoshape")
    stage = shapes.declared(repo, commit, extra)
    files, before = TORCH.format(PREFIX, r"%P %i %s %T@\n"), installed(shapes.host)
    torch = shapes.host.run(files).stdout

    changed = stage.converge(limit=HOST).changed(HOST)

    assert changed == [f"training: check out {commit[:12]}", "training: install the dependencies"]
    assert installed(shapes.host) == before | {"tinydata": "1.1", "tinytokens": "0.2.0"}
    assert before["torch"] not in ("", PINNED)
    assert shapes.host.run(files).stdout == torch
    assert len(torch.splitlines()) > 1000
    as_declared(stage)


def test_a_submodule_is_checked_out_pinned_and_judged(shapes: Shapes) -> None:
    shapes.source("library", main="1")
    _, pinned = shapes.serve("library")
    bare = shapes.lab.directory / "www/git/library.git"
    newer = ahead(bare, pinned)
    modules = '[submodule "library"]\n\tpath = library\n\turl = ../library.git\n'
    shapes.source("with-submodule", **{".gitmodules": modules})
    stage = shapes.declared(*shapes.serve("with-submodule", library=pinned))

    stage.converge(limit=HOST)

    head = ("-C", "library", "rev-parse", "HEAD")
    assert shapes.git(*head) == pinned
    assert shapes.host.run(f"cat {CHECKOUT}/library/main").stdout == "1"
    as_declared(stage)

    shapes.git("-C", "library", "checkout", "-q", newer)
    seen = {"training.checkout-differs": "submodules: another commit of library"}
    assert deviations(stage, code=2) == seen
    assert stage.converge(limit=HOST).changed(HOST) == ["training: check out the submodules"]
    assert shapes.git(*head) == pinned
    as_declared(stage)


def ahead(bare: Path, commit: str) -> str:
    """Give a served repository one more commit, with the same files; return it."""

    def git(*words: str) -> str:
        who = ("-c", "user.name=x", "-c", "user.email=x@example.org")
        command = ["git", *who, f"--git-dir={bare}", *words]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()

    newer = git("commit-tree", f"{commit}^{{tree}}", "-p", commit, "-m", "newer")
    git("update-ref", "refs/heads/main", newer)
    git("update-server-info")
    return newer


def test_a_private_one_over_ssh_needs_a_key_and_says_so(
    shapes: Shapes, proven: Callable[[str], LabHost]
) -> None:
    shapes.source("private")
    served, commit = shapes.serve("private")
    server, host = proven(GIT_SERVER), shapes.host
    who = f"git@{server.subnet.address(server.last)}"
    server.run(
        "useradd --create-home --password '*' git && install -d -m 700 -o git ~git/.ssh"
        f" && su git -c 'git clone -q --bare {served} ~/private.git'"
    )
    shutil.rmtree(shapes.lab.directory / "www/git/private.git")
    known = f"mkdir -p -m 700 .ssh && ssh-keyscan -t ed25519 {who[4:]} >>.ssh/known_hosts"
    host.run(known, root=False)
    stage = shapes.declared(f"{who}:private.git", commit)
    before = written_files(host)

    stopped = stage.deploy(limit=HOST)

    assert (stopped.code, stopped.status(HOST)) == (1, "failed"), stopped.output
    (problem,) = stopped.problems(HOST)
    assert f"do not know each other's key ({who}: Permission denied" in problem
    assert "Log in as that user once" in problem
    assert written_files(host) == before
    host.run("ssh-keygen -q -t ed25519 -N '' -f .ssh/id_ed25519", root=False)
    key = host.run("cat .ssh/id_ed25519.pub", root=False).stdout
    server.run("cat >~git/.ssh/authorized_keys", stdin=key)
    stage.converge(limit=HOST)
    assert shapes.git("remote", "get-url", "origin") == f"{who}:private.git"
    as_declared(stage)
