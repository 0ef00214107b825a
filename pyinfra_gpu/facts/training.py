"""The training repository's checkout."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from pydantic import Field

from pyinfra_gpu.facts.answer import Answer
from pyinfra_gpu.facts.fields import Jsonable, Unknown
from pyinfra_gpu.facts.probe import ConcernFact


@dataclass(frozen=True, kw_only=True, slots=True)
class TrainingRecord(Jsonable):
    """The checkout as it is.

    + commit: what HEAD is, 40 hex digits; None where there is no checkout, or no commit in it
    + remote: address of the remote "origin"
    + dirty: local changes in the form of `git status --porcelain`, at most 20 of them
    + dirty_count: how many there are
    + dirty_submodules: the paths of those among `dirty` that are submodules, with changes inside
    + submodules: those that are not there (lines that begin with "-") or at another commit than
      recorded ("+", "U"), as `git submodule status` tells them, at most 20
    + damaged: what git says of a repository that it cannot read, None where it can
    + lfs: how many files of git LFS are still pointers; "-" where git-lfs is not on the host, None
      where the repository has none
    + requirements_sha256: digest of the requirements file that was asked for
    + stamp_text: raw text of the stamp that the dependencies' installation leaves
    """

    commit: Annotated[str, Field(pattern=r"^([0-9a-f]{40}|[0-9a-f]{64})$")] | Unknown | None
    remote: str | Unknown | None
    dirty: tuple[str, ...] | Unknown
    dirty_count: int | Unknown
    dirty_submodules: tuple[str, ...] | Unknown
    submodules: tuple[str, ...] | Unknown
    damaged: str | Unknown | None
    lfs: str | Unknown | None
    requirements_sha256: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")] | Unknown | None
    stamp_text: str | Unknown | None


class Training(ConcernFact[TrainingRecord]):
    """The checkout: `pyinfra INVENTORY fact pyinfra_gpu.facts.training.Training`."""

    def read(self, answer: Answer) -> TrainingRecord:
        """Only this concern of what a host answered."""
        return parse(answer)


def parse(answer: Answer) -> TrainingRecord:
    """Return this concern, of what a host answered."""
    return answer.part(TrainingRecord, "training")
