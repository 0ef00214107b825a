"""A small GPT: every kind of layer a real one has, quick enough for one step on a CPU."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.nn import functional

_WIDTH, _HEADS, _LAYERS = 128, 4, 2


class SmallGpt(nn.Module):  # type: ignore[misc, unused-ignore]  # Any where torch is missing
    """Next-token loss of a decoder whose first loss is ln(vocabulary), by its small weights.

    The head is not zero-initialised: with it at zero no gradient would reach the layers below.
    """

    def __init__(self, vocabulary: int, length: int) -> None:
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, _WIDTH)
        self.positions = nn.Embedding(length, _WIDTH)
        how: dict[str, Any] = {
            "dropout": 0.0,
            "activation": "gelu",
            "batch_first": True,
            "norm_first": True,
        }
        self.blocks = nn.ModuleList(
            nn.TransformerEncoderLayer(_WIDTH, _HEADS, 4 * _WIDTH, **how) for _ in range(_LAYERS)
        )
        self.norm = nn.LayerNorm(_WIDTH)
        self.head = nn.Linear(_WIDTH, vocabulary, bias=False)
        for module in self.modules():
            if isinstance(module, (nn.Linear, nn.Embedding)):
                nn.init.normal_(module.weight, std=0.02)

    def forward(self, tokens: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """Return the mean cross-entropy of predicting `targets`, both of shape (batch, length)."""
        places = torch.arange(tokens.shape[1], device=tokens.device)
        causal = nn.Transformer.generate_square_subsequent_mask(len(places), tokens.device)
        states = self.tokens(tokens) + self.positions(places)
        for block in self.blocks:
            states = block(states, src_mask=causal, is_causal=True)
        logits = self.head(self.norm(states))
        return functional.cross_entropy(logits.flatten(0, 1), targets.flatten())
