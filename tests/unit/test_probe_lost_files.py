"""What the probe tells of files that packages brought, and that are no longer so."""

from __future__ import annotations

import hashlib
import os
import sys
import time
from pathlib import Path

sys.path.append(str(Path(__file__).parent / "fixtures" / "probe"))
from nvidia_tree import NATIVE, gpu_host_fixture, look  # noqa: F401
from probing import Tree, tree_fixture, write  # noqa: F401

from pyinfra_gpu.facts.record import LostFile

SMI, GSP = "usr/bin/nvidia-smi", "lib/firmware/nvidia/580.95.05/gsp_ga10x.bin"
LIBRARY, GUIDE = "usr/lib/libcuda.so.580.95.05", "usr/share/doc/nvidia-smi/copyright"
NVCC = "usr/local/cuda-13.0/lib64/libcublas.so.13"
PACKAGES = {
    "nvidia-smi": (SMI, GUIDE),
    "firmware-nvidia-gsp": (GSP,),
    f"libcuda1:{NATIVE}": (LIBRARY,),
    "libcublas-13-0": (NVCC,),
}


def brought(tree: Tree) -> None:
    """Put each package's files there, and then its list of digests, as dpkg does."""
    for name, files in PACKAGES.items():
        rows = []
        for path in files:
            mode = 0o755 if path == SMI else 0o644
            write(tree.root / path, f"what {name} brought as {path}", mode)
            rows.append(f"{hashlib.md5((tree.root / path).read_bytes()).hexdigest()}  {path}\n")
        write(tree.root / f"var/lib/dpkg/info/{name}.md5sums", "".join(rows))


def later() -> None:
    """Wait until the kernel's clock, of whole seconds here, has gone on."""
    time.sleep(1.1)


def test_files_as_packages_brought_them_are_not_told(gpu_host: Tree) -> None:
    brought(gpu_host)
    assert look(gpu_host).nvidia.lost == ()


def test_what_is_gone_or_changed_is_told_with_its_package(gpu_host: Tree) -> None:
    brought(gpu_host)
    (gpu_host.root / SMI).unlink()
    (gpu_host.root / GUIDE).unlink()  # documentation may be left out
    later()
    for path in (GSP, LIBRARY):
        same_size = (gpu_host.root / path).read_bytes().replace(b"brought", b"BROUGHT")
        before = (gpu_host.root / path).stat()
        (gpu_host.root / path).write_bytes(same_size)
        # Whoever can write a file can set its time of modification back, and not when it changed.
        os.utime(gpu_host.root / path, ns=(before.st_atime_ns, before.st_mtime_ns))
    (gpu_host.root / NVCC).chmod(0o755)  # touched, and as it was
    assert look(gpu_host).nvidia.lost == (
        LostFile(package="firmware-nvidia-gsp", path=f"/{GSP}", state="changed"),
        LostFile(package="libcuda1", path=f"/{LIBRARY}", state="changed"),
        LostFile(package="nvidia-smi", path=f"/{SMI}", state="gone"),
    )


def test_what_not_everybody_may_use_is_told_but_where_somebody_chose_it(
    gpu_host: Tree,
) -> None:
    brought(gpu_host)
    (gpu_host.root / SMI).chmod(0o644)
    (gpu_host.root / LIBRARY).chmod(0o600)
    (gpu_host.root / GSP).chmod(0o600)  # the kernel reads it, as root
    smi = LostFile(package="nvidia-smi", path=f"/{SMI}", state="closed")
    library = LostFile(package="libcuda1", path=f"/{LIBRARY}", state="closed")
    assert look(gpu_host).nvidia.lost == (library, smi)
    write(gpu_host.root / "var/lib/dpkg/statoverride", f"root root 0600 /{LIBRARY}\n")
    assert look(gpu_host).nvidia.lost == (smi,)


def test_a_link_in_a_files_place_is_told_whatever_it_leads_to(
    gpu_host: Tree,
) -> None:
    brought(gpu_host)
    copy = write(gpu_host.root / "opt/copy", (gpu_host.root / LIBRARY).read_bytes())
    (gpu_host.root / LIBRARY).unlink()
    (gpu_host.root / LIBRARY).symlink_to(copy)
    assert look(gpu_host).nvidia.lost == (
        LostFile(package="libcuda1", path=f"/{LIBRARY}", state="linked"),
    )


def test_a_list_that_a_power_cut_emptied_is_told(gpu_host: Tree) -> None:
    brought(gpu_host)
    info = gpu_host.root / "var/lib/dpkg/info"
    (info / "libnvidia-ml1.list").write_text("")
    (info / "nvidia-kernel-open-dkms.list").unlink()
    write(info / "nvidia-smi.list", f"/.\n/usr/bin\n/{SMI}\n")
    write(info / "nvidia-smi.md5sums", "")
    write(info / "nvidia-driver-cuda.list", f"/.\n/usr/share/doc\n/{GUIDE}\n")
    write(info / "nvidia-driver-cuda.md5sums", "")  # dpkg itself leaves it so: it brings nothing
    names = ("libnvidia-ml1.list", "nvidia-kernel-open-dkms.list", "nvidia-smi.md5sums")
    assert look(gpu_host).nvidia.lost == tuple(
        LostFile(
            package=name.rpartition(".")[0], path=f"/var/lib/dpkg/info/{name}", state="emptied"
        )
        for name in names
    )


def test_a_library_of_the_toolkit_counts_where_that_is_declared(
    gpu_host: Tree,
) -> None:
    brought(gpu_host)
    (gpu_host.root / NVCC).unlink()
    assert look(gpu_host).nvidia.lost == (
        LostFile(package="libcublas-13-0", path=f"/{NVCC}", state="gone"),
    )


def test_a_diverted_file_is_another_packages(gpu_host: Tree) -> None:
    brought(gpu_host)
    (gpu_host.root / SMI).unlink()
    write(gpu_host.root / "var/lib/dpkg/diversions", f"/{SMI}\n/{SMI}.old\nsomebody\n")
    assert look(gpu_host).nvidia.lost == ()
