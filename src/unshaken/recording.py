"""Whether a pass is recorded as a program for other texts, as exporters do."""

from __future__ import annotations

import torch


def is_recorded() -> bool:
    """Under `torch.export`, the ONNX exporters and tracing; not `torch.compile`, which looks at each call anew."""
    return torch.compiler.is_exporting() or bool(torch.jit.is_tracing())  # type: ignore[attr-defined,no-untyped-call]
