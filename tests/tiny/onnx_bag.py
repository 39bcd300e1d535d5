"""An ONNX classifier small enough to write down: the mean of word vectors, then a linear layer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

INPUTS = ("input_ids", "attention_mask")


def write_onnx_bag(folder: Path, tokenizer: Any, classes: int) -> dict[str, np.ndarray]:
    """`model.onnx` and its tokenizer in `folder`; what it computes with, so that answers are known in closed form."""
    import onnx

    tokenizer.save_pretrained(folder)
    draw = np.random.default_rng(0)
    truth = {"table": draw.normal(size=(len(tokenizer), 4)), "weight": draw.normal(size=(4, classes))}
    helper, numpy_helper, kind = onnx.helper, onnx.numpy_helper, onnx.TensorProto
    graph = helper.make_graph(
        [
            helper.make_node("Gather", ["table", "input_ids"], ["vectors"]),
            helper.make_node("Cast", ["attention_mask"], ["mask"], to=kind.FLOAT),
            helper.make_node("Unsqueeze", ["mask", "last"], ["wide"]),
            helper.make_node("Mul", ["vectors", "wide"], ["seen"]),
            helper.make_node("ReduceSum", ["seen", "middle"], ["sum"], keepdims=0),
            helper.make_node("ReduceSum", ["wide", "middle"], ["count"], keepdims=0),
            helper.make_node("Div", ["sum", "count"], ["mean"]),
            helper.make_node("MatMul", ["mean", "weight"], ["logits"]),
        ],
        "bag",
        [helper.make_tensor_value_info(name, kind.INT64, ["rows", "tokens"]) for name in INPUTS],
        [helper.make_tensor_value_info("logits", kind.FLOAT, ["rows", classes])],
        [numpy_helper.from_array(value.astype(np.float32), name) for name, value in truth.items()]
        + [numpy_helper.from_array(np.array([axis]), name) for name, axis in (("last", -1), ("middle", 1))],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    onnx.save(model, str(folder / "model.onnx"))
    return truth
