"""A host without one of the tools: what it told is unknown with the reason, the rest is told."""

from __future__ import annotations

import functools
import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import verdicts

sys.path.append(str(Path(__file__).parent / "fixtures" / "probe"))
from nvidia_tree import (
    ARCH,
    NEWEST,
    VERSION,
    asked,
    furnish_nvidia,
)
from probing import TOOLS, Tree, checkout, shell_fixture, tree_fixture, write  # noqa: F401
from test_probe_script import impatient

from pyinfra_gpu.facts.fields import Unknown

GPU = "sys/bus/pci/devices/0000:01:00.0"
LIBRARY = f"/usr/lib/{ARCH}-linux-gnu/libcuda.so.{VERSION}"

# tool -> what may be unknown without it, and the reason it is told with
NEEDED = {
    "awk": (
        [
            *("packages.installed", "packages.half_configured", "nvidia.packages"),
            *("nvidia.history", "nvidia.lost"),
        ],
        "awk is not on this host",
    ),
    "chroot": ([], ""),
    "cut": (["nvidia.lost"], "cut is not on this host"),
    "df": (
        [
            *("storage.free_mib", "storage.usr_mib", "storage.var_mib", "storage.boot_mib"),
            *("storage.shm_mib", "storage.shm_free_mib"),
            "storage.inodes",
        ],
        "df is not on this host",
    ),
    "dpkg-query": (
        ["packages.installed", "packages.half_configured", "nvidia.packages"],
        "dpkg-query is not on this host",
    ),
    "env": ([], ""),
    "find": (["driver.users"], "find is not on this host"),
    "g++": (["cuda.gxx"], ""),
    "gcc": (["cuda.gcc"], ""),
    "getconf": ([], ""),  # the environment's Python tells the same
    "git": (
        [
            *("training.commit", "training.remote", "training.dirty", "training.dirty_count"),
            *("training.submodules", "training.lfs", "training.dirty_submodules"),
        ],
        "git is not on this host",
    ),
    "grep": (["cuda.shell_lines", "environment.for_all"], "grep is not on this host"),
    "gzip": (["nvidia.history"], ""),
    "head": ([], ""),
    "id": ([], ""),
    "ldconfig": (
        ["driver.libcuda", "driver.libml", "libcuda.cache"],
        "ldconfig is not on this host",
    ),
    "ls": ([], ""),
    "md5sum": (["nvidia.lost"], "md5sum is not on this host"),
    "modinfo": (
        ["driver.on_disk", "driver.on_disk_open", "kernel.modules"],
        "modinfo is not on this host",
    ),
    "mokutil": (["driver.mok"], ""),
    "od": (
        [
            # Small plain texts are read by the shell.
            *(
                "smoke.verdict",
                "smoke.verdict_sha256",
                "smoke.stamp",
                "cuda.proof",
                "libcuda.proof",
            ),
            *("nvidia.keyring", "driver.mok", "system.secure_boot"),
        ],
        "",
    ),
    "readlink": (
        [
            *("driver.libcuda", "driver.libml", "layout.link.target"),
            *("cuda.alternative", "libcuda.links", "libcuda.cache"),
        ],
        "read",
    ),
    "sed": ([], ""),
    "setpriv": ([], ""),
    "sha256sum": (
        ["training.requirements_sha256", "layout.file.sha256"],
        "sha256sum is not on this host",
    ),
    "sleep": ([], ""),
    "sort": (
        ["kernel.installed", "kernel.modules", "kernel.headers", "kernel.initramfs"],
        "sort is not on this host",
    ),
    "systemctl": (
        ["driver.persistenced", "driver.persistenced_enabled"],
        "systemctl is not on this host",
    ),
    "timeout": ([], ""),
    "true": ([], ""),
    "xargs": (["nvidia.lost"], "xargs is not on this host"),
    "uname": (
        [
            *("system.architecture", "libcuda.libdir", "libcuda.cache", "libcuda.links"),
            "libcuda.files",
        ],
        "uname is not on this host",
    ),
}
# Without these the answer is known: the compiler is not there, nobody can be asked for the key, the
# log before this one is not read.
TOLD = {"g++": "cuda.gxx", "gcc": "cuda.gcc", "gzip": "nvidia.history", "mokutil": "driver.mok"}


