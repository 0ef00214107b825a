"""Training runs on a throwaway host: what they outlive, and that nothing is left of them."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from running import INVENTORY, PROJECT, Deployer, OnlySmoke, OnlyStage
from training import CHECKOUT, PREFIX, RUNS, TICK, TOLD, Training, declare

from pyinfra_gpu_rehearsal import Lab, LabHost

pytestmark = pytest.mark.rehearsal

PRESETS = {
    "tick": TICK,
    "tried": {"extends": "tick", "try_with": {"steps": 3}},
    "fills": {"extends": "tick", "arguments": {"fill": "{run}/large"}},
    "short": {"extends": "tick", "arguments": {"steps": 2}},
    "returns": {"extends": "conservative", "resume_after_reboot": True},
    "ranks": {"extends": "tick", "launch": "torchrun"},
    "saves": {
        "extends": "ranks",
        "arguments": {"save": "{home}/{name}"},
        "checkpoints": "{save}/step-*",
        "resume": {"resume": "{checkpoint}"},
        "ranks": 1,
    },
}


@pytest.fixture(scope="module")
def deployed(proven: Callable[[str], LabHost], lab: Lab) -> Training:
    return declare(lab, proven("gpu1"), PRESETS)


@pytest.fixture
def train(deployed: Training) -> Iterator[Training]:
    """Return the launcher of a host on which no run is on, before and after."""
    yield deployed
    deployed.end_all()


def test_a_host_that_is_proven_starts_and_another_one_names_the_remedy(train: Training) -> None:
    said = train("start", "short")
    name = next(line for line in said.splitlines() if " started, " in line).split()[0]
    run = train.until(lambda runs: runs[name]["state"] == "ended")[name]
    assert (run["attempts"][0]["outcome"], run["unproven"]) == ("finished", False)
    assert run["dirty"]  # tick.py is nobody's commit
    stamp = f"{PREFIX}/smoke/stamp.json"
    train.host.run(f"mv {stamp} {stamp}.aside")
    said = train("start", "short", code=1)
    train.host.run(f"mv {stamp}.aside {stamp}")
    assert "no smoke test has passed here" in said
    assert "give --unproven" in said
    assert [*train.runs()][-1] == name


def test_a_try_takes_a_few_steps(train: Training) -> None:
    said = train("try", "tried", "--unproven")
    assert re.search(r"^tried +finished", said, re.MULTILINE), said
    assert "does not say how it is tried" in train("try", "tick", code=1)


def test_a_run_outlives_the_controller_and_the_login_that_started_it(
    train: Training, deployer: Deployer
) -> None:
    """The controller is killed as soon as the run is there, before it has said so."""
    before = set(train.runs())
    words = ["train", INVENTORY, "start", "tick", "--limit", "gpu1", "--", "--unproven"]
    controller = subprocess.Popen(
        [str(Path(sys.executable).parent / "pyinfra-gpu"), *words],
        cwd=PROJECT,
        env=deployer.environment(deployer.folder / "unused.json"),
        stdout=subprocess.DEVNULL,
        start_new_session=True,
    )
    (name,) = set(train.until(lambda runs: set(runs) - before)) - before
    controller.kill()
    assert controller.wait() in (0, -signal.SIGKILL)
    at = train.until(lambda runs: runs[name]["last"])[name]["last"]["step"]
    hang_up = "loginctl kill-user --signal=HUP ubuntu; pkill -KILL sshd -u ubuntu"
    train.host.run(hang_up, check=False)
    train.until(lambda runs: runs[name]["last"]["step"] > at + 3)
    assert train.runs()[name]["state"] == "running"


def test_a_disk_that_fills_in_mid_run_ends_in_one_clear_screen(train: Training) -> None:
    """The traceback and the run's end had no room either; the launcher keeps some for them."""
    train.host.run(f"mkdir -p {RUNS}", root=False)
    train.host.run(f"mount -t tmpfs -o size=8m,uid=1000 tmpfs {RUNS}")
    try:
        assert f"free below {RUNS}, and a run's logs need 1" in train("start", "fills", code=1)
        train.host.run(f"mount -o remount,size=2g {RUNS}")
        name = train.start("fills")
        train.host.run(f"mount -o remount,size=64m {RUNS}")  # it has written a fraction of that
        (run,) = train.until(lambda runs: runs[name]["state"] == "ended").values()
        free = train.host.run(f"df --output=avail {RUNS} | tail -1").stdout.strip()
        screen = train("why", name)
    finally:
        train.host.run(f"umount {RUNS}")
    assert int(free) < 2048  # KiB: nothing was deleted, and what was kept is used
    (attempt,) = run["attempts"]
    assert (attempt["outcome"], attempt["cause"]) == ("failed", "disk-full")
    assert run["last"]["step"] > 1
    assert "OSError: [Errno 28] No space left on device" in screen
    assert "A file system is full" in screen
    assert f"the disk that holds {RUNS} is full now" in " ".join(screen.split())


