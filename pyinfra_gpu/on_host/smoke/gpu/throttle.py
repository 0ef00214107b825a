"""Why a GPU's clock is lower than it could be, from the driver's bit mask."""

from __future__ import annotations

# nvml.h, nvmlClocksEventReason* (formerly nvmlClocksThrottleReason*)
_REASONS = {
    0x001: "gpu_idle",
    0x002: "applications_clocks_setting",
    0x004: "sw_power_cap",
    0x008: "hw_slowdown",
    0x010: "sync_boost",
    0x020: "sw_thermal_slowdown",
    0x040: "hw_thermal_slowdown",
    0x080: "hw_power_brake_slowdown",
    0x100: "display_clock_setting",
}
_HARMFUL = {
    "hw_slowdown": "the hardware halves its clock or worse",
    "sw_thermal_slowdown": "too hot, check fans and air flow",
    "hw_thermal_slowdown": "far too hot, check fans and air flow",
    "hw_power_brake_slowdown": "the power supply asks for less, check its cables",
}
"""What a sound host does not show. Reaching the power limit under load is what GPUs do."""


def reasons(mask: int) -> list[str]:
    """Return the names of the bits in `mask`; a bit not known is named by its value."""
    bits = [1 << place for place in range(mask.bit_length()) if mask >> place & 1]
    return [_REASONS.get(bit, f"unknown reason {bit:#x}") for bit in bits]


def harmful(names: list[str]) -> dict[str, str]:
    """Return those of `names` that mean trouble, with what they mean."""
    return {name: _HARMFUL[name] for name in names if name in _HARMFUL}
