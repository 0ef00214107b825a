"""What a look tells: each row is one thing that is otherwise than on a healthy host with GPUs."""

from __future__ import annotations

import hashlib
import os
import pwd
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

sys.path.append(str(Path(__file__).parent / "fixtures" / "probe"))
from nvidia_tree import (
    ABI,
    LIBDIR,
    NATIVE,
    NEWEST,
    RUNNING,
    VERSION,
    furnish_nvidia,
    inhibitor,
    linker_cache,
    look,
    modules,
    opened,
    package,
    session,
    toolkit,
    unit,
)
from probing import Tree, write

from pyinfra_gpu.facts.fields import Unknown
from pyinfra_gpu.facts.record import CacheEntry, Link, LostFile, PciGpu, Reboot

Change = Callable[[Tree], object]
UID, ME = os.geteuid(), pwd.getpwuid(os.geteuid()).pw_name
HOME = pwd.getpwuid(UID).pw_dir
SMI, GSP = "usr/bin/nvidia-smi", "lib/firmware/nvidia/580.95.05/gsp_ga10x.bin"
LIBRARY, GUIDE = "usr/lib/libcuda.so.580.95.05", "usr/share/doc/nvidia-smi/copyright"
CUBLAS = "usr/local/cuda-13.0/lib64/libcublas.so.13"
EFI = "sys/firmware/efi/efivars/SecureBoot-1"
FILE = f"{LIBDIR}/libcuda.so.{VERSION}"
PLAIN = f"{LIBDIR}/libcuda.so"
INFO = "var/lib/dpkg/info"
TOOLKIT = ("bin/nvcc", "bin/ptxas", "nvvm/bin/cicc", "include/cuda_runtime.h", "lib64/libcudart.so")
NVCC = "usr/local/cuda-13.0/bin/nvcc"
PERSON = {"UID": "1000", "USER": "bob", "CLASS": "user", "STATE": "active"}
OURS = (
    *("nvidia-open", "libnvidia-ml1", "libcuda1", "cuda-toolkit-13-0", "cuda-keyring", "libnvjpeg"),
    *("firmware-nvidia-gsp", "linux-modules-nvidia-580-open-6.8.0-31-generic", "libnccl2"),
    *(
        "linux-objects-nvidia-580",
        "xserver-xorg-video-nvidia",
        "libglx-nvidia0",
        "libcudnn9-cuda-13",
    ),
)
OTHERS = ("libnvme1", "libnvpair3linux", "linux-image-amd64", "libcurl4", "barracuda", "libc6")
UNUSED = f"{'0x0000000000000000 ' * 3}\n"
GEFORCE = (
    "0x00000000de000000 0x00000000deffffff 0x0000000000040200\n"
    f"0x0000007000000000 0x00000077ffffffff 0x000000000014220c\n{UNUSED}"
)
HOPPER = (
    "0x0000382002000000 0x0000382002ffffff 0x000000000014220c\n"
    f"{UNUSED}0x0000380000000000 0x0000381fffffffff 0x000000000014220c\n"
)


class Untold:
    """What is unknown, for whatever reason."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Unknown)

    def __hash__(self) -> int:
        return 0


UNTOLD = Untold()


def put(path: str, content: str | bytes = "", mode: int = 0o644) -> Change:
    """Write a file of the system's; {root} in it is where the tree is."""

    def change(tree: Tree) -> None:
        text = content.replace("{root}", str(tree.root)) if isinstance(content, str) else content
        write(tree.root / path.lstrip("/"), text, mode)

    return change


def gone(path: str) -> Change:
    """Take a file or a folder of the system's away."""
    return lambda tree: (tree.root / path.lstrip("/")).rename(
        tree.base / path.strip("/").replace("/", "_")
    )


def made(path: str) -> Change:
    return lambda tree: (tree.root / path.lstrip("/")).mkdir(parents=True, exist_ok=True)


def link(path: str, target: str) -> Change:
    def change(tree: Tree) -> None:
        place = tree.root / path.lstrip("/")
        place.parent.mkdir(parents=True, exist_ok=True)
        place.unlink(missing_ok=True)
        place.symlink_to(target.replace("{root}", str(tree.root)))

    return change


def mode(path: str, bits: int) -> Change:
    return lambda tree: (tree.root / path.lstrip("/")).chmod(bits)


def tool(name: str, text: str) -> Change:
    return lambda tree: tree.tool(name, text.replace("{root}", str(tree.root)))