def furnish(tree: Tree) -> None:
    """A host on which every tool has something to tell."""
    tree.venv()
    checkout(tree)
    write(tree.prefix / "env/training.env", "{}\n")
    write(tree.prefix / "smoke/stamp.json", json.dumps(verdicts.stamp()))
    write(tree.prefix / "state/verdict.json", json.dumps(verdicts.document()))
    write(tree.prefix / "venv/.pyinfra-gpu-training.json", "{}\n")
    (tree.prefix / "link").symlink_to("nowhere")
    for name, text in {"vendor": "0x10de", "device": "0x2b85", "class": "0x030000"}.items():
        write(tree.root / GPU / name, f"{text}\n")
    write(tree.root / GPU / "resource", "0x1000000 0x1ffffff 0x40200\n" + "0x0 0x0 0x0\n" * 5)
    (tree.root / "sys/bus/pci/drivers/nvidia").mkdir(parents=True)
    (tree.root / GPU / "driver").symlink_to("../../drivers/nvidia")
    furnish_nvidia(tree)
    write(tree.root / "var/lib/dpkg/info/libcuda1.md5sums", "")
    write(tree.root / "sys/firmware/efi/efivars/SecureBoot-1", b"\x06\0\0\0\x01")
    write(tree.root / "var/lib/dkms/mok.pub", "")
    tree.tool("mokutil", 'echo "$2 is already enrolled"')


def flat(tree: Tree, data: object, name: str = "") -> dict[str, object]:
    """All fields by their dotted names; the layout's paths by short names, unknowns as such."""
    if isinstance(data, dict) and set(data) == {"unknown"}:
        return {name: Unknown(data["unknown"])}
    if not data or not isinstance(data, (dict, list)):
        return {name: data}
    found: dict[str, object] = {}
    for key, value in data.items() if isinstance(data, dict) else enumerate(data):
        if name == "layout.entries":
            inner = {"env/training.env": "layout.file", "link": "layout.link"}.get(
                str(Path(key).relative_to(tree.prefix)), f"layout.{key}"
            )
        else:
            inner = f"{name}.{key}".lstrip(".")
        found |= flat(tree, value, inner)
    return found


def see(tree: Tree, shell: str) -> dict[str, object]:
    request = asked(
        tree, entries=(str(tree.prefix / "env/training.env"), str(tree.prefix / "link"))
    )
    return flat(tree, tree.look(shell, request).to_json())


def test_with_every_tool_nothing_is_unknown(tree: Tree, shell: str) -> None:
    furnish(tree)
    fields = see(tree, shell)
    assert [name for name, value in fields.items() if isinstance(value, Unknown)] == []
    assert fields["gpus.devices.0.driver"] == "nvidia"
    assert fields["driver.libcuda"] == f"{tree.root}{LIBRARY}"
    assert fields[f"kernel.modules.{NEWEST}"] == VERSION
    assert (fields["driver.mok"], fields["cuda.nvcc"]) == (True, "13.0")
    assert fields["layout.link.target"] == "nowhere"


def test_the_table_of_tools_names_every_tool_of_the_probe() -> None:
    # By `cat` the probe itself is read.
    assert set(NEEDED) | {"python3", "stat", "cat"} == set(TOOLS) | {
        *("modinfo", "ldconfig", "systemctl", "mokutil", "gcc", "g++", "getconf")
    }


@pytest.fixture(scope="module")
def furnished(tmp_path_factory: pytest.TempPathFactory) -> Tree:
    """One host with everything, for the tests that leave it as it was."""
    tree = Tree(tmp_path_factory.mktemp("furnished") / "host")
    furnish(tree)
    return tree


@pytest.fixture(scope="module")
def whole(furnished: Tree) -> Callable[[str], dict[str, object]]:
    """What that host says, asked once by each shell."""
    return functools.cache(functools.partial(see, furnished))


@contextmanager
def without(tree: Tree, tool: str) -> Iterator[None]:
    """Have the tree lack a tool for a while."""
    place, aside = tree.tools / tool, tree.base / f"{tool}.aside"
    place.rename(aside)
    try:
        yield
    finally:
        aside.rename(place)


@pytest.mark.parametrize("tool", sorted(NEEDED))
def test_without_a_tool_only_its_fields_are_unknown(
    furnished: Tree, whole: Callable[[str], dict[str, object]], shell: str, tool: str
) -> None:
    every = whole(shell)
    with without(furnished, tool):
        less = see(furnished, shell)
    compare(less, every, shell, tool)


