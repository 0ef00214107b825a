"""torch built from source, on throwaway hosts, from the lab's stand-in for PyTorch's tree.

The stand-in has nothing of PyTorch: what is shown here is the way of a build, and no torch.
"""

from __future__ import annotations

import platform
from dataclasses import replace
from pathlib import Path

import pytest
from building import BESIDE, BUILD, HOST, STEPS, Build, building, hits
from running import Deployer, Run, quietly, until
from wheels import wheel

from pyinfra_gpu.stages.pytorch_build.findings import UNIT
from pyinfra_gpu_rehearsal import Lab, LabHost
from pyinfra_gpu_rehearsal.stand_in.serving import Served, serve_stand_in
from pyinfra_gpu_rehearsal.wheelhouse import lay_out_index

pytestmark = pytest.mark.rehearsal

RELEASE = "2.12.0"
BUILT = "built"  # a snapshot


@pytest.fixture(scope="session")
def stand_in(lab: Lab) -> Served:
    return serve_stand_in(lab, say=quietly)


def serve_release(lab: Lab, host: LabHost, work: Path) -> None:
    """Serve a torch of no contents as a release, in the index that the tools are from."""
    python = host.run("python3 -V").stdout.split()[1].rpartition(".")[0].replace(".", "")
    tag = f"cp{python}-cp{python}-manylinux_2_28_{platform.machine()}"
    made = wheel(work, "torch", f"{RELEASE}+cpu", tag=tag, text=RELEASE)
    lay_out_index(made.parent, lab.directory / "www/fallback")
    (lab.directory / "www/fallback/torch").rename(lab.directory / "www/build-tools/torch")


@pytest.fixture(scope="session")
def builder(deployer: Deployer, lab: Lab, stand_in: Served) -> Deployer:
    return building(lab, deployer.folder, stand_in)


@pytest.fixture(scope="session")
def built(builder: Deployer, lab: Lab) -> Run:
    """Return the run that took a bare host to a built torch; the host is kept as it then was."""
    for host in lab.up(2, say=quietly):
        lab.fresh(host.name)
    run = builder.deploy(limit=HOST)
    assert run.code == 0, run.output
    lab.snapshot(HOST, BUILT)
    return run


@pytest.fixture
def host(built: Run, lab: Lab) -> LabHost:
    return lab.restore(HOST, BUILT)


def test_a_bare_host_gets_a_torch_that_was_built_and_proven_there(
    built: Run, builder: Deployer, host: LabHost, stand_in: Served
) -> None:
    assert "torch: compile" in built.output
    assert Build(host).phase() == "prove"
    assert Build(host).finished() == STEPS
    asked = "import torch; print(torch.version.git_version, torch.library.unit_007(1))"
    said = host.run(f"/opt/pyinfra-gpu/venv/bin/python -c '{asked}'").stdout
    assert said.split() == [stand_in.commit, "8"]
    assert host.run(f"stat -c %U {BUILD} {BUILD}/wheel.json").stdout.split() == ["ubuntu"] * 2
    assert host.run("stat -c %U /opt/pyinfra-gpu/bin/pyinfra-gpu-build.py").stdout == "root\n"

    second = builder.converge(limit=HOST)
    assert second.changed(HOST) == []
    assert Build(host).finished() == STEPS
    assert builder.check(limit=HOST).code == 0


def test_a_killed_run_leaves_the_build_at_work_and_the_next_one_follows_it(
    builder: Deployer, host: LabHost
) -> None:
    other = replace(builder, data=(*builder.data, 'pytorch_flags={"USE_MKLDNN":"0"}'))
    run = other.start(limit=HOST)
    until(lambda: Build(host).reached("compile", 30), every=0.2)
    run.kill()
    run.communicate()
    # The weight is what counts where the kernel shares processors out between sessions.
    shown = host.run(f"systemctl show {UNIT} -p Nice -p CPUWeight").stdout.split()
    assert sorted(shown) == ["CPUWeight=20", "Nice=10"]
    seen = other.check(limit=HOST).deviations(HOST)["pytorch.build-missing"]
    assert "torch is being built: compile" in seen["found"]
    another = builder.check(limit=HOST).deviations(HOST)
    assert "pytorch.build-missing" not in another  # what this one wants is installed already
    followed = other.converge(limit=HOST)
    assert "torch: compile" in followed.output
    assert Build(host).finished() == STEPS
    assert other.converge(limit=HOST).changed(HOST) == []