def times(path: str, seconds: int) -> Change:
    return lambda tree: os.utime(tree.root / path.lstrip("/"), (seconds, seconds))


def with_(function: Callable[..., object], *words: Any, **values: Any) -> Change:
    """Change the tree by a function of the fixtures."""
    return lambda tree: function(tree, *words, **values)


def pci(address: str, **files: str) -> Change:
    def change(tree: Tree) -> None:
        for name, text in files.items():
            write(tree.root / f"sys/bus/pci/devices/{address}/{name.rstrip('_')}", f"{text}\n")

    return change


def status(*stanzas: str) -> Change:
    return put("var/lib/dpkg/status", "".join(stanzas))


def brought(tree: Tree) -> None:
    """Put packages' files there, and then their lists of digests, as dpkg does."""
    packages = {
        "nvidia-smi": (SMI, GUIDE),
        "firmware-nvidia-gsp": (GSP,),
        f"libcuda1:{NATIVE}": (LIBRARY,),
        "libcublas-13-0": (CUBLAS,),
    }
    for name, files in packages.items():
        rows = []
        for path in files:
            write(tree.root / path, f"what {name} brought", 0o755 if path == SMI else 0o644)
            rows.append(f"{hashlib.md5((tree.root / path).read_bytes()).hexdigest()}  {path}\n")
        write(tree.root / INFO / f"{name}.md5sums", "".join(rows))


def earlier(*names: str) -> Change:
    """Have dpkg's notes on these packages made long before their files were touched."""

    def change(tree: Tree) -> None:
        # Nobody can set the time at which the kernel saw a file change, so the clock must go on.
        for path in (SMI, GSP, LIBRARY, CUBLAS):
            os.utime(tree.root / path)
        import time

        time.sleep(1.1)
        for path in names:
            place = tree.root / path
            before = place.stat()
            place.write_bytes(place.read_bytes().replace(b"brought", b"BROUGHT"))
            os.utime(place, ns=(before.st_atime_ns, before.st_mtime_ns))
        (tree.root / CUBLAS).chmod(0o755)  # touched, and as it was

    return change


def many_touched(tree: Tree) -> None:
    rows = []
    for number in range(201):
        write(tree.root / f"usr/lib/many/{number}", "x")
        rows.append(f"{hashlib.md5(b'x').hexdigest()}  usr/lib/many/{number}\n")
    write(tree.root / INFO / "nvidia-many.md5sums", "".join(rows))
    earlier()(tree)
    for number in range(201):
        (tree.root / f"usr/lib/many/{number}").chmod(0o644)


def lost(*rows: tuple[str, str, str]) -> tuple[LostFile, ...]:
    return tuple(LostFile(package=name, path=path, state=state) for name, path, state in rows)


def no_kernels(tree: Tree) -> None:
    for file in (tree.root / "boot").glob("vmlinuz-*"):
        file.unlink()


def rules(image: int, ours: int, reported: str) -> Row:
    """Our rules of modprobe's, and the initramfs, by the times that they are of."""
    changes = [
        put("etc/modprobe.d/pyinfra-gpu-nvidia.conf", "x"),
        times(f"boot/initrd.img-{NEWEST}", image),
    ]
    changes += [
        times("etc/modprobe.d/pyinfra-gpu-nvidia.conf", ours),
        times(f"boot/initrd.img-{RUNNING}", 1),
    ]
    return Row(f"an initramfs of {image}, rules of {ours}", changes, {"kernel.initramfs": reported})


def mokutil(said: str, enrolled: object) -> Row:
    changes = [put(EFI, b"\x06\0\0\0\x01"), put("var/lib/dkms/mok.pub")]
    changes.append(tool("mokutil", f'[ $1 = --test-key ] && echo "$2 {said}"; exit 1'))
    return Row(f"mokutil says {said}", changes, {"driver.mok": enrolled})


def seen(noted: dict[str, str], *reported: str) -> Row:
    changes = [gone("run/systemd/sessions/3"), with_(session, "c1", **{**PERSON, **noted})]
    changes.append(with_(session, "c1.ref", TTY="pts/9", **PERSON))
    return Row(f"session {noted}", changes, {"power.sessions": reported})


def blocks(changes: dict[str, str], *reported: str) -> Row:
    noted = {"WHAT": "shutdown", "MODE": "block", "WHO": "job", "WHY": "nightly dump", **changes}
    return Row(
        f"inhibitor {changes}",
        [with_(inhibitor, "1", **noted), with_(inhibitor, "1.ref", **noted)],
        {"power.inhibitors": reported},
    )


