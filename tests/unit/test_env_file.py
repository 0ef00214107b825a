"""The environment file: what is written is what a shell reads; the rehearsal asks systemd."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from pyinfra_gpu.errors import SpecError
from pyinfra_gpu.spec import HostSpec, env_file, resolve

VALUES = [
    "", "/usr/local/cuda-13.0", "expandable_segments:True,max_split_size_mb:512", "two words",
    'a "quoted" word', "$HOME and `id`", "back\\slash", "#not a comment", "semi;colon & pipe | *",
    "trailing backslash \\", "Grüße", " blanks around ", "!history! [a-z]* {a,b}", "\U0001f525",
    "'single' \"double\" \\$ \\` \\\\ mixed", *map(chr, range(32, 127)),
]  # fmt: skip
MANY = {f"K{number}": value for number, value in enumerate(VALUES)}


def spec_with(**variables: str) -> HostSpec:
    return resolve({"stack": "cpu-torch2.13", "environment_variables": variables}, "ws1")


@pytest.mark.parametrize("shell", ["dash", "bash"])
def test_a_shell_that_sources_the_file_gets_the_values_and_runs_nothing(
    shell: str, tmp_path: Path
) -> None:
    file = tmp_path / "training.env"
    file.write_text(env_file.render(spec_with(**MANY)), encoding="utf-8")
    print_all = "; ".join(f"printf '%s\\0' \"${name}\"" for name in MANY)
    command = [shell, "-c", f"set -a; . {file}; {print_all}"]
    done = subprocess.run(command, capture_output=True, check=True)
    assert done.stdout.decode().split("\0")[:-1] == VALUES
    assert not done.stderr


@pytest.mark.parametrize("character", ["\u2028", "\x85", "\x7f", "\r", "\t", "\ufffe"], ids=ascii)
def test_what_somebody_would_read_otherwise_is_refused_and_not_shown(character: str) -> None:
    with pytest.raises(SpecError, match="which an env file cannot hold") as error:
        spec_with(KEY=f"canary{character}")
    assert "canary" not in str(error.value)


def test_the_file_says_whose_it_is_and_a_rehearsal_is_labelled() -> None:
    rehearsal = env_file.render(resolve({"rehearsal": True}, "gpu1")).splitlines()
    assert (rehearsal[0], "rehearsal" in rehearsal[1]) == (env_file.HEADER, True)
    assert "rehearsal" not in env_file.render(spec_with())


@pytest.mark.parametrize(
    ("data", "written"),
    [
        ({"stack": "cpu-torch2.13"}, {}),
        ({"stack": "cpu-torch2.13", "environment_dynamo": False}, {"TORCHDYNAMO_DISABLE": "1"}),
        ({}, {"CUDA_DEVICE_ORDER": "PCI_BUS_ID", "CUDA_HOME": "/usr/local/cuda-13.0"}),
        ({"cuda_toolkit": False}, {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}),
        ({"privilege": "none", "prefix": "/home/u/g"}, {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}),
    ],
)
def test_what_is_written_without_being_declared(
    data: dict[str, object], written: dict[str, str]
) -> None:
    assert env_file.variables(resolve(data, "ws1")) == written
