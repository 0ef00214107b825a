"""The main job, on real hosts: bare to proven, then nothing to do, then each drift repaired."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from running import ON_HOST, PATIENCE_S, PROVEN, Deployer, Kept, Run, written_files

from pyinfra_gpu_rehearsal import Lab, LabHost

pytestmark = pytest.mark.rehearsal

PREFIX = "/opt/pyinfra-gpu"
STAGES = [
    *("preflight", "driver", "packages", "layout", "cuda", "libcuda"),
    *("pytorch", "environment", "training", "smoke"),
]


@pytest.fixture(scope="module")
def deployed(first: Run, lab: Lab) -> Run:
    """Return the first deploy, with both hosts as it left them."""
    for host in lab.all_hosts():
        if PROVEN in host.snapshots():
            lab.restore(host.name, PROVEN)
    return first


@pytest.fixture(scope="module")
def kept(proven: Callable[[str], LabHost]) -> Kept:
    """Return gpu1, proven, which each test leaves as declared."""
    return Kept(lambda: proven("gpu1"))


def test_a_dry_run_on_bare_hosts_lists_every_stage_and_writes_not_one_file(
    bare: tuple[Run, list[str]],
) -> None:
    run, written = bare
    assert run.code == 0, run.output
    for name in ("gpu1", "gpu2"):
        assert [each["stage"] for each in run.report["hosts"][name]["stages"]] == STAGES
        assert run.status(name) == "differs"
    assert written == []


def test_one_command_takes_two_bare_hosts_to_a_checked_training_step(
    deployed: Run, lab: Lab
) -> None:
    assert deployed.code == 0, deployed.output
    for host in lab.hosts():
        verdict = deployed.report["hosts"][host.name]["smoke"]
        assert verdict["status"] == "pass"
        assert verdict["mode"] == "rehearsal-cpu"
        assert verdict["ranks"] == 2
        assert host.run(f"cat {PREFIX}/smoke/stamp.json").stdout.count("fingerprint") == 1
    assert "rehearsal-cpu" in deployed.output


def test_the_second_run_changes_nothing_through_one_channel_per_host(
    deployed: Run, deployer: Deployer, lab: Lab
) -> None:
    before = {host.name: host.ssh_sessions() for host in lab.hosts()}
    run = deployer.cold().deploy()
    assert run.code == 0, run.output
    for host in lab.hosts():
        assert run.status(host.name) == "as declared"
        assert run.changed(host.name) == []
        assert host.ssh_sessions() - before[host.name] == 1
    assert "Success" not in run.output.split("Results:")[0]


def test_a_dry_run_on_finished_hosts_finds_no_difference(deployed: Run, deployer: Deployer) -> None:
    run = deployer.dry()
    assert run.code == 0, run.output
    assert {run.status(name) for name in ("gpu1", "gpu2")} == {"as declared"}


def test_what_was_built_is_usable_by_a_person(deployed: Run, lab: Lab) -> None:
    host = lab.host("gpu1")
    torchrun = f"{PREFIX}/bin/torchrun --standalone --nproc-per-node 2 --no-python"
    command = f"cd {PREFIX}/training/training && {torchrun} sh -c 'ls train.py; echo rank $RANK'"
    said = host.run(command, root=False, timeout=PATIENCE_S).stdout.splitlines()
    assert sorted(said) == ["rank 0", "rank 1", "train.py", "train.py"]
    unit = f"systemd-run --wait --pipe -q -p EnvironmentFile={PREFIX}/env/training.env env"
    assert host.run(unit).returncode == 0


def test_no_process_has_to_compile_torch_before_it_imports_it(deployed: Run, lab: Lab) -> None:
    host = lab.host("gpu1")
    host.put(ON_HOST / "uncompiled.py", "/root/uncompiled.py")
    assert host.run(f"{PREFIX}/venv/bin/python /root/uncompiled.py").stdout == ""


def test_what_a_host_says_can_be_gathered_without_its_name(
    deployed: Run, deployer: Deployer, lab: Lab, tmp_path: Path
) -> None:
    done = deployer.verb("collect", "--folder", str(tmp_path), "--limit", "gpu1")
    assert done.returncode == 0, done.stderr
    whole = (tmp_path / "host-1.txt").read_text()
    assert '"status": "pass"' in whole
    assert '"git_version"' in whole
    assert "gpu1" not in whole
    assert lab.host("gpu1").address not in whole


DRIFTS = (
    # a shell command that breaks it, the stage that must see it, words that it must use
    (
        "DEBIAN_FRONTEND=noninteractive apt-get remove -qq -y python3-venv >/dev/null",
        "packages",
        "python3-venv",
    ),
    (
        f"echo x > $(echo {PREFIX}/venv/lib/python3*/site-packages/torch)/lib/libtorch_python.so",
        "pytorch",
        "libtorch_python.so",
    ),
    (
        f"su ubuntu -c 'cd {PREFIX}/training/training"
        " && git -c user.name=u -c user.email=u@x commit -q --allow-empty -m x'",
        "training",
        "at ",
    ),
)


def test_drift_is_seen_by_a_dry_run_and_repaired_alone(kept: Kept, deployer: Deployer) -> None:
    with kept.lent() as host:
        for command, *_ in DRIFTS:
            host.run(command)
        seen = deployer.dry(limit="gpu1")
        assert (seen.code, seen.status("gpu1")) == (0, "differs"), seen.output
        for _, stage, words in DRIFTS:
            assert words in "; ".join(seen.stage("gpu1", stage)["found"])
        changed = {each.split(":")[0] for each in deployer.converge(limit="gpu1").changed("gpu1")}
        # The proof may have to be renewed; nothing else may change along with it.
        assert changed - {"smoke"} == {"packages", "pytorch", "training"}
        assert deployer.converge(limit="gpu1").changed("gpu1") == []


@pytest.mark.night
def test_a_python_that_is_not_there_is_named_and_the_environment_goes_on(
    kept: Kept, deployer: Deployer
) -> None:
    other = replace(deployer, data=(*deployer.data, "pytorch_python=/opt/none/bin/python3"))
    with kept.lent() as host:
        host.run(f"echo mine > {PREFIX}/venv/mine", root=False)
        before = written_files(host)
        run = other.deploy(limit="gpu1")
        assert run.code == 1
        assert "there is no /opt/none/bin/python3" in " ".join(run.problems("gpu1"))
        assert written_files(host) == before
        assert deployer.converge(limit="gpu1").changed("gpu1") == []


def test_local_changes_are_reported_and_not_touched(kept: Kept, deployer: Deployer) -> None:
    file = f"{PREFIX}/training/training/train.py"
    with kept.lent() as host:
        host.run(f"cp {file} /tmp/keep && echo '# mine' >> {file}", root=False)
        run = deployer.converge(limit="gpu1")
        assert run.changed("gpu1") == []
        assert "train.py" in " ".join(run.stage("gpu1", "training")["warnings"])
        assert "local changes" in run.output
        assert host.run(f"tail -1 {file}").stdout == "# mine\n"
        host.run(f"cp /tmp/keep {file}", root=False)
        assert deployer.converge(limit="gpu1").changed("gpu1") == []


def test_a_commit_made_in_the_checkout_is_kept_on_a_branch(kept: Kept, deployer: Deployer) -> None:
    git = f"git -C {PREFIX}/training/training"
    commit = "-c user.name=u -c user.email=u@x commit -q --allow-empty -m mine"
    with kept.lent() as host:
        host.run(f"{git} {commit}", root=False)
        mine = host.run(f"{git} rev-parse HEAD", root=False).stdout.strip()
        run = deployer.converge(limit="gpu1")
        branch = f"pyinfra-gpu/kept-{mine[:12]}"
        assert branch in " ".join(run.stage("gpu1", "training")["warnings"])
        assert host.run(f"{git} rev-parse {branch}", root=False).stdout.strip() == mine
