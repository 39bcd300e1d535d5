"""`SentenceEncoder`: unit vectors of texts by any encoder, from strings or from tokens that are on the device."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Sequence
from functools import cached_property, lru_cache

import torch
from torch import Tensor

from unshaken.attention import attention_for_any_shape
from unshaken.embedded import minilm_path
from unshaken.errors import UnshakenError
from unshaken.substitutions.pretrained import batches, load_pretrained, longest_input, token_rows
from unshaken.victims.bare_encoder import BareEncoder
from unshaken.victims.batches import AssembledRows, RaggedRows
from unshaken.wordings import Rows, TokenAssembler
from unshaken.wordings.memory import Memory

CACHED = 1 << 15  # texts whose vectors are kept; a search compares many candidates with the same text


class SentenceEncoder:
    """Unit vectors of texts: the mean of an encoder's last hidden states over the tokens.

    Example:
        >>> encoder = SentenceEncoder.load()
        >>> encoder.cosine(["a good film"], ["a great movie"])
        [0.84...]
    """

    def __init__(self, name: str, batch_size: int | None = None) -> None:
        self.name = name
        self._model, self._tokenizer = load_pretrained("AutoModel", name)
        self.device: torch.device = self._model.device
        self.lock = threading.RLock()  # one thread may look at candidates while another measures results
        # A small batch stays in the caches of a processor, and leaves a GPU idle.
        self.batch_size = batch_size or (64 if self.device.type == "cpu" else 2048)
        self.is_rough = self.device.type == "cuda"  # its cosines differ from those in float32 by up to about 0.0004
        self._known: dict[str, Tensor] = {}
        sample = next(batches(self._model, self._tokenizer, ["a good film", "it is what it is, and no more"], 2))[1]
        self._bare = BareEncoder.of(self._model, sample, first_token=False)

    @staticmethod
    def load(name: str | None = None) -> SentenceEncoder:
        """The encoder of a hub name or folder, the embedded MiniLM if None; one copy per process."""
        return _loaded(name if name is not None else str(minilm_path()))

    @cached_property
    def assembler(self) -> TokenAssembler:
        """Puts the tokens of stretches of texts together."""
        return TokenAssembler(self._tokenizer, 1, longest_input(self._tokenizer))

    def new_memory(self) -> Memory:
        """For the vectors of some texts."""
        return Memory(self._model.config.hidden_size, self.device)

    def __call__(self, texts: Sequence[str]) -> Tensor:
        """(texts, hidden), float32, on the CPU. Repeated texts are encoded once."""
        with self.lock:
            new = [text for text in dict.fromkeys(texts) if text not in self._known]
            if len(self._known) + len(new) > CACHED:
                self._known.clear()
                new = list(dict.fromkeys(texts))
            if new:
                self._known.update(zip(new, self._encode(new).cpu(), strict=True))
            return torch.stack([self._known[text] for text in texts]) if texts else torch.empty(0, 0)

    def _encode(self, texts: Sequence[str]) -> Tensor:
        rows = Rows.from_lists(token_rows(self._tokenizer, texts), None)
        return self.vectors(RaggedRows(rows, self.device, self._tokenizer.pad_token_id or 0), exact=True)

    @torch.no_grad()
    def vectors(self, source: RaggedRows | AssembledRows, exact: bool = False) -> Tensor:
        """Unit vectors of token rows, on the encoder's device; in half precision on a GPU if not `exact`. (n, d)"""
        count = len(source.sorted_lengths)
        found = torch.empty(count, self._model.config.hidden_size, device=self.device)
        with self.lock, contextlib.ExitStack() as stack:
            stack.enter_context(attention_for_any_shape(self.device))
            if self._bare is not None:
                stack.enter_context(self._bare.open())
            if self.is_rough and not exact:
                stack.enter_context(torch.autocast(self.device.type, dtype=torch.float16))
            for start in range(0, count, self.batch_size):
                batch = source.batch(start, min(count, start + self.batch_size))
                # Bare layers take the mask as attention needs it; of one for tokens transformers makes it, and waits.
                mask = batch.mask.long() if self._bare is None else batch.mask[:, None, None]  # (batch, 1, 1, seq)
                hidden = self._model(input_ids=batch.ids, attention_mask=mask).last_hidden_state.float()
                kept = batch.mask.unsqueeze(-1)  # (batch, seq, 1)
                mean = (hidden * kept).sum(1) / kept.sum(1).clamp(min=1)
                found[batch.order] = torch.nn.functional.normalize(mean, dim=-1)
        return found

    def cosine(self, texts: Sequence[str], others: Sequence[str]) -> list[float]:
        """Cosine similarity of each text with the other of the same place."""
        if len(texts) != len(others):
            raise UnshakenError(f"{len(texts)} texts cannot be compared with {len(others)}, one with one")
        if not texts:
            return []
        vectors = self([*texts, *others])
        return (vectors[: len(texts)] * vectors[len(texts) :]).sum(-1).clamp(-1, 1).tolist()


@lru_cache(maxsize=4)
def _loaded(name: str) -> SentenceEncoder:
    return SentenceEncoder(name)
