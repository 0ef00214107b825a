"""A decoder-only transformer over characters."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional


@dataclass(frozen=True)
class Config:
    """The model's shape; it is saved with the weights, so that they can be loaded again."""

    vocabulary: int
    context: int = 64
    width: int = 96
    heads: int = 4
    layers: int = 3


class Block(nn.Module):
    """Causal self-attention, then a feed-forward layer, each added to what came in."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.heads = config.heads
        self.attention_norm = nn.LayerNorm(config.width)
        self.attention = nn.Linear(config.width, 3 * config.width)
        self.projection = nn.Linear(config.width, config.width)
        self.feed_forward = nn.Sequential(
            nn.LayerNorm(config.width),
            nn.Linear(config.width, 4 * config.width),
            nn.GELU(),
            nn.Linear(4 * config.width, config.width),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Map states of shape (batch, length, width) to new ones."""
        batch, length, width = x.shape
        qkv = self.attention(self.attention_norm(x))
        qkv = qkv.view(batch, length, 3 * self.heads, width // self.heads).transpose(1, 2)
        query, key, value = qkv.chunk(3, dim=1)
        attended = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.projection(attended.transpose(1, 2).reshape(batch, length, width))
        return x + self.feed_forward(x)


class TinyGpt(nn.Module):
    """Logits of the next character at every position."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config
        self.characters = nn.Embedding(config.vocabulary, config.width)
        self.positions = nn.Embedding(config.context, config.width)
        self.blocks = nn.Sequential(*(Block(config) for _ in range(config.layers)))
        self.norm = nn.LayerNorm(config.width)
        self.head = nn.Linear(config.width, config.vocabulary, bias=False)
        for module in self.modules():
            if isinstance(module, (nn.Linear, nn.Embedding)):
                nn.init.normal_(module.weight, std=0.02)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Map (batch, length) numbers to (batch, length, vocabulary) logits."""
        places = torch.arange(tokens.shape[1], device=tokens.device)
        x = self.characters(tokens) + self.positions(places)
        return self.head(self.norm(self.blocks(x)))

    @torch.no_grad()
    def continue_text(self, tokens: torch.Tensor, count: int) -> torch.Tensor:
        """Append `count` characters, each drawn from the model's own distribution."""
        for _ in range(count):
            logits = self(tokens[:, -self.config.context :])[:, -1]
            drawn = torch.multinomial(logits.softmax(-1), num_samples=1)
            tokens = torch.cat([tokens, drawn], dim=1)
        return tokens
