"""Distances between what a model answers, in float32 or better whatever it computes in."""

from __future__ import annotations

import torch
from torch import Tensor


def widened(values: Tensor) -> Tensor:
    """Half precision to float32; float32 and float64 as they are."""
    return values.float() if values.dtype in (torch.float16, torch.bfloat16) else values


def log_probabilities(logits: Tensor) -> Tensor:
    return torch.log_softmax(widened(logits), dim=-1)


def kl_divergence(log_p: Tensor, log_q: Tensor) -> Tensor:
    """KL(p || q) per example from log-probabilities. (batch, classes) -> (batch,)"""
    return (log_p.exp() * (log_p - log_q)).sum(-1)


def symmetric_kl(log_p: Tensor, log_q: Tensor) -> Tensor:
    """KL(p || q) + KL(q || p) per example. (batch, classes) -> (batch,)"""
    return ((log_p.exp() - log_q.exp()) * (log_p - log_q)).sum(-1)
