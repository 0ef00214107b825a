"""What is judged of each recorded probe answer: the contract for whoever rewrites the judging.

`python tests/unit/test_judged.py` writes judged.json anew; read what differs.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parent / "fixtures" / "probe"))
import recorded

from pyinfra_gpu.compatibility import resolve
from pyinfra_gpu.stages.host import CONCERNS, unread
from pyinfra_gpu.stages.host import judged as judge

GOLDEN = Path(__file__).parent / "judged.json"
GPU = {"gpu_model": "RTX 5090", "gpu_count": 2}
DECLARED: dict[str, dict[str, object]] = {
    "cpu": {"stack": "cpu-torch2.13"},
    "gpu": {**GPU},
    "gpu, driver present": {**GPU, "driver_source": "present"},
    "gpu, driver of the distribution": {**GPU, "driver_source": "distribution"},
}
CASES = [f"{answer}: {name}" for answer in recorded.NAMES for name in DECLARED]


def judged(case: str) -> list[str]:
    """Name each finding, its effect and whether it stops the run; and what cannot be told."""
    name, _, declared = case.partition(": ")
    spec, record = resolve(DECLARED[declared], "ws1"), recorded.record(name)
    found = {
        f"{each.id} {each.effect}{' stops' * each.stops}"
        for concern in CONCERNS
        for each in judge(concern, spec, record, ())
    }
    unknown = (each.STAGE for each in CONCERNS if unread(each, spec, record))
    return sorted({*found, *(f"{stage} undetermined" for stage in unknown)})


@pytest.mark.parametrize("case", CASES)
def test_it_is_judged_as_it_was(case: str) -> None:
    assert judged(case) == json.loads(GOLDEN.read_text())[case]


if __name__ == "__main__":
    rows = (f"{json.dumps(case)}: {json.dumps(judged(case))}" for case in CASES)
    GOLDEN.write_text("{\n" + ",\n".join(rows) + "\n}\n")
