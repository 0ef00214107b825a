"""What a look asks of a host, and why an answer cannot be read."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from pyinfra_gpu.compatibility import resolve
from pyinfra_gpu.facts.fields import Unknown, as_json
from pyinfra_gpu.facts.parse import Answer, parse
from pyinfra_gpu.facts.probe import COMMAND, asked_by, asked_of
from pyinfra_gpu.on_host import probe_program
from pyinfra_gpu.packages import files
from pyinfra_gpu.spec import Paths, system_files

ANSWER = (
    (Path(__file__).parent / "fixtures" / "probe" / "ubuntu2404-2x-rtx5090.txt")
    .read_text()
    .splitlines()
)
_FIRST = ANSWER.index("pyinfra-gpu-probe 1")
ANSWERED = "\n".join(ANSWER[_FIRST + 1 : -1])
PATHS = Paths(prefix="/opt/pyinfra-gpu", name="training")


def test_records_are_plain_data_with_unknown_fields_named_as_such() -> None:
    reported = json.loads(ANSWERED)
    reported.pop("smoke.stamp")
    lines = ["pyinfra-gpu-probe 1", json.dumps(reported), "pyinfra-gpu-probe end"]
    data = json.loads(json.dumps(parse(lines), default=lambda thing: thing.to_json()))
    assert data["driver"]["loaded"] == "580.95.05"
    assert data["gpus"]["devices"][0]["bar1"] is True
    assert data["smoke"]["stamp"] == {"unknown": "the probe did not report it"}
    assert as_json((Unknown("x"), {"a": (1, None, True)})) == [
        {"unknown": "x"},
        {"a": [1, None, True]},
    ]


def asked(**data: object) -> dict[str, Any]:
    return asked_by(resolve({"stack": "cpu-torch2.13", **data}, "ws1"), packages=("git",))


def test_a_request_asks_what_the_stages_of_a_host_need() -> None:
    training = {"training_repo": "https://example.org/x.git", "training_commit": "a" * 40}
    reported = asked(owner="alice", training_requirements="sub/requirements.txt", **training)
    assert (reported["owner"], reported["packages"], reported["nvidia"]) == (
        "alice",
        ("git",),
        False,
    )
    assert reported["requirements"] == f"{PATHS.training}/sub/requirements.txt"
    assert reported["seconds"] == 50  # of sixty: some are for the way there and back
    assert {PATHS.prefix, PATHS.env_file, PATHS.torchrun, PATHS.venv} <= {*reported["entries"]}
    assert not {*system_files.ALL, *files.ALL} & {*reported["entries"]}
    alone = asked(privilege="none", pytorch_python="/usr/bin/python3.12")
    assert (alone["training"], alone["requirements"]) == ("", "")
    assert (alone["owner"], alone["python"]) == ("-", "/usr/bin/python3.12")


def test_a_request_with_gpus_asks_for_driver_and_toolkit() -> None:
    data = {"gpu_model": "RTX 5090", "gpu_count": 2, "host_compiler": "gcc-13"}
    reported = asked_by(resolve(data, "ws1"))
    assert (reported["nvidia"], reported["cuda_release"], reported["compiler"]) == (
        True,
        "13.0",
        "gcc-13",
    )
    assert (reported["cuda_proof"], reported["libcuda_proof"]) == (
        PATHS.cuda_proof,
        PATHS.libcuda_proof,
    )
    assert {PATHS.proofs, *system_files.ALL, *files.ALL} <= {*reported["entries"]}


def test_the_program_carries_every_value_as_it_is(tmp_path: Path) -> None:
    prefix = f'{tmp_path}/it\'s; rm -rf $HOME `x` "y"'
    Path(prefix, "env").mkdir(parents=True)
    Path(prefix, "env/training.env").write_text("A=1\n")
    text = probe_program("look", asked_of(Paths(prefix=prefix, name="training")))
    reported = {"input": text, "capture_output": True, "text": True, "check": True}
    done = subprocess.run(["sh", "-c", COMMAND], **reported)  # type: ignore[call-overload]
    entry = parse(done.stdout.splitlines()).layout.entry(f"{prefix}/env/training.env")
    assert entry.kind == "file"  # type: ignore[union-attr]


BEGUN = ["pyinfra-gpu-probe 1", '{"system.user": "ubuntu"}']
END = "pyinfra-gpu-probe end"
NOT_READ: dict[str, tuple[list[str], str, bool]] = {
    "nothing": ([], "it says nothing", True),
    "no login": (["", "  This account is \x1b[2J not available.", "x"], "This account is", True),
    "cut off": (BEGUN, "its answer was cut off, so nothing is concluded", True),
    "no Python": ([BEGUN[0], '{"python3": null}', END], "installs python3-minimal first", False),
    "no JSON": ([BEGUN[0], "Killed", END], "its answer could not be read: it is no JSON", True),
}


@pytest.mark.parametrize("what", NOT_READ)
def test_nothing_is_concluded_from_an_answer_that_is_not_the_probes(what: str) -> None:
    lines, words, python = NOT_READ[what]
    answer = Answer(lines)
    assert words in str(answer.problem)
    assert str(answer.problem).isprintable()
    assert answer.python is python
    assert Answer([*BEGUN, END]).problem is None
