"""Muon on the hidden matrices, Adam on embeddings and norms; bf16 weights with float32 masters.

Muon orthogonalises the momentum of a matrix by five Newton-Schulz steps (Jordan et al., 2024).
Fused matrices are split first: q, k and v, gate and up are each a matrix of their own.
"""

import torch

from training.model import Model

MUON_RATE = 0.015
MUON_MOMENTUM = 0.95
WEIGHT_DECAY = 0.0004
ADAM_BETAS = (0.9, 0.95)
EMBEDDING_RATE, NORM_RATE, FINAL_NORM_RATE = 0.015, 0.004, 0.0007
_FUSED = {"qkv": 3, "gate_up": 2}


class Optimizer:
    """Holds the master weights of a bf16 model and updates both."""

    def __init__(self, model: Model, masters: dict[str, torch.Tensor]) -> None:
        self.masters = masters
        self._weights = dict(model.named_parameters())
        self._steps = 0
        matrices = [n for n, w in masters.items() if w.ndim == 2 and not n.startswith("emb")]
        self._momenta = {name: torch.zeros_like(masters[name]) for name in matrices}
        self._moments = {
            name: (torch.zeros_like(weight), torch.zeros_like(weight))
            for name, weight in masters.items()
            if name not in self._momenta
        }
        self._copy_to_model()

    @torch.no_grad()
    def step(self, rate: float) -> None:
        """Applies the gradients at `rate` times the full learning rate, and clears them."""
        self._steps += 1
        self._step_matrices(rate)
        self._step_vectors(rate)
        self._copy_to_model()

    def _step_matrices(self, rate: float) -> None:
        by_shape: dict[torch.Size, list[tuple[torch.Tensor, torch.Tensor]]] = {}
        for name, momentum in self._momenta.items():
            gradient = self._weights[name].grad.float()
            momentum.lerp_(gradient, 1 - MUON_MOMENTUM)
            ahead = gradient.lerp(momentum, MUON_MOMENTUM)  # Nesterov
            parts = next((count for key, count in _FUSED.items() if key in name), 1)
            for target, update in zip(
                self.masters[name].chunk(parts, 0), ahead.chunk(parts, 0), strict=True
            ):
                by_shape.setdefault(update.shape, []).append((target, update))
        for shape, pairs in by_shape.items():
            directions = _orthogonalised(torch.stack([update for _, update in pairs]))
            size = MUON_RATE * rate * max(1.0, shape[0] / shape[1]) ** 0.5
            for (target, _), direction in zip(pairs, directions, strict=True):
                target.mul_(1 - WEIGHT_DECAY * rate).add_(direction, alpha=-size)

    def _step_vectors(self, rate: float) -> None:
        beta1, beta2 = ADAM_BETAS
        for name, (first, second) in self._moments.items():
            gradient = self._weights[name].grad.float()
            first.lerp_(gradient, 1 - beta1)
            second.lerp_(gradient * gradient, 1 - beta2)
            mean = first / (1 - beta1**self._steps)
            spread = (second / (1 - beta2**self._steps)).sqrt()
            full = FINAL_NORM_RATE if name == "norm" else NORM_RATE
            full = EMBEDDING_RATE if name.startswith("emb") else full
            self.masters[name].add_(mean / (spread + 1e-8), alpha=-full * rate)

    @torch.no_grad()
    def _copy_to_model(self) -> None:
        for name, weight in self._weights.items():
            weight.data.copy_(self.masters[name])
            weight.grad = None


def _orthogonalised(matrices: torch.Tensor) -> torch.Tensor:
    x = matrices.bfloat16()
    tall = x.shape[-2] > x.shape[-1]
    if tall:
        x = x.transpose(-1, -2)
    x = x / (x.float().norm(dim=(-2, -1), keepdim=True) + 1e-7).bfloat16()
    for _ in range(5):
        gram = x @ x.transpose(-1, -2)
        x = 3.4445 * x + (-4.7750 * gram + 2.0315 * (gram @ gram)) @ x
    return (x.transpose(-1, -2) if tall else x).float()
