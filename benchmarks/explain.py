"""How often `explain` names the right cause: `python benchmarks/explain.py FOLDER [--lost]`.

FOLDER holds sets of logs, each with an `expected.json` in old numbers; `explain-ids.txt` says which
entry has which of them now ("-": out of scope).
"""

from __future__ import annotations

import json
import sys
from collections import Counter, defaultdict
from pathlib import Path

from pyinfra_gpu.diagnosis.catalogue import catalogue
from pyinfra_gpu.on_host.diagnosis.explain import explain

HERE = Path(__file__).parent
ROWS = {
    "named": "the right cause",
    "wrong": "another cause",
    "silent": "no cause, where there is one",
    "quiet": "no cause, as nothing failed or is known",
    "invented": "a cause, where nothing failed or is known",
    "out of scope": "(causes that the catalogue leaves out)",
}


def main() -> None:
    """Score each log, and print how many had which result."""
    known = catalogue()
    lines = [line.split() for line in (HERE / "explain-ids.txt").read_text().splitlines()]
    names = {number: name for name, *numbers in lines for number in numbers}
    scored: dict[str, list[str]] = defaultdict(list)
    for file in sorted(Path(sys.argv[1]).rglob("expected.json")):
        if file.parent.name == "kinds":
            continue
        for log, answer in json.loads(file.read_text()).items():
            text = (file.parent / log).read_bytes().decode("utf-8", "replace")
            right = {names[each] for each in answer["roots"]}
            also = {names[each] for each in answer.get("also_right", [])}
            found = [each.name for each in explain({log: text}, known).found[:1]]
            if not right:
                result = "invented" if found else "quiet"
            elif right == {"-"}:
                result = "out of scope"
            else:
                result = "silent" if not found else "named" if found[0] in right | also else "wrong"
            scored[result].append(f"{file.parent.name}/{log} {sorted(right)} {found}")
    count = Counter({result: len(logs) for result, logs in scored.items()})
    print("| logs | `explain` says |\n|---:|---|")
    for result, words in ROWS.items():
        print(f"| {count[result]} | {words} |")
    for result in ("wrong", "silent", "invented", "out of scope"):
        for log in scored[result] if "--lost" in sys.argv else ():
            print(f"{result}: {log}")


if __name__ == "__main__":
    main()
