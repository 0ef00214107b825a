"""What the probe tells of libcuda: the linker cache, the links, the loader's settings."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parent / "fixtures" / "probe"))
from nvidia_tree import ABI, LIBDIR, VERSION, gpu_host_fixture, linker_cache, look  # noqa: F401
from probing import Tree, tree_fixture, write  # noqa: F401

from pyinfra_gpu.facts.fields import Unknown
from pyinfra_gpu.facts.record import CacheEntry, Link

FILE = f"{LIBDIR}/libcuda.so.{VERSION}"


def test_a_healthy_host_is_told_whole(gpu_host: Tree) -> None:
    libcuda, root = look(gpu_host).libcuda, gpu_host.root
    assert libcuda.libdir == LIBDIR
    assert libcuda.cache == (
        CacheEntry(name="libcuda.so.1", path=f"{root}{LIBDIR}/libcuda.so.1", real=f"{root}{FILE}"),
        CacheEntry(
            name="libnvidia-ml.so.1",
            path=f"{root}{LIBDIR}/libnvidia-ml.so.1",
            real=f"{root}{LIBDIR}/libnvidia-ml.so.{VERSION}",
        ),
        CacheEntry(name="libcuda.so", path=f"{root}{LIBDIR}/libcuda.so", real=f"{root}{FILE}"),
    )
    assert libcuda.links == {
        f"{LIBDIR}/libcuda.so": Link(kind="link", target="libcuda.so.1", real=FILE),
        f"{LIBDIR}/libcuda.so.1": Link(kind="link", target=f"libcuda.so.{VERSION}", real=FILE),
        f"{LIBDIR}/libnvidia-ml.so.1": Link(
            kind="link",
            target=f"libnvidia-ml.so.{VERSION}",
            real=f"{LIBDIR}/libnvidia-ml.so.{VERSION}",
        ),
        "/usr/local/cuda-13.0/lib64/libcuda.so": Link(kind="absent", target=None, real=None),
    }
    assert libcuda.files == (FILE,)
    assert libcuda.loader_paths == ()
    assert libcuda.proof == "{}\n"


def test_a_link_may_be_missing_dangle_or_be_something_else(gpu_host: Tree) -> None:
    plain = gpu_host.root / f"{LIBDIR[1:]}/libcuda.so"
    name = f"{LIBDIR}/libcuda.so"

    def seen() -> Link:
        links = look(gpu_host).libcuda.links
        assert not isinstance(links, Unknown)
        return links[name]

    plain.unlink()
    assert seen() == Link(kind="absent", target=None, real=None)
    plain.symlink_to("libcuda.so.570.1")
    assert seen() == Link(kind="link", target="libcuda.so.570.1", real=None)
    Path(f"{gpu_host.root}{FILE}").write_bytes(b"")
    assert look(gpu_host).libcuda.files == ()
    plain.unlink()
    plain.symlink_to("libcuda.so.1")
    assert seen() == Link(kind="link", target="libcuda.so.1", real=None)
    plain.unlink()
    plain.mkdir()
    assert seen() == Link(kind="dir", target=None, real=None)
    plain.rmdir()
    write(plain, "x")
    assert seen() == Link(kind="file", target=None, real=name)


def test_the_toolkits_own_link_is_told_where_a_release_is_declared(
    gpu_host: Tree,
) -> None:
    link = gpu_host.root / "usr/local/cuda-13.0/lib64/libcuda.so"
    link.symlink_to(gpu_host.root / f"{LIBDIR[1:]}/libcuda.so.1")
    links = look(gpu_host).libcuda.links
    name = "/usr/local/cuda-13.0/lib64/libcuda.so"
    assert links[name].real == FILE  # type: ignore[index]
    assert name not in look(gpu_host, cuda_release="").libcuda.links  # type: ignore[operator]


def test_the_cache_is_told_in_its_order_and_for_this_architecture(
    gpu_host: Tree,
) -> None:
    other = write(gpu_host.root / "opt/other/libcuda.so.1", "")
    linker_cache(
        gpu_host,
        "libcuda.so.1 (libc6) => /usr/lib/i386-linux-gnu/libcuda.so.1",
        f"libcuda.so.1 (libc6,{ABI}, hwcap: 4) => {other}",
        f"libcuda.so.1 (libc6,{ABI}) => /gone/libcuda.so.1",
        f"libcudart.so.13 (libc6,{ABI}) => /x/libcudart.so.13",
        f"libcuda.so.10 (libc6,{ABI}) => /x/libcuda.so.10",
        f"xlibcuda.so.1 (libc6,{ABI}) => /x/xlibcuda.so.1",
    )
    record = look(gpu_host)
    assert record.libcuda.cache == (
        CacheEntry(name="libcuda.so.1", path=str(other), real=str(other)),
        CacheEntry(name="libcuda.so.1", path="/gone/libcuda.so.1", real=None),
    )
    assert record.driver.libcuda == str(other)
    assert record.driver.libml is None
    linker_cache(gpu_host)
    assert look(gpu_host).libcuda.cache == ()


def test_every_version_that_was_left_behind_is_told(gpu_host: Tree) -> None:
    folder = gpu_host.root / LIBDIR[1:]
    write(folder / "libcuda.so.570.133.20", "x")
    (folder / "libcuda.so.2").symlink_to("nowhere")
    assert look(gpu_host).libcuda.files == (f"{LIBDIR}/libcuda.so.570.133.20", FILE)


CONF = {
    "/usr/local/cuda/lib64/stubs\n": ("/usr/local/cuda/lib64/stubs",),
    "# /usr/local/cuda/compat\n/usr/local/cuda/compat/lib.real": (
        "/usr/local/cuda/compat/lib.real",
    ),
    "/usr/local/cuda/targets/x86_64-linux/lib\n": (),
    "include /etc/ld.so.conf.d/compat/*.conf\n": (),
    "#/a/stubs\n\n  /b/stubs  # x\n/c/stubs": ("/b/stubs", "/c/stubs"),
    "": (),
}


@pytest.mark.parametrize("text", sorted(CONF))
def test_folders_that_must_not_be_searched_are_told_with_their_file(
    gpu_host: Tree, text: str
) -> None:
    write(gpu_host.root / "etc/ld.so.conf", "include /etc/ld.so.conf.d/*.conf\n")
    write(gpu_host.root / "etc/ld.so.conf.d/z.conf", text)
    write(gpu_host.root / "etc/ld.so.conf.d/z.conf.bak", "/x/stubs\n")
    expected = tuple(f"/etc/ld.so.conf.d/z.conf: {folder}" for folder in CONF[text])
    assert look(gpu_host).libcuda.loader_paths == expected


def test_a_cache_that_is_not_there_names_nothing(gpu_host: Tree) -> None:
    said = "ldconfig: Can't open cache file /etc/ld.so.cache\n: No such file or directory"
    gpu_host.tool("ldconfig", f'echo "{said}" >&2; exit 1')
    record = look(gpu_host)
    assert record.libcuda.cache == ()
    assert record.driver.libcuda is None
