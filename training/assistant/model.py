"""A llama read from a GGUF file as frozen weights, with adapters on all its projections.

Weights, adapters and what runs through the layers are float32; `dtype` is that of the products with
weights and adapters, half as wide where a processor multiplies such numbers twice as fast.

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
LOGIT_ROWS = 128  # at once; all of a batch would be the largest thing in memory

# The keys and values of one layer: heads, batch, length, width.
KeysAndValues = tuple[torch.Tensor, torch.Tensor]


class _Projection(torch.autograd.Function):
    """x times the merged weights; the gradient goes to x, A and B, and to nothing frozen."""

    @staticmethod
    def forward(ctx, x, merged, down, scale, sizes, *ups):
        x = x.to(merged.dtype)
        ctx.save_for_backward(x, merged, down, *ups)
        ctx.scale, ctx.sizes = scale, sizes
        return x @ merged.t()

    @staticmethod
    def backward(ctx, grad):
        x, merged, down, *ups = ctx.saved_tensors
        grad_x = grad @ merged if ctx.needs_input_grad[0] else None
        grad, x = grad.reshape(-1, grad.shape[-1]), x.reshape(-1, x.shape[-1])
        down, *ups = (each.to(x.dtype) for each in (down, *ups))
        middle = (x @ down.t()).split(down.shape[0] // len(ups), 1)
        parts = grad.split(ctx.sizes, 1)
        inner = torch.cat([part @ up for part, up in zip(parts, ups, strict=True)], 1)
        grad_ups = [
            ctx.scale * (part.t() @ seen).float() for part, seen in zip(parts, middle, strict=True)
        ]
        return grad_x, None, ctx.scale * (inner.t() @ x).float(), None, None, *grad_ups


class Projections:
    """Frozen matrices that share their input, each with an adapter B·A, B being zero at first."""

    def __init__(
        self,
        names: tuple[str, ...],
        weights: list[torch.Tensor],
        rank: int,
        scale: float,
        dtype: torch.dtype,
    ) -> None:
        self.names, self.rank, self.scale = names, rank, scale
        self.sizes = [weight.shape[0] for weight in weights]
        self.frozen = torch.cat(weights)
        width, device = self.frozen.shape[1], self.frozen.device
        bound = 1 / math.sqrt(width)
        down = torch.empty(rank * len(names), width).uniform_(-bound, bound)
        self.down = down.to(device).requires_grad_()
        self.ups = [torch.zeros(size, rank, device=device).requires_grad_() for size in self.sizes]
        self.merged = self.frozen.to(dtype, copy=True)

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
            target.copy_(torch.addmm(source, up, down, alpha=self.scale))

    def __call__(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        y = _Projection.apply(x, self.merged, self.down, self.scale, self.sizes, *self.ups)
        return y.split(self.sizes, -1)


def _attention(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    prefix: KeysAndValues | None,
    future: torch.Tensor,
) -> torch.Tensor:
    """Returns what the queries see of a shared beginning and of their own row's past.

    The beginning's keys and values belong to all rows: each head's are one matrix product, and no
    gradient is computed for them. All tensors are (key heads, batch, length, head width).
    """
    q = q / math.sqrt(q.shape[-1])
    scores = (q @ k.transpose(2, 3)).masked_fill(future, -math.inf)
    if prefix is None:
        return scores.softmax(-1) @ v
    keys, values = (each[:, 0] for each in prefix)
    first = keys.shape[1]
    earlier = (q.flatten(1, 2) @ keys.transpose(1, 2)).unflatten(1, q.shape[1:3])
    seen = torch.cat([earlier, scores], 3).softmax(-1)
    earlier = (seen[..., :first].flatten(1, 2) @ values).view_as(q)
    return earlier + seen[..., first:] @ v


class _Loss(torch.autograd.Function):
    """The weighted sum of cross entropies, and the weight of what was foretold right.

    Logits, and their gradient computed beside them, exist for some rows at a time.
    """

    @staticmethod
    def forward(ctx, hidden, embedding, narrow, targets, weights):
        loss, right = hidden.new_zeros(()), hidden.new_zeros(())
        grads = []
        some = (each.split(LOGIT_ROWS) for each in (hidden, targets, weights))
        for rows, wanted, weight in zip(*some, strict=True):
            logits = rows @ embedding.t()
            right += ((logits.argmax(-1) == wanted) * weight).sum()
            loss += (F.cross_entropy(logits, wanted, reduction="none") * weight).sum()
            grad = logits.softmax(-1)
            grad[torch.arange(len(wanted), device=wanted.device), wanted] -= 1
            grads.append(grad.to(narrow.dtype) @ narrow * weight[:, None])
        ctx.save_for_backward(torch.cat(grads).to(hidden.dtype))
        ctx.mark_non_differentiable(right)
        return loss, right

    @staticmethod
    def backward(ctx, grad_loss, _grad_right):
        (grad,) = ctx.saved_tensors
        return grad * grad_loss, None, None, None, None


class Llama:
    def __init__(
        self,
        path: Path,
        *,
        rank: int,
        alpha: float,
        device: str = "cpu",
        dtype: torch.dtype = torch.float32,
    ) -> None:
        reader = GGUFReader(path)

        def field(name):
            return reader.fields[f"llama.{name}"].contents()

        self.layers, self.heads = field("block_count"), field("attention.head_count")
        self.kv_heads = field("attention.head_count_kv")
        self.width = field("embedding_length")
        self.epsilon = field("attention.layer_norm_rms_epsilon")
        self.head = self.width // self.heads
        self.alpha, self.device, self.dtype = alpha, device, dtype
        tensors = {tensor.name: tensor for tensor in reader.tensors}

        def read(name):
            data = dequantize(tensors[name].data, tensors[name].tensor_type)
            return torch.from_numpy(data.astype(np.float32)).to(device)

        self.embedding = read("token_embd.weight")
        self._narrow = self.embedding.to(dtype)
        self.out_norm = read("output_norm.weight")
        self.norms = [
            (read(f"blk.{n}.attn_norm.weight"), read(f"blk.{n}.ffn_norm.weight"))
            for n in range(self.layers)
        ]
        self.blocks = [
            [
                Projections(
                    names,
                    [read(f"blk.{n}.{name}.weight") for name in names],
                    rank,
                    alpha / rank,
                    dtype,
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
        future = torch.ones(length, length, dtype=torch.bool, device=ids.device).triu(1)
        future = future.repeat_interleave(repeat, 0)
        x = self.embedding[ids]
        kept = []
        for layer, (attention_in, attention_out, ffn_in, ffn_out) in enumerate(self.blocks):
            q, k, v = attention_in(self._norm(x, self.norms[layer][0]))
            # The query heads of one key head stand side by side along the length.
            q = self._rotated(q.view(batch, length, self.heads, self.head), first)
            q = q.view(batch, length, self.kv_heads, repeat, self.head).permute(2, 0, 1, 3, 4)
            q = q.reshape(self.kv_heads, batch, length * repeat, self.head)
            k = self._rotated(k.view(batch, length, self.kv_heads, self.head), first)
            k = k.permute(2, 0, 1, 3).contiguous()
            v = v.view(batch, length, self.kv_heads, self.head).permute(2, 0, 1, 3)
            kept.append((k, v.float().contiguous()))
            y = _attention(q, *kept[-1], prefix[layer] if prefix else None, future)
            y = y.unflatten(2, (length, repeat)).permute(1, 2, 0, 3, 4)
            x = x + attention_out(y.reshape(batch, length, self.width))[0]
            gate, up = ffn_in(self._norm(x, self.norms[layer][1]))
            x = x + ffn_out(F.silu(gate) * up)[0]
        return self._norm(x, self.out_norm), kept

    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        return hidden @ self.embedding.t()

    def loss(
        self, hidden: torch.Tensor, targets: torch.Tensor, weights: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Returns the weighted sum of losses, and the weights of the right ones."""
        return _Loss.apply(hidden, self.embedding, self._narrow, targets, weights)

    def _norm(self, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        return F.rms_norm(x, (self.width,), weight, self.epsilon)

    def _rotated(self, x: torch.Tensor, first: int) -> torch.Tensor:
        """Turns pairs by their position; x: batch, length, heads, head width."""
        turns = self._turns[first : first + x.shape[1], None, :]
        pairs = torch.view_as_complex(x.float().reshape(*x.shape[:-1], -1, 2))
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
