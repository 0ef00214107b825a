"""A small GPT: every kind of layer a real one has, quick enough for one step on a CPU."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional

_WIDTH = 128
_HEADS = 4
_LAYERS = 2


class _Block(nn.Module):  # type: ignore[misc, unused-ignore]  # Any where torch is missing
    def __init__(self) -> None:
        super().__init__()
        self.attention_norm = nn.LayerNorm(_WIDTH)
        self.attention = nn.Linear(_WIDTH, 3 * _WIDTH)
        self.projection = nn.Linear(_WIDTH, _WIDTH)
        self.feed_forward = nn.Sequential(
            nn.LayerNorm(_WIDTH),
            nn.Linear(_WIDTH, 4 * _WIDTH),
            nn.GELU(),
            nn.Linear(4 * _WIDTH, _WIDTH),
        )

    def forward(self, states: torch.Tensor) -> torch.Tensor:
        batch, length, width = states.shape
        mixed = self.attention(self.attention_norm(states))
        heads = mixed.view(batch, length, 3 * _HEADS, width // _HEADS).transpose(1, 2)
        query, key, value = heads.chunk(3, dim=1)
        attended = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        states = states + self.projection(attended.transpose(1, 2).reshape(states.shape))
        output: torch.Tensor = states + self.feed_forward(states)
        return output


class SmallGpt(nn.Module):  # type: ignore[misc, unused-ignore]
    """Next-token loss of a decoder whose first loss is ln(vocabulary), by its small weights.

    The head is not zero-initialised: with it at zero no gradient would reach the layers below.
    """

    def __init__(self, vocabulary: int, length: int, layers: int = _LAYERS) -> None:
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, _WIDTH)
        self.positions = nn.Embedding(length, _WIDTH)
        self.blocks = nn.Sequential(*(_Block() for _ in range(layers)))
        self.norm = nn.LayerNorm(_WIDTH)
        self.head = nn.Linear(_WIDTH, vocabulary, bias=False)
        for module in self.modules():
            if isinstance(module, (nn.Linear, nn.Embedding)):
                nn.init.normal_(module.weight, std=0.02)

    def forward(self, tokens: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """Return the mean cross-entropy of predicting `targets`, both of shape (batch, length)."""
        places = torch.arange(tokens.shape[1], device=tokens.device)
        states = self.norm(self.blocks(self.tokens(tokens) + self.positions(places)))
        return functional.cross_entropy(self.head(states).flatten(0, 1), targets.flatten())
