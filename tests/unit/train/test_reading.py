"""Lines of a training's log to numbers: every format that is known, and nothing from any other."""

from __future__ import annotations

import json
import re
from collections import deque
from pathlib import Path
from typing import Any

import pytest

from pyinfra_gpu.on_host import train
from pyinfra_gpu.on_host.train.metrics import History, Metrics

ENTRIES = json.loads((Path(train.__file__).parent / "formats.json").read_text(encoding="utf-8"))
SAMPLES = [(entry["name"], sample) for entry in ENTRIES for sample in entry["samples"]]


def read(*lines: str) -> list[dict[str, Any] | None]:
    reader = Metrics(Path("/nowhere/metrics.jsonl"), 1)
    return [reader.read(line) for line in lines]


@pytest.mark.parametrize("sample", [sample for _, sample in SAMPLES])
def test_a_line_as_programs_print_it(sample: dict[str, Any]) -> None:
    assert read(sample["line"]) == [sample["reads"]]
    assert read(f"{sample['line']}\r\n") == [sample["reads"]]


NOTHING = [
    *("", "\r", "\n", "loss", "step 10"),
    "Step 00250 | Validation bpb: 1.131313",
    "Step 01000 | CORE metric: 0.1101",
    "validate step: 10  loss:  4.1234  memory: 60.1GiB(75.0%)  tps: 10,100",
    "{'eval_loss': 0.137, 'eval_runtime': 30.7302, 'epoch': 0.01}",
    "{'train_runtime': 12.3, 'train_loss': 1.234, 'epoch': 3.0}",
    "Map:  33%|███▎      | 1000/3000 [00:01<00:02, 999.00 examples/s]",
    "Loading checkpoint shards:  50%|█████     | 1/2 [00:01<00:01,  1.2s/it]",
    "Downloading: 10%|█         | 50/500 [00:30<04:30,  1.67MB/s]",
    "Validation DataLoader 0:  50%|█████     | 1/2 [00:00<00:00,  8.1it/s]",
    "0it [00:00, ?it/s]",
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.",
    "loss went from 3.1 to 2.9 in step 10/20",
    "saved /home/u/step 00010/00020 | lossless",
]


@pytest.mark.parametrize("line", NOTHING)
def test_no_number_is_read_from_any_other_line(line: str) -> None:
    assert read(line) == [None]


@pytest.mark.parametrize(
    ("word", "reported"),
    [("nan", "nan"), ("NaN", "nan"), ("-nan", "nan"), ("inf", "inf"), ("-inf", "-inf")],
)
def test_a_loss_that_is_no_number_is_told_as_such(word: str, reported: str) -> None:
    line = f"step 00421/05960 (7.06%) | loss: {word} | lrm: 1.00 | dt: 1.50ms"
    (found,) = read(line)
    assert found == {"step": 421, "steps": 5960, "loss": None, "not_finite": reported}
    assert json.loads(json.dumps(found, allow_nan=False)) == found


@pytest.mark.parametrize(
    "loss", ["1e400", "9" * 18, "1e99", "-1e99", "3.1x", "0x10", "1.2.3", "nano", "infinite"]
)
def test_a_loss_that_cannot_be_one_is_left_out(loss: str) -> None:
    (found,) = read(f"step    10/200  loss {loss}    16,919 tokens/s     0.23 s")
    assert found is not None
    assert found.get("loss") is None
    assert found["tokens_per_second"] == 16919.0


BAR, OTHER = (
    "{}%|█         | {}/500 [00:30<04:30,  1.67it/s]",
    "{}%|█  | {}/10 [00:01<00:00, 8it/s]",
)
TOKENS, LOSS = "{}%|█         | {}/90000 [00:30<04:30,  1.67it/s]", "{'loss': 2.4, 'epoch': 0.1}"
LONG = "".join(f"\r{BAR.format(10, n)}" for n in range(400))
# Lines -> the step that is read of each.
BARS: list[tuple[list[str], list[int | None]]] = [
    ([BAR.format(10, n) for n in (50, 50, 51)], [50, None, 51]),
    ([LONG], [399]),
    ([LOSS, BAR.format(10, 50), LOSS], [None, 50, 50]),
    # an evaluation's bar, in the midst and at the end
    ([BAR.format(10, 50), LOSS, OTHER.format(10, 1), BAR.format(11, 55)], [50, 50, None, 55]),
    ([BAR.format(10, 50), LOSS, BAR.format(100, 500), OTHER.format(10, 1)], [50, 50, 500, None]),
    # a longer bar, before the training
    ([*(TOKENS.format(n, 900 * n) for n in (50, 100)), BAR.format(10, 50)], [45000, 90000, 50]),
]


@pytest.mark.parametrize(("lines", "steps"), BARS)
def test_of_bars_the_trainings_own_counts_and_each_step_once(
    lines: list[str], steps: list[int | None]
) -> None:
    assert [each and each.get("step") for each in read(*lines)] == steps


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry["name"])
def test_no_repetition_is_without_a_bound(entry: dict[str, Any]) -> None:
    """An unbounded one, or one within another, is how searching a line takes for ever."""
    sources = [entry["line"], *(each for patterns in entry["fields"].values() for each in patterns)]
    for source in sources:
        plain = re.sub(r"\\.|\[[^\]]*\]", "x", source)
        assert not re.search(r"[*+]|\{\d+,\}", plain), source


STEADY = [float(n) for n in range(0, 100, 2)]


@pytest.mark.parametrize(
    ("times", "now", "reported"),
    [
        ([], 1e6, None),
        ([5.0], 1e6, None),
        (STEADY, 98 + 299, None),  # ten medians are 20 s, but 5 minutes they are not
        (STEADY, 98 + 300, 300.0),
        ([0.0, 60.0, 120.0], 120 + 599, None),
        ([0.0, 60.0, 120.0], 120 + 600, 600.0),
        ([0.0, 0.0, 0.0], 300.0, 300.0),
        (STEADY, 90.0, None),  # a clock that was set back
        ([0.0, 10000.0, *(10000.0 + n for n in range(300))], 10299 + 300, 300.0),
    ],
)
def test_a_run_stands_still_after_ten_steps_time_and_five_minutes(
    times: list[float], now: float, reported: float | None
) -> None:
    history = History(moments=deque((when, step) for step, when in enumerate(times)))
    assert history.stalled(now) == reported
