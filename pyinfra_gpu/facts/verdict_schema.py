"""The published JSON Schemas, made from the types: `python -m pyinfra_gpu.facts.verdict_schema`."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from pyinfra_gpu import on_host
from pyinfra_gpu.facts.verdict import AcrossVerdict, Verdict

_SHORT_LIST = re.compile(r"(?:\[|\{)[^\[\]{}]{1,300}(?:\]|\})")
_FOLDER = Path(on_host.__file__).parent
FILES: dict[Path, type[BaseModel]] = {
    _FOLDER / "verdict.schema.json": Verdict,
    _FOLDER / "across.schema.json": AcrossVerdict,
}


def schema(form: type[BaseModel]) -> str:
    """Return the JSON Schema of a document as its file holds it."""
    made = _without_titles(form.model_json_schema(by_alias=True))
    head = {"$schema": "https://json-schema.org/draft/2020-12/schema", "$id": made.pop("$id")}
    return _SHORT_LIST.sub(_on_one_line, json.dumps({**head, **made}, indent=1)) + "\n"


def _on_one_line(found: re.Match[str]) -> str:
    return " ".join(found[0].split())


def _without_titles(value: Any) -> Any:
    """Leave out pydantic's titles, which repeat the names, and the defaults of what is left out."""
    if isinstance(value, list):
        return [_without_titles(each) for each in value]
    if not isinstance(value, dict):
        return value
    return {
        key: _without_titles(each)
        for key, each in value.items()
        if key != "default" and not (key == "title" and isinstance(each, str))
    }


def write() -> None:
    """Write the files anew."""
    for path, form in FILES.items():
        path.write_text(schema(form), encoding="utf-8")


if __name__ == "__main__":
    write()