def losses(train: Training, name: str) -> dict[int, str]:
    """Return step -> loss as the last attempts printed it."""
    text = train.host.run(f"cat {RUNS}/{name}/metrics.jsonl").stdout
    return {each["step"]: each["loss"] for each in map(json.loads, text.splitlines())}


def test_after_a_power_cut_a_run_goes_on_as_if_it_had_not_been_cut(
    train: Training, deployer: Deployer
) -> None:
    """By itself, as its preset asks, as soon as the host is proven on this boot."""
    words = ("returns", "--set", "save-every=10", "--set", "batch-size=32")
    said = train("start", *words, "--set", "steps=40")
    whole = next(line for line in said.splitlines() if " started, " in line).split()[0]
    train("logs", "-f", whole)  # until it has ended, and cheaper than to ask again and again
    said = train("start", "--like", whole)
    name = next(line for line in said.splitlines() if " started, " in line).split()[0]
    train.until(lambda runs: ((runs[name]["last"] or {}).get("step") or 0) >= 20)
    train.host.power_off()
    train.host.power_on()
    train.host.wait_ready()
    assert train.runs()[name]["outcome"] == "lost"
    assert "since the smoke test passed, changed: the boot" in train("resume", name, code=1)
    why = " ".join(train("why", name).split())
    assert "goes on when this is done: since the smoke test passed, changed: the boot" in why
    OnlySmoke(deployer.lab, deployer.folder).converge(limit="gpu1")
    run = train.until(lambda runs: runs[name]["outcome"] == "finished")[name]
    assert [each["outcome"] for each in run["attempts"]] == ["lost", "finished"]
    assert int(Path(run["attempts"][1]["resumed_from"]).name[5:]) in (10, 20, 30)
    assert [*losses(train, whole)] == [1, 10, 20, 30, 40]
    assert losses(train, name) == losses(train, whole)
    reported = map(json.loads, train.host.run(f"cat {TOLD}").stdout.splitlines())
    events = [(each["event"], len(each["attempts"])) for each in reported if each["run"] == name]
    assert events == [("resumed", 2), ("finished", 2)]


def test_a_run_is_seen_and_explained_on_its_host_and_from_the_controller(
    train: Training, deployer: Deployer
) -> None:
    name = train.start("tick")
    train.until(lambda runs: runs[name]["last"])
    environment = "cat /proc/$(pgrep -f '^[^ ]*python -u tick.py')/environ | tr '\\0' '\\n'"
    variables = train.host.run(environment).stdout.split("\n")
    assert {"TORCHDYNAMO_DISABLE=1", "CUDA_VISIBLE_DEVICES=", "USER=ubuntu"} <= {*variables}
    assert not [each for each in variables if each.startswith("INVOCATION_ID")]
    shown = train("watch", name, "--once")
    assert re.search(r"step \d+/600 .*loss ", shown), shown
    table = deployer.train("list", limit="gpu1")
    # Runs that the tests before killed are told as well, until their preset is begun again.
    code = 2 if re.search("failed|lost", table.stdout) else 0
    assert f"1 run is on; exit code {code}" in table.stdout, table
    assert table.returncode == code
    assert re.search(rf"gpu1\S* +{name} +running +\d+/600", table.stdout), table.stdout
    stopped = deployer.train("stop", "--", name, limit="gpu1")
    assert stopped.returncode == 0, stopped
    words = ("conservative", "--set", "ranks=1", "--", "--text", "/data/shards.txt")
    failed = train.start(*words)
    train.until(lambda runs: runs[failed]["state"] == "ended")
    why = deployer.train("why", limit="gpu1")
    assert why.stdout == train("why", failed), why
    assert (
        "FileNotFoundError: [Errno 2] No such file or directory: '/data/shards.txt'" in why.stdout
    )
    assert "The program asked for /data/shards.txt, which is not there" in why.stdout
    listed = deployer.train("list", "--json", limit="gpu1")
    assert (listed.returncode, json.loads(listed.stdout)["exit_code"]) == (2, 2)


