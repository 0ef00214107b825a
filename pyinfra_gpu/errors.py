"""One sentence per mistake: where, which key, which value, what is allowed, what to do."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping

from pyinfra.api.exceptions import DeployError

from pyinfra_gpu.text import one_line

HOLD_SECRETS = ("environment_variables", "training_notify", "training_presets")
"""Keys of whose values nothing is shown: any text in them may be a secret."""
HIDDEN = object()
"""Stands for a value that is not to be shown."""
_NOT_SHOWN = "(not shown, it may be a secret)"
LONGEST_VALUE = 60  # characters of a value that an error shows

SECRET_NAME = re.compile(
    r"pass(word|wd|phrase)|token|secret|credential|(api|private|access)[_-]?key|auth(?!or)",
    re.IGNORECASE,
)
# Beginnings that issuers chose so that a leaked token can be found: GitHub, GitLab, Hugging Face,
# OpenAI and Anthropic, AWS, Slack, a JWT, PEM.
_SECRET_VALUE = re.compile(
    r"\b(gh[opsu]_|github_pat_|glpat-|hf_|sk-|AKIA|xox[abprs]-|eyJ[\w-]{8,}\.)|-----BEGIN"
)
_URL_USER = re.compile(r"://[^/@\s]*@")
_USER_AND_PASSWORD = re.compile(r"(?<![^\s'\"])[^/@:\s'\"]+:[^@/\s'\"]+@")
_OPTION_VALUE = re.compile(rf"(?P<name>(?:{SECRET_NAME.pattern})[\w.-]*=)[^\s'\",]+", re.IGNORECASE)


class SpecError(DeployError):
    """A host's data is wrong; the message is one sentence for the person who wrote the data."""


def shown(key: object, value: object) -> str:
    """Return `value` as an error may show it: its repr in at most 60 characters, on one line.

    Values that look like a secret, by the key's name or by the value's form, are not shown, nor
    are environment variables, commands and presets.
    """
    secret = key in HOLD_SECRETS or (SECRET_NAME.search(str(key)) and not isinstance(value, bool))
    if value is HIDDEN or (secret and value is not None):
        return _NOT_SHOWN
    if isinstance(value, Mapping):
        text = "{" + ", ".join(f"{k!r}: {shown(k, v)}" for k, v in value.items()) + "}"
    else:
        text = repr(value)
    if _SECRET_VALUE.search(text) or "HiddenValue" in type(value).__name__:
        return _NOT_SHOWN
    text = one_line(masked(text))
    return text if len(text) <= LONGEST_VALUE else text[: LONGEST_VALUE - 3] + "..."


def masked(text: str) -> str:
    """Return a text without what stands for a user or a secret in URLs and as NAME=VALUE."""
    text = _USER_AND_PASSWORD.sub("***@", _URL_USER.sub("://***@", text))
    return _OPTION_VALUE.sub(r"\g<name>***", text)


def sentence(
    where: str, key: object, value: object, problem: str, *, allowed: str, remedy: str
) -> str:
    """Return the one sentence: `WHERE: KEY = VALUE PROBLEM; allowed: ALLOWED; fix: REMEDY.`"""
    fix = masked(remedy)
    return one_line(
        f"{where}: {key} = {shown(key, value)} {problem}; allowed: {allowed}; fix: {fix}"
    )


def nearest(name: str, names: Iterable[str]) -> str | None:
    """Return the name most like `name`, or None if none is like it; case does not count."""
    folded = {candidate.casefold(): candidate for candidate in names}
    close = difflib.get_close_matches(name.casefold(), list(folded), n=1, cutoff=0.6)
    return folded[close[0]] if close else None
