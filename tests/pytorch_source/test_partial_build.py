"""A part of the real PyTorch, really built: Debian's source of 2.6, on a throwaway Debian 13.

`make test-pytorch-source`, about six minutes of one core. The deploy fetches, configures and
checks; c10, TensorPipe with libuv and the store are compiled by the same unit and program, killed
and cut off from power in between. No wheel is made of it. What was measured goes to
build/evidence/.
"""

from __future__ import annotations

import json
import os
import platform
import re
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from running import Deployer, quietly, until

from pyinfra_gpu.drift.pytorch_build import UNIT
from pyinfra_gpu.on_host import program
from pyinfra_gpu_rehearsal import Lab, LabHost, available
from pyinfra_gpu_rehearsal.placing import point
from pyinfra_gpu_rehearsal.pytorch_source import (
    DEBIAN_13,
    VERSION,
    Repository,
    declared,
    ensure_repository,
)

HERE = Path(__file__).parent
EVIDENCE = HERE.parents[1] / "build/evidence/partial_build.json"
HOST = "gpu1"
BUILD = "/opt/pyinfra-gpu/build"
TREE = f"{BUILD}/source/build"
C10D = "caffe2/CMakeFiles/torch_cpu.dir/__/torch/csrc/distributed/c10d"
STORE = ("TCPStore", "TCPStoreBackend", "TCPStoreLibUvBackend", "Store", "Backoff", "socket")
OBJECTS = [f"{C10D}/{name}.cpp.o" for name in (*STORE, "debug", "logging")]
PART = ["c10", "tensorpipe", *OBJECTS]
NO_WHEEL = "only a part of PyTorch was compiled here: there is no wheel of it"


class Real:
    """The host, and what was found of it."""

    def __init__(self, lab: Lab, folder: Path, tree: Repository) -> None:
        self.lab, self.folder, self.tree = lab, folder, tree
        self.host: LabHost = lab.host(HOST)
        self.figures: dict[str, Any] = {}
        self.plan: dict[str, Any] = {}  # as the deploy wrote it

    def deployer(self) -> Deployer:
        """Return what deploys with a torch that is built from this tree."""
        given = declared(f"{self.lab.url}/git/pytorch.git", self.tree)
        return Deployer(self.lab, self.folder, data=("smoke=skip", *given))

    def journal(self) -> str:
        """Return all that was printed by builds since the machine was switched on."""
        return self.host.run(f"journalctl -u {UNIT} -b -o cat --no-pager").stdout

    def phase(self) -> str:
        """Return the phase in which the build is, or ended; empty where there was none."""
        said = self.host.run(f"cat {BUILD}/building", check=False).stdout.split()
        return said[1] if said else ""

    def start(self) -> None:
        """Start the unit as a run of the product does."""
        bundle = "/opt/pyinfra-gpu/bin/pyinfra-gpu-build.pyz"
        self.host.run(program("build/start.sh", UNIT, "ubuntu", bundle, BUILD, "8000"))

    def ended(self) -> str:
        """Wait until nothing builds; return why the last build failed."""
        active = f"systemctl is-active {UNIT}"
        until(lambda: self.host.run(active, check=False).returncode != 0, 900)
        return self.journal().rpartition("pyinfra-gpu: failed in ")[2]

    def cpu_seconds(self) -> float:
        """Return the processor time of all that ran on the host in this boot."""
        text = (self.host.power.path / "cpu.stat").read_text()
        return int(re.findall(r"usage_usec (\d+)", text)[0]) / 1e6

    def compiled(self) -> int:
        """Return how many files were compiled, since the cache did not have them."""
        stats = self.host.run(f"CCACHE_DIR={BUILD}/ccache ccache --print-stats").stdout.split()
        return int(stats[stats.index("cache_miss") + 1])

    def objects(self) -> list[Path]:
        """Return the objects that stand there, as files of this machine."""
        return sorted((self.host.upper / TREE[1:]).rglob("*.o"))


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Real]:
    """Yield a Debian 13 that a deploy took to the beginning of compiling, and stopped there."""
    if why := available():
        pytest.skip(why)
    training = Path(__file__).parents[2] / "examples/tiny-gpt"
    lab = Lab(tmp_path_factory.mktemp("lab") / ".rehearsal", training=training, kind=DEBIAN_13)
    try:
        tree = ensure_repository(print)
        lab.up(1, say=quietly)
        point(lab.directory / "www/git/pytorch.git", tree.path)
        made = Real(lab, tmp_path_factory.mktemp("runs"), tree)
        deploy = made.deployer().start(limit=HOST)
        until(lambda: made.phase() == "compile" or deploy.poll() is not None, 400)
        made.host.run(f"systemctl stop {UNIT}", check=False)
        said = deploy.communicate()[0]
        assert "was killed in compile" in " ".join(said.split()), said
        made.plan = json.loads(made.host.run(f"cat {BUILD}/plan.json").stdout)
        yield made
    finally:
        lab.down(say=quietly)


