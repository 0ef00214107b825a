"""How often the catalogue names the right cause: `python benchmarks/explain.py FOLDER [--lost]`.

FOLDER holds sets of logs, each with an `expected.json` in old ids; `explain-ids` says which entry
has which of them now ("-": out of scope). Until the matcher reads the new entries itself, they are
given to it here in its own form, without hints.
"""

from __future__ import annotations

import json
import sys
from collections import defaultdict
from pathlib import Path

import yaml

from pyinfra_gpu.on_host.diagnosis import entries, matcher, patterns
from pyinfra_gpu.on_host.diagnosis.causes import message
from pyinfra_gpu.on_host.diagnosis.log import Source
from pyinfra_gpu.on_host.diagnosis.steps import Step

HERE = Path(__file__).parent
CATALOGUE = HERE.parent / "pyinfra_gpu" / "diagnosis" / "causes"
SECTION: dict[str, str] = {}  # entry -> the layer that the matcher takes it for


def searched(source: str) -> list[patterns.Pattern]:
    """Return what finds a message; of a regular expression, what finds each alternative."""
    if not source.startswith("re:"):
        found = message(source)
        return [patterns.Pattern(found.regular.replace(r"[ \n]", " "), found.anchor)]
    alternatives = [""]
    for part, depth in patterns._parts(source[3:].strip()):
        if part == "|" and depth == 0:
            alternatives.append("")
        else:
            alternatives[-1] += part
    made = map(patterns.pattern, alternatives)
    return [each for each in made if len(each.anchor) >= 4]  # others: listed as errors by `read`


def catalogue() -> entries.Catalogue:
    """Return the new entries in the form that the matcher reads."""
    made = []
    for file in sorted(CATALOGUE.glob("*.yaml")):
        content = yaml.safe_load(file.read_text())
        for name, each in content.items():
            SECTION[name] = "host" if file.stem == "packages" else file.stem
            found = tuple(one for source in each["match"] for one in searched(source))
            made.append(
                entries.Entry(
                    id=name,
                    kind=each.get("kind", "root"),
                    patterns=found,
                    cause=each["cause"],
                    fix=(Step("-", "-"),),
                    weak=each.get("weak", False),
                    explains=frozenset(each.get("hides", ())),
                )
            )
    entries.Entry.layer = property(lambda entry: SECTION[entry.id])  # type: ignore[assignment]
    return entries.Catalogue(tuple(made))


def main() -> None:
    """Score each log, and print how many had which result."""
    known = catalogue()
    lines = (line.split() for f in (HERE / "explain-ids").glob("*.txt") for line in f.open())
    names = {words[0]: words[1] for words in lines if words}
    scored: dict[str, list[str]] = defaultdict(list)
    for file in sorted(Path(sys.argv[1]).rglob("expected.json")):
        if file.parent.name == "kinds":
            continue
        for log, answer in json.loads(file.read_text()).items():
            text = (file.parent / log).read_bytes().decode("utf-8", "replace")
            right = {names[each] for each in answer["roots"]}
            also = {names[each] for each in answer.get("also_right", [])}
            findings = matcher.diagnose([Source(text)], known).findings
            found = {each.id for each in findings if each.kind == "root"}
            if not right:
                result = "invented" if found else "healthy or unknown, silent"
            elif right == {"-"}:
                result = "out of scope, named" if found else "out of scope, silent"
            else:
                result = "silent" if not found else "named" if found <= right | also else "wrong"
            scored[result].append(f"{file.parent.name}/{log} {sorted(right)} {sorted(found)}")
    for result, logs in sorted(scored.items()):
        print(f"{len(logs):6} {result}")
    for result in ("wrong", "silent", "invented", "out of scope, silent", "out of scope, named"):
        for log in scored[result] if "--lost" in sys.argv else ():
            print(f"{result}: {log}")


if __name__ == "__main__":
    main()
