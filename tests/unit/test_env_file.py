"""The environment file: what is written is what systemd and a shell read."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from pyinfra_gpu.errors import SpecError
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
    "a no-break\u00a0space and an ideographic one\u3000",
    "\ufeffa mark of byte order",
    "%h is no specifier here",
    "a:~/b",
    " blanks around ",
    "!history! [a-z]* {a,b}",
    "\U0001f525",
    "'single' \"double\" \\$ \\` \\\\ mixed",
    *(chr(code) for code in range(32, 127)),
    *(f"a{chr(code)}b" for code in (0xA0, 0xAD, 0xFFFD, 0x2027, 0x202A, 0x10FFFD)),
]


def spec_with(**variables: str):  # type: ignore[no-untyped-def]
    data = {"stack": "cpu-torch2.13", "environment_variables": variables}
    return resolve(data, "ws1")


MANY = {f"K{number}": value for number, value in enumerate(VALUES)}


def test_every_value_reads_back_as_it_was() -> None:
    assert env_file.parse(env_file.render(spec_with(**MANY))).items() >= MANY.items()


@pytest.mark.parametrize("shell", ["dash", "bash", "busybox sh"])
def test_a_shell_that_sources_the_file_gets_the_values_and_runs_nothing(
    shell: str, tmp_path: Path
) -> None:
    if shutil.which(shell.partition(" ")[0]) is None:
        pytest.skip(f"{shell} is not on this machine")
    file = tmp_path / "training.env"
    file.write_text(env_file.render(spec_with(**MANY)), encoding="utf-8")
    print_all = "; ".join(f"printf '%s\\0' \"${name}\"" for name in MANY)
    command = [*shell.split(), "-c", f"set -a; . {file}; {print_all}"]
    done = subprocess.run(command, capture_output=True, check=True)
    assert done.stdout.decode().split("\0")[:-1] == VALUES
    assert not done.stderr


def systemd_reads(text: str) -> dict[str, str]:
    """An EnvironmentFile as systemd's parse_env_file_internal() takes it apart, since version 239.

    Of its states those that our files can bring about: names, plain values, double quotes.
    """
    values, lines = {}, text.split("\n")
    assert lines.pop() == ""
    for line in lines:
        if line.lstrip(" \t").startswith(("#", ";")) or not line:
            continue
        name, _, rest = line.partition("=")
        value, index, quoted = "", 0, False
        while index < len(rest):
            char = rest[index]
            if quoted and char == "\\":
                index += 1
                # What needs no escape keeps its backslash.
                value += rest[index] if rest[index] in '"\\`$' else f"\\{rest[index]}"
            elif char == '"' and (quoted or not value):
                quoted = not quoted
            else:
                assert quoted or char not in "'\\", line
                value += char
            index += 1
        assert not quoted, line
        assert not any(ord(char) < 32 and char != "\t" for char in value)
        values[name] = value
    return values


def test_systemd_reads_every_value_as_it_was() -> None:
    assert systemd_reads(env_file.render(spec_with(**MANY))).items() >= MANY.items()


REFUSED = ["\u2028", "\u2029", "\x85", "\x9b", "\x7f", "\r", "\t", "\ufdd0", "\ufffe", "\U0001ffff"]


@pytest.mark.parametrize("character", REFUSED, ids=ascii)
def test_what_somebody_would_read_otherwise_is_refused_and_not_shown(character: str) -> None:
    with pytest.raises(SpecError, match="which an env file cannot hold") as error:
        spec_with(KEY=f"canary{character}")
    assert "canary" not in str(error.value)


def test_a_file_is_split_where_lines_end_and_nowhere_else() -> None:
    """A value that somebody wrote into the file by hand is one value."""
    text = 'A="one\u2028B=two\x85C=three"\nD=4\r\n'
    assert env_file.parse(text) == {"A": "one\u2028B=two\x85C=three", "D": "4"}


def test_what_is_shown_of_a_file_is_its_names() -> None:
    text = 'A=canary\nexport B=canary\n# canary\nC="canary\ncanary"\n'
    assert env_file.shown(text) == "A=***\nC=***"


def test_each_line_is_one_that_shells_systemd_and_the_launcher_all_read() -> None:
    spec = resolve({"rehearsal": True, "environment_variables": {"A": "b c"}}, "gpu1")
    for line in env_file.render(spec).splitlines():
        assert re.match(r"#|[A-Z][A-Z0-9_]*=|$", line), line


def test_the_file_says_whose_it_is_and_a_rehearsal_is_labelled() -> None:
    assert env_file.render(spec_with()).splitlines()[0] == env_file.HEADER
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
