"""Candidates that a masked language model puts in a word's place, so they fit the context."""

from __future__ import annotations

import threading
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, NamedTuple

from unshaken.errors import UnshakenError
from unshaken.names import nearest
from unshaken.pretrained import weights_digest
from unshaken.substitutions.base import Substitutions, content_hash
from unshaken.substitutions.function_words import is_function_word
from unshaken.substitutions.wordnet import table as wordnet_table
from unshaken.substitutions.words import Words, join

EDITS = ("replace", "reread", "insert")
CACHED = 1 << 15  # masked contexts whose predictions are kept
_PREDICTING = threading.Lock()  # a worker may ask while the main thread does


Expected = list[tuple[str, float]]  # words and their probabilities, most likely first


class Gap(NamedTuple):
    """A place that the model fills."""

    text: str  # with a mask there
    seen: int | None  # the token that the model sees instead of the mask


@dataclass(frozen=True, kw_only=True)
class MaskedLM(Substitutions):
    """The most likely whole words in the place of a masked word, less WordNet's antonyms.

    Fluent is not faithful: such a candidate fits the sentence, but need not mean the same. Use it with
    `SentenceSimilarity`, as the paper does.

    Paper: Garg and Ramakrishnan 2020, "BAE: BERT-based Adversarial Examples for Text Classification", section 3
        (replace, BAE-R, and insert, BAE-I; the 50 most likely tokens). Li et al. 2020, "BERT-ATTACK", section 3.2
        (reread; words of several tokens are masked here, where the paper combines sub-words). Li et al. 2021, "CLARE",
        section 2.2 (the least probabilities, and the merging of two words).
    Relations: Open in vocabulary, unlike a dictionary, and different at every position.
    Cost: One model pass for each content word, batched over the positions of all texts; repeated contexts are free.

    Args:
        model: Hub name or folder of a masked language model, such as "google-bert/bert-base-uncased".
        k: The most candidates of a word.
        window: Words on either side that the model reads.
        drop_antonyms: Leave out WordNet's antonyms of the word, which fit any context where the word does.
        batch_size: Masked texts a pass.
        least: The least probability of a word in the place of another; inserted words need none.
        least_merged: The least probability of a word in the place of two (`for_pairs`).
        edits: "replace" the word by what the model expects in its gap; "reread", by what it makes of the word itself,
            unmasked, where that is one token (BERT-Attack); or "insert" a word behind it: "good" becomes "good old".
            From the command line, joined by "|".

    Example:
        >>> MaskedLM(model="google-bert/bert-base-uncased", k=5).for_text(segment("a good film"))
    """

    name: ClassVar[str] = "masked-lm"

    model: str
    k: int = 50  # paper section 4
    window: int = 48
    drop_antonyms: bool = True
    batch_size: int = 32
    edits: Sequence[str] = ("replace",)
    least: float = 0.0
    least_merged: float = 0.0

    @staticmethod
    def unless_given(given: Substitutions | None, **settings: Any) -> Substitutions:
        """The set that was given, or a new one: in place of one that was made here, too, as `replace` gives it."""
        if given is not None and not getattr(given, "_made", False):
            return given
        made = MaskedLM(**settings)
        if given is not None and given == made:
            return given  # with its model, which is loaded already
        object.__setattr__(made, "_made", True)
        return made

    def __post_init__(self) -> None:
        edits = tuple(self.edits.split("|")) if isinstance(self.edits, str) else tuple(self.edits)
        object.__setattr__(self, "edits", edits)
        for edit in edits:
            if edit not in EDITS:
                raise UnshakenError(f"unknown edit {edit!r}; {nearest(edit, EDITS)}")
        if not edits or self.k < 1 or self.window < 1 or self.batch_size < 1:
            raise UnshakenError(f"{self}: k, window and batch_size are at least 1, and so are the edits")
        if not (0 <= self.least < 1 and 0 <= self.least_merged < 1):
            raise UnshakenError(f"{self}: the least probabilities are 0 or more, and below 1")

    @property
    def provenance(self) -> str:
        edits = "" if self.edits == ("replace",) else f", {' and '.join(self.edits)}"
        least = f", least={self.least}, least_merged={self.least_merged}" if self._least else ""
        settings = f"k={self.k}, window={self.window}, drop_antonyms={self.drop_antonyms}{edits}{least}"
        return f"masked LM {self.model} ({settings})"

    @property
    def _least(self) -> list[str]:
        return [str((self.least, self.least_merged))] if self.least or self.least_merged else []

    @cached_property
    def fingerprint(self) -> str:
        weights = weights_digest(self._loaded[0]).hexdigest()
        inserts = [] if self.edits == ("replace",) else list(self.edits)
        return content_hash([str((self.k, self.window, self.drop_antonyms)), weights, *inserts, *self._least])

    @cached_property
    def _loaded(self) -> tuple[Any, Any]:
        from unshaken.substitutions.pretrained import load_pretrained

        model, tokenizer = load_pretrained("AutoModelForMaskedLM", self.model)
        if tokenizer.mask_token is None:
            raise UnshakenError(f"{self.model!r} has no mask token, so it is no masked language model")
        return model, tokenizer

    @cached_property
    def _vocabulary(self) -> dict[int, str]:
        from unshaken.substitutions.pretrained import whole_words

        return {row: word for word, row in whole_words(self._loaded[1])}

    @cached_property
    def _token_of(self) -> dict[str, int]:
        return {word: row for row, word in self._vocabulary.items()}

    @cached_property
    def _known(self) -> dict[Gap, Expected]:
        return {}

    def candidates(self, words: Sequence[str], position: int) -> list[str]:
        return self._at([(words if isinstance(words, Words) else join(words), position)])[0]

    def for_text(self, words: Words) -> list[list[str]]:
        return self.for_texts([words])[0]

    def for_texts(self, texts: Sequence[Words]) -> list[list[list[str]]]:
        found = iter(self._at([(words, at) for words in texts for at in range(len(words))]))
        return [[next(found) for _ in range(len(words))] for words in texts]

    def _at(self, places: Sequence[tuple[Words, int]]) -> list[list[str]]:
        open_places = {place for place, (words, at) in enumerate(places) if _is_content(words[at])}
        masked = {
            (place, edit): self._masked(*places[place], edit) for place in sorted(open_places) for edit in self.edits
        }
        known = self._predicted(dict.fromkeys(masked.values()))
        return [
            [form for edit in self.edits for form in self._forms(words[at], edit, known[masked[place, edit]])]
            if place in open_places
            else []
            for place, (words, at) in enumerate(places)
        ]

    def for_pairs(self, pairs: Sequence[tuple[Words, int]]) -> list[list[str]]:
        """What the model expects in one gap in the place of both; one of the two words may be what stays."""
        masked = [self._masked(words, at, "merge") for words, at in pairs]
        known = self._predicted(dict.fromkeys(masked))
        return [
            [
                other
                for other, probability in known[gap]
                if probability >= self.least_merged and not self._is_antonym(other, *words[at : at + 2])
            ][: self.k]
            for gap, (words, at) in zip(masked, pairs, strict=True)
        ]

    def _predicted(self, gaps: Collection[Gap]) -> dict[Gap, Expected]:
        """What the model expects in each gap, most likely first."""
        with _PREDICTING:
            new = [gap for gap in gaps if gap not in self._known]
            if new and len(self._known) + len(new) > CACHED:
                self._known.clear()
                new = list(gaps)  # some may be among what is forgotten
            self._predict(new)
            return {gap: self._known[gap] for gap in gaps}

    def _forms(self, word: str, edit: str, expected: Expected) -> list[str]:
        least = 0.0 if edit == "insert" else self.least
        likely = (other for other, probability in expected if probability >= least)
        found = [other for other in likely if other.lower() != word.lower() and not self._is_antonym(other, word)]
        return [f"{word} {other}" if edit == "insert" else other for other in found[: self.k]]

    def _masked(self, words: Words, position: int, edit: str) -> Gap:
        start = max(0, position - self.window)
        part = words.part(start, position + self.window + 1)
        mask: str = self._loaded[1].mask_token
        word = words[position]
        seen = self._token_of.get(word, self._token_of.get(word.lower())) if edit == "reread" else None
        forms = {position - start: f"{word} {mask}" if edit == "insert" else mask}
        if edit == "merge":
            forms[position - start + 1] = ""
        return Gap(part.replace(forms, carry_case=False), seen)

    def _predict(self, gaps: Sequence[Gap]) -> None:
        import torch

        from unshaken.attention import attention_for_any_shape
        from unshaken.substitutions.pretrained import batches

        model, tokenizer = self._loaded
        whole = torch.zeros(model.config.vocab_size, dtype=torch.bool)
        whole[[row for row in self._vocabulary if row < len(whole)]] = True
        many = min(self.k + 16, int(whole.sum()))  # some are dropped as the word itself or its antonyms
        with torch.no_grad():
            for rows, inputs in batches(model, tokenizer, [gap.text for gap in gaps], self.batch_size):
                each = torch.arange(len(rows), device=model.device)
                place = (inputs["input_ids"] == tokenizer.mask_token_id).int().argmax(1)
                seen = [tokenizer.mask_token_id if gaps[row].seen is None else gaps[row].seen for row in rows]
                inputs["input_ids"][each, place] = torch.tensor(seen, device=model.device)
                with attention_for_any_shape(model.device):
                    logits = model(**inputs).logits.float()  # (batch, seq, vocabulary)
                at_gap = logits[each, place]
                found = at_gap.masked_fill(~whole.to(logits.device), -torch.inf).topk(many)
                chances = (found.values - at_gap.logsumexp(1, keepdim=True)).exp()
                for row, ids, likely in zip(rows, found.indices.tolist(), chances.tolist(), strict=True):
                    self._known[gaps[row]] = [
                        (self._vocabulary[token], p) for token, p in zip(ids, likely, strict=True)
                    ]

    def _is_antonym(self, other: str, *words: str) -> bool:
        return self.drop_antonyms and any(wordnet_table().are_antonyms(word, other) for word in words)


def _is_content(word: str) -> bool:
    return word[:1].isalpha() and not is_function_word(word)
