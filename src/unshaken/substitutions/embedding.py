"""Nearest neighbours in a space of word vectors: a file of them, or the input embeddings of a model."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from pathlib import Path
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from unshaken.errors import UnshakenError
from unshaken.substitutions.base import Substitutions, content_hash
from unshaken.substitutions.wordnet import table as wordnet_table
from unshaken.substitutions.words import Words

_WORD = re.compile(r"[^\W\d_]+(?:['’-][^\W\d_]+)*")
_BATCH = 256  # words a product with the whole table
_MARGIN = 24  # neighbours looked at beyond k, for those that a filter drops


@dataclass(frozen=True, kw_only=True)
class WordVectors:
    """Unit vectors of words."""

    words: tuple[str, ...]
    unit: NDArray[np.float32] = field(repr=False)  # (words, dimensions)

    @cached_property
    def row(self) -> dict[str, int]:
        return {word: row for row, word in enumerate(self.words)}

    @cached_property
    def content(self) -> str:
        digest = hashlib.sha256("\n".join(self.words).encode("utf-8", "surrogatepass"))
        digest.update(np.ascontiguousarray(self.unit).tobytes())
        return digest.hexdigest()


@dataclass(frozen=True, kw_only=True)
class EmbeddingNeighbours(Substitutions):
    """The words whose vectors are nearest by cosine, less WordNet's antonyms.

    Distributional vectors put "good" beside "bad"; counter-fitted ones do not. Dropping antonyms removes the worst of
    that, not all of it: prefer counter-fitted vectors where you have them.

    Paper: Jin et al. 2020, section 3 step 2 (50 counter-fitted neighbours; cosine of at least 0.7 in the paper, 0.5 in
        the official code). Alzantot et al. 2018 take 8.
    Cost: One product of the text's new words with the whole table; every word is looked up once per process.

    Args:
        vectors: A text file of word vectors (GloVe or word2vec), one word a line.
        model: Hub name or folder of a model, whose input embeddings of whole words are the vectors. Give one of both.
        k: The most neighbours of a word.
        threshold: The least cosine similarity.
        drop_antonyms: Leave out WordNet's antonyms of the word.

    Example:
        >>> EmbeddingNeighbours(vectors="counter-fitted-vectors.txt", k=8).candidates(["film"], 0)
    """

    name: ClassVar[str] = "embedding"

    vectors: str | None = None
    model: str | None = None
    k: int = 50  # Jin et al. 2020, section 3
    threshold: float = 0.5  # official code; 0.7 in the paper
    drop_antonyms: bool = True

    def __post_init__(self) -> None:
        if (self.vectors is None) == (self.model is None):
            raise UnshakenError("embedding neighbours need either vectors=FILE or model=NAME, and not both")
        if self.k < 1 or not -1 <= self.threshold <= 1:
            raise UnshakenError(
                f"embedding neighbours: k={self.k} is at least 1, threshold={self.threshold} in [-1, 1]"
            )

    @property
    def provenance(self) -> str:
        source = Path(self.vectors).name if self.vectors is not None else f"input embeddings of {self.model}"
        return f"{source} (k={self.k}, threshold={self.threshold}, drop_antonyms={self.drop_antonyms})"

    @property
    def fingerprint(self) -> str:
        return content_hash([str((self.k, self.threshold, self.drop_antonyms)), self._table.content])

    @cached_property
    def _table(self) -> WordVectors:
        if self.vectors is not None:
            return read_vectors(self.vectors)
        assert self.model is not None
        return model_vectors(self.model)

    @cached_property
    def _known(self) -> dict[str, tuple[str, ...]]:
        return {}

    def vocabulary(self) -> list[str]:
        return list(self._table.words)

    def candidates(self, words: Sequence[str], position: int) -> list[str]:
        return self._look_up([words[position]])[0]

    def for_text(self, words: Words) -> list[list[str]]:
        return self._look_up(words.surfaces)

    def for_choices(self, choices: Sequence[Sequence[str]], position: int) -> list[list[str]]:
        return self._look_up(choices[position])

    def _look_up(self, words: Sequence[str]) -> list[list[str]]:
        rows = self._table.row
        keys = [word if word in rows else word.lower() for word in words]
        new = [key for key in dict.fromkeys(keys) if key in rows and key not in self._known]
        for start in range(0, len(new), _BATCH):
            self._known.update(self._neighbours(new[start : start + _BATCH]))
        return [
            [found for found in self._known.get(key, ()) if found.lower() != word.lower()]
            for key, word in zip(keys, words, strict=True)
        ]

    def _neighbours(self, words: Sequence[str]) -> Iterator[tuple[str, tuple[str, ...]]]:
        vectors = self._table
        cosines = vectors.unit[[vectors.row[word] for word in words]] @ vectors.unit.T  # (words, table)
        many = min(self.k + _MARGIN, len(vectors.words))
        nearest = np.argpartition(-cosines, many - 1, axis=1)[:, :many]
        for word, columns, of_word in zip(words, nearest, cosines, strict=True):
            # Rounded, with ties by name: a product's last bits depend on the batch, an order must not.
            ranked = sorted((-round(float(of_word[column]), 5), vectors.words[column]) for column in columns)
            kept = [other for cosine, other in ranked if -cosine >= self.threshold and self._is_allowed(word, other)]
            yield word, tuple(kept[: self.k])

    def _is_allowed(self, word: str, other: str) -> bool:
        if other.lower() == word.lower():
            return False
        return not (self.drop_antonyms and wordnet_table().are_antonyms(word, other))


@lru_cache(maxsize=2)
def read_vectors(path: str) -> WordVectors:
    """Read a text file of word vectors: `word 0.1 0.2 ...`, with or without word2vec's first line of two numbers."""
    words: list[str] = []
    rows: list[NDArray[np.float32]] = []
    dimensions = 0
    try:
        with open(path, encoding="utf-8", errors="replace") as stream:
            for number, line in enumerate(stream, start=1):
                fields = line.rstrip().split(" ")
                if number == 1 and len(fields) == 2 and all(field.isdigit() for field in fields):
                    continue
                dimensions = dimensions or len(fields) - 1
                # A few files have words with spaces in them, so the numbers are counted from the right.
                word = " ".join(fields[:-dimensions]) if dimensions else ""
                try:
                    with np.errstate(over="ignore"):  # infinity is refused below
                        vector = np.array(fields[-dimensions:], dtype=np.float32)
                except ValueError:
                    vector = np.empty(0, np.float32)
                if not word or len(vector) != dimensions or not np.isfinite(vector).all():
                    raise UnshakenError(f"{path}, line {number}: not a word and {dimensions or 'its'} numbers")
                words.append(word)
                rows.append(vector)
    except FileNotFoundError:
        raise UnshakenError(f"no such file: {path}") from None
    return _unit_vectors(words, np.array(rows, np.float32), path)


@lru_cache(maxsize=2)
def model_vectors(name: str) -> WordVectors:
    """The input embeddings of the words that a model's tokenizer reads in one piece."""
    from unshaken.substitutions.pretrained import load_pretrained, words_as_read

    model, tokenizer = load_pretrained("AutoModel", name)
    weights = model.get_input_embeddings().weight.detach().float().cpu().numpy()
    pairs = [(word, weights[row]) for word, row in words_as_read(tokenizer) if row < len(weights)]
    return _unit_vectors([word for word, _ in pairs], np.array([row for _, row in pairs], np.float32), name)


def _unit_vectors(words: Sequence[str], rows: NDArray[np.float32], source: str) -> WordVectors:
    norms = np.linalg.norm(rows.astype(np.float64), axis=1) if len(rows) else np.empty(0)
    keep: dict[str, int] = {}
    for row, word in enumerate(words):
        if _WORD.fullmatch(word) and norms[row] > 0:
            keep.setdefault(word, row)
    if len(keep) < 2:
        raise UnshakenError(f"{source}: fewer than two words with a vector")
    chosen = list(keep.values())
    return WordVectors(words=tuple(keep), unit=(rows[chosen] / norms[chosen, None]).astype(np.float32))