def persistenced(load: str, active: str, file: str, state: object, starts: object) -> Row:
    return Row(
        f"persistenced {load} {active} {file}",
        [with_(unit, load=load, active=active, file=file)],
        {"driver.persistenced": state, "driver.persistenced_enabled": starts},
    )


@dataclass
class Row:
    """A host that is otherwise, and what a look tells of it.

    + told: "PART.FIELD" -> its value
    + also: what else is asked of the host
    """

    name: str
    changes: list[Change]
    reported: dict[str, Any]
    also: dict[str, Any] = field(default_factory=dict)


DRIVER = [
    Row("healthy", [], {
        "driver.users": ("pid 812 (python3)",), "driver.loaded": VERSION,
        "driver.open_modules": True, "driver.runfile": False, "driver.mok": None,
        "driver.nouveau": False, "driver.nova": False,
        "kernel.installed": ("6.1.0-9-amd64", RUNNING, NEWEST),
        "kernel.modules": {RUNNING: VERSION, NEWEST: VERSION},
        "kernel.headers": {RUNNING: True, NEWEST: True},
        "nvidia.lost": (), "libcuda.loader_paths": (), "libcuda.proof": "{}\n",
        "cuda.toolkits": ("13.0",),
        "cuda.link": "/usr/local/cuda-13.0", "cuda.alternative": "/usr/local/cuda-13.0",
        "cuda.gcc": "12.2.0", "cuda.compiler": None,
        "power.sessions": ("alice on pts/0",), "power.reboots": (),
    }),
    Row("processes with a GPU open", [
        with_(opened, 813, "tor(ch) run", "/dev/nvidia-caps/nvidia-cap1"),
        with_(opened, 814, "editor", "/home/x/nvidia0", "/dev/null"),
    ], {"driver.users": ("pid 812 (python3)", "pid 813 (tor(ch) run)")}),
    persistenced("loaded", "active", "enabled", "active", True),
    persistenced("loaded", "active", "enabled-runtime", "active", True),
    persistenced("loaded", "failed", "disabled", "failed", False),
    persistenced("loaded", "inactive", "static", "inactive", False),
    persistenced("not-found", "failed", "", None, None),
    persistenced("loaded", "active", "", "active", None),
    persistenced("masked", "inactive", "masked", "masked", False),
    Row("no systemd", [gone("run/systemd/system")],
        {"driver.persistenced": None, "driver.persistenced_enabled": None}),
    Row("systemctl hangs", [tool("systemctl", "exec sleep 30"),
                            lambda tree: tree.more.update(limit=1)],
        {"driver.persistenced": Unknown("systemctl: it did not answer in time"),
         "driver.loaded": VERSION}),
    Row("a driver past the package manager", [
        put("usr/bin/nvidia-uninstall", "", 0o755), put(f"{INFO}/git.list", "/usr/bin/git\n"),
    ], {"driver.runfile": True}),
    Row("a package's own uninstaller", [
        put("usr/bin/nvidia-uninstall", "", 0o755), put(f"{INFO}/x.list",
            "/usr/bin/nvidia-uninstall\n"),
    ], {"driver.runfile": False}),
    mokutil("is already enrolled", True),
    mokutil("is already in db", True),
    mokutil("is not enrolled", False),
    mokutil("is already in the enrollment request", False),
    mokutil("is odd", UNTOLD),
    Row("mokutil says nothing", [
        put(EFI, b"\x06\0\0\0\x01"), put("var/lib/shim-signed/mok/MOK.der"), tool("mokutil",
            "exit 3"),
    ], {"driver.mok": UNTOLD}),
    Row("no key to enrol", [put(EFI, b"\x06\0\0\0\x01"), tool("mokutil", "echo x is not enrolled")],
        {"driver.mok": None, "system.secure_boot": True}),
    Row("Secure Boot is off", [put(EFI, b"\x06\0\0\0\0"), put("var/lib/dkms/mok.pub")],
        {"driver.mok": None, "system.secure_boot": False}),
    Row("an odd variable", [put(EFI, b"\x06\0\0\0\x07"), put("var/lib/dkms/mok.pub")],
        {"driver.mok": UNTOLD,
         "system.secure_boot": Unknown("the firmware's SecureBoot variable holds '7'")}),
    Row("half a variable", [put(EFI, b"\x06\0")], {"system.secure_boot": UNTOLD}),
    Row("no variables are shown", [made("sys/firmware/efi/efivars")],
        {"system.secure_boot": UNTOLD}),
    Row("firmware without Secure Boot", [put("sys/firmware/efi/efivars/BootOrder-1", b"\x07\0")],
        {"system.secure_boot": False}),
    Row("the closed module", [put("proc/driver/nvidia/version",
                                  "NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.95.05\n")],
        {"driver.open_modules": False}),
    Row("an odd line of version", [put("proc/driver/nvidia/version", "something else\n")],
        {"driver.open_modules": UNTOLD}),
    Row("a module without a version", [gone("sys/module/nvidia/version")],
        {"driver.loaded": UNTOLD}),
    Row("free drivers, closed module on disk", [
        made("sys/module/nouveau"), made("sys/module/nova_core"),
        with_(modules, running="580.82.07 NVIDIA"),
    ], {"driver.nouveau": True, "driver.nova": True, "driver.on_disk": "580.82.07",
        "kernel.modules": {RUNNING: "580.82.07", NEWEST: None}}),
    Row("no module for the running kernel", [with_(modules, newest=f"{VERSION} Dual MIT/GPL")],
        {"kernel.modules": {RUNNING: None, NEWEST: VERSION}, "driver.on_disk": None}),
    Row("a damaged module", [tool("modinfo", "echo \"modinfo: ERROR: could not get modinfo from"
                                  " 'nvidia': Exec format error\" >&2; exit 1")],
        {"driver.on_disk": None}),
    Row("a module that may not be read", [
        tool("modinfo", "echo 'could not get modinfo: Permission denied' >&2; exit 1")],
        {"driver.on_disk": UNTOLD}),
    Row("a module that names no version", [tool("modinfo", "echo 'license:  NVIDIA'")],
        {"driver.on_disk": Unknown("modinfo finds a module nvidia without a version")}),
    Row("modinfo breaks for the newest kernel", [
        tool("modinfo", f"[ $2 = {NEWEST} ] && {{ echo 'it broke' >&2; exit 1; }}\n"
             f"echo 'version: {VERSION}'")],
        {"kernel.modules": Unknown("modinfo: it broke"), "driver.on_disk": VERSION}),
    Row("no /sys", [gone("sys")], {
        "gpus.devices": Unknown("/sys/bus is not there"), "system.secure_boot": UNTOLD,
        "driver.loaded": Unknown("/sys/module is not there"),
        "driver.nouveau": Unknown("/sys/module is not there")}),
    Row("no PCI bus", [gone("sys/bus/pci")], {"gpus.devices": ()}),
    Row("GPUs", [
        pci("0000:01:00.0", vendor="0x10de", device="0x2b85", class_="0x030000", resource=GEFORCE),
        made("sys/bus/pci/drivers/nvidia"),
        link("sys/bus/pci/devices/0000:01:00.0/driver", "../../drivers/nvidia"),
        pci("0000:06:00.0", vendor="0x10de", device="0x2330", class_="0x030200", resource=HOPPER),
        pci("0000:07:00.0", vendor="0x10de", device="0x2330", class_="0x030200",
            resource=UNUSED * 3),
        # Not GPUs: the sound device of the same card, an NVSwitch, another maker's display.
        pci("0000:01:00.1", vendor="0x10de", device="0x22e8", class_="0x040300"),
        pci("0000:08:00.0", vendor="0x10de", device="0x22a3", class_="0x068000"),
        pci("0000:02:00.0", vendor="0x1234", device="0x1111", class_="0x030000"),
    ], {"gpus.devices": tuple(
        PciGpu(address=f"0000:{at}:00.0", pci_id=pci_id, driver=driver, bar1=bar1)
        for at, pci_id, driver, bar1 in (
            ("01", "10de:2b85", "nvidia", True), ("06", "10de:2330", None, True),
            ("07", "10de:2330", None, False)))}),
    Row("a GPU that cannot be read", [pci("0000:01:00.0", vendor="0x10de", device="0x2b85")],
        {"gpus.devices": UNTOLD}),
]  # fmt: skip

