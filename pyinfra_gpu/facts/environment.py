"""The file with the environment's variables."""

from __future__ import annotations

from dataclasses import dataclass

from pyinfra_gpu.facts.answer import Answer
from pyinfra_gpu.facts.fields import Hidden, Jsonable, Unknown
from pyinfra_gpu.facts.probe import ConcernFact
from pyinfra_gpu.spec import env_file


@dataclass(frozen=True, kw_only=True, slots=True)
class EnvironmentRecord(Jsonable):
    """The environment.

    + text: content of its file, which may hold secrets and is shown as names alone; None where
      there is no such file (the layout tells what else may stand at that path, e.g. a folder)
    + for_all: rows "FILE NAME" of the system's files that set variables for every login; not all
      names are told, and no value
    """

    text: Hidden | Unknown | None
    for_all: tuple[str, ...] | Unknown


class Environment(ConcernFact[EnvironmentRecord]):
    """The environment: `pyinfra INVENTORY fact pyinfra_gpu.facts.environment.Environment`."""

    def read(self, answer: Answer) -> EnvironmentRecord:
        """Only this concern of what a host answered."""
        return parse(answer)


def parse(answer: Answer) -> EnvironmentRecord:
    """Return this concern, of what a host answered."""
    text = answer.text("environment.text")
    found = hidden(text) if isinstance(text, str) else text
    return answer.part(EnvironmentRecord, "environment", text=found)


def hidden(text: str) -> Hidden:
    """The content of an environment file, without the values wherever it is shown."""
    return Hidden(text, env_file.shown(text))
