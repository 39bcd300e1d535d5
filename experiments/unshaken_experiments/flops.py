"""What one text costs at inference, as torch counts it and as IM-BERT's tables count it, and how large a model is."""

from __future__ import annotations

import copy
from typing import Any

TOKENS = 128  # 22.35 GFLOPs of BERT-base in IM-BERT's Table 3 are those of 128 tokens


def count_gflops(model: Any) -> dict[str, float]:
    """GFLOPs of one forward pass of one text of 128 tokens.

    Returns:
        `gflops`: what torch counts, the vector-Jacobian products of a descent included. `counted_gflops`: the paper's
        count, T + 1 evaluations of each connected layer and no backward pass, whatever the solver; equal to the plain
        model's for a plain one.
    """
    from unshaken.connections import connection_of, disconnect, solve_records

    true = _forward_gflops(model)
    connection = connection_of(model)
    if connection is None:
        return {"gflops": true, "counted_gflops": true}
    layers = {label.split()[0] for label in solve_records(model)}  # sub-layers solved apart make one layer
    connected = len(layers) if connection.is_implicit else 0
    plain = _forward_gflops(disconnect(copy.deepcopy(model)))
    steps = getattr(connection.solver, "steps", 0) if connection.is_implicit else 0
    share = connected / max(1, model.config.num_hidden_layers)
    return {"gflops": true, "counted_gflops": round(plain * (1 + steps * share), 3)}


def count_parameters(model: Any) -> float:
    """Parameters of a model in millions; weights that are shared count once, and so do those of a connection's step."""
    return float(round(sum(weight.numel() for weight in model.parameters()) / 1e6, 3))


def counted_flops() -> Any:
    """torch's formulas without FlopCounterMode's module hooks, which a gradient inside a forward pass breaks."""
    from torch.utils._python_dispatch import TorchDispatchMode
    from torch.utils.flop_counter import flop_registry

    class Counter(TorchDispatchMode):  # type: ignore[no-untyped-call]
        total = 0

        def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            result = function(*args, **(kwargs or {}))
            formula = flop_registry.get(function._overloadpacket)
            if formula is not None:
                self.total += formula(*args, **(kwargs or {}), out_val=result)
            return result

    return Counter()  # type: ignore[no-untyped-call]


def _forward_gflops(model: Any) -> float:
    import torch
    from torch.nn.attention import SDPBackend, sdpa_kernel

    limit = getattr(model.config, "max_position_embeddings", None) or TOKENS
    ids = torch.full((1, min(TOKENS, limit - 2)), min(10, model.config.vocab_size - 1), device=model.device)
    was_training = model.training
    model.eval()
    try:
        # Matrix products are what the formulas know on every device; fused attention kernels are not.
        with counted_flops() as counter, torch.no_grad(), sdpa_kernel(SDPBackend.MATH):
            model(input_ids=ids, attention_mask=torch.ones_like(ids))
    finally:
        model.train(was_training)
    return float(round(counter.total / 1e9, 3))
