"""A table of runs at the widths that terminals have; each was looked at."""

from __future__ import annotations

import pytest

from pyinfra_gpu.on_host.train.table import table

HEAD = ("host", "run", "state", "step", "loss", "tokens/s")
ROWS = [
    ("ws1.lab", "20261122-200000-balanced", "running", "4,209/5,960", "2.7149", "368,417"),
    ("ws2.lab", "20261122-070000-aggressive", "failed", "12/5,960", "9.1", ""),
    ("ws3.lab", "none yet", "", "", "", ""),
]
LOOKED_AT = {
    120: """\
host     run                         state    step         loss    tokens/s
ws1.lab  20261122-200000-balanced    running  4,209/5,960  2.7149  368,417
ws2.lab  20261122-070000-aggressive  failed   12/5,960     9.1
ws3.lab  none yet""",
    60: """\
host     run                         state    step
ws1.lab  20261122-200000-balanced    running  4,209/5,960
ws2.lab  20261122-070000-aggressive  failed   12/5,960
ws3.lab  none yet""",
    40: """\
ws1.lab 20261122-200000-balanced
  running, step 4,209/5,960, loss
  2.7149, tokens/s 368,417
ws2.lab 20261122-070000-aggressive
  failed, step 12/5,960, loss 9.1
ws3.lab none yet""",
}
LOOKED_AT[80] = LOOKED_AT[120]


@pytest.mark.parametrize("width", LOOKED_AT)
def test_a_table_is_laid_out_for_the_terminal_that_is_there(width: int) -> None:
    assert "\n".join(table(HEAD, ROWS, width, state=2)) == LOOKED_AT[width]


@pytest.mark.parametrize("width", range(20, 130, 7))
def test_no_line_is_wider_and_the_state_is_always_seen(width: int) -> None:
    lines = [*table(HEAD, ROWS, width, state=2)]
    assert all(len(line) <= width for line in lines)
    assert {"running", "failed"} <= {word.strip(",") for line in lines for word in line.split()}


@pytest.mark.parametrize("width", [40, 80])
def test_only_the_state_is_coloured(width: int) -> None:
    lines = table(HEAD, ROWS, width, state=2, style=lambda text, word: f"<{text}>")
    text = "\n".join(lines)
    assert (text.count("<"), "<running>" in text, "<failed>" in text) == (2, True, True)
