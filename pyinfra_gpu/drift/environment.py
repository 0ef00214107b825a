"""Are the environment file and the ``torchrun`` wrapper as declared? Judged, never touched."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import TYPE_CHECKING

from pyinfra_gpu.drift import layout
from pyinfra_gpu.drift.finding import Finding, Id, Stage
from pyinfra_gpu.facts.fields import Hidden, Unknown
from pyinfra_gpu.spec import env_file
from pyinfra_gpu.spec.variables import FORBIDDEN
from pyinfra_gpu.text import some

if TYPE_CHECKING:
    from pyinfra_gpu.facts.record import Entry, Record
    from pyinfra_gpu.spec import HostSpec

STAGE = Stage.ENVIRONMENT

IDS = Id.of(STAGE)
"""What `environment.project_files` repairs."""

_NAMED = 3  # so many variables are told


def declared(spec: HostSpec) -> dict[str, tuple[str, str]]:
    """Return path -> (content, mode) of the files this stage keeps.

    Variables that a user declares may be keys to something: then the file is the owner's alone.
    """
    return {
        spec.paths.env_file: (env_file.render(spec), "0600" if _private(spec) else "0644"),
        spec.paths.torchrun: (env_file.render_torchrun(spec), "0755"),
    }


def file_owner(spec: HostSpec, record: Record, path: str) -> str | Unknown | None:
    """Return whose one of these files is to be; None without root: then all is who logs in's."""
    if spec.privilege != "sudo":
        return None
    theirs = path == spec.paths.env_file and _private(spec)
    return layout.owner(spec, record) if theirs else layout.ROOT


def _private(spec: HostSpec) -> bool:
    return bool(spec.environment.variables)


def needed(spec: HostSpec, record: Record) -> tuple[object, ...]:
    """Return the facts that this stage cannot do without."""
    return (layout.owner(spec, record), *(record.layout.entry(path) for path in declared(spec)))


def summary(spec: HostSpec, record: Record) -> str:
    """Say what was found where nothing differs."""
    del spec, record
    return "as declared"


def judge(spec: HostSpec, record: Record) -> list[Finding]:
    """Return in what the files are not as declared, one finding for each file."""
    return [*(finding for _, finding in wrong(spec, record)), *_for_all(spec, record)]


def _for_all(spec: HostSpec, record: Record) -> list[Finding]:
    """Judge what every login gets of what no env file may hold; `train` has nothing of a login."""
    rows = record.environment.for_all
    if isinstance(rows, Unknown):
        return []
    pairs = dict.fromkeys((file, name) for file, _, name in (row.partition(" ") for row in rows))
    of_gpus = () if spec.accelerator == "nvidia" else ("CUDA_VISIBLE_DEVICES",)
    told = [
        (file, name)
        for file, name in pairs
        if name in FORBIDDEN and name not in of_gpus and not _of_shells(record, file, name)
    ]
    return [_every_login(told)] if told else []


def _of_shells(record: Record, file: str, name: str) -> bool:
    """Tell whether the line is told as that of another CUDA."""
    rows = record.cuda.shell_lines
    return not isinstance(rows, Unknown) and any(
        row.startswith(f"{file}:") and name in row for row in rows
    )


def _every_login(pairs: list[tuple[str, str]]) -> Finding:
    file, names = pairs[0][0], "|".join(dict.fromkeys(name for _, name in pairs))
    return Finding(
        id=Id.ENVIRONMENT_SET_FOR_ALL,
        found="every login gets " + some([f"{name} from {file}" for file, name in pairs], _NAMED),
        expected=f"none: {FORBIDDEN[pairs[0][1]]}",
        effect="report",
        action="left alone, since somebody wrote that, and what is started by hand runs with it:"
        " take the line out, and log in again",
        command=f"grep -nE '{names}' {file}",
    )


def wrong(spec: HostSpec, record: Record) -> Iterator[tuple[str, Finding]]:
    """Yield (path, finding) of each file that is not as declared."""
    for path, (text, mode) in declared(spec).items():
        entry = record.layout.entry(path)
        if isinstance(entry, Unknown):
            continue  # not known to be wrong; see `needed`
        judged = _judged(spec, record, path, entry, text, mode)
        if judged:
            id_, found, expected = judged
            name = path.rpartition("/")[2]
            yield (
                path,
                Finding(
                    id=id_,
                    found=found,
                    expected=expected,
                    effect="repair",
                    action=f"write {name}",
                ),
            )


def _judged(
    spec: HostSpec, record: Record, path: str, entry: Entry, text: str, mode: str
) -> tuple[Id, str, str] | None:
    """Return the id, what was found and what was expected of a file that is wrong."""
    name = path.rpartition("/")[2]
    if entry.kind == "absent":
        return Id.ENVIRONMENT_FILE_MISSING, f"no {name}", path
    if entry.kind != "file":
        return Id.ENVIRONMENT_NOT_A_FILE, f"{name} is a {entry.kind}", f"a file at {path}"
    if entry.sha256 != hashlib.sha256(text.encode()).hexdigest():
        keys = _changed_keys(spec, record) if path == spec.paths.env_file else []
        if keys:
            found, expected = f"{name} differs in {', '.join(keys)}", _values(spec, keys)
            return Id.ENVIRONMENT_VALUE_CHANGED, found, expected
        expected = f"{path} as pyinfra-gpu writes it, and nothing else in it"
        return Id.ENVIRONMENT_TEXT_CHANGED, f"{name} differs", expected
    if entry.mode != mode:
        return Id.ENVIRONMENT_MODE_DIFFERS, f"{name} has mode {entry.mode}", f"mode {mode}"
    owner = file_owner(spec, record, path)
    if isinstance(owner, str) and entry.owner != owner:
        found = f"{name} belongs to {entry.owner}, not to {owner}"
        return Id.ENVIRONMENT_OWNER_DIFFERS, found, f"owner {owner}"
    return None


def _values(spec: HostSpec, keys: list[str]) -> str:
    """Say what is declared of these variables; values that data gives are secrets."""
    wanted, given = env_file.variables(spec), dict(spec.environment.variables)
    texts = [f"{key}={wanted[key]}" for key in keys if key in wanted and key not in given]
    if secret := [key for key in keys if key in given]:
        texts.append(f"the value that environment_variables gives {', '.join(secret)}")
    if unwanted := [key for key in keys if key not in wanted]:
        texts.append(f"no {', '.join(unwanted)}")
    return "; ".join(texts)


def _changed_keys(spec: HostSpec, record: Record) -> list[str]:
    """Name the variables in which the environment file differs from what is declared."""
    text = record.environment.text
    if not isinstance(text, Hidden):
        return []
    found, wanted = env_file.parse(text.text), env_file.variables(spec)
    return sorted(key for key in {*found, *wanted} if found.get(key) != wanted.get(key))
