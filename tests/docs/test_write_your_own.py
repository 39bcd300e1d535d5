"""Every block of the page about methods of one's own runs, and does what the page says."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import BertConfig, BertForSequenceClassification

from unshaken import Example, Victim

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "write-your-own.md"


@pytest.fixture
def names() -> dict[str, Any]:
    """What the page takes as given."""
    torch.manual_seed(0)
    size = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 8}
    config = BertConfig(vocab_size=20, max_position_embeddings=8, num_labels=2, **size)  # type: ignore[arg-type]

    def plural_is_bad(texts: list[str]) -> np.ndarray:
        bad = np.array([text.split()[0].endswith("s") for text in texts], float)
        return np.stack([bad, 1 - bad], 1)

    return {
        "__name__": "page",
        "model": BertForSequenceClassification(config),
        "inputs": {"input_ids": torch.randint(0, 20, (4, 6))},
        "labels": torch.tensor([0, 1, 0, 1]),
        "victim": Victim.from_callable(plural_is_bad, 2),
        "examples": [Example(id=str(n), texts=(text,), label=1) for n, text in enumerate(("film good", "12 good"))],
    }


def test_the_page_runs(names: dict[str, Any]) -> None:
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), flags=re.DOTALL)
    assert len(blocks) == 5
    for block in blocks:
        exec(compile(block, str(PAGE), "exec", dont_inherit=True), names)
    assert names["losses"].keys() == {"task", "smooth"}
    model, inputs, labels = (names[name] for name in ("model", "inputs", "labels"))
    assert all(parameter.grad is not None for parameter in model.classifier.parameters())
    model.eval()
    step = names["defence"].loss(names["Step"](model=model, inputs=inputs, labels=labels))
    smoothed = torch.nn.functional.cross_entropy(model(**inputs).logits, labels, label_smoothing=0.2)
    torch.testing.assert_close(sum(step.values()), smoothed)
    assert [row.outcome for row in names["results"]] == ["success", "failure"]
    assert names["results"][0].adversarial == ("films good",)
