"""`Alone`: a model's answers to texts as if each were by itself, in few passes."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from unshaken.attention import attention_for_any_shape
from unshaken.precision import full_products
from unshaken.victims.base import Close, Texts, checked, log_softmax
from unshaken.victims.batches import RaggedRows
from unshaken.wordings import Rows

if TYPE_CHECKING:
    from unshaken.victims.hugging_face import ModelVictim

ALIKE = 1e-4  # by which company may move a log-probability, and by which share of it: ten times what rounding does


class Alone:
    """Texts tokenised from the string and answered in float32 (or float64, as the model is), without any shortcut.

    Texts stand beside others, padded where that costs less than a pass. Some are passed by themselves, too, as
    witnesses: where their company shows in their answers, none is padded, and where it still shows, each is alone.

    Args:
        victim: The model.
        padding: Tokens of padding that a pass may have.
        rows_are_apart: The model is known to answer each row of a batch by itself, as stock layers do, so that padding
            alone could show.
    """

    def __init__(self, victim: ModelVictim, padding: int, rows_are_apart: bool) -> None:
        self.victim, self.padding, self.rows_are_apart = victim, padding, rows_are_apart
        self._exact: tuple[int, Any] | None = None  # a float32 copy, with the version of the weights
        self._read: dict[Texts, Rows] = {}

    def read(self, texts: Sequence[Texts]) -> None:
        """Tokenise texts that will be asked about. Another thread can do so while the device is at work."""
        with self.victim.tokenizing:
            new = [text for text in dict.fromkeys(texts) if text not in self._read]
            if new:
                self._read.update(zip(new, self.victim.encode(new).split([1] * len(new)), strict=True))

    def answer(self, text: Texts) -> np.ndarray:
        """Log-probabilities of a text by itself. (classes,)"""
        return np.asarray(self._pass(self.victim.encode([text]), 0)[0])

    def answers(self, texts: Sequence[Texts], close: Close | None = None) -> np.ndarray:
        """Those of many texts; where `close` says that rounding might decide, a text is passed alone. (n, classes)"""
        if not texts:
            return np.empty((0, self.victim.num_labels), np.float32)
        with self.victim.tokenizing:
            self.read(texts)
            rows = [self._read[text] for text in texts]
            self._read.clear()
        found = self._in_company(rows)
        if found is None:
            return np.concatenate([self._pass(row, 0) for row in rows])
        for number in np.flatnonzero(close(found)).tolist() if close is not None and len(rows) > 1 else ():
            found[number] = self._pass(rows[number], 0)[0]
        return found

    def _in_company(self, rows: Sequence[Rows]) -> np.ndarray | None:
        """The answers of as few passes as leave them what they are alone; None if only single ones do. (n, classes)"""
        together = Rows.join(rows)
        for padding in dict.fromkeys((self.padding, 0)):
            found = self._pass(together, padding)
            witnesses = self._witnesses(together.lengths, found, padding)
            alone = [self._pass(rows[number], 0)[0] for number in witnesses]
            if all(np.allclose(a, found[b], rtol=ALIKE, atol=ALIKE) for a, b in zip(alone, witnesses, strict=True)):
                return found
        return None

    def _witnesses(self, lengths: np.ndarray, answers: np.ndarray, padding: int) -> list[int]:
        """The row that is padded most, and the least sure one of those in company (if rows are apart: padded ones).

        One that is sure has log-probabilities so large that little does not show there.
        """
        groups = list(self._groups(lengths, padding))
        lacks = [int(lengths[group[0]] - lengths[group[-1]]) for group in groups]
        chosen = [int(groups[int(np.argmax(lacks))][-1])] if max(lacks) else []
        shown = [group[lengths[group] < lengths[group[0]]] if self.rows_are_apart else group for group in groups]
        company = np.concatenate([own for own, group in zip(shown, groups, strict=True) if len(group) > 1] or [[]])
        if len(company):
            ranked = np.sort(answers[company], 1)
            chosen.append(int(company[int(np.argmin(ranked[:, -1] - ranked[:, -2]))]))
        return list(dict.fromkeys(chosen))

    def _groups(self, lengths: np.ndarray, padding: int) -> Iterator[np.ndarray]:
        """The rows of each pass, the longest first."""
        order = np.argsort(-lengths, kind="stable")
        start = 0
        while start < len(order):
            end = self.victim.batch_end(lengths[order], start, padding)
            yield order[start:end]
            start = end

    def _pass(self, rows: Rows, padding: int) -> np.ndarray:
        """Log-probabilities in full precision. (n, classes)"""
        victim = self.victim
        with torch.no_grad(), full_products(), attention_for_any_shape(victim.device):
            source = RaggedRows(rows, victim.device, victim.tokenizer.pad_token_id)
            logits = victim.logits(source, self._model(), padding)
        return checked(log_softmax(logits.cpu().numpy()), len(rows), victim.num_labels, victim.name)

    def _model(self) -> Any:
        """The model itself, or its float32 copy where it answers in half precision."""
        model, version = self.victim.model, self.victim.version
        if model.dtype in (torch.float32, torch.float64):
            return model
        if self._exact is None or self._exact[0] != version:
            self._exact = (version, copy.deepcopy(model).float())
        return self._exact[1]
