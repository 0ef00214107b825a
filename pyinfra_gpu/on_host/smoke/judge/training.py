"""The checks of S4 on one training step: its gradients, its losses, its parameters."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from ..plan import VOCABULARY
from .check import Check, Expected, Facts, Finding, measured, pairs

LOSS_TOLERANCE = 0.2
DROP_TOLERANCE = 0.1
BF16_TOLERANCE = 1e-2
"""Of a loss; bfloat16 has three significant digits, and a mean over 512 tokens most of them."""


def _finite(facts: Facts, _: Expected) -> Finding:
    for rank, fact in facts.items():
        step = fact["step"]
        counts = {
            "gradients": fact["gradients"]["non_finite"],
            "parameters": step["non_finite"],
            "losses": sum(not math.isfinite(step[name]) for name in ("loss_before", "loss_after")),
        }
        if any(counts.values()):
            detail = f"rank {rank} has infinite or undefined numbers: {pairs(counts)}"
            return Finding(False, counts, dict.fromkeys(counts, 0), detail, rank)
    return Finding(True, counts, dict.fromkeys(counts, 0))


def _equal_digests(fact_name: str, what: str) -> Callable[[Facts, Expected], Finding]:
    def decide(facts: Facts, _: Expected) -> Finding:
        digests = [fact[fact_name]["sha256"] for fact in facts.values()]
        same = len(set(digests)) == 1
        detail = "" if same else f"the ranks' {what} are not the same bytes"
        return Finding(same, digests, "equal on all ranks", detail)

    return decide


def _local_gradients(facts: Facts, _: Expected) -> Finding:
    digests = [fact["gradients"]["local_sha256"] for fact in facts.values()]
    for rank, fact in facts.items():
        if fact["gradients"]["gathered_sha256"] != digests:
            detail = f"rank {rank} did not receive the other ranks' local gradients unchanged"
            return Finding(False, fact["gradients"]["gathered_sha256"], digests, detail, rank)
    differ = len(set(digests)) == len(digests)
    detail = "" if differ else "two ranks have the same local gradient, so they had the same data"
    return Finding(differ, digests, "different on every rank", detail)


def _mean_gradient(facts: Facts, expected: Expected) -> Finding:
    exact = expected.ranks == 2
    for rank, fact in facts.items():
        gradients = fact["gradients"]
        if gradients["averaged"] != gradients["elements"]:
            missing = gradients["elements"] - gradients["averaged"]
            detail = f"rank {rank} left {missing} gradient elements out of the averaging"
            if gradients["averaged"] == 0:
                detail = f"rank {rank} exchanged no gradient at all: each rank trained by itself"
            return Finding(False, gradients["averaged"], gradients["elements"], detail, rank)
        if gradients["wrong"]:
            index, measured, wanted = gradients["first"]
            detail = (
                f"rank {rank}: {gradients['wrong']} of {gradients['elements']} averaged gradient "
                f"elements are not the mean, the first is {index}: {measured!r}, not {wanted!r}"
            )
            return Finding(False, {"wrong_elements": gradients["wrong"]}, 0, detail, rank)
    how = "bit for bit" if exact else "within rounding (more than two ranks have no fixed order)"
    zero = {"wrong_elements": 0, "compared": "bits" if exact else "rounding bound"}
    return Finding(True, zero, zero, how)


def _initial_loss(facts: Facts, _: Expected) -> Finding:
    wanted = math.log(VOCABULARY)
    losses = {rank: fact["step"]["loss_before"] for rank, fact in facts.items()}
    for rank, loss in losses.items():
        if not abs(loss - wanted) <= LOSS_TOLERANCE:
            detail = f"rank {rank} starts at loss {loss:.4f}, untrained it must be {wanted:.4f}"
            return Finding(False, loss, wanted, f"{detail} +- {LOSS_TOLERANCE}", rank)
    return Finding(True, list(losses.values()), wanted, f"{loss:.3f}, ln V = {wanted:.3f}")


@dataclass(frozen=True)
class LossDrop:
    """The loss over all ranks' data before and after the step, and the drop it should show."""

    before: float
    after: float
    predicted: float

    @property
    def ratio(self) -> float:
        """Return measured drop / predicted drop; not a number where nothing was predicted."""
        return (self.before - self.after) / self.predicted if self.predicted else math.nan


def loss_drop(facts: Facts) -> LossDrop:
    """Return the global mean losses and lr * |g|^2 of the averaged gradient."""
    steps = [fact["step"] for fact in facts.values()]
    gradients = [fact["gradients"] for fact in facts.values()]
    return LossDrop(
        before=sum(step["loss_before"] for step in steps) / len(steps),
        after=sum(step["loss_after"] for step in steps) / len(steps),
        predicted=steps[0]["lr"] * gradients[0]["norm_squared"],
    )


def _loss_drop(facts: Facts, _: Expected) -> Finding:
    drop = loss_drop(facts)
    low, high = 1 - DROP_TOLERANCE, 1 + DROP_TOLERANCE
    ok = low <= drop.ratio <= high
    text = f"measured/predicted = {drop.ratio:.4f}"
    detail = text if ok else f"the loss fell by {drop.before - drop.after:.6f}, {text}"
    return Finding(ok, drop.ratio, [low, high], detail)


def _compiled_step(facts: Facts, _: Expected) -> Finding:
    wanted = {"relative_difference": BF16_TOLERANCE}
    for rank, fact in facts.items():
        step = fact["compiled_step"]
        if not step["compiled"]:
            return Finding(True, None, None, "nothing is compiled here", status="skip")
        if step["missing"] or step["non_finite"]:
            counts = {"without a gradient": step["missing"], "not finite": step["non_finite"]}
            detail = f"rank {rank}, compiled: {pairs(counts)}"
            return Finding(False, counts, dict.fromkeys(counts, 0), detail, rank)
        apart = abs(step["loss"] - step["eager_loss"]) / abs(step["eager_loss"])
        measured = {"relative_difference": apart}
        if not apart <= BF16_TOLERANCE:
            losses = f"{step['loss']:.4f}, in eager mode {step['eager_loss']:.4f}"
            detail = f"rank {rank}: the compiled bfloat16 step has loss {losses}"
            return Finding(False, measured, wanted, detail, rank)
    return Finding(True, measured, wanted, f"bf16, {apart:.1e} from eager")


CHECKS: tuple[Check, ...] = (
    *measured(
        "training_step",
        Check(
            "S4.params_initial",
            ("parameters_before",),
            _equal_digests("parameters_before", "parameters before the step"),
        ),
        Check("S4.grad_local_differs", ("gradients",), _local_gradients),
        Check("S4.grad_bitwise", ("gradients",), _mean_gradient),
        Check("S4.grad_equal", ("gradients",), _equal_digests("gradients", "averaged gradients")),
        Check("S4.finite", ("gradients", "step"), _finite, each=True),
        Check("S4.loss_initial", ("step",), _initial_loss, each=True),
        Check("S4.loss_drop", ("gradients", "step"), _loss_drop),
        Check(
            "S4.params_equal",
            ("parameters_after",),
            _equal_digests("parameters_after", "parameters after the step"),
        ),
        across=True,
    ),
    *measured(
        "compiled_step", Check("S4.compiled_step", ("compiled_step",), _compiled_step, each=True)
    ),
)
