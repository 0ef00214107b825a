"""What must not reach a rank, where torch would come from, and what a person is shown."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest
from pyinfra_gpu.on_host.smoke.checks import single
from pyinfra_gpu.on_host.smoke.gpu import transport
from pyinfra_gpu.on_host.smoke.judge.verdict import CheckResult
from pyinfra_gpu.on_host.smoke.launcher.progress import Announcer

from pyinfra_gpu.on_host.smoke import environment, torch_location
from pyinfra_gpu.on_host.smoke.journal import Reader, Writer

_STRAYS = (
    *("NCCL_DEBUG", "NCCL_P2P_DISABLE", "GLOO_SOCKET_IFNAME", "TORCHELASTIC_USE_AGENT_STORE"),
    *("MASTER_ADDR", "MASTER_PORT", "WORLD_SIZE", "RANK", "LOCAL_RANK"),
    *("LD_LIBRARY_PATH", "LD_PRELOAD", "PYTHONPATH", "PYTHONHOME", "TORCH_DISTRIBUTED_DEBUG"),
)


@pytest.mark.parametrize("name", _STRAYS)
def test_a_stray_variable_is_found_and_does_not_reach_the_ranks(name: str) -> None:
    given = {name: "x", "HOME": "/root", "USE_LIBUV": "0"}
    assert environment.stray(given) == {name: "x"}
    assert environment.for_cpu(given).get(name) != "x"
    assert environment.for_cpu(given)["HOME"] == "/root"


def test_what_training_would_see_too_is_kept() -> None:
    kept = {"USE_LIBUV": "0", "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1", "TORCHDYNAMO_DISABLE": "1"}
    assert environment.stray(kept) == {}
    assert kept.items() <= environment.for_cpu(kept).items()


def test_in_a_rank_what_torchrun_and_the_launcher_set_is_not_stray() -> None:
    rank = environment.for_cpu({"MASTER_PORT": "1", "RANK": "0", "TORCHELASTIC_RUN_ID": "x"})
    rank |= {"MASTER_PORT": "4711", "RANK": "1", "TORCHELASTIC_RUN_ID": "y"}
    assert environment.stray_in_rank(rank) == []
    assert environment.stray_in_rank({**rank, "LD_PRELOAD": "x", "NCCL_ALGO": "Ring"}) == [
        "LD_PRELOAD",
        "NCCL_ALGO",
    ]


_OF_CUDA = ("CUDA_VISIBLE_DEVICES", "CUDA_LAUNCH_BLOCKING", "NVIDIA_TF32_OVERRIDE")


@pytest.mark.parametrize("name", [*_STRAYS, *_OF_CUDA, "TORCH_NCCL_BLOCKING_WAIT"])
@pytest.mark.parametrize("mode", ["gpu", "rehearsal-1gpu"])
def test_on_gpus_more_variables_are_stray(name: str, mode: str) -> None:
    assert environment.stray({name: "x"}, mode) == {name: "x"}
    assert environment.clean({name: "x"}, mode).get(name) != "x"


def test_a_cpu_host_may_hide_its_gpus_and_allocators_are_the_users_choice() -> None:
    assert environment.stray(dict.fromkeys(_OF_CUDA, "x")) == {}
    assert environment.stray({"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}, "gpu") == {}


def test_on_gpus_devices_are_counted_as_nvidia_smi_does_and_nccls_log_is_ours(
    tmp_path: Path,
) -> None:
    rank = environment.clean({"CUDA_DEVICE_ORDER": "FASTEST_FIRST"}, "gpu")
    assert rank["CUDA_DEVICE_ORDER"] == "PCI_BUS_ID"
    assert "GLOO_SOCKET_IFNAME" not in rank
    rank |= {**transport.environment(tmp_path), **environment.flight_recorder(tmp_path)}
    assert environment.stray_in_rank(rank, "gpu") == []
    assert environment.stray_in_rank({**rank, "NCCL_ALGO": "Ring"}, "gpu") == ["NCCL_ALGO"]


def _torch_in(directory: Path, version: str) -> str:
    package = directory / "torch"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("raise SystemExit('imported')")
    (package / "version.py").write_text(f"__all__ = []\n__version__ = '{version}'\ncuda = None\n")
    return str(directory)


def test_torch_is_located_and_its_version_read_without_importing_it(tmp_path: Path) -> None:
    first, second = _torch_in(tmp_path / "a", "2.13.0+cpu"), _torch_in(tmp_path / "b", "1.0")
    found = torch_location.locate([first, second])
    assert (found.found, found.version) == (f"{first}/torch", "2.13.0+cpu")
    assert not found.own


def test_torch_in_the_interpreters_own_packages_is_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    packages = _torch_in(tmp_path, "2.13.0")
    monkeypatch.setattr(torch_location.sysconfig, "get_path", lambda _: packages)
    assert torch_location.locate([packages]).own


def test_no_torch_is_no_torch(tmp_path: Path) -> None:
    found = torch_location.locate([str(tmp_path)])
    assert (found.found, found.version, found.own) == (None, None, False)


def test_a_version_file_that_says_nothing_gives_no_version(tmp_path: Path) -> None:
    path = _torch_in(tmp_path, "2.13.0")
    (tmp_path / "torch" / "version.py").write_text("from ._version import *\n")
    assert torch_location.locate([path]).version is None


def test_a_process_reports_its_torch_without_symbolic_links_as_it_is_located(
    tmp_path: Path,
) -> None:
    (tmp_path / "lib64").symlink_to(tmp_path / "lib")
    _torch_in(tmp_path / "lib", "2.13.0")
    linked = tmp_path / "lib64" / "torch" / "__init__.py"
    module = ModuleType("torch")
    vars(module).update(__file__=str(linked), __version__="2.13.0")
    reported = single.identity(module)["torch_path"]
    located = torch_location.locate([str(tmp_path / "lib64")]).found
    assert reported == f"{located}/__init__.py" == str(linked.resolve())


def test_lines_carry_the_mode_and_fit_80_columns(capsys: pytest.CaptureFixture[str]) -> None:
    announcer = Announcer("rehearsal-cpu")
    announcer.say("word " * 60)
    announcer.quote("x" * 200)
    announcer.check(CheckResult("S4.allreduce_exact_bf16", "pass", seconds=123.4, detail="y" * 90))
    announcer.check(CheckResult("S4.finished", "pass", detail="exit code 0"))
    lines = capsys.readouterr().out.splitlines()
    assert all(line.startswith("[rehearsal-cpu] ") and len(line) <= 80 for line in lines)
    assert lines[-1].endswith("  exit code 0")


def test_a_reader_that_has_gone_does_not_end_the_test(tmp_path: Path) -> None:
    program = (
        "import sys\n"
        "from pyinfra_gpu.on_host.smoke.launcher.progress import Announcer\n"
        "announcer = Announcer('m')\n"
        "for _ in range(3): announcer.say('hello')\n"
        "open(sys.argv[1], 'w').write('went on')\n"
    )
    closed, out = os.pipe()
    os.close(closed)  # nobody will ever read standard output
    proof = tmp_path / "proof"
    try:
        run = subprocess.run(
            [sys.executable, "-c", program, str(proof)],
            stdout=out,
            stderr=subprocess.PIPE,
            text=True,
            timeout=300,
            check=False,
        )
    finally:
        os.close(out)
    assert run.returncode == 0, run.stderr
    assert proof.read_text() == "went on"


def test_a_journal_is_followed_line_by_line_and_never_half_a_line(tmp_path: Path) -> None:
    writer, reader = Writer(tmp_path, 1), Reader(tmp_path)
    assert not reader.follow()
    writer.started(pid=77)
    with writer.measuring("store") as value:
        value["port"] = 4711
    assert reader.follow()
    with (tmp_path / "rank1.jsonl").open("a") as file:
        file.write('{"kind": "finished", "ti')
    assert not reader.follow()
    journal = reader.journals[1]
    assert (journal.pid, journal.step, journal.facts) == (77, "store", {"store": {"port": 4711}})
    assert not journal.finished
    with (tmp_path / "rank1.jsonl").open("a") as file:
        file.write('me": 1.0}\n')
    assert reader.follow()
    assert journal.finished


def test_a_measurement_that_raises_leaves_its_step_and_no_fact(tmp_path: Path) -> None:
    writer, reader = Writer(tmp_path, 0), Reader(tmp_path)
    error = ValueError("spilt\nmilk")
    with pytest.raises(ValueError, match="spilt"), writer.measuring("broadcast"):
        raise error
    writer.error(error)
    reader.follow()
    journal = reader.journals[0]
    assert (journal.step, journal.facts, journal.error) == (
        "broadcast",
        {},
        "ValueError: spilt\nmilk",
    )
    lines = (tmp_path / "rank0.jsonl").read_text().splitlines()
    assert [json.loads(line)["kind"] for line in lines] == ["step", "error"]