KERNELS = [
    Row("kernels that are none", [
        put(f"boot/vmlinuz-{name}") for name in ("6.1.0-41.dpkg-new", "6.1.0-99.old", "6.1.0-9~")
    ] + [put("boot/vmlinuz-6.1.0~rc1")],
        {"kernel.installed": ("6.1.0~rc1", "6.1.0-9-amd64", RUNNING, NEWEST)}),
    Row("headers that lead nowhere", [
        gone(f"lib/modules/{NEWEST}/build"), link(f"lib/modules/{NEWEST}/build", "/usr/src/gone"),
    ], {"kernel.headers": {RUNNING: True, NEWEST: False}}),
    Row("no kernel in /boot", [no_kernels], {
        "kernel.installed": (), "kernel.modules": {RUNNING: VERSION}, "kernel.initramfs": "fresh",
        "kernel.headers": {RUNNING: True}}),
    Row("no /boot", [gone("boot")], {"kernel.installed": (), "kernel.initramfs": "absent"}),
    rules(10**6, 10**6 + 1, "stale"),
    rules(10**6, 10**6, "fresh"),
    rules(10**6, 5 * 10**9, "fresh"),  # by a clock that was wrong
]  # fmt: skip

CUDA = [
    Row("several toolkits", [
        *(made(f"usr/local/{name}") for name in (
            "cuda-13.10", "cuda-9.2", "cuda-13", "cuda-old", "cuda-13.2-backup")),
        put("usr/local/cuda-12.8", "a file"),
    ], {"cuda.toolkits": ("9.2", "13.0", "13.10")}),
    *(Row(f"without {name}", [gone(f"usr/local/cuda-13.0/{name}")],
          {"cuda.missing": (name,), "cuda.nvcc": None if name == "bin/nvcc" else "13.0"})
      for name in TOOLKIT),
    *(Row(f"with an empty {name}", [put(f"usr/local/cuda-13.0/{name}", "", 0o755)],
          {"cuda.missing": (name,)}) for name in TOOLKIT),
    Row("programs that may not be run",
        [mode(f"usr/local/cuda-13.0/{each}", 0o644) for each in TOOLKIT[:3]],
        {"cuda.missing": TOOLKIT[:3], "cuda.nvcc": None}),
    Row("another release is declared", [], {"cuda.missing": TOOLKIT, "cuda.nvcc": None},
        {"cuda_release": "13.1"}),
    Row("a link to another toolkit", [
        with_(toolkit, "13.1"), link("usr/local/cuda", "cuda-13.1"),
    ], {"cuda.link": "/usr/local/cuda-13.1", "cuda.alternative": "/usr/local/cuda-13.0"}),
    Row("a link that leads nowhere", [link("usr/local/cuda", "/usr/local/cuda-12.0"),
                                      gone("etc/alternatives/cuda")],
        {"cuda.link": "/usr/local/cuda-12.0", "cuda.alternative": None}),
    Row("no link", [gone("usr/local/cuda")], {"cuda.link": None}),
    Row("an nvcc in front of the declared one", [
        put("usr/lib/nvidia-cuda-toolkit/bin/nvcc", "", 0o755), put("usr/local/sbin/nvcc",
            "", 0o644),
        link("usr/bin/nvcc", "../lib/nvidia-cuda-toolkit/bin/nvcc"),
    ], {"cuda.nvcc_on_path": "/usr/lib/nvidia-cuda-toolkit/bin/nvcc"}),
    Row("an nvcc that does not run", [put(NVCC,
        "#!/bin/sh\necho 'libfoo.so: no'\nexit 127\n", 0o755)],
        {"cuda.nvcc": Unknown(f"{{root}}/{NVCC}: libfoo.so: no")}),
    Row("an nvcc that says nothing known", [put(NVCC, "#!/bin/sh\necho hello\n", 0o755)],
        {"cuda.nvcc": Unknown(f"{{root}}/{NVCC}: it said hello")}),
    Row("a declared gcc",
        [tool("gcc-13", '[ "$*" = "-dumpfullversion -dumpversion" ] && echo 13.3.0')],
        {"cuda.compiler": "13.3.0", "cuda.gcc": "12.2.0"}, {"compiler": "gcc-13"}),
    Row("a declared clang", [tool("clang-18", '[ "$*" = -dumpversion ] && echo 18.1.3')],
        {"cuda.compiler": "18.1.3"}, {"compiler": "clang-18"}),
    Row("a compiler that is not there", [], {"cuda.compiler": None}, {"compiler": "a b; $(exit)"}),
    Row("a plain libcuda.so is gone", [gone(PLAIN)],
        {"libcuda.links": {PLAIN: Link(kind="absent", target=None, real=None)}}),
    Row("it leads nowhere", [link(PLAIN, "libcuda.so.570.1")],
        {"libcuda.links": {PLAIN: Link(kind="link", target="libcuda.so.570.1", real=None)}}),
    Row("it leads to an empty file", [put(FILE)],
        {"libcuda.links": {PLAIN: Link(kind="link", target="libcuda.so.1", real=None)}}),
    Row("it is a folder", [gone(PLAIN), made(PLAIN)],
        {"libcuda.links": {PLAIN: Link(kind="dir", target=None, real=None)}}),
    Row("it is a file", [gone(PLAIN), put(PLAIN, "x")],
        {"libcuda.links": {PLAIN: Link(kind="file", target=None, real=PLAIN)}}),
    Row("the toolkit's own link",
        [link("usr/local/cuda-13.0/lib64/libcuda.so", f"{{root}}{LIBDIR}/libcuda.so.1")],
        {"libcuda.links": {"/usr/local/cuda-13.0/lib64/libcuda.so": Link(
            kind="link", target=f"{{root}}{LIBDIR}/libcuda.so.1", real=FILE)}}),
    Row("a cache of other architectures and places", [
        put("opt/other/libcuda.so.1"),
        lambda tree: linker_cache(
            tree, "libcuda.so.1 (libc6) => /usr/lib/i386-linux-gnu/libcuda.so.1",
            f"libcuda.so.1 (libc6,{ABI}, hwcap: 4) => {tree.root}/opt/other/libcuda.so.1",
            f"libcuda.so.1 (libc6,{ABI}) => /gone/libcuda.so.1",
            f"libcuda.so.10 (libc6,{ABI}) => /x/libcuda.so.10",
            f"xlibcuda.so.1 (libc6,{ABI}) => /x/xlibcuda.so.1"),
    ], {"driver.libcuda": "{root}/opt/other/libcuda.so.1", "driver.libml": None, "libcuda.cache": (
        CacheEntry(name="libcuda.so.1", path="{root}/opt/other/libcuda.so.1",
                   real="{root}/opt/other/libcuda.so.1"),
        CacheEntry(name="libcuda.so.1", path="/gone/libcuda.so.1", real=None))}),
    Row("a cache that names what is gone",
        [with_(linker_cache, f"libcuda.so.1 (libc6,{ABI}) => /gone/libcuda.so.1")],
        {"driver.libcuda": Unknown("ldconfig names /gone/libcuda.so.1, which is not there")}),
    Row("no cache", [tool("ldconfig", "echo \"ldconfig: Can't open cache file /etc/ld.so.cache\n:"
                          ' No such file or directory" >&2; exit 1')],
        {"libcuda.cache": (), "driver.libcuda": None}),
    Row("ldconfig breaks", [tool("ldconfig", "echo it broke >&2; exit 1")],
        {"libcuda.cache": Unknown("ldconfig: it broke")}),
    Row("folders that the loader must not search", [
        put("etc/ld.so.conf", "include /etc/ld.so.conf.d/*.conf\n/usr/local/cuda/lib64\n"),
        put("etc/ld.so.conf.d/z.conf",
            "#/a/stubs\n\n  /b/stubs  # x\n/usr/local/cuda/compat/lib.real"),
        put("etc/ld.so.conf.d/z.conf.bak", "/x/stubs\n"),
    ], {"libcuda.loader_paths": ("/etc/ld.so.conf.d/z.conf: /b/stubs",
                                 "/etc/ld.so.conf.d/z.conf: /usr/local/cuda/compat/lib.real")}),
]  # fmt: skip

