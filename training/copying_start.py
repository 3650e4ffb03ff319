"""Start weights that can already copy: an induction circuit built by hand.

Layer 0 gets heads that look at the previous token, through the phase of the rotary embedding, and
write what they saw into the upper half of the stream. Layer 1 gets heads that look for places where
the upper half holds the current token, and copy what stands there. Without this, copying emerges
only after about ten times the tokens.
"""

import math

import torch

from training.model import Model

CONSTANT = 2.86  # one embedding dimension is the same for all tokens: previous-token heads read it
PREVIOUS_GAP = 24.0  # how far the previous token's score stands above the others
MATCH_STRENGTH = 4.0
COPY_STRENGTH = 3.0
LOWEST_MATCH_FREQUENCY = 6  # slow rotary pairs only: a match must not depend on the distance
FINAL_NORM = 0.07


@torch.no_grad()
def build_copying_circuit(model: Model, seed: int = 1) -> None:
    """Overwrites the weights of layers 0 and 1 and the embeddings."""
    torch.manual_seed(seed)
    half = model.shape.width // 2
    embedding = model.emb.weight.data
    embedding.normal_(std=1.0)
    embedding[:, half:] *= 0.1
    embedding[:, 0] = CONSTANT
    scale = 1.0 / embedding.pow(2).mean(1).sqrt().mean().item()
    seen = _rotation(half)
    seen[:, 0] = 0
    written = _rotation(half)
    _previous_token_heads(model, seen, written, scale)
    _match_and_copy_heads(model, written @ seen)
    model.norm.data.fill_(FINAL_NORM)
    for index, block in enumerate(model.blocks):
        block.down.weight.data.mul_(0.4)
        if index >= 2:
            block.out.weight.data.mul_(0.4)


def _rotation(size: int) -> torch.Tensor:
    return torch.linalg.qr(torch.randn(size, size))[0]


def _previous_token_heads(
    model: Model, seen: torch.Tensor, written: torch.Tensor, scale: float
) -> None:
    shape, block = model.shape, model.blocks[0]
    head, half, pairs = shape.head_width, shape.width // 2, shape.head_width // 2
    angles = shape.rope_base ** (-torch.arange(0, head, 2).float() / head)
    fast = angles[: pairs // 2]
    strength = math.sqrt(PREVIOUS_GAP * math.sqrt(head) / (1 - torch.cos(fast)).sum().item())
    strength /= CONSTANT * scale
    q, k, v = block.qkv.weight.data.chunk(3, 0)
    for start in range(0, half, head):
        q[start : start + head] *= 0.01
        k[start : start + head] *= 0.01
        for pair in range(pairs // 2):
            q[start + pair, 0] += strength * math.cos(-angles[pair])
            q[start + pair + pairs, 0] += strength * math.sin(-angles[pair])
            k[start + pair, 0] += strength
    v[:half] = 0
    v[:half, :half] = seen
    out = block.out.weight.data
    out *= 0.05
    out[:, :half] = 0
    out[half:, :half] = written / scale


def _match_and_copy_heads(model: Model, passed_on: torch.Tensor) -> None:
    shape, block = model.shape, model.blocks[1]
    head, half, pairs = shape.head_width, shape.width // 2, shape.head_width // 2
    q, k, v = block.qkv.weight.data.chunk(3, 0)
    q *= 0.1
    k *= 0.1
    strength = math.sqrt(MATCH_STRENGTH)
    for start in range(0, shape.width, head):
        directions = _rotation(half)
        directions[:, 0] = 0
        for pair in range(LOWEST_MATCH_FREQUENCY, pairs):
            for row in (pair, pair + pairs):
                q[start + row, :half] += strength * directions[row]
                k[start + row, half:] += strength * (passed_on @ directions[row])
    v.zero_()
    for part in range(2):
        v[part * half : (part + 1) * half, :half] = _rotation(half)
    v[:, 0] = 0
    out = block.out.weight.data
    out.zero_()
    out[:half] = v.t()[:half] * (COPY_STRENGTH / 2)
