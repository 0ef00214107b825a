"""Versions, names, simulations and limits of apt, as pure functions."""

from __future__ import annotations

import pytest

from pyinfra_gpu.engine import transaction as apt
from pyinfra_gpu.engine.ask import Answer
from pyinfra_gpu.packages.names import (
    branch_of,
    driver_version,
    is_driver,
    is_kernel,
    is_nvidia,
)
from pyinfra_gpu.packages.simulation import Change, Limits, judge, parse

URL = "http://mirror.example/nvidia/debian12/x86_64"
NVIDIA = "NVIDIA CUDA:mirror.example [amd64]"

DRIVER_VERSIONS = {
    "580.95.05-1": "580.95.05",
    "580.142-1ubuntu1": "580.142",
    "1:580.95.05-1": "580.95.05",
    "595.71.05": "595.71.05",
    **dict.fromkeys(("580-2ubuntu1", "13.0.3-1", "20220217+3~deb12u1", "6.8.0-31.31", "")),
    **dict.fromkeys(("580.95.05.1-1", "580.9", "?")),
}


@pytest.mark.parametrize("text", DRIVER_VERSIONS)
def test_the_drivers_version_is_told_from_all_others(text: str) -> None:
    expected = DRIVER_VERSIONS[text]
    assert driver_version(text) == expected
    assert branch_of(text) == (int(expected.split(".")[0]) if expected else None)


PARTS = (
    *("libcuda1 580.95.05-1", "libcuda1:i386 580.95.05-1", "nvidia-modprobe 580.95.05-1"),
    *("libnvidia-compute-580 580.95.05-0ubuntu1", "cuda-drivers 580.95.05-1"),
    "xserver-xorg-video-nvidia-580 580.95.05-0ubuntu1",
)
OTHERS = (
    *("cuda-compat-13-0 580.95.05-1", "nvidia-container-toolkit 1.18.0-1", "python3 580.95.05-1"),
    *("nvidia-firmware-580-580.95.05 580.95.05-0ubuntu1", "nvidia-driver-pinning-580 580-1"),
    *("nvidia-driver-pinning-580.95.05 580.95.05-1", "nvidia-kernel-common 20220217"),
    *("cuda-toolkit-13-0 13.0.3-1", "linux-modules-nvidia-580-open-6.8.0-31-generic 6.8.0-31.31"),
)


def test_the_drivers_packages_are_known_by_name_and_version() -> None:
    assert [each for each in (*PARTS, *OTHERS) if is_driver(*each.split())] == [*PARTS]


def test_names_of_kernels_and_nvidias() -> None:
    kernels = ["linux-image-6.1.0-40-amd64", "linux-image-amd64", "linux-modules-extra-6.8.0-31"]
    assert all(map(is_kernel, [*kernels, "linux-generic-hwe-24.04", "linux-amd64"]))
    assert not any(map(is_kernel, ["linux-headers-amd64", "linux-libc-dev", "linux-base"]))
    assert not is_kernel("linux-modules-nvidia-580-open-generic")
    assert is_nvidia("libnvidia-ml1")
    assert not is_nvidia("libnvme1")


SIMULATED = {
    "Inst libcuda1 (580.95.05-1 NVIDIA CUDA:mirror.example [amd64])": Change(
        name="libcuda1", old=None, new="580.95.05-1", labels=("NVIDIA CUDA",)
    ),
    "Inst jq [1.6-2.1] (1.6-2.1+deb12u3 Debian-Security:12/oldstable-security [amd64]) []": Change(
        name="jq", old="1.6-2.1", new="1.6-2.1+deb12u3", labels=("Debian-Security",)
    ),
    "Inst a [1] (2 Debian:12.15/oldstable, Debian-Security:12/oldstable [all]) [b on a]": (
        Change(name="a", old="1", new="2", labels=("Debian", "Debian-Security"))
    ),
    "Inst local (1.0 [all])": Change(name="local", old=None, new="1.0"),
    "Remv yq [3.1.0-3] [jq:amd64 ]": Change(name="yq", old="3.1.0-3", new=None),
    "Purg yq [3.1.0-3]": Change(name="yq", old="3.1.0-3", new=None),
}


@pytest.mark.parametrize("line", SIMULATED)
def test_a_line_of_a_simulation_is_read(line: str) -> None:
    simulation = parse(["Reading package lists...", "The following NEW:", "  a b", line])
    assert simulation.changes == (SIMULATED[line],)
    assert simulation.problems == ()


@pytest.mark.parametrize("line", ["Inst x", "Remv x", "Inst x [1 (2 a [b])"])
def test_a_line_that_is_not_understood_is_a_problem(line: str) -> None:
    assert parse([f"{line} ", "Inst"]).problems == (f"this is not understood: {line}",)