def compare(less: dict[str, object], whole: dict[str, object], shell: str, tool: str) -> None:
    """See that all that `less` lacks of `whole` is what the tool is needed for."""
    names, reason = NEEDED[tool]
    for name in names:
        # Busybox may carry the tool in itself; its answer must then be the right one.
        value = less.get(name)
        if (name, value) == ("libcuda.libdir", ""):  # how that one says "unknown"
            continue
        if not isinstance(value, Unknown) and (shell == "busybox" or tool in TOLD):
            assert tool in TOLD or part(less, name) == part(whole, name), name
            continue
        assert isinstance(value, Unknown), name
        assert reason in value.reason
    changing = (
        "storage.free_mib",
        "storage.usr_mib",
        "storage.var_mib",
        "storage.boot_mib",
        "storage.shm_free_mib",
        "storage.inodes",
    )  # others write
    allowed = tuple(f"{name}." for name in (*names, *changing))
    for name in less.keys() | whole.keys():
        if not f"{name}.".startswith(allowed):
            assert less[name] == whole[name], name


def part(fields: dict[str, object], name: str) -> dict[str, object]:
    return {key: value for key, value in fields.items() if f"{key}.".startswith(f"{name}.")}


def test_without_these_the_answer_is_none_or_less(tree: Tree) -> None:
    furnish(tree)
    for tool in TOLD:
        (tree.tools / tool).unlink()
    less = see(tree, "dash")
    assert (less["cuda.gxx"], less["cuda.gcc"], less["driver.mok"]) == (False, None, None)
    assert less["nvidia.history.0.when"] == "2026-11-20T10:00:00"


def test_without_stat_the_layout_and_the_lock_are_unknown(tree: Tree, shell: str) -> None:
    furnish(tree)
    write(tree.root / "proc/locks", "1: POSIX  ADVISORY  WRITE 812 08:01:11 0 EOF\n")
    (tree.tools / "stat").unlink()
    record = tree.look(shell)
    if shell == "busybox" and record.packages.lock_holder is None:
        pytest.skip("this busybox carries stat in itself")
    reason = Unknown("stat is not on this host")
    assert record.packages.lock_holder == reason
    assert record.layout.entry(str(tree.prefix / "venv")) == reason
    assert record.torch.version == "2.13.0+cpu"
    # What the owner can write decides as whom root looks at it: root must not guess.
    if record.system.uid == 0:
        record = tree.look(shell, tree.request(owner="nobody"))
        assert record.torch.python == reason
        assert record.torch.version == reason
        assert record.training.commit == reason


def test_what_one_program_can_tell_is_asked_of_one(tree: Tree) -> None:
    """To start it takes a millisecond, and a shell that reads for itself does so byte by byte."""
    furnish(tree)
    started = tree.base / "started"
    started.touch()
    for name in ("ldconfig", "readlink", "cat", "stat", "timeout", "head", "getconf"):
        own = tree.tools / name
        place = own.rename(tree.base / name)
        tree.tool(name, f'echo {name} >>{started}; exec {place.resolve()} "$@"')
    see(tree, "dash")
    names = started.read_text().split()
    # The driver's libraries, libcuda's links; what update-alternatives chose; a link of the layout;
    # the mounts, the locks; the inodes. What is the owner's has one limit and one `stat` together.
    told = {name: names.count(name) for name in names}
    assert told == {"ldconfig": 1, "readlink": 4, "cat": 2, "stat": 6, "timeout": 10}


def test_without_a_shell_on_its_path_each_program_is_asked_by_itself(
    furnished: Tree, whole: Callable[[str], dict[str, object]], shell: str
) -> None:
    every = whole(shell)
    furnished.shell_less = True
    try:
        with without(furnished, "sh"):
            less = see(furnished, shell)
    finally:
        furnished.shell_less = False
    compare(less, every, shell, "true")