CONFIGURES = "cuda-toolkit-13-config-common"
LOST = [
    Row("gone and changed", [brought, earlier(GSP, LIBRARY), gone(SMI), gone(GUIDE)],
        {"nvidia.lost": lost(("firmware-nvidia-gsp", f"/{GSP}", "changed"),
                             ("libcuda1", f"/{LIBRARY}", "changed"),
                             ("nvidia-smi", f"/{SMI}", "gone"))}),
    Row("a link in a file's place", [
        brought, put("opt/copy", "x"), gone(LIBRARY), link(LIBRARY, "{root}/opt/copy"),
    ], {"nvidia.lost": lost(("libcuda1", f"/{LIBRARY}", "changed"))}),
    Row("what tells the loader of a toolkit, and what tells it of another thing", [
        status(*(package(name, "13.0.96-1") for name in (CONFIGURES, "cuda-compat-13-0"))),
        put(f"{INFO}/{CONFIGURES}.list", "/.\n/etc/ld.so.conf.d\n/etc/ld.so.conf.d/000.conf\n"),
        put(f"{INFO}/cuda-compat-13-0.list", "/.\n/etc/ld.so.conf.d/compat.conf\n"),
    ], {"nvidia.lost": lost((CONFIGURES, "/etc/ld.so.conf.d/000.conf", "gone"))}),
    Row("a library of the declared toolkit", [brought, gone(CUBLAS)],
        {"nvidia.lost": lost(("libcublas-13-0", f"/{CUBLAS}", "gone"))}),
    Row("one of a toolkit that is not declared", [brought, gone(CUBLAS)], {"nvidia.lost": ()},
        {"cuda_release": "12.8"}),
    Row("a diverted file", [brought, gone(SMI), put("var/lib/dpkg/diversions", f"/{SMI}\n/x\ny\n")],
        {"nvidia.lost": ()}),
    Row("more were touched than are read", [brought, many_touched], {"nvidia.lost": Unknown(
        "more than 200 files of NVIDIA's packages were touched since")}),
    Row("some of very many are surely lost", [brought, many_touched, gone(SMI)],
        {"nvidia.lost": lost(("nvidia-smi", f"/{SMI}", "gone"))}),
]  # fmt: skip