def test_what_is_on_hold_and_would_be_fetched_is_read() -> None:
    lines = [
        *("Inst jq (1 [all])", "Inst g++ (4:12 [amd64])", "Hold dkms", "Hold jq"),
        "Need to get 10 B of archives.",
        f"'{URL}/./jq_1_all.deb' jq_1_all.deb 10 SHA256:ab",
        "'http://d.example/g%2b%2b_1_amd64.deb' g++_4%3a12_amd64.deb 10 ",
    ]
    assert parse(lines).changes == (
        Change(name="jq", old=None, new="1", uri=f"{URL}/./jq_1_all.deb", held=True),
        Change(name="g++", old=None, new="4:12", uri="http://d.example/g%2b%2b_1_amd64.deb"),
    )


def limits(**changes: object) -> Limits:
    values = {"branch": 580, "version": None, "url": URL, **changes}
    return Limits(**values)  # type: ignore[arg-type]


LOWER = "The following packages will be DOWNGRADED:\n  dkms libcuda1\n"


def install(name: str, new: str = "580.95.05-1", old: str | None = None, by: str = NVIDIA) -> str:
    return f"Inst {name} {f'[{old}] ' if old else ''}({new} {by})"


DEBIAN = "Debian:12.15/oldstable [amd64]"
V, OLD, NEXT = "580.95.05-1", "580.82.07-1", "595.71.05-1"
HEADERS, H = "linux-headers-6.1.0-30-amd64", "6.1.124-1"
Case = tuple[list[str], dict[str, object]]
ALLOWED: dict[str, Case] = {
    "a driver, with what it needs of the distribution": (
        [install("libcuda1"), install("dkms", "3.0.10-8", None, DEBIAN), install("nvidia-smi")], {},
    ),
    "headers": ([install(HEADERS, H, None, DEBIAN)], {}),
    "a reinstallation": ([install(HEADERS, H, H, DEBIAN)], {"held": ("linux-image-amd64",)}),
    "within the branch": ([install("libcuda1", V, OLD)], {}),
    "back to the branch": ([*LOWER.splitlines(), install("libcuda1", V, NEXT)], {}),
    "back to the declared version": (
        [*LOWER.splitlines(), install("libcuda1", OLD, V)],
        {"version": "580.82.07"},
    ),
    "the other flavour goes": (
        [f"Remv nvidia-kernel-dkms [{V}]", install("nvidia-kernel-open-dkms")], {},
    ),
    "our own hold": ([install("libcuda1", V, OLD)], {"held": ("libcuda1", "dkms")}),
}  # fmt: skip


def judged(lines: list[str], changes: dict[str, object]) -> list[str]:
    """Judge what apt says, with "held" of the changes on hold, by limits with the others."""
    held = [f"Hold {name}" for name in changes.get("held", ())]  # type: ignore[attr-defined]
    others = {key: value for key, value in changes.items() if key != "held"}
    return judge(parse([*lines, *held]), limits(**others))


@pytest.mark.parametrize("what", ALLOWED)
def test_a_transaction_within_its_limits_may_run(what: str) -> None:
    lines, changes = ALLOWED[what]
    assert judged(lines, changes) == []


