"""Keeps `output_attentions` honest: a solve evaluates its layer many times, and only the last one is the layer's."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator


@contextlib.contextmanager
def one_capture() -> Iterator[None]:
    """Of all attention maps recorded inside, keep the last."""
    try:
        from transformers.utils.output_capturing import _active_collector
    except ImportError:  # older releases return attentions from the layer itself
        yield
        return
    collected = _active_collector.get()
    if not collected:
        yield
        return
    before = {key: len(values) for key, values in collected.items() if isinstance(values, list)}
    yield
    for key, count in before.items():
        del collected[key][count:-1]