def test_two_hosts_train_one_run_together_and_one_stop_ends_both(
    train: Training, proven: Callable[[str], LabHost], deployer: Deployer, lab: Lab
) -> None:
    second = declare(lab, proven("gpu2"), PRESETS)
    # The hosts share no disk, and a checkpoint of this trainer is one folder of all ranks.
    never = ("save-every=0", "checkpoints=/var/tmp/nowhere", "steps=100000", "ranks=1")
    settings = (word for each in never for word in ("--set", each))
    words = ("--", "conservative", "--unproven", *settings)
    started = deployer.train("start", "--across", "cpu", *words)
    assert started.returncode == 0, started
    assert "started, 1 rank, with gpu2" in started.stdout
    (name,) = [name for name, run in train.runs().items() if run["state"] == "running"]
    # Rank 0 prints the steps, on whichever host it came to be.
    both = (train, second)
    train.until(lambda _: any(each.runs()[name]["last"] for each in both))
    runs = [each.runs()[name] for each in both]
    assert [(run["state"], run["across"]) for run in runs] == [("running", ["gpu1", "gpu2"])] * 2
    assert runs[0]["last"] != runs[1]["last"]
    stopped = deployer.train("stop", "--across", "cpu", "--", name)
    assert re.search(rf"{name} stopped", stopped.stdout), stopped
    assert [each.runs()[name]["state"] for each in both] == ["ended", "ended"]
    assert second.left() == []


def saved(train: Training, name: str) -> list[str]:
    said = train.host.run(f"ls /home/ubuntu/{name}", check=False)
    return sorted(said.stdout.split())


@pytest.mark.night
def test_a_run_of_two_hosts_that_failed_goes_on_where_both_can(
    train: Training, proven: Callable[[str], LabHost], deployer: Deployer, lab: Lab
) -> None:
    both = (train, declare(lab, proven("gpu2"), PRESETS))
    started = deployer.train("start", "saves", "--across", "cpu", "--", "--unproven")
    assert started.returncode == 0, started
    name = next(line.split()[0] for line in started.stdout.splitlines() if " started, " in line)
    train.until(lambda _: all(len(saved(each, name)) >= 2 for each in both))
    train.kill("^[^ ]*python -u tick.py")
    for each in both:
        each.until(lambda runs: runs[name]["state"] == "ended")
    why = " ".join(deployer.train("why").stdout.split())
    assert "was killed with SIGKILL" in why
    assert f"it was one run of gpu1, gpu2: see `train why {name}` there too" in why
    # Of what one has and the other has not, nothing goes on.
    common = min(len(saved(each, name)) for each in both)
    for each, kept in zip(both, (common, common - 1), strict=True):
        for folder in saved(each, name)[kept:]:
            each.host.run(f"rm /home/ubuntu/{name}/{folder}")
    refused = deployer.train("resume", name, "--across", "cpu")
    assert refused.returncode == 1, refused
    assert "do not have the same newest complete checkpoint (gpu1 step" in refused.stdout
    train.host.run(f"rm /home/ubuntu/{name}/{saved(train, name)[-1]}")
    newest = saved(train, name)[-1]
    resumed = deployer.train("resume", name, "--across", "cpu")
    assert resumed.returncode == 0, resumed
    for each in both:
        attempts = each.runs()[name]["attempts"]
        assert [attempt["outcome"] for attempt in attempts] == ["failed", None]
        assert attempts[1]["resumed_from"].endswith(newest)
    stopped = deployer.train("stop", "--across", "cpu", "--", name)
    assert stopped.returncode == 0, stopped
    assert both[1].left() == []


def test_a_deploy_of_another_commit_waits_for_the_run(train: Training, deployer: Deployer) -> None:
    name = train.start("tick")
    git = f"git -C {CHECKOUT} -c user.name=x -c user.email=x@y"
    train.host.run(f"{git} commit -q --allow-empty -m other", root=False)
    head = f"git -C {CHECKOUT} rev-parse HEAD"
    other = train.host.run(head, root=False).stdout
    stage = OnlyStage(lab=deployer.lab, folder=deployer.folder, stage="base training")
    run = stage.deploy(limit="gpu1")
    assert run.code == 0, run.output
    assert f"{name} is running; expected to go on" in " ".join(run.output.split())
    assert train.host.run(head, root=False).stdout == other
    ran = train.runs()[name]
    code = train.host.run(f"git -C {RUNS}/{name}/code rev-parse HEAD", root=False).stdout.strip()
    assert (ran["state"], code) == ("running", ran["commit"])
    assert code != other.strip()
    train("stop", name)
    train.host.run(f"rm {CHECKOUT}/tick.py")
    stage.converge(limit="gpu1")
    assert train.host.run(head, root=False).stdout != other
