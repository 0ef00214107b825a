"""What is known of the host a log comes from, as far as it decides what a message means."""

from __future__ import annotations

from dataclasses import dataclass

YES_OR_NO = (
    "driver_loaded",
    "library_differs",
    "compat_on_path",
    "secure_boot",
    "key_enrolled",
    "nouveau",
    "torch_cuda",
    "torch_libuv",
    "in_container",
)


@dataclass(frozen=True, kw_only=True)
class HostFacts:
    """The host; `None` in any field means that it is not known.

    + driver_loaded: whether the NVIDIA module is in the running kernel
    + driver_version: that module's; + library_version: of the libcuda that the loader finds
    + compat_on_path: whether the linker's cache leads to a forward-compatibility libcuda
    + secure_boot; + key_enrolled: whether the firmware knows the key that signs modules here
    + nouveau: whether the free driver is loaded or bound to a GPU
    + torch_cuda: whether torch was built with CUDA; + torch_libuv: whether with libuv
    + gpus: their marketing names, as far as known
    + shm_mib: size of /dev/shm in MiB
    + in_container: whether the run was inside a container
    """

    driver_loaded: bool | None = None
    driver_version: str | None = None
    library_version: str | None = None
    compat_on_path: bool | None = None
    secure_boot: bool | None = None
    key_enrolled: bool | None = None
    nouveau: bool | None = None
    torch_cuda: bool | None = None
    torch_libuv: bool | None = None
    gpus: tuple[str, ...] | None = None
    shm_mib: int | None = None
    in_container: bool | None = None

    @property
    def library_differs(self) -> bool | None:
        """Whether libcuda is of another version than the loaded module."""
        if self.driver_version is None or self.library_version is None:
            return None
        return self.driver_version != self.library_version


@dataclass(frozen=True)
class Condition:
    """One thing the host must say, as the catalogue writes it."""

    name: str
    expected: bool | str

    def holds(self, facts: HostFacts) -> bool:
        """Tell whether it is so; what is not known is not."""
        found = getattr(facts, "gpus" if self.name == "gpu" else self.name)
        if found is None:
            return False
        if isinstance(self.expected, bool):
            return bool(found is self.expected)
        if self.name == "gpu":
            return any(self.expected in name for name in found)
        sign, size = self.expected.split(" ")
        return bool(found < int(size) if sign == "<" else found >= int(size))
