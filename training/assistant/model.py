"""A llama read from a GGUF file as frozen float32 weights, with adapters on all its projections.

Weights keep llama.cpp's order of rows (rotary pairs side by side), so an adapter needs no
permutation on its way there.
"""

import math
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from gguf import GGUFReader, dequantize

from training.assistant.adapter_file import read_adapter, write_adapter

# Projections that read the same input are one matrix.
GROUPS = (("attn_q", "attn_k", "attn_v"), ("attn_output",), ("ffn_gate", "ffn_up"), ("ffn_down",))
MAX_POSITIONS = 4096

# The keys and values of one layer: batch, heads, length, width.
KeysAndValues = tuple[torch.Tensor, torch.Tensor]


class _Projection(torch.autograd.Function):
    """x times the merged weights; the gradient goes to x, A and B, and to nothing frozen."""

    @staticmethod
    def forward(ctx, x, merged, down, scale, sizes, *ups):
        ctx.save_for_backward(x, merged, down, *ups)
        ctx.scale, ctx.sizes = scale, sizes
        return x @ merged.t()

    @staticmethod
    def backward(ctx, grad):
        x, merged, down, *ups = ctx.saved_tensors
        grad_x = grad @ merged if ctx.needs_input_grad[0] else None
        grad, x = grad.reshape(-1, grad.shape[-1]), x.reshape(-1, x.shape[-1])
        middle = (x @ down.t()).split(down.shape[0] // len(ups), 1)
        parts = grad.split(ctx.sizes, 1)
        inner = torch.cat([part @ up for part, up in zip(parts, ups, strict=True)], 1)
        grad_ups = [ctx.scale * (part.t() @ seen) for part, seen in zip(parts, middle, strict=True)]
        return grad_x, None, ctx.scale * (inner.t() @ x), None, None, *grad_ups


class Projections:
    """Frozen matrices that share their input, each with an adapter B·A, B being zero at first."""

    def __init__(
        self, names: tuple[str, ...], weights: list[torch.Tensor], rank: int, scale: float
    ) -> None:
        self.names, self.rank, self.scale = names, rank, scale
        self.sizes = [weight.shape[0] for weight in weights]
        self.frozen = torch.cat(weights)
        width, device = self.frozen.shape[1], self.frozen.device
        bound = 1 / math.sqrt(width)
        down = torch.empty(rank * len(names), width).uniform_(-bound, bound)
        self.down = down.to(device).requires_grad_()
        self.ups = [torch.zeros(size, rank, device=device).requires_grad_() for size in self.sizes]
        self.merged = self.frozen.clone()

    @torch.no_grad()
    def merge(self) -> None:
        """Adds the adapters as they are now to the weights."""
        for target, source, down, up in zip(
            self.merged.split(self.sizes),
            self.frozen.split(self.sizes),
            self.down.split(self.rank),
            self.ups,
            strict=True,
        ):
            torch.addmm(source, up, down, alpha=self.scale, out=target)

    def __call__(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        y = _Projection.apply(x, self.merged, self.down, self.scale, self.sizes, *self.ups)
        return y.split(self.sizes, -1)


class Llama:
    def __init__(self, path: Path, *, rank: int, alpha: float, device: str = "cpu") -> None:
        reader = GGUFReader(path)

        def field(name):
            return reader.fields[f"llama.{name}"].contents()

        self.layers, self.heads = field("block_count"), field("attention.head_count")
        self.kv_heads = field("attention.head_count_kv")
        self.width = field("embedding_length")
        self.epsilon = field("attention.layer_norm_rms_epsilon")
        self.head = self.width // self.heads
        self.alpha, self.device = alpha, device
        tensors = {tensor.name: tensor for tensor in reader.tensors}

        def read(name):
            data = dequantize(tensors[name].data, tensors[name].tensor_type)
            return torch.from_numpy(data.astype(np.float32)).to(device)

        self.embedding = read("token_embd.weight")
        self.out_norm = read("output_norm.weight")
        self.norms = [
            (read(f"blk.{n}.attn_norm.weight"), read(f"blk.{n}.ffn_norm.weight"))
            for n in range(self.layers)
        ]
        self.blocks = [
            [
                Projections(
                    names, [read(f"blk.{n}.{name}.weight") for name in names], rank, alpha / rank
                )
                for names in GROUPS
            ]
            for n in range(self.layers)
        ]
        steps = torch.arange(0, self.head, 2).double() / self.head
        angles = torch.arange(MAX_POSITIONS).double()[:, None] * field("rope.freq_base") ** -steps
        turns = torch.polar(torch.ones_like(angles), angles).to(torch.complex64)
        self._turns = turns.to(device)

    def parameters(self) -> list[torch.Tensor]:
        return [p for block in self.blocks for group in block for p in (group.down, *group.ups)]

    def merge(self) -> None:
        for block in self.blocks:
            for group in block:
                group.merge()

    def hidden(
        self, ids: torch.Tensor, prefix: list[KeysAndValues] | None = None
    ) -> tuple[torch.Tensor, list[KeysAndValues]]:
        """Returns the last hidden states, and each layer's keys and values.

        `prefix` holds those of a beginning that all rows of the batch share.
        """
        batch, length = ids.shape
        first = prefix[0][0].shape[2] if prefix else 0
        repeat = self.heads // self.kv_heads
        mask = torch.ones(length, first + length, dtype=torch.bool, device=ids.device).tril(first)
        mask = mask.repeat(repeat, 1)
        x = self.embedding[ids]
        kept = []
        for layer, (attention_in, attention_out, ffn_in, ffn_out) in enumerate(self.blocks):
            q, k, v = attention_in(self._norm(x, self.norms[layer][0]))
            q = self._rotated(q.view(batch, length, self.heads, self.head), first)
            k = self._rotated(k.view(batch, length, self.kv_heads, self.head), first)
            k = k.transpose(1, 2)
            v = v.view(batch, length, self.kv_heads, self.head).transpose(1, 2)
            # The query heads of one key head stand one behind the other along the length.
            q = q.view(batch, length, self.kv_heads, repeat, self.head).permute(0, 2, 3, 1, 4)
            q = q.reshape(batch, self.kv_heads, repeat * length, self.head)
            kept.append((k, v))
            if prefix:
                k = torch.cat([prefix[layer][0].expand(batch, -1, -1, -1), k], 2)
                v = torch.cat([prefix[layer][1].expand(batch, -1, -1, -1), v], 2)
            y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
            y = y.view(batch, self.heads, length, self.head).transpose(1, 2)
            x = x + attention_out(y.reshape(batch, length, self.width))[0]
            gate, up = ffn_in(self._norm(x, self.norms[layer][1]))
            x = x + ffn_out(F.silu(gate) * up)[0]
        return self._norm(x, self.out_norm), kept

    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        return hidden @ self.embedding.t()

    def _norm(self, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        return F.rms_norm(x, (self.width,), weight, self.epsilon)

    def _rotated(self, x: torch.Tensor, first: int) -> torch.Tensor:
        """Turns pairs by their position; x: batch, length, heads, head width."""
        turns = self._turns[first : first + x.shape[1], None, :]
        pairs = torch.view_as_complex(x.reshape(*x.shape[:-1], -1, 2))
        return torch.view_as_real(pairs * turns).flatten(-2)

    def adapter(self) -> Iterator[tuple[str, torch.Tensor, torch.Tensor]]:
        """Yields name, A and B of each matrix."""
        for layer, block in enumerate(self.blocks):
            for group in block:
                downs = group.down.detach().split(group.rank)
                for name, down, up in zip(group.names, downs, group.ups, strict=True):
                    yield f"blk.{layer}.{name}.weight", down, up.detach()

    def save_adapter(self, path: Path) -> None:
        tensors = ((name, a.cpu().numpy(), b.cpu().numpy()) for name, a, b in self.adapter())
        write_adapter(path, tensors, self.alpha)

    @torch.no_grad()
    def load_adapter(self, path: Path) -> None:
        tensors, alpha = read_adapter(path)
        for name, down, up in self.adapter():
            a, b = tensors[f"{name}.lora_a"], tensors[f"{name}.lora_b"]
            if a.shape != tuple(down.shape) or alpha != self.alpha:
                raise SystemExit(f"{path} has rank {a.shape[0]} and alpha {alpha:g}")
            down.copy_(torch.from_numpy(a))
            up.copy_(torch.from_numpy(b))
        self.merge()