REST = [
    Row("packages of driver and toolkit", [status(*(package(e, "1") for e in (*OURS, *OTHERS)))],
        {"packages of nvidia": sorted(OURS)}),
    Row("packages of another architecture", [status(
        package("libcuda1", "1").replace("Desc", "Multi-Arch: same\nDesc"),
        package("libcuda1", "1", arch="i386").replace("Desc", "Multi-Arch: same\nDesc"),
        package("cuda-keyring", "1.1-1", arch="all"),
    )], {"packages of nvidia": ["cuda-keyring", "libcuda1", "libcuda1:i386"]}),
    Row("dpkg's list is empty", [status()], {"packages.installed": UNTOLD}),
    Row("dpkg's list is damaged", [status("Package: git\nStatus: install\n\n")],
        {"packages.installed": UNTOLD, "nvidia.packages": UNTOLD}),
    Row("the keyring is cut off",
        [put("usr/share/keyrings/pyinfra-gpu-nvidia.gpg", b"\x98\x33\x04")],
        {"nvidia.keyring": UNTOLD}),
    Row("no keyring", [gone("usr/share/keyrings/pyinfra-gpu-nvidia.gpg")],
        {"nvidia.keyring": None}),
    seen({"TTY": "pts/4", "TYPE": "tty"}, "bob on pts/4"),
    seen({"DISPLAY": ":0", "TYPE": "x11"}, "bob on :0"),
    seen({"TYPE": "wayland", "SEAT": "seat0", "TTY": "tty2"}, "bob on tty2"),
    seen({"TYPE": "wayland", "SEAT": "seat0"}, "bob on seat0"),
    seen({"TYPE": "wayland"}, "bob on wayland"),
    seen({"TYPE": "tty", "REMOTE": "1", "SERVICE": "sshd"}),
    seen({"CLASS": "greeter", "TTY": "tty1"}),
    seen({"CLASS": "user-early", "TTY": "tty1"}, "bob on tty1"),
    seen({"TTY": "pts/4", "STATE": "closing"}),
    seen({"USER": "", "TTY": "pts/4"}, "1000 on pts/4"),
    Row("a session of which logind knows no terminal", [
        gone("run/systemd/sessions/3"), put("dev/pts/ptmx"), put("dev/pts/7"),
        with_(session, "4", USER=ME, UID=str(UID), CLASS="user", TYPE="tty", REMOTE="1"),
        with_(session, "5", USER="bob", UID=str(UID + 1), CLASS="user", TYPE="tty", REMOTE="1"),
    ], {"power.sessions": (f"{ME} on pts/7",)}),
    Row("no logind", [gone("run/systemd/sessions"), put("dev/pts/0")],
        {"power.sessions": (f"{ME} on pts/0",)}),
    blocks({}, "job: nightly dump"),
    blocks({"WHAT": "sleep:shutdown:idle"}, "job: nightly dump"),
    blocks({"WHAT": "sleep:idle"}),
    blocks({"MODE": "delay"}),
    blocks({"WHY": ""}, "job"),
    blocks({"WHY": r"\"caf\303\251\" \\ \033[0m\n\xff \x27c\x27"},
           "job: \"caf\N{LATIN SMALL LETTER E WITH ACUTE}\" \\ ?[0m?\\xff 'c'"),
    Row("reboots that were asked for", [
        put("var/lib/pyinfra-gpu/reboots",
            "1763777520 b-1 a 'b' \\ $c\nodd\n1763777521 b-2 two\n17")],
        {"power.reboots": (Reboot(at=1763777520, boot_id="b-1", reason="a 'b' \\ $c"),
                           Reboot(at=1763777521, boot_id="b-2", reason="two"))}),
    Row("variables for every login", [
        put("etc/environment", "LANG=C.UTF-8\n#PYTHONHOME=/x\nCUDA_VISIBLE_DEVICES=s3cret\n"),
        put("etc/environment.d/50-lab.conf", "PYTHONPATH=/opt/lab\nRANK=1\nRANKS=2\nLDx=1\n"),
        put("etc/security/pam_env.conf", "# X DEFAULT=1\nLD_PRELOAD DEFAULT=/x.so OVERRIDE=\n"),
        put("etc/profile.d/lab.sh", "if true; then\n\texport  LD_LIBRARY_PATH='/opt/x y'\nfi\n"),
        put("etc/profile.d/more.csh", "PYTHONPATH=/of another shell\n"),
        put(f"{HOME}/.bashrc", "# LD_LIBRARY_PATH=/usr/local/cuda\nPYTHONPATH=/x\n"),
        put(f"{HOME}/.profile", "A=s3cret LD_LIBRARY_PATH=$A:/usr/local/cuda-12.4/lib64\n"),
    ], {"environment.for_all": (
        "/etc/environment CUDA_VISIBLE_DEVICES", "/etc/environment.d/50-lab.conf PYTHONPATH",
        "/etc/environment.d/50-lab.conf RANK", "/etc/security/pam_env.conf LD_PRELOAD",
        "/etc/profile.d/lab.sh LD_LIBRARY_PATH", f"{HOME}/.profile LD_LIBRARY_PATH")}),
    Row("control groups of version 1", [], {"launcher.manager": None, "launcher.linger": False}),
    Row("a manager that is not on",
        [put("sys/fs/cgroup/cgroup.controllers", "cpu\n"), put(f"var/lib/systemd/linger/{ME}")],
        {"launcher.manager": False, "launcher.linger": True, "launcher.runs": ()}),
    Row("training runs", [
        put("sys/fs/cgroup/cgroup.controllers", "cpu\n"),
        *(made(f"sys/fs/cgroup/user.slice/user-{who}.slice/user@{who}.service/app.slice"
               f"/pyinfra-gpu-train@{name}.service") for who, name in (
            (UID, "20261122-200000-balanced"), (UID, "run-2"), (UID, "a\nforged"),
            # Whoever may log in could keep every repair waiting, with an empty unit of that name.
            (UID + 4711, "not-ours"))),
    ], {"launcher.manager": True, "launcher.runs": ("20261122-200000-balanced", "run-2")}),
    Row("a release without a number", [
        gone("etc/os-release"),
        put("usr/lib/os-release", "PRETTY_NAME='Debian sid'\nID=debian"),
    ], {"system.os_id": "debian", "system.os_version": None, "system.os_name": "Debian sid"}),
    Row("no release", [gone("etc/os-release")], {"system.os_id": UNTOLD}),
]  # fmt: skip