def test_the_deploy_configured_the_real_tree_and_its_checks_passed(real: Real) -> None:
    log = real.journal()
    lines = int(real.host.run(f"grep -c TORCH_USE_LIBUV {TREE}/build.ninja").stdout)
    assert lines > 1000
    assert re.search(r"USE_TENSORPIPE\s+: 1", log)
    assert f"-- Building version {VERSION}+cpu" in log
    real.figures |= {
        "commands_with_libuv": lines,
        "configure_cpu_seconds_all_before_included": round(real.cpu_seconds()),
        "compiler": real.host.run("g++ --version").stdout.splitlines()[0],
        "system": real.host.run(". /etc/os-release; echo $PRETTY_NAME").stdout.strip(),
    }


def test_a_part_is_compiled_through_a_kill_and_a_power_cut_and_no_file_twice(real: Real) -> None:
    tools = f"{BUILD}/tools/bin"
    real.host.run(f"mv {tools}/ninja {tools}/ninja.whole")
    real.host.put(HERE / "on_host/ninja.sh", f"{tools}/ninja")
    real.host.run(f"chmod 755 {tools}/ninja")
    real.host.run(f"cat >{tools}/ninja.part", stdin="\n".join(PART) + "\n")
    spent = real.cpu_seconds()
    real.start()
    until(lambda: len(real.objects()) >= 40, 300)
    real.host.run(f"systemctl kill --signal=KILL {UNIT}")
    real.ended()
    killed = {path: path.stat().st_mtime_ns for path in real.objects()}
    real.start()
    why = real.ended()
    assert why.startswith("wheel: ") and NO_WHEEL in why
    spent = real.cpu_seconds() - spent
    again = [each for each, changed in killed.items() if each.stat().st_mtime_ns != changed]
    # A compiler that was killed leaves what it had not finished; ninja makes that again.
    assert len(again) <= (os.cpu_count() or 1) + 1, again
    made = real.objects()
    real.host.power_off()
    for path in made[:12]:
        times = path.stat()
        path.write_bytes(b"")
        os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
    real.host.power_on()
    real.host.wait_ready(60)
    began = time.monotonic()
    real.start()
    until(lambda: real.phase() == "compile", 300)
    tried = real.compiled()  # files that CMake tries have names of that try, so no cache has them
    why = real.ended()
    assert why.startswith("wheel: ") and NO_WHEEL in why
    assert real.objects() == made
    assert [path for path in made if path.stat().st_size == 0] == []
    missed = real.compiled() - tried
    assert missed <= len(made) / 20, missed
    real.figures |= {
        "objects": len(made),
        "objects_when_killed": len(killed),
        "of_those_made_again": len(again),
        "compile_cpu_seconds": round(spent),
        "after_a_power_cut_cpu_seconds": round(real.cpu_seconds()),
        "after_a_power_cut_seconds": round(time.monotonic() - began),
        "of_those_compiled_again": missed,
    }


def test_another_run_compiles_nothing(real: Real) -> None:
    before = {path: path.stat().st_mtime_ns for path in real.objects()}
    real.start()
    assert NO_WHEEL in real.ended()
    assert "ninja: no work to do." in real.journal()
    assert {path: path.stat().st_mtime_ns for path in real.objects()} == before


def test_a_store_of_these_objects_is_served_by_libuv(real: Real) -> None:
    for name in ("store.cpp", "link_store.sh"):
        real.host.put(HERE / "on_host" / name, f"/root/{name}")
    said = real.host.run(f"sh /root/link_store.sh {TREE} /root/store.cpp {' '.join(OBJECTS)}")
    lines = said.stdout.splitlines()
    assert {"libuv 1", "answer value", "thread pt_tcpstore_uv"} <= {*lines}, lines
    real.figures["store"] = lines


def test_a_system_tensorpipe_is_refused_before_anything_is_compiled(real: Real) -> None:
    settings = {**real.plan["settings"], "USE_SYSTEM_TENSORPIPE": "1"}
    plan = {**real.plan, "fingerprint": "a" * 64, "settings": settings}
    real.host.run(f"cat >{BUILD}/plan.json", stdin=json.dumps(plan))
    real.start()
    why = real.ended()
    assert why.startswith("configure: no command in build.ninja defines TORCH_USE_LIBUV")
    # What people look at says nothing of it.
    log = real.journal()
    assert re.search(r"USE_DISTRIBUTED\s+: 1", log) and re.search(r"USE_TENSORPIPE\s+: 1", log)
    assert real.host.run(f"find {TREE} -path '*c10d*' -name '*.o'").stdout == ""
    real.figures["with_a_system_tensorpipe"] = why.strip()


def test_what_was_measured_is_written_down(real: Real, request: pytest.FixtureRequest) -> None:
    if request.session.testsfailed:
        pytest.fail("nothing is written down of a run that failed")
    known = {
        "what": "a part of PyTorch (c10, TensorPipe, the objects of its store), no wheel of it",
        "when": datetime.now(UTC).strftime("%Y-%m-%d"),
        "where": f"{os.cpu_count()} cores, {platform.machine()}, shared with other work",
        "source": [*real.tree.packages],
        "commit": real.tree.commit,
        **real.figures,
    }
    EVIDENCE.parent.mkdir(parents=True, exist_ok=True)
    EVIDENCE.write_text(json.dumps(known, indent=1) + "\n")
