"""CUDA toolkits, and the compilers that build for them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from pydantic import Field

from pyinfra_gpu.facts.answer import Answer
from pyinfra_gpu.facts.fields import Jsonable, Unknown
from pyinfra_gpu.facts.probe import ConcernFact

Version = Annotated[str, Field(pattern=r"^[0-9]{1,9}(\.[0-9]{1,9}){0,5}$")]
Release = Annotated[str, Field(pattern=r"^[0-9]{1,4}\.[0-9]{1,4}$")]


@dataclass(frozen=True, kw_only=True, slots=True)
class CudaRecord(Jsonable):
    """The toolkits; "declared" is the release that the probe was asked for.

    + toolkits: releases with a folder /usr/local/cuda-RELEASE, e.g. ("13.0", "13.1")
    + missing: files of the declared toolkit that should be there and are not, as paths in its
      folder; all of them where there is no such folder, none where no release is declared
    + nvcc: release that the declared toolkit's nvcc names, e.g. "13.0"
    + link: what /usr/local/cuda finally leads to, e.g. "/usr/local/cuda-13.0"; the text of the
      link where that is not there
    + alternative: what /etc/alternatives/cuda points at; None if there is no such link
    + nvcc_on_path: the file behind the first nvcc in the folders where a login shell looks
    + shell_lines: rows "FILE:LINE" of what login shells read that name a folder of CUDA's in a
      path, at most 9 of a file; comments are not among them
    + gcc: version of gcc; compiler: version of the declared host compiler, None if none is
      declared or it is not there; gxx: whether g++ is there, which nvcc links C++ with
    + glibc: version of the C library, e.g. "2.36"
    + proof: raw text of what the last proof of the toolkit left
    """

    toolkits: tuple[Release, ...] | Unknown
    missing: tuple[str, ...] | Unknown
    nvcc: Release | Unknown | None
    link: str | Unknown | None
    alternative: str | Unknown | None
    nvcc_on_path: str | Unknown | None
    shell_lines: tuple[str, ...] | Unknown
    gcc: Version | Unknown | None
    compiler: Version | Unknown | None
    gxx: bool | Unknown
    glibc: Version | Unknown | None
    proof: str | Unknown | None


class Cuda(ConcernFact[CudaRecord]):
    """Toolkits: `pyinfra INVENTORY fact pyinfra_gpu.facts.cuda.Cuda`."""

    def read(self, answer: Answer) -> CudaRecord:
        """Only this concern of what a host answered."""
        return parse(answer)


def parse(answer: Answer) -> CudaRecord:
    """Return this concern, of what a host answered."""
    return answer.part(CudaRecord, "cuda")
