"""What all throwaway hosts of a lab are made of."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from pyinfra_gpu_rehearsal.aptconfig import read_machine
from pyinfra_gpu_rehearsal.base_image import BaseImage, Say, ensure_base_image
from pyinfra_gpu_rehearsal.wheelhouse import REQUIREMENTS


def _of_this_machine(say: Say) -> BaseImage:
    return ensure_base_image(read_machine(), say)


@dataclass(frozen=True)
class Kind:
    """One kind of hosts.

    + image: makes their base image, where the cache has none
    + wheels: requirements; with what they need they are what the lab's index has
    """

    image: Callable[[Say], BaseImage] = _of_this_machine
    wheels: tuple[str, ...] = REQUIREMENTS


USUAL = Kind()
"""Of this machine's own release, with torch."""
