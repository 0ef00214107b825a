"""Reading the probe's lines: no field is ever wrong, whatever became of the lines on their way."""

from __future__ import annotations

import dataclasses
import functools
import random
import types
import typing
from collections.abc import Mapping
from pathlib import Path

import pytest

from pyinfra_gpu.facts.environment import hidden
from pyinfra_gpu.facts.fields import CUT_OFF, NOT_REPORTED, Unknown, read_fields
from pyinfra_gpu.facts.parse import parse
from pyinfra_gpu.facts.record import Record, from_fields

FOLDER = Path(__file__).parent / "fixtures" / "probe"
WHOLE = (FOLDER / "ubuntu2404-2x-rtx5090.txt").read_text()
ANSWERS = {path.name: path.read_text() for path in sorted(FOLDER.glob("*.txt"))}


hints = functools.cache(typing.get_type_hints)


def fits(value: object, hint: object) -> bool:
    """Whether a value has the type that a record declares for it, however deep."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        return any(fits(value, part) for part in arguments)
    if origin is typing.Literal:
        return value in arguments
    if origin is tuple:
        return isinstance(value, tuple) and all(fits(item, arguments[0]) for item in value)
    if origin is not None and issubclass(origin, Mapping):
        return isinstance(value, Mapping) and all(
            fits(key, arguments[0]) and fits(item, arguments[1]) for key, item in value.items()
        )
    if hint is type(None):
        return value is None
    assert isinstance(hint, type), hint
    if dataclasses.is_dataclass(hint):
        return type(value) is hint and all(
            fits(getattr(value, name), part) for name, part in hints(hint).items()
        )
    return type(value) is hint


def agrees(part: object, whole: object) -> bool:
    """Whether what a damaged answer tells is what the whole answer tells, or "unknown"."""
    if part == whole or isinstance(part, Unknown):
        return True
    if dataclasses.is_dataclass(part):
        return type(part) is type(whole) and all(
            agrees(getattr(part, field.name), getattr(whole, field.name))
            for field in dataclasses.fields(part)
            if not (field.name == "libdir" and part.libdir == "")  # how that one says "unknown"
        )
    if isinstance(part, dict) and isinstance(whole, dict):
        return part.keys() == whole.keys() and all(agrees(part[key], whole[key]) for key in part)
    return part == whole


@pytest.mark.parametrize("name", sorted(ANSWERS))
def test_every_fixture_gives_the_declared_types(name: str) -> None:
    assert fits(parse(ANSWERS[name].splitlines()), Record)


def test_the_check_of_types_finds_a_wrong_one() -> None:
    record = parse(WHOLE.splitlines())
    wrong = dataclasses.replace(record, storage=dataclasses.replace(record.storage, free_mib="1"))  # type: ignore[arg-type]
    assert not fits(wrong, Record)
    assert not agrees(wrong, record)


def test_an_answer_cut_at_any_byte_tells_nothing_wrong() -> None:
    whole = parse(WHOLE.splitlines())
    before = None
    for length in range(len(WHOLE) - 1):
        fields = read_fields(WHOLE[:length].splitlines())
        if vars(fields) == before:  # the record is made of nothing else, and has been looked at
            continue
        before = vars(fields)
        assert agrees(from_fields(fields), whole), WHOLE[:length][-200:]
    assert parse(WHOLE[:-1].splitlines()) == whole


def test_an_answer_without_one_of_its_lines_tells_nothing_wrong_about_single_values() -> None:
    """A lost item of a list cannot be noticed; everything else can."""
    whole = parse(WHOLE.splitlines())
    lines = WHOLE.splitlines()
    listed = {line.split(" ")[0] for line in lines if line.endswith(" .")}
    for number, line in enumerate(lines):
        if line.split(" ")[0] in listed and not line.endswith(" ."):
            continue
        part = parse(lines[:number] + lines[number + 1 :])
        assert agrees(part, whole), line


def mutated(text: str, chance: random.Random) -> list[str]:
    """The lines with some bytes, lines, or runs of them changed, doubled, swapped or lost."""
    data = bytearray(text.encode())
    for _ in range(chance.randrange(1, 12)):
        place = chance.randrange(len(data) + 1)
        kind = chance.randrange(5)
        if kind == 0:
            data[place : place + 1] = bytes([chance.randrange(256)])
        elif kind == 1:
            del data[place : place + chance.randrange(1, 200)]
        elif kind == 2:
            data[place:place] = bytes(chance.randrange(256) for _ in range(chance.randrange(9)))
        elif kind == 3:
            data[place:place] = data[place : place + chance.randrange(300)]
        else:
            data[place:place] = chance.choice(
                [b"\n", b" .", b" -\n", b" =", b" x", b"9" * 400, b"%n", b"\0", b"\r\n", b"=\n="]
            )
    lines = bytes(data).decode("utf-8", chance.choice(["replace", "surrogateescape"])).split("\n")
    if chance.random() < 0.3:
        chance.shuffle(lines)
    return lines


@pytest.mark.parametrize("seed", range(8))
def test_damaged_answers_never_raise_and_keep_the_declared_types(seed: int) -> None:
    chance = random.Random(seed)
    names = sorted(ANSWERS)
    for _ in range(150):
        lines = mutated(ANSWERS[chance.choice(names)], chance)
        record = parse(lines)
        assert fits(record, Record), lines
        assert isinstance(record.to_json(), dict)


# The probe's key -> the fields that come from it.
SOURCES = {
    "system.os": ["system.os_id", "system.os_version", "system.os_name"],
    "system.kernel": ["system.kernel", "kernel.modules"],
    "system.architecture": ["system.architecture"],
    "system.boot_id": ["system.boot_id"],
    "system.cpus": ["system.cpu_count"],
    "system.memory": ["system.ram_mib"],
    "system.init": ["system.init"],
    "system.hostname": ["system.hostname"],
    "system.user": ["system.user"],
    "system.uid": ["system.uid"],
    "system.python3": ["system.python3"],
    "system.secure_boot": ["system.secure_boot"],
    "gpus.device": ["gpus.devices"],
    "driver.loaded": ["driver.loaded"],
    "driver.version_line": ["driver.open_modules"],
    "driver.on_disk": ["driver.on_disk", "kernel.modules"],
    "driver.license": ["driver.on_disk_open"],
    "driver.module": ["driver.module"],
    "driver.nouveau": ["driver.nouveau"],
    "driver.nova": ["driver.nova"],
    "driver.libcuda": ["driver.libcuda"],
    "driver.libml": ["driver.libml"],
    "driver.user": ["driver.users"],
    "driver.persistenced": ["driver.persistenced"],
    "driver.persistenced_enabled": ["driver.persistenced_enabled"],
    "driver.runfile": ["driver.runfile"],
    "driver.mok": ["driver.mok"],
    "kernel.installed": ["kernel.installed"],
    "kernel.module": ["kernel.modules"],
    "kernel.headers": ["kernel.headers"],
    "kernel.source": ["kernel.sources"],
    "kernel.initramfs": ["kernel.initramfs"],
    "nvidia.package": ["nvidia.packages"],
    "nvidia.source_line": ["nvidia.sources", "nvidia.archives"],
    "nvidia.repository": ["nvidia.sources"],
    "nvidia.keyring": ["nvidia.keyring"],
    "nvidia.change": ["nvidia.history"],
    "nvidia.file": ["nvidia.lost"],
    "nvidia.alternative": ["nvidia.alternatives"],
    "cuda.toolkit": ["cuda.toolkits"],
    "cuda.missing": ["cuda.missing"],
    "cuda.nvcc": ["cuda.nvcc"],
    "cuda.link": ["cuda.link"],
    "cuda.alternative": ["cuda.alternative"],
    "cuda.shell": ["cuda.shell_lines"],
    "cuda.nvcc_on_path": ["cuda.nvcc_on_path"],
    "cuda.gcc": ["cuda.gcc"],
    "cuda.compiler": ["cuda.compiler"],
    "cuda.gxx": ["cuda.gxx"],
    "cuda.glibc": ["cuda.glibc"],
    "cuda.proof": ["cuda.proof"],
    "libcuda.cache": ["libcuda.cache"],
    "libcuda.link": ["libcuda.links"],
    "libcuda.file": ["libcuda.files"],
    "libcuda.loader_path": ["libcuda.loader_paths"],
    "libcuda.proof": ["libcuda.proof"],
    "power.session": ["power.sessions"],
    "power.inhibitor": ["power.inhibitors"],
    "power.reboots": ["power.reboots"],
    "packages.installed": ["packages.installed"],
    "packages.half_configured": ["packages.half_configured"],
    "packages.lock": ["packages.lock_holder"],
    "storage.free": ["storage.free_mib"],
    "storage.boot": ["storage.boot_mib"],
    "storage.initrd": ["storage.initrd_mib"],
    "storage.readonly": ["storage.readonly"],
    "storage.volatile": ["storage.volatile"],
    "storage.usr": ["storage.usr_mib"],
    "storage.var": ["storage.var_mib"],
    "storage.shm": ["storage.shm_mib", "storage.shm_free_mib"],
    "storage.noexec": ["storage.noexec"],
    "storage.inodes": ["storage.inodes"],
    "layout.asked": ["layout.entries"],
    "layout.left": ["layout.entries"],
    "layout.open": ["layout.open"],
    "layout.owner_problem": ["layout.owner_problem"],
    "torch.python": ["torch.python"],
    "torch.python_problem": ["torch.python_problem"],
    "torch.base": ["torch.base"],
    "torch.declared": ["torch.declared"],
    "torch.uv": ["torch.uv"],
    "build.stamp": ["build.stamp"],
    "build.wheel": ["build.wheel"],
    "build.state": ["build.state"],
    "build.pid": ["build.pid"],
    "torch.version_line": ["torch.version", "torch.git_version", "torch.cuda"],
    "torch.damaged": ["torch.damaged"],
    "torch.foreign": ["torch.foreign"],
    "torch.other": ["torch.damaged_others"],
    "torch.touched": ["torch.touched"],
    "torch.need": ["torch.needs"],
    "torch.elsewhere": ["torch.elsewhere"],
    "torch.installing": ["torch.installing"],
    "torch.distribution": ["torch.distributions"],
    "environment.text": ["environment.text"],
    "owned.for_all": ["environment.for_all"],
    "owned.closed": ["driver.closed", "storage.shm_closed"],
    "owned.preload_problem": ["system.preload_problem"],
    "system.preload": ["system.preload"],
    "system.preload_problem": ["system.preload_problem"],
    "training.submodule": ["training.submodules"],
    "training.lfs": ["training.lfs"],
    "training.damaged": ["training.damaged"],
    "packages.settings": ["packages.settings"],
    "training.commit": ["training.commit"],
    "training.remote": ["training.remote"],
    "training.dirty": ["training.dirty", "training.dirty_submodules"],
    "training.dirty_count": ["training.dirty_count"],
    "training.requirements": ["training.requirements_sha256"],
    "training.stamp": ["training.stamp_text"],
    "launcher.linger": ["launcher.linger"],
    "launcher.manager": ["launcher.manager"],
    "launcher.masked": ["launcher.masked"],
    "training.masked": ["launcher.own_masked"],
    "launcher.run": ["launcher.runs"],
    "smoke.stamp": ["smoke.stamp"],
    "smoke.verdict": ["smoke.verdict", "smoke.verdict_sha256"],
}


def values(record: Record) -> dict[str, object]:
    """All fields of all concerns by their dotted names."""
    return {
        f"{concern.name}.{field.name}": getattr(getattr(record, concern.name), field.name)
        for concern in dataclasses.fields(record)
        for field in dataclasses.fields(getattr(record, concern.name))
    }


def test_the_table_of_sources_covers_every_field_of_the_record() -> None:
    named = {name for names in SOURCES.values() for name in names}
    # Without the library's folder all else that is in it is unknown: see the test of its own.
    assert named | {"libcuda.libdir"} == set(values(parse(WHOLE.splitlines())))


def test_without_the_librarys_folder_nothing_in_it_is_known() -> None:
    lines = [line for line in WHOLE.splitlines() if not line.startswith("libcuda.libdir ")]
    lines.insert(-1, "libcuda.libdir ?uname is not on this host")
    libcuda, whole = parse(lines).libcuda, parse(WHOLE.splitlines()).libcuda
    reason = Unknown("uname is not on this host")
    assert (libcuda.libdir, libcuda.cache, libcuda.links, libcuda.files) == ("", *[reason] * 3)
    assert libcuda.loader_paths == whole.loader_paths


@pytest.mark.parametrize("key", sorted(SOURCES))
@pytest.mark.parametrize("tag", ["?", "!"])
def test_what_the_probe_does_not_know_is_unknown_with_its_reason(key: str, tag: str) -> None:
    reason = "no permission to look"
    told = reason if tag == "?" else reason.encode().hex()
    lines = [line for line in WHOLE.splitlines() if line.split(" ")[0] != key]
    lines.insert(-1, f"{key} {tag}{told}")
    before, after = values(parse(WHOLE.splitlines())), values(parse(lines))
    for name, value in after.items():
        assert value == (Unknown(reason) if name in SOURCES[key] else before[name]), name


@pytest.mark.parametrize("key", sorted(SOURCES))
def test_what_the_probe_left_out_is_unknown(key: str) -> None:
    lines = [line for line in WHOLE.splitlines() if line.split(" ")[0] != key]
    after = values(parse(lines))
    assert {after[name] for name in SOURCES[key]} == {Unknown(NOT_REPORTED)}


@pytest.mark.parametrize("value", ["=\x7f", "x0", "xzz", "", "~5", "- absent"])
def test_a_line_that_does_not_follow_the_format_is_unknown(value: str) -> None:
    lines = [line for line in WHOLE.splitlines() if not line.startswith("system.uid ")]
    lines.insert(-1, f"system.uid {value}")
    assert isinstance(parse(lines).system.uid, Unknown)


def test_a_value_that_says_it_twice_alike_is_believed_and_a_contradiction_is_not() -> None:
    lines = WHOLE.splitlines()
    lines.insert(-1, "system.kernel =6.14.0-27-generic")
    assert parse(lines).system.kernel == "6.14.0-27-generic"
    lines.insert(-1, "system.kernel =6.14.0-28-generic")
    assert parse(lines).system.kernel == Unknown("the probe reported it more than once")


TEXT = [f"environment.text {row}" for row in ("+A=1", "+", "+B = 2", "#3")]


def test_a_text_in_lines_is_whole_or_not_known() -> None:
    lines = [line for line in WHOLE.splitlines() if not line.startswith("environment.text ")]
    text = parse([*lines[:-1], *TEXT, lines[-1]]).environment.text
    assert text == hidden("A=1\n\nB = 2\n")
    for number in range(len(TEXT)):
        rest = TEXT[:number] + TEXT[number + 1 :]
        assert isinstance(parse([*lines[:-1], *rest, lines[-1]]).environment.text, Unknown)


def test_a_banner_before_the_answer_and_noise_behind_it_are_passed_over() -> None:
    noise = ["system.kernel =banner", "Last login: today", ""]
    after = ["system.kernel =after", "pyinfra-gpu-probe 1"]
    lines = WHOLE.splitlines()
    assert parse([*noise, *lines, *after]) == parse(lines)


def test_lines_that_a_terminal_ended_are_read_alike() -> None:
    lines = WHOLE.splitlines()
    assert parse([f"{line}\r" for line in lines]) == parse(lines)


def test_the_last_line_of_an_answer_without_its_end_is_not_believed() -> None:
    fields = read_fields(["pyinfra-gpu-probe 1", "system.uid =10", "system.kernel =6.1"])
    assert fields.number("system.uid") == 10
    assert fields.text("system.kernel") == Unknown(CUT_OFF)


def test_what_was_not_asked_is_empty_and_never_unknown() -> None:
    kept = ("driver.user", "driver.persist", "driver.runfile", "driver.mok", "kernel.")
    lines = [line for line in WHOLE.splitlines() if not line.startswith((*kept, "cuda."))]
    lines = [line for line in lines if not line.startswith("nvidia.") or "asked" in line]
    lines = [line for line in lines if not line.startswith(("libcuda.", "power."))]
    lines[lines.index("nvidia.asked =1")] = "nvidia.asked =0"
    fields = values(parse(lines))
    assert [name for name, value in fields.items() if isinstance(value, Unknown)] == []
    for name, value in fields.items():
        if name.split(".")[0] in ("kernel", "nvidia", "cuda", "libcuda", "power"):
            assert not value, name


ODD_VALUES = {
    "system.uid =-1": ("system.uid", "'-1' is not a number"),
    "system.uid =\u0663": ("system.uid", "'\u0663' is not a number"),
    "system.cpus =3-0": ("system.cpu_count", "'3-0' is not a list of processors"),
    "system.memory =MemTotal: lots": ("system.ram_mib", "/proc/meminfo has an odd first line"),
    "system.python3 =Python 4": ("system.python3", "`python3 -V` said 'Python 4'"),
    "system.secure_boot =6": ("system.secure_boot", "the firmware's SecureBoot variable holds '6'"),
    "driver.nouveau =2": ("driver.nouveau", "2 is neither 0 nor 1"),
    "driver.license =GPL v2": ("driver.on_disk_open", "its licence is 'GPL v2'"),
    "driver.persistenced_enabled =bad": (
        "driver.persistenced_enabled",
        "systemd calls it 'bad'",
    ),
    "driver.mok =mokutil: bad file": ("driver.mok", "mokutil said 'mokutil: bad file'"),
    "driver.runfile =": ("driver.runfile", "'' is not a number"),
    "kernel.module =6.14.0-29-generic": (
        "kernel.modules",
        "the probe's line '6.14.0-29-generic' is incomplete",
    ),
    "kernel.headers =6.14.0-29-generic 2": (
        "kernel.headers",
        "the probe's line '6.14.0-29-generic 2' is incomplete",
    ),
    "kernel.initramfs =maybe": ("kernel.initramfs", "the probe said 'maybe'"),
    "nvidia.package =libcuda1 580 1": (
        "nvidia.packages",
        "the probe's line 'libcuda1 580 1' is incomplete",
    ),
    "nvidia.package =libcuda1 580 1 2": (
        "nvidia.packages",
        "the probe's line 'libcuda1 580 1 2' is incomplete",
    ),
    "nvidia.source_line =x": ("nvidia.sources", "the probe's line 'x' is incomplete"),
    "nvidia.keyring =abc": (
        "nvidia.keyring",
        "it is not a readable keyring: byte 0 begins no packet",
    ),
    "cuda.nvcc =Cuda 13": ("cuda.nvcc", "nvcc --version said 'Cuda 13'"),
    "cuda.gcc =13x": ("cuda.gcc", "gcc said '13x'"),
    "cuda.compiler =clang": ("cuda.compiler", "the compiler said 'clang'"),
    "cuda.glibc =musl 1.2": ("cuda.glibc", "getconf said 'musl 1.2'"),
    "cuda.gxx =yes": ("cuda.gxx", "'yes' is not a number"),
    "libcuda.cache =a => b": ("libcuda.cache", "the probe's line 'a => b' is incomplete"),
    "libcuda.link =link /a => b": (
        "libcuda.links",
        "the probe's line 'link /a => b' is incomplete",
    ),
    "libcuda.link =door /a => b => c": (
        "libcuda.links",
        "the probe's line 'door /a => b => c' is incomplete",
    ),
    "libcuda.link =hidden /a => - => -": ("libcuda.links", "no permission to look at /a"),
    "storage.free =overlay": ("storage.free_mib", "df said 'overlay'"),
    "storage.inodes =overlay": ("storage.inodes", "stat said 'overlay'"),
    "torch.uv =uv version 1": ("torch.uv", "`uv --version` said 'uv version 1'"),
    "training.commit =abc": ("training.commit", "'abc' is not a digest"),
    "gpus.device =0000:01:00.0": (
        "gpus.devices",
        "the probe's line '0000:01:00.0' is incomplete",
    ),
    "system.os =ID='x": ("system.os_id", "os-release has an odd line for ID"),
}


@pytest.mark.parametrize("line", sorted(ODD_VALUES))
def test_a_value_that_makes_no_sense_is_unknown(line: str) -> None:
    name, reason = ODD_VALUES[line]
    key = line.split(" ")[0]
    lines = [text for text in WHOLE.splitlines() if text.split(" ")[0] != key]
    lines[-1:-1] = [line, f"{key} ."]
    assert values(parse(lines))[name] == Unknown(reason)


FREE = {
    "/dev/sda1 1000 10 2048 1% /": 2,
    "//server/my 100 200 300 50% share 1000 10 4096 1% /mnt/a b": 4,
    "overlay 1000 1000 0 100% /": 0,
    "tmpfs 1000 1000 -2048 100% /": -2,
    "none 0 0 0 - /x": 0,
}


@pytest.mark.parametrize("line", sorted(FREE))
def test_free_room_is_read_from_lines_with_odd_names_too(line: str) -> None:
    lines = [text for text in WHOLE.splitlines() if not text.startswith("storage.free ")]
    lines.insert(-1, f"storage.free ={line}")
    assert parse(lines).storage.free_mib == FREE[line]