def placed(value: Any, root: str) -> Any:
    """Put where the tree is in the place of {root}."""
    if isinstance(value, str):
        return value.replace("{root}", root)
    if isinstance(value, tuple):
        return tuple(placed(each, root) for each in value)
    if isinstance(value, dict):
        return {key: placed(each, root) for key, each in value.items()}
    if isinstance(value, CacheEntry | Link | Unknown):
        names = value.__dataclass_fields__
        return type(value)(**{name: placed(getattr(value, name), root) for name in names})
    return value


@pytest.mark.parametrize("row", DRIVER + KERNELS + CUDA + LOST + REST, ids=lambda row: row.name)
def test_the_look_tells(row: Row, tmp_path: Path) -> None:
    tree = Tree(tmp_path / "host")
    furnish_nvidia(tree)
    for change in row.changes:
        change(tree)
    output = look(tree, **row.also)
    assert "s3cret" not in str(output.to_json())
    for name, expected in row.reported.items():
        if name == "packages of nvidia":
            assert [each.name for each in output.nvidia.packages] == expected  # type: ignore[union-attr]
            continue
        part, _, key = name.partition(".")
        found = getattr(getattr(output, part), key)
        expected = placed(expected, str(tree.root))
        if isinstance(expected, dict) and key == "links":
            found = {path: each for path, each in found.items() if path in expected}
        assert found == expected, name