@pytest.mark.night
def test_after_a_power_cut_all_is_made_again_from_the_cache(
    builder: Deployer, host: LabHost, lab: Lab
) -> None:
    other = replace(builder, data=(*builder.data, 'pytorch_flags={"USE_NUMA":"1"}'))
    run = other.start(limit=HOST)
    until(lambda: Build(host).reached("compile", 100), every=0.2)
    host.power_off()
    run.kill()
    run.communicate()
    host.power_on()
    host.wait_ready(60)
    assert "pytorch.build-missing" in other.check(limit=HOST).deviations(HOST)
    other.converge(limit=HOST)
    assert Build(host).finished() == STEPS
    # Of what the build before this one compiled, with other options, nothing is compiled again.
    assert hits(host) >= 300
    asked = "import torch; print(torch.library.unit_003(1))"
    assert host.run(f"/opt/pyinfra-gpu/venv/bin/python -c '{asked}'").stdout == "4\n"
    assert other.converge(limit=HOST).changed(HOST) == []


def test_a_wheel_that_was_damaged_is_not_installed_and_made_again(
    builder: Deployer, host: LabHost
) -> None:
    host.run(f"echo x >>$(ls {BUILD}/wheels/*.whl)")
    host.run("rm -rf /opt/pyinfra-gpu/venv/lib/python3*/site-packages/torch*")
    refused = builder.deploy(limit=HOST)
    assert refused.code == 1
    assert "was damaged since it was proven" in refused.problems(HOST)[0]
    builder.converge(limit=HOST)
    assert Build(host).finished() == STEPS
    assert builder.converge(limit=HOST).changed(HOST) == []


def test_one_host_builds_and_another_of_its_kind_gets_the_wheel(
    builder: Deployer, host: LabHost, lab: Lab, stand_in: Served
) -> None:
    beside = lab.fresh(BESIDE)
    both = builder.converge()
    assert f"its wheel comes from {HOST}" in both.output
    assert both.changed(HOST) == []
    assert Build(host).finished() == STEPS
    assert beside.run(f"ls {BUILD}").stdout.split() == ["wheels"]
    asked = "import torch; print(torch.version.git_version)"
    said = beside.run(f"/opt/pyinfra-gpu/venv/bin/python -c '{asked}'").stdout
    assert said.strip() == stand_in.commit
    beside.run(f"rm -rf {BUILD}/* /opt/pyinfra-gpu/venv/lib/python3*/site-packages/torch*")
    builder.converge(limit=BESIDE)  # from the controller's cache
    again = builder.converge()
    assert (again.changed(HOST), again.changed(BESIDE)) == ([], [])


@pytest.mark.night
def test_a_full_disk_and_a_lost_connection_are_told_and_the_next_run_builds_on(
    builder: Deployer, host: LabHost
) -> None:
    other = replace(builder, data=(*builder.data, 'pytorch_flags={"USE_GLOO":"0"}'))
    host.run(f"mount -t tmpfs -o size=24m,mode=755,uid=1000 build {BUILD}")
    (problem,) = other.deploy(limit=HOST).problems(HOST)
    assert "o space left" in problem, problem
    host.run(f"mount -o remount,size=1g {BUILD}")
    run = other.start(limit=HOST)
    until(lambda: Build(host).reached("compile", 30), every=0.2)
    host.network("cut")
    try:
        said = " ".join(run.communicate(timeout=300)[0].split())
    finally:
        host.network("restore")
    host.run("flock --wait 60 /run/pyinfra-gpu/lease true")  # of the run that was cut off
    assert "it goes on there, and the next run follows it" in said
    other.converge(limit=HOST)
    assert Build(host).finished() == STEPS


@pytest.mark.night
def test_a_file_that_does_not_compile_is_named_and_the_next_commit_is_built_by_the_newer_backend(
    builder: Deployer, host: LabHost, lab: Lab, tmp_path: Path
) -> None:
    broken = serve_stand_in(lab, "broken", say=quietly, broken="int y = ;")
    refused = building(lab, builder.folder, broken).deploy(limit=HOST)
    (problem,) = refused.problems(HOST)
    assert "the build of torch failed in compile" in problem
    assert "unit_279.c:2:9: error: expected expression before" in problem
    serve_release(lab, host, tmp_path)
    falling = building(lab, builder.folder, broken)
    falling = replace(falling, data=(*falling.data, f"pytorch_fallback={RELEASE}"))
    assert f"its fallback, torch {RELEASE}+cpu, takes its place" in falling.converge(HOST).output
    asked = "import torch; print(torch.text)"
    assert host.run(f"/opt/pyinfra-gpu/venv/bin/python -c '{asked}'").stdout.strip() == RELEASE
    assert "pytorch.fallback" in falling.check(limit=HOST).deviations(HOST)
    good = serve_stand_in(lab, "newer", say=quietly, scikit=True)
    newer = building(lab, builder.folder, good)
    assert newer.converge(limit=HOST).changed(HOST) == [
        "pytorch: build torch 2.13.0+cpu",
        "pytorch: install torch 2.13.0+cpu",
    ]
    assert newer.converge(limit=HOST).changed(HOST) == []
