"""The text of our apt files: where NVIDIA's packages come from, and what holds them still."""

from __future__ import annotations

from collections.abc import Sequence

from pyinfra_gpu.packages.apt.names import DRIVER
from pyinfra_gpu.spec.system_files import HEADER, KEYRING

_UNATTENDED = (
    *("cuda-", "firmware-nvidia", "libcuda", "libnvidia-", "libnvsdm", "libxnvctrl"),
    *("linux-modules-nvidia", "linux-objects-nvidia", "linux-signatures-nvidia"),
    *("nvidia-", "xserver-xorg-video-nvidia"),
)


def sources(url: str) -> str:
    """Return the source list of NVIDIA's flat repository, which only its own key may sign.

    + url: the repository, without a slash at its end
    """
    return f"{HEADER}deb [signed-by={KEYRING}] {url}/ /\n"


def preferences(
    branch: int,
    version: str | None,
    toolkit: tuple[str, str] | None,
    absent_pin: str | None = None,
) -> str:
    """Return the pins: the driver from NVIDIA alone, of one branch or version.

    + branch, version: the declared ones; None as version = any of the branch
    + toolkit: package and exact release of the toolkit, where one is declared
    + absent_pin: the pin package that the repository does not have, so that these stand alone

    For each version of a package apt goes by the first record that matches it (apt 2.4 to 3.0:
    tested), so their order matters. A priority above 1000 also brings back what went past it; a
    negative one is never installed. See apt_preferences(5).
    """
    note = f"# The repository has no {absent_pin}: these pins stand alone.\n" if absent_pin else ""
    wanted = f"{version}-*" if version else f"{branch}.*"
    records = [
        # A label that does not begin with "N", or begins with it and goes on otherwise.
        _record("other archives have packages of the same names", DRIVER, "release l=[!N]*", -1),
        _record("see above", DRIVER, "release l=N[!V]*", -1),
        _record("the declared driver", DRIVER, f"version {wanted}", 1001),
        _record("and no other driver", DRIVER, "version [1-9][0-9][0-9].[0-9]*", -1),
    ]
    if toolkit:
        name, release = toolkit
        records.append(_record("the declared toolkit", (name,), f"version {release}-*", 1001))
    return "\n".join([HEADER + note.rstrip("\n") if note else HEADER.rstrip("\n"), *records])


def _record(why: str, packages: Sequence[str], pin: str, priority: int) -> str:
    return (
        f"Explanation: {why}\nPackage: {' '.join(packages)}\nPin: {pin}\nPin-Priority: {priority}\n"
    )


def unattended() -> str:
    """Return what keeps unattended-upgrades off the driver and the toolkit.

    Its entries are regular expressions for the beginning of a name; a list in apt's
    configuration grows with each file, so the distribution's own entries stay.
    """
    entries = "".join(f'\t"{prefix}";\n' for prefix in _UNATTENDED)
    return f"{HEADER}Unattended-Upgrade::Package-Blacklist {{\n{entries}}};\n"