@pytest.mark.parametrize("late", ["systemctl", "modinfo", "nvcc"])
def test_one_that_is_late_is_named_and_those_asked_with_it_are_told(
    tree: Tree, shell: str, late: str
) -> None:
    """All within one limit: who was not done by then is asked again, alone."""
    furnish(tree)
    impatient(tree)
    place = tree.root / "usr/local/cuda-13.0/bin/nvcc" if late == "nvcc" else tree.tools / late
    write(place, "#!/bin/sh\nexec sleep 30\n", 0o755)
    fields = see(tree, shell)
    field = {"systemctl": "driver.persistenced", "modinfo": "driver.on_disk", "nvcc": "cuda.nvcc"}
    reason = fields.pop(field.pop(late))
    assert isinstance(reason, Unknown)
    assert "it did not answer in time" in reason.reason
    for name in (*field.values(), "driver.libcuda", "cuda.gcc", "cuda.glibc", "system.python3"):
        assert not isinstance(fields[name], Unknown), name
    assert fields["driver.users.0"]


def test_without_python3_there_is_none(tree: Tree, shell: str) -> None:
    (tree.tools / "python3").unlink()
    assert tree.look(shell).system.python3 is None


def test_with_no_tool_at_all_the_probe_still_answers_to_the_end(tree: Tree, shell: str) -> None:
    furnish(tree)
    for tool in tree.tools.iterdir():
        if tool.name != "cat":  # by which the probe itself is read
            tool.unlink()
    record = tree.look(shell, asked(tree))
    assert record.kernel.installed in (
        Unknown("sort is not on this host"),
        ("6.1.0-9-amd64", "6.1.0-37-amd64", NEWEST),  # busybox carries sort in itself
    )
    assert record.power.inhibitors == ("backup: nightly dump",)
    assert record.system.kernel == "6.1.0-37-amd64"
    assert record.system.user == "ubuntu"
    assert record.torch.version == "2.13.0+cpu"
    assert record.driver.nouveau is False


# A tool that is there and fails: what it was asked is unknown, in its own words where it has any.
FAILING = {
    "modinfo": ("driver", "on_disk", "modinfo: it broke"),
    "ldconfig": ("driver", "libcuda", "ldconfig: it broke"),
    "df": ("storage", "free_mib", "df: it broke"),
    "dpkg-query": ("packages", "installed", "dpkg-query ended with status 2"),
    "git": ("training", "commit", "git: it broke"),
    "find": ("driver", "users", "find: it broke"),
    "systemctl": ("driver", "persistenced", "systemctl: it broke"),
    "sort": ("kernel", "installed", "sort cannot order versions here"),
    "getconf": ("cuda", "glibc", "getconf: it broke"),
    "gcc": ("cuda", "gcc", "gcc: it broke"),
    "python3": ("system", "python3", "it broke"),
}


@pytest.fixture(scope="module")
def nvidia_host(tmp_path_factory: pytest.TempPathFactory) -> Tree:
    """One host with a checkout and a driver, for the tests that leave it as it was."""
    tree = Tree(tmp_path_factory.mktemp("nvidia") / "host")
    checkout(tree)
    furnish_nvidia(tree)
    return tree


@contextmanager
def instead(tree: Tree, tool: str, text: str) -> Iterator[None]:
    """Have the tree's tool be another program for a while; `text` is shell."""
    with without(tree, tool):
        tree.tool(tool, text)
        yield


@pytest.mark.parametrize("tool", sorted(FAILING))
def test_a_tool_that_fails_makes_its_field_unknown(
    nvidia_host: Tree, shell: str, tool: str
) -> None:
    concern, name, reason = FAILING[tool]
    with instead(nvidia_host, tool, "echo 'it broke' >&2\nexit 2"):
        record = nvidia_host.look(shell, asked(nvidia_host))
    assert getattr(getattr(record, concern), name) == Unknown(reason)
    assert record.smoke.stamp is None


@pytest.mark.parametrize(
    "tool",
    [
        *("modinfo", "python3", "df", "git", "ldconfig", "dpkg-query", "stat", "find", "sort"),
        *("systemctl", "getconf", "gcc", "gzip", "readlink"),
    ],
)
def test_a_tool_that_prints_rubbish_never_breaks_the_answer(
    nvidia_host: Tree, shell: str, tool: str
) -> None:
    rubbish = r"printf 'caf\303\251 \377\n\npyinfra-gpu-probe end\n x\ty | z\n'"
    with instead(nvidia_host, tool, rubbish):
        record = nvidia_host.look(shell, asked(nvidia_host))
    assert record.system.hostname == "gpu-1"
    assert record.smoke.verdict is None
