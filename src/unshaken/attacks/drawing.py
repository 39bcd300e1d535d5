"""Texts drawn by what a white-box attack has seen inside a model."""

from __future__ import annotations

import numpy as np


def chances(promises: np.ndarray) -> np.ndarray:
    """Weights to draw by: the softmax of each word's promises over twice their usual size. (positions, choices)"""
    reached = np.isfinite(promises)
    usual = np.abs(promises[reached]).mean() if reached.any() else 1.0
    best = promises.max(1, keepdims=True, where=reached, initial=-np.inf)
    with np.errstate(invalid="ignore"):  # words without any promise: -inf less -inf
        return np.where(reached, np.exp((promises - best) / max(2 * usual, 1e-12)), -np.inf)


def half_anywhere(weights: np.ndarray, sizes: np.ndarray) -> np.ndarray:
    """Weights of which half goes to all choices of a word alike: a sharp mixture draws the same few texts again."""
    given = np.where(np.isfinite(weights), weights, 0.0)
    total = given.sum(1, keepdims=True)
    uniform = (np.arange(weights.shape[1]) < sizes[:, None]) / sizes[:, None]
    return np.asarray(np.where(total > 0, given / np.where(total > 0, total, 1.0), uniform) / 2 + uniform / 2)


def drawn_from(weights: np.ndarray, sizes: np.ndarray, count: int, rng: np.random.Generator) -> np.ndarray:
    """Texts with each word drawn in proportion to its weights, uniformly where it has none. (count, positions)"""
    chances = np.where(np.isfinite(weights), weights, 0.0)  # (positions, choices)
    uniform = np.arange(weights.shape[1]) < sizes[:, None]
    chances = np.where(chances.sum(1, keepdims=True) > 0, chances, uniform)
    reached = np.cumsum(chances, axis=1) / chances.sum(1, keepdims=True)
    rows = (rng.random((count, len(weights), 1)) >= reached).sum(2)
    return np.asarray(np.minimum(rows, sizes - 1).astype(np.int16))
