"""The training repository's checkout."""

from __future__ import annotations

import re
from dataclasses import dataclass

from pyinfra_gpu.facts.fields import Fields, Jsonable, Unknown
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

    commit: str | Unknown | None
    remote: str | Unknown | None
    dirty: tuple[str, ...] | Unknown
    dirty_count: int | Unknown
    dirty_submodules: tuple[str, ...] | Unknown
    submodules: tuple[str, ...] | Unknown
    damaged: str | Unknown | None
    lfs: str | Unknown | None
    requirements_sha256: str | Unknown | None
    stamp_text: str | Unknown | None


class Training(ConcernFact[TrainingRecord]):
    """The checkout: `pyinfra INVENTORY fact pyinfra_gpu.facts.training.Training`."""

    def read(self, fields: Fields) -> TrainingRecord:
        """Only this concern of the probe's answer."""
        return parse(fields)


def parse(fields: Fields) -> TrainingRecord:
    """The checkout, from the probe's fields."""
    dirty = fields.items("training.dirty")
    return TrainingRecord(
        commit=_digest(fields.text("training.commit"), r"[0-9a-f]{40}|[0-9a-f]{64}"),
        remote=fields.text("training.remote"),
        dirty=dirty if isinstance(dirty, Unknown) else tuple(_change(row) for row in dirty),
        dirty_count=fields.number("training.dirty_count"),
        dirty_submodules=dirty
        if isinstance(dirty, Unknown)
        else tuple(_change(row)[3:] for row in dirty if re.match(r"1 \S\S S.(M.|.U) ", row)),
        submodules=fields.items("training.submodule"),
        damaged=fields.text("training.damaged"),
        lfs=fields.text("training.lfs"),
        requirements_sha256=_digest(fields.text("training.requirements"), r"[0-9a-f]{64}"),
        stamp_text=fields.document("training.stamp"),
    )


def _digest(text: str | Unknown | None, form: str) -> str | Unknown | None:
    if isinstance(text, str) and not re.fullmatch(form, text):
        return Unknown(f"{text[:80]!r} is not a digest")
    return text


def _change(row: str) -> str:
    """One change, from git's second porcelain format, which the probe asks for, to the first.

    The second format carries HEAD's commit in the same answer; the first is what people know.
    """
    kind, _, rest = row.partition(" ")
    if kind in ("?", "!"):
        return f"{kind}{kind} {rest}"
    words = {"1": 7, "2": 8, "u": 9}.get(kind, 0)
    parts = rest.split(" ", words)
    if not words or len(parts) <= words:
        return row
    state, path = parts[0].replace(".", " "), parts[-1]
    if kind == "2":
        new, _, old = path.partition("\t")
        path = f"{old} -> {new}"
    return f"{state} {path}"
