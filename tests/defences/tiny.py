"""Tiny models and batches for the tests of defences."""

from __future__ import annotations

from typing import Any

import torch
from backbones import BACKBONES, PAD, VOCABULARY, tiny_model
from torch import Tensor, nn

from unshaken.defences import Defence, Step

__all__ = ["BACKBONES", "VOCABULARY", "tiny_model"]  # for the tests of defences


def tiny_batch(rows: int = 6, width: int = 9, pairs: bool = False, seed: int = 1) -> dict[str, Tensor]:
    """Random ids, right-padded to several lengths."""
    generator = torch.Generator().manual_seed(seed)
    ids = torch.randint(PAD + 1, VOCABULARY, (rows, width), generator=generator)
    lengths = width - torch.arange(rows) % 4
    mask = (torch.arange(width)[None] < lengths[:, None]).long()
    batch = {"input_ids": torch.where(mask.bool(), ids, PAD), "attention_mask": mask}
    if pairs:
        batch["token_type_ids"] = (torch.arange(width)[None] >= 4).long().expand(rows, width) * mask
    return batch


def tiny_step(model: Any, *, pairs: bool = False, regression: bool = False, rows: int = 6, **options: Any) -> Step:
    labels = torch.linspace(-1, 1, rows).double() if regression else torch.arange(rows) % 3
    return Step(model=model, inputs=tiny_batch(rows, pairs=pairs), labels=labels, **options)


def ready(defence: Defence, model: Any, tokenizer: Any = None) -> Any:
    defence.setup(model, num_labels=model.config.num_labels, tokenizer=tokenizer)
    return defence.to(next(model.parameters()).dtype)


def moved(model: Any, by: float = 0.05) -> Any:
    """Away from where it started, as after some steps of training: what was copied or kept at setup is another."""
    torch.manual_seed(3)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(by * torch.randn_like(parameter))
    return model


def run(defence: Defence, step: Step, seed: int = 7) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """One training step's loss parts and its model gradients."""
    step.model.zero_grad()
    torch.manual_seed(seed)
    parts = defence.loss(step)
    torch.stack(list(parts.values())).sum().backward()
    return parts, gradients(step.model)


def gradients(model: nn.Module) -> dict[str, Tensor]:
    return {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}
