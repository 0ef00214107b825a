"""The environment file: what is written is what systemd and a shell read."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from pyinfra_gpu.spec import env_file, resolve

VALUES = [
    "",
    "offline",
    "/usr/local/cuda-13.0",
    "expandable_segments:True,max_split_size_mb:512",
    "two words",
    'a "quoted" word',
    "it's",
    "$HOME and `id`",
    "back\\slash",
    "#not a comment",
    "a=b=c",
    "~tilde",
    "semi;colon & pipe | star *",
    "trailing backslash \\",
    "Grüße",
]


def spec_with(**variables: str):  # type: ignore[no-untyped-def]
    data = {"stack": "cpu-torch2.13", "environment_variables": variables}
    return resolve(data, "ws1")


@pytest.mark.parametrize("value", VALUES)
def test_every_value_reads_back_as_it_was(value: str) -> None:
    text = env_file.render(spec_with(KEY=value))
    assert env_file.parse(text)["KEY"] == value


@pytest.mark.parametrize("shell", ["dash", "bash", "busybox"])
@pytest.mark.parametrize("value", VALUES)
def test_a_shell_that_sources_the_file_gets_the_value_and_runs_nothing(
    value: str, shell: str, tmp_path: Path
) -> None:
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not on this machine")
    file = tmp_path / "training.env"
    file.write_text(env_file.render(spec_with(KEY=value)), encoding="utf-8")
    command = [shell, "sh"] if shell == "busybox" else [shell]
    script = f'set -a; . {file}; printf "%s" "$KEY"'
    done = subprocess.run([*command, "-c", script], capture_output=True, check=True)
    assert done.stdout.decode() == value


def test_the_file_says_whose_it_is_on_its_first_line() -> None:
    assert env_file.render(spec_with()).splitlines()[0] == env_file.HEADER


def test_a_rehearsal_is_labelled_in_the_file() -> None:
    spec = resolve({"stack": "cpu-torch2.13", "rehearsal": True}, "gpu1")
    assert "rehearsal" in env_file.render(spec)
    assert "rehearsal" not in env_file.render(spec_with())


def test_variables_that_belong_to_the_launcher_or_do_nothing_are_never_written() -> None:
    for stack in ("cpu-torch2.13", "r580-cu130"):
        written = env_file.variables(resolve({"stack": stack}, "ws1"))
        for name in ("LD_LIBRARY_PATH", "PYTHONPATH", "WORLD_SIZE", "MASTER_PORT", "USE_LIBUV"):
            assert name not in written


def test_dynamo_is_switched_off_by_exactly_one_variable() -> None:
    spec = resolve({"stack": "cpu-torch2.13", "environment_dynamo": False}, "ws1")
    assert env_file.variables(spec) == {"TORCHDYNAMO_DISABLE": "1"}


def test_a_gpu_host_names_its_toolkit_by_version_and_orders_devices_like_nvidia_smi() -> None:
    written = env_file.variables(resolve({"stack": "r580-cu130"}, "ws1"))
    assert written == {
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
        "CUDA_HOME": "/usr/local/cuda-13.0",
    }


def test_the_wrapper_is_a_shell_script_that_parses(tmp_path: Path) -> None:
    file = tmp_path / "torchrun"
    file.write_text(env_file.render_torchrun(spec_with()))
    subprocess.run(["sh", "-n", str(file)], check=True)


@pytest.mark.parametrize(
    "without", [{"cuda_toolkit": False}, {"privilege": "none", "prefix": "/home/u/gpu"}]
)
def test_no_variable_points_at_a_toolkit_that_nobody_installs(without: dict[str, object]) -> None:
    assert "CUDA_HOME" in env_file.variables(resolve({}, "gpu1"))
    assert "CUDA_HOME" not in env_file.variables(resolve(without, "gpu1"))
