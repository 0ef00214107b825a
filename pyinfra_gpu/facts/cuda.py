"""CUDA toolkits, and the compilers that build for them."""

from __future__ import annotations

import re
from dataclasses import dataclass

from pyinfra_gpu.facts.fields import Fields, Jsonable, Unknown, not_asked
from pyinfra_gpu.facts.probe import ConcernFact

_NUMBERS = r"(\d{1,9}(?:\.\d{1,9}){0,5})"
_NVCC = r".*release (\d{1,4}\.\d{1,4})\b.*"


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

    toolkits: tuple[str, ...] | Unknown
    missing: tuple[str, ...] | Unknown
    nvcc: str | Unknown | None
    link: str | Unknown | None
    alternative: str | Unknown | None
    nvcc_on_path: str | Unknown | None
    shell_lines: tuple[str, ...] | Unknown
    gcc: str | Unknown | None
    compiler: str | Unknown | None
    gxx: bool | Unknown
    glibc: str | Unknown | None
    proof: str | Unknown | None


class Cuda(ConcernFact[CudaRecord]):
    """Toolkits: `pyinfra INVENTORY fact pyinfra_gpu.facts.cuda.Cuda`."""

    def read(self, fields: Fields) -> CudaRecord:
        """Only this concern of the probe's answer."""
        return parse(fields)


def parse(fields: Fields) -> CudaRecord:
    """The toolkits, from the probe's fields."""
    if not_asked(fields):
        return CudaRecord(
            toolkits=(),
            missing=(),
            nvcc=None,
            link=None,
            alternative=None,
            nvcc_on_path=None,
            shell_lines=(),
            gcc=None,
            compiler=None,
            gxx=False,
            glibc=None,
            proof=None,
        )
    return CudaRecord(
        toolkits=_toolkits(fields.items("cuda.toolkit")),
        missing=fields.items("cuda.missing"),
        nvcc=_found(fields.text("cuda.nvcc"), _NVCC, "nvcc --version"),
        link=fields.text("cuda.link"),
        alternative=fields.text("cuda.alternative"),
        nvcc_on_path=fields.text("cuda.nvcc_on_path"),
        shell_lines=_shown(fields.items("cuda.shell")),
        gcc=_found(fields.text("cuda.gcc"), _NUMBERS, "gcc"),
        compiler=_found(fields.text("cuda.compiler"), _NUMBERS, "the compiler"),
        gxx=fields.flag("cuda.gxx"),
        glibc=_found(fields.text("cuda.glibc"), rf"glibc {_NUMBERS}", "getconf"),
        proof=fields.document("cuda.proof"),
    )


def _toolkits(names: tuple[str, ...] | Unknown) -> tuple[str, ...] | Unknown:
    """Releases in the order of their numbers; folders that name none are somebody's own."""
    if isinstance(names, Unknown):
        return names
    releases = [name for name in names if re.fullmatch(r"\d{1,4}\.\d{1,4}", name, re.ASCII)]
    return tuple(sorted(releases, key=lambda name: tuple(map(int, name.split(".")))))


def _shown(rows: tuple[str, ...] | Unknown) -> tuple[str, ...] | Unknown:
    """Without what such a line may hold beside the path: a token in a variable of its own."""
    if isinstance(rows, Unknown):
        return rows
    return tuple(re.sub(r"^([^:]+:).*?(\w*(?:PATH|CUDA_\w+)\b)", r"\1\2", row) for row in rows)


def _found(text: str | Unknown | None, form: str, who: str) -> str | Unknown | None:
    if not isinstance(text, str):
        return text
    match = re.fullmatch(form, text, re.ASCII)
    return match[1] if match else Unknown(f"{who} said {text[:80]!r}")
