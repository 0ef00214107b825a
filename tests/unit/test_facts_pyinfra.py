"""The facts as pyinfra runs them: arguments, errors of one host, JSON on the terminal."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
from pathlib import Path
from types import SimpleNamespace

import pytest
from pyinfra.api.arguments import all_global_arguments
from pyinfra.api.exceptions import FactProcessError, FactValueError

from pyinfra_gpu.facts.fields import Unknown, as_json
from pyinfra_gpu.facts.parse import hidden
from pyinfra_gpu.facts.probe import Look, NoPythonError, ProbeRequest, RecordFact, command, text_of
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


def test_the_fact_takes_no_argument_that_pyinfra_keeps_for_itself() -> None:
    reserved = {name for name, _ in all_global_arguments()}
    names = set(Look.command.__annotations__)
    assert {"prefix", "environment"} <= names
    assert names & reserved == set()


def test_records_are_plain_data_with_unknown_fields_named_as_such() -> None:
    told = json.loads(ANSWERED)
    told.pop("smoke.stamp")
    lines = ["pyinfra-gpu-probe 1", json.dumps(told), "pyinfra-gpu-probe end"]
    record = RecordFact().process(lines)
    data = json.loads(json.dumps(record, default=lambda thing: thing.to_json()))
    assert data["driver"]["loaded"] == "580.95.05"
    assert data["gpus"]["devices"][0]["bar1_mib"] == 32768
    assert data["smoke"]["stamp"] == {"unknown": "the probe did not report it"}
    assert as_json((Unknown("x"), {"a": (1, None, True)})) == [
        {"unknown": "x"},
        {"a": [1, None, True]},
    ]


def test_a_request_for_a_spec_asks_what_its_stages_need() -> None:
    spec = SimpleNamespace(
        paths=PATHS,
        pytorch=SimpleNamespace(python="python3", building=None, source="wheel"),
        look_timeout_s=60,
        accelerator="cpu",
        owner="alice",
        privilege="sudo",
        training=SimpleNamespace(requirements="sub/requirements.txt"),
    )
    request = ProbeRequest.for_spec(spec, entries=("/etc/x",), packages=("git",))  # type: ignore[arg-type]
    assert request.training == PATHS.training
    assert request.requirements == f"{PATHS.training}/sub/requirements.txt"
    assert request.training_stamp == f"{PATHS.venv}/.pyinfra-gpu-training.json"
    assert request.packages == ("git",)
    assert request.owner == "alice"
    assert request.python == ""
    assert request.entries[-1] == "/etc/x"
    assert request.seconds == 50  # of sixty: some are for the way there and back
    for path in (PATHS.prefix, PATHS.env_file, PATHS.torchrun, PATHS.smoke_bundle, PATHS.venv):
        assert path in request.entries


def test_a_spec_without_a_training_repository_asks_for_none() -> None:
    spec = SimpleNamespace(
        paths=PATHS,
        pytorch=SimpleNamespace(python="python3", building=None, source="wheel"),
        look_timeout_s=60,
        accelerator="cpu",
        training=None,
        owner=None,
        privilege="sudo",
    )
    request = ProbeRequest.for_spec(spec)  # type: ignore[arg-type]
    assert (request.training, request.requirements, request.owner) == ("", "", "")
    spec.pytorch.python = "/usr/bin/python3.12"
    assert ProbeRequest.for_spec(spec).python == "/usr/bin/python3.12"  # type: ignore[arg-type]
    spec.privilege = "none"
    assert ProbeRequest.for_spec(spec).owner == "-"  # type: ignore[arg-type]


def test_a_spec_with_gpus_asks_for_driver_and_toolkit_and_one_without_does_not() -> None:
    spec = SimpleNamespace(
        paths=PATHS,
        pytorch=SimpleNamespace(python="python3", building=None, source="wheel"),
        look_timeout_s=60,
        accelerator="nvidia",
        owner=None,
        privilege="sudo",
        training=None,
        cuda=SimpleNamespace(release="13.0", host_compiler="gcc-13"),
        driver=SimpleNamespace(repository=SimpleNamespace(url="https://h/{distro}/{arch}")),
    )
    request = ProbeRequest.for_spec(spec, packages=("git",))  # type: ignore[arg-type]
    assert (request.nvidia, request.cuda_release, request.compiler) == (True, "13.0", "gcc-13")
    assert request.repository == "https://h/{distro}/{arch}"
    assert request.keyring == system_files.KEYRING
    assert (request.cuda_proof, request.libcuda_proof) == (PATHS.cuda_proof, PATHS.libcuda_proof)
    assert {PATHS.proofs, *system_files.ALL, *files.ALL} <= set(request.entries)
    assert "'cuda_release': '13.0'" in text_of(request)

    spec.accelerator = "cpu"
    without = ProbeRequest.for_spec(spec)  # type: ignore[arg-type]
    assert (without.nvidia, without.cuda_release, without.keyring) == (False, "", "")
    assert not {*system_files.ALL, *files.ALL} & set(without.entries)


@pytest.mark.parametrize("name", ["cuda_release", "compiler", "repository"])
def test_a_text_that_would_break_the_framing_is_refused(name: str) -> None:
    request = ProbeRequest.for_paths(PATHS, nvidia=True)
    with pytest.raises(FactValueError, match=f"{name} .* holds control characters"):
        dataclasses.replace(request, **{name: "13.0\nrm"})


@pytest.mark.parametrize("path", ["relative", "/a\nb", "/a\0", "~/x"])
def test_a_path_that_would_break_the_framing_is_refused(path: str) -> None:
    with pytest.raises(FactValueError, match="must be absolute and without control characters"):
        ProbeRequest.for_paths(Paths(prefix=path, name="training"))


def test_the_command_carries_every_value_as_it_is(tmp_path: Path) -> None:
    prefix = f'{tmp_path}/it\'s; rm -rf $HOME `x` "y"'
    Path(prefix, "env").mkdir(parents=True)
    Path(prefix, "env/training.env").write_text("A=1\n")
    request = ProbeRequest.for_paths(Paths(prefix=prefix, name="training"))
    text = command(request).get_raw_value()
    done = subprocess.run(["sh", "-c", text], capture_output=True, text=True, check=True)
    assert RecordFact().process(done.stdout.splitlines()).environment.text == hidden("A=1\n")
    assert repr(request) == f"<what lies under {prefix}>"


def pyinfra(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    known = {**os.environ, "PYINFRA_PROGRESS": "off"}
    return forked.run(["pyinfra", *words], known, 300, folder=folder)


def test_pyinfra_prints_a_record_as_json(tmp_path: Path) -> None:
    (tmp_path / "inventory.py").write_text('hosts = ["@local"]\n')
    (tmp_path / "prefix/env").mkdir(parents=True)
    (tmp_path / "prefix/env/lab.env").write_text("A=1\n")
    done = pyinfra(
        *(tmp_path, "--json", "inventory.py", "fact"),
        "pyinfra_gpu.facts.probe.Look",
        *(f"prefix={tmp_path}/prefix", "environment=lab"),
    )
    assert done.returncode == 0, done.stderr
    (facts,) = json.loads(done.stdout).values()
    assert facts["@local"]["environment"]["text"] == "A=***"


def test_a_wrong_argument_is_told_in_one_sentence_and_without_a_traceback(tmp_path: Path) -> None:
    (tmp_path / "inventory.py").write_text('hosts = ["@local"]\n')
    fact = "pyinfra_gpu.facts.probe.Look"
    done = pyinfra(tmp_path, "inventory.py", "fact", fact, "prefix=opt")
    assert "the path 'opt' must be absolute" in done.stderr
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
