"""The network: a llama with tied embeddings, written so that llama.cpp computes the same."""

import torch
import torch.nn.functional as F
from torch import nn

from training.gguf_file import NORM_EPSILON, Shape


class Block(nn.Module):
    """Attention and SwiGLU, each behind an RMS norm and added to the stream."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape = shape
        width, ffn = shape.width, shape.ffn
        self.norm1 = nn.Parameter(torch.ones(width))
        self.norm2 = nn.Parameter(torch.ones(width))
        self.qkv = nn.Linear(width, 3 * width, bias=False)
        self.out = nn.Linear(width, width, bias=False)
        self.gate_up = nn.Linear(width, 2 * ffn, bias=False)
        self.down = nn.Linear(ffn, width, bias=False)

    def forward(self, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        h = F.rms_norm(x, (width,), self.norm1, NORM_EPSILON)
        qkv = self.qkv(h).view(batch, length, 3, self.shape.heads, self.shape.head_width)
        first, second = qkv[:, :, :2].chunk(2, -1)
        rotated = torch.cat((first * cos - second * sin, second * cos + first * sin), -1)
        q, k = rotated[:, :, 0].transpose(1, 2), rotated[:, :, 1].transpose(1, 2)
        v = qkv[:, :, 2].transpose(1, 2)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(batch, length, width))
        h = F.rms_norm(x, (width,), self.norm2, NORM_EPSILON)
        gate, up = self.gate_up(h).chunk(2, -1)
        return x + self.down(F.silu(gate) * up)


class Model(nn.Module):
    """Token ids to hidden states, and hidden states to logits."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape = shape
        self.emb = nn.Embedding(shape.vocab, shape.width)
        self.blocks = nn.ModuleList(Block(shape) for _ in range(shape.layers))
        self.norm = nn.Parameter(torch.ones(shape.width))
        inverse = shape.rope_base ** (
            -torch.arange(0, shape.head_width, 2).float() / shape.head_width
        )
        angles = torch.outer(torch.arange(shape.context).float(), inverse)[None, :, None, None, :]
        self.register_buffer("cos", angles.cos(), persistent=False)
        self.register_buffer("sin", angles.sin(), persistent=False)
        self._draw_weights()

    def hidden(self, ids: torch.Tensor) -> torch.Tensor:
        length = ids.shape[1]
        x = self.emb(ids)
        cos, sin = self.cos[:, :length].to(x.dtype), self.sin[:, :length].to(x.dtype)
        for block in self.blocks:
            x = block(x, cos, sin)
        return x

    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        normed = F.rms_norm(hidden, (self.shape.width,), self.norm, NORM_EPSILON)
        return F.linear(normed, self.emb.weight)

    def _draw_weights(self) -> None:
        nn.init.normal_(self.emb.weight, std=0.05)
        for name, weight in self.named_parameters():
            if weight.ndim == 2 and not name.startswith("emb"):
                scale = 0.5 if "out." in name or "down." in name else 1.0
                nn.init.normal_(weight, std=scale * weight.shape[1] ** -0.5)
