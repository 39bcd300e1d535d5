"""Language-model score: a substitute must not make its surroundings much less likely."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from unshaken.attacks.constraints.base import Choices, Constraint
from unshaken.errors import UnshakenError
from unshaken.substitutions.pretrained import batches, load_pretrained
from unshaken.substitutions.words import Words, match_case


@dataclass(frozen=True, kw_only=True)
class LanguageModelScore(Constraint):
    """The log-probability of the words around a swap drops by at most `max_drop`, by any causal language model.

    Paper: Jia et al. 2019, appendix A.3 (window 6, drop 5, judged in the original sentence).
    Relations: The paper's language model was never released, so results differ from its and RIFT's Genetic numbers.
    Cost: One model pass for each substitute and each position, once for each text, in batches over all of them.

    Args:
        model: Hub name or folder of a causal language model, such as "openai-community/gpt2".
        max_drop: Largest drop of the log-probability of the window, in nats.
        window: Words on either side of the swap that are read.
        batch_size: Windows a pass.

    Example:
        >>> LanguageModelScore(model="openai-community/gpt2").allowed_choices([words], [substitutions.for_text(words)])
    """

    name: ClassVar[str] = "language-model"

    model: str
    max_drop: float = 5.0  # Jia et al. 2019, A.3
    window: int = 6  # Jia et al. 2019, A.3
    batch_size: int = 32

    def __post_init__(self) -> None:
        if self.max_drop < 0 or self.window < 0 or self.batch_size < 1:
            raise UnshakenError(f"{self}: max_drop and window are at least 0, batch_size at least 1")

    def allowed_choices(self, texts: Sequence[Words], choices: Sequence[Choices]) -> list[list[list[str]]]:
        windows = {
            (row, at, word): self._with(texts[row], at, word)
            for row, of_text in enumerate(choices)
            for at, found in enumerate(of_text)
            if found
            for word in (texts[row][at], *found)
        }
        distinct = list(dict.fromkeys(windows.values()))
        score = dict(zip(distinct, self.log_likelihoods(distinct), strict=True))
        return [
            [
                [
                    word
                    for word in found
                    if score[windows[row, at, word]] - score[windows[row, at, texts[row][at]]] >= -self.max_drop
                ]
                for at, found in enumerate(of_text)
            ]
            for row, of_text in enumerate(choices)
        ]

    def _with(self, words: Words, position: int, word: str) -> str:
        start = max(0, position - self.window)
        part = words.part(start, position + self.window + 1)
        return part.replace({position - start: match_case(words[position], word)}, carry_case=False)

    @torch.no_grad()
    def log_likelihoods(self, texts: Sequence[str]) -> list[float]:
        """Log-probability of each text, in nats."""
        model, tokenizer = load_pretrained("AutoModelForCausalLM", self.model)
        scores = [0.0] * len(texts)
        for rows, inputs in batches(model, tokenizer, texts, self.batch_size):
            ids, mask = _with_start(inputs["input_ids"], inputs["attention_mask"], tokenizer)
            logits = model(input_ids=ids, attention_mask=mask).logits[:, :-1].float()  # (batch, seq - 1, vocabulary)
            tokens = logits.log_softmax(-1).gather(-1, ids[:, 1:, None]).squeeze(-1)  # (batch, seq - 1)
            for row, score in zip(rows, (tokens * mask[:, 1:]).sum(-1).tolist(), strict=True):
                scores[row] = score
        return scores


def _with_start(ids: Tensor, mask: Tensor, tokenizer: Any) -> tuple[Tensor, Tensor]:
    """Put the start token first where the tokenizer did not, because the first word must be scored too."""
    start = tokenizer.bos_token_id if tokenizer.bos_token_id is not None else tokenizer.eos_token_id
    if start is None or (ids.shape[1] and bool((ids[:, 0] == start).all())):
        return ids, mask
    column = ids.new_full((len(ids), 1), start)
    return torch.cat([column, ids], 1), torch.cat([torch.ones_like(column), mask], 1)
