"""The facts as pyinfra runs them: arguments, errors of one host, JSON on the terminal."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest
from pyinfra.api.exceptions import FactProcessError

from pyinfra_gpu.compatibility import resolve
from pyinfra_gpu.facts.fields import Unknown, as_json
from pyinfra_gpu.facts.probe import NoPythonError, RecordFact, asked_by, asked_of, command, text_of
from pyinfra_gpu.packages import files
from pyinfra_gpu.spec import Paths, system_files
from tests import forked

ANSWER = (
    (Path(__file__).parent / "fixtures" / "probe" / "ubuntu2404-2x-rtx5090.txt")
    .read_text()
    .splitlines()
)
_FIRST = ANSWER.index("pyinfra-gpu-probe 1")
ANSWERED = "\n".join(ANSWER[_FIRST + 1 : -1])
PATHS = Paths(prefix="/opt/pyinfra-gpu", name="training")


def test_another_answer_than_the_probes_fails_that_host_in_one_sentence() -> None:
    with pytest.raises(FactProcessError) as caught:
        RecordFact().process(["", "  This account is currently not available.", "x"])
    message = str(caught.value)
    assert "'This account is currently not available.'" in message
    assert "\n" not in message


def test_records_are_plain_data_with_unknown_fields_named_as_such() -> None:
    told = json.loads(ANSWERED)
    told.pop("smoke.stamp")
    lines = ["pyinfra-gpu-probe 1", json.dumps(told), "pyinfra-gpu-probe end"]
    record = RecordFact().process(lines)
    data = json.loads(json.dumps(record, default=lambda thing: thing.to_json()))
    assert data["driver"]["loaded"] == "580.95.05"
    assert data["gpus"]["devices"][0]["bar1"] is True
    assert data["smoke"]["stamp"] == {"unknown": "the probe did not report it"}
    assert as_json((Unknown("x"), {"a": (1, None, True)})) == [
        {"unknown": "x"},
        {"a": [1, None, True]},
    ]


def test_a_request_asks_what_the_stages_of_a_host_need() -> None:
    asked = asked_by(
        resolve(
            {
                "stack": "cpu-torch2.13",
                "owner": "alice",
                "training_repo": "https://example.org/x.git",
                "training_commit": "a" * 40,
                "training_requirements": "sub/requirements.txt",
            },
            "ws1",
        ),
        packages=("git",),
    )
    assert (asked["owner"], asked["packages"], asked["python"]) == ("alice", ("git",), "")
    assert (asked["nvidia"], asked["cuda_release"], asked["keyring"]) == (False, "", "")
    assert asked["requirements"] == f"{PATHS.training}/sub/requirements.txt"
    assert asked["training_stamp"] == f"{PATHS.venv}/.pyinfra-gpu-training.json"
    assert asked["seconds"] == 50  # of sixty: some are for the way there and back
    assert {PATHS.prefix, PATHS.env_file, PATHS.torchrun, PATHS.venv} <= {*asked["entries"]}
    assert not {*system_files.ALL, *files.ALL} & {*asked["entries"]}
    data = {"stack": "cpu-torch2.13", "privilege": "none", "pytorch_python": "/usr/bin/python3.12"}
    alone = asked_by(resolve(data, "ws1"))
    assert (alone["training"], alone["requirements"]) == ("", "")
    assert (alone["owner"], alone["python"]) == ("-", "/usr/bin/python3.12")


def test_a_request_with_gpus_asks_for_driver_and_toolkit() -> None:
    data = {"gpu_model": "RTX 5090", "gpu_count": 2, "host_compiler": "gcc-13"}
    asked = asked_by(resolve(data, "ws1"))
    assert asked["nvidia"]
    assert (asked["cuda_release"], asked["compiler"]) == ("13.0", "gcc-13")
    assert asked["keyring"] == system_files.KEYRING
    assert (asked["cuda_proof"], asked["libcuda_proof"]) == (PATHS.cuda_proof, PATHS.libcuda_proof)
    assert {PATHS.proofs, *system_files.ALL, *files.ALL} <= {*asked["entries"]}
    assert "'cuda_release': '13.0'" in text_of(asked)


def test_the_command_carries_every_value_as_it_is(tmp_path: Path) -> None:
    prefix = f'{tmp_path}/it\'s; rm -rf $HOME `x` "y"'
    Path(prefix, "env").mkdir(parents=True)
    Path(prefix, "env/training.env").write_text("A=1\n")
    asked = asked_of(Paths(prefix=prefix, name="training"))
    text = command(asked).get_raw_value()
    done = subprocess.run(["sh", "-c", text], capture_output=True, text=True, check=True)
    record = RecordFact().process(done.stdout.splitlines())
    assert record.layout.entry(f"{prefix}/env/training.env").kind == "file"  # type: ignore[union-attr]


def pyinfra(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    known = {**os.environ, "PYINFRA_PROGRESS": "off"}
    return forked.run(["pyinfra", *words], known, 300, folder=folder)


def test_pyinfra_prints_a_record_as_json_and_a_wrong_value_as_one_sentence(tmp_path: Path) -> None:
    inventory = tmp_path / "inventory.py"
    fact = ("--json", "inventory.py", "fact", "pyinfra_gpu.facts.probe.Look")
    data = {"stack": "cpu-torch2.13", "prefix": str(tmp_path / "prefix"), "privilege": "none"}
    (tmp_path / "prefix/env").mkdir(parents=True)
    (tmp_path / "prefix/env/training.env").write_text("A=1\n")
    inventory.write_text(f"hosts = [('@local', {data!r})]\n")
    done = pyinfra(tmp_path, *fact)
    assert done.returncode == 0, done.stderr
    (facts,) = json.loads(done.stdout).values()
    assert facts["@local"]["layout"]["entries"][f"{data['prefix']}/env/training.env"]["size"] == 4
    inventory.write_text(f"hosts = [('@local', {data | {'prefix': 'opt'}!r})]\n")
    done = pyinfra(tmp_path, *fact)
    assert "prefix = 'opt'" in done.stderr
    assert "Traceback" not in done.stderr


def test_nothing_is_concluded_from_an_answer_without_its_end() -> None:
    """Each fact that it lacked was one more thing that could not be told, beside deviations."""
    begun = ["pyinfra-gpu-probe 1", '{"system.user": "ubuntu"}']
    with pytest.raises(FactProcessError, match=r"^its answer was cut off, so nothing"):
        RecordFact().process(begun)
    assert RecordFact().process([*begun, "pyinfra-gpu-probe end"]).system.user == "ubuntu"


def test_a_host_without_python_is_told_what_helps() -> None:
    lines = ["pyinfra-gpu-probe 1", '{"python3": null}', "pyinfra-gpu-probe end"]
    with pytest.raises(NoPythonError, match="installs python3-minimal first"):
        RecordFact().process(lines)
