"""How often `explain` names the right cause: `python benchmarks/explain.py FOLDER [--lost]`.

FOLDER holds the logs, which are not part of the repository: sets of them, each with an
`expected.json` in numbers, and `ids.txt`, by which a line `NAME NUMBER ...` says which entry has
which numbers now. The name "-" is out of scope.
"""

from __future__ import annotations

import json
import sys
from collections import defaultdict
from pathlib import Path

from pyinfra_gpu.diagnosis.catalogue import catalogue
from pyinfra_gpu.on_host.diagnosis.explain import explain

ROWS = {
    "named": "the right cause",
    "wrong": "another cause",
    "silent": "no cause, where there is one",
    "quiet": "no cause, as nothing failed or is known",
    "invented": "a cause, where nothing failed or is known",
    "out of scope": "(causes that the catalogue leaves out)",
}


def scored(folder: Path) -> dict[str, list[str]]:
    """Return result -> the logs that had it, each with what is right and what was found."""
    lines = [line.split() for line in (folder / "ids.txt").read_text().splitlines()]
    names = {number: name for name, *numbers in lines for number in numbers}
    logs: dict[str, list[str]] = defaultdict(list)
    for file in sorted(each for each in folder.rglob("expected.json") if "kinds" not in each.parts):
        for log, answer in json.loads(file.read_text()).items():
            text = (file.parent / log).read_bytes().decode("utf-8", "replace")
            right = {names[each] for each in answer["roots"]}
            also = {names[each] for each in answer.get("also_right", [])}
            found = [each.name for each in explain({log: text}, catalogue()).found[:1]]
            if not right:
                result = "invented" if found else "quiet"
            elif right == {"-"}:
                result = "out of scope"
            else:
                result = "silent" if not found else "named" if found[0] in right | also else "wrong"
            logs[result].append(f"{file.parent.name}/{log} {sorted(right)} {found}")
    return logs


def main() -> None:
    """Score each log, and print how many had which result."""
    logs = scored(Path(sys.argv[1]))
    print("| logs | `explain` says |\n|---:|---|")
    for result, words in ROWS.items():
        print(f"| {len(logs[result])} | {words} |")
    for result in ("wrong", "silent", "invented", "out of scope"):
        for log in logs[result] if "--lost" in sys.argv else ():
            print(f"{result}: {log}")


if __name__ == "__main__":
    main()