REFUSED: dict[str, tuple[str, dict[str, object], str]] = {
    "removes a desktop": ("Remv gnome-shell [43]", {}, "remove gnome-shell"),
    "removes the toolkit": ("Remv cuda-toolkit-13-0 [13.0.3-1]", {}, "remove cuda-toolkit-13-0"),
    "a kernel": (install("linux-image-6.1.0-40-amd64", "6.1.150-1", None, DEBIAN), {}, "a kernel"),
    "leaves the branch": (install("libcuda1", NEXT, V), {}, "branch 580"),
    "another version": (
        install("libcuda1", "580.105.08-1"), {"version": "580.95.05"}, "version 580.105.08-1",
    ),
    "a downgrade nobody asked for": (
        LOWER + install("libcuda1", OLD, V), {}, "driver_version",
    ),
    "a downgrade of something else": (
        "DOWNGRADING:\n  dkms\n" + install("dkms", "2.8", "3.0", DEBIAN), {},
        "downgrade dkms from 3.0 to 2.8",
    ),
    "the distribution's driver": (install("libcuda1", V, None, DEBIAN), {}, "another origin"),
    "a driver without a label": (install("libcuda1", V, None, "[amd64]"), {}, "another origin"),
    "a toolkit from elsewhere": (
        install("cuda-nvcc-13-0", "13.0.88-1", None, "PPA:x [amd64]"), {}, "another origin",
    ),
    "somebody's hold": (
        install("dkms", "3.1", "3.0", DEBIAN), {"held": ("dkms",)}, "apt-mark unhold dkms",
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", REFUSED)
def test_a_transaction_beyond_its_limits_is_refused_with_the_reason(what: str) -> None:
    line, changes, words = REFUSED[what]
    reasons = judged(line.splitlines(), changes)
    assert any(words in reason for reason in reasons), reasons


@pytest.mark.parametrize("of", ["libcuda1", "libcuda1:i386"])
def test_a_label_alone_is_not_believed(of: str) -> None:
    """Of each architecture's file for itself."""
    lines = [install("libcuda1"), install("libcuda1:i386").replace("amd64", "i386")]
    good = {arch: f"'{URL}/./x.deb' libcuda1_1_{arch}.deb 10" for arch in ("amd64", "i386")}
    assert judge(parse([*lines, *good.values()]), limits()) == []
    evil = "i386" if ":" in of else "amd64"
    files = {**good, evil: good[evil].replace(URL, f"{URL}.evil")}
    (reason,) = judge(parse([*lines, *files.values()]), limits())
    assert reason.startswith(f"{of} ")


def test_a_repository_on_disk_is_known_by_both_spellings() -> None:
    lines = [install("libcuda1"), "'file:/srv/r/./l.deb' libcuda1_1_amd64.deb 10"]
    assert judge(parse(lines), limits(url="file:///srv/r")) == []


NOISE = """\
Setting up dkms (3.0) ...
dkms: Permission denied, which dkms got over
"""
MODULE = """\
Setting up nvidia-dkms-580-open (580.95.05-0ubuntu1) ...
Error! Bad return status for module build on kernel: 6.8.0-31-generic (x86_64)
Consult /var/lib/dkms/nvidia/580.95.05/build/make.log for more information.
dpkg: error processing package nvidia-dkms-580-open (--configure):
 installed nvidia-dkms-580-open package post-installation script subprocess returned error exit 10
"""
DEPENDENT = """\
dpkg: dependency problems prevent configuration of nvidia-driver-cuda:
 nvidia-driver-cuda depends on nvidia-kernel-open-dkms (= 580.95.05-1); however:
  Package nvidia-kernel-open-dkms is not configured yet.
dpkg: error processing package nvidia-driver-cuda (--configure):
 dependency problems - leaving unconfigured
"""
TAIL = """\
Processing triggers for man-db (2.9) ...
Errors were encountered while processing:
 libnvidia
E: Sub-process /usr/bin/dpkg returned an error code (1)
"""
GUARD = "E: pyinfra-gpu: apt would do what it did not simulate: x 1\n"
UPDATE = """\
Err:1 http://x InRelease
  The following signatures were invalid: BADSIG 0123456789ABCDEF x
E: Failed to fetch http://x/InRelease  The following signatures were invalid: BADSIG 0 x
W: An error occurred during the verification. GPG error: http://x InRelease: it is BADSIG
W: Download is performed unsandboxed as root as file '/tmp/x' (13: Permission denied)
E: Some index files failed to download. They have been ignored, or old ones used instead.
"""
BUILD = "Error! Bad return status for module build"
PRINTED = {
    # what it printed: words of the sentence
    NOISE + MODULE + TAIL: BUILD,
    DEPENDENT + MODULE + TAIL: BUILD,
    DEPENDENT + TAIL: "nvidia-driver-cuda",
    NOISE + GUARD + TAIL: "something else than in its simulation",
    UPDATE: "cannot verify the signature of a package source",
    NOISE + "E: broken\n" + TAIL: "apt says: E: broken",
    "no error\n \nat all\n": "apt says: at all",
}


@pytest.mark.parametrize("printed", PRINTED)
def test_of_all_that_apt_prints_what_says_why_is_told(printed: str) -> None:
    answer = Answer(ok=False, stdout=(), lines=tuple(printed.splitlines()))
    assert PRINTED[printed] in apt.why(answer)


@pytest.mark.parametrize(("wait_s", "reported"), [(90, 90), (0, 1)])
def test_transactions_do_what_was_judged_wait_for_the_lock_and_restart_nothing(
    wait_s: int, reported: int
) -> None:
    """Somebody may take the lock after our look; needrestart would end what the user runs."""
    lines = [
        install("libcuda1:i386"),
        f"Remv nvidia-dkms [{V}]",
        "Hold libcuda1",
        "Hold nvidia-dkms",
    ]
    words = apt.words(["libcuda1"], reinstall=bool(wait_s), wait_s=wait_s)
    command = apt.guarded(words, parse(lines))
    # What may be done, and what of it is on hold again when it ends.
    assert f" 'libcuda1 {V}\nnvidia-dkms -\n' libcuda1:i386 env " in command
    assert f"-o DPkg::Lock::Timeout={reported} " in command
    assert "NEEDRESTART_SUSPEND=1 apt-get " in command
    assert ("--force-confmiss" in command) is bool(wait_s)
