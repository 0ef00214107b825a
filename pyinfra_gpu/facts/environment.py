"""The file with the environment's variables."""

from __future__ import annotations

from dataclasses import dataclass

from pyinfra_gpu.facts.fields import Fields, Jsonable, Unknown
from pyinfra_gpu.facts.probe import ConcernFact


@dataclass(frozen=True, kw_only=True, slots=True)
class EnvironmentRecord(Jsonable):
    """The environment.

    + text: content of its file; None where there is no such file (the layout tells what else
      may stand at that path, e.g. a folder)
    """

    text: str | Unknown | None


class Environment(ConcernFact[EnvironmentRecord]):
    """The environment: `pyinfra INVENTORY fact pyinfra_gpu.facts.environment.Environment`."""

    def read(self, fields: Fields) -> EnvironmentRecord:
        """Only this concern of the probe's answer."""
        return parse(fields)


def parse(fields: Fields) -> EnvironmentRecord:
    """The environment, from the probe's fields."""
    return EnvironmentRecord(text=fields.document("environment.text"))
