"""Words as tokens of their own, in any tokenizer that a `tokenizer.json` can hold.

The words are added tokens. An added token whose text stands in the vocabulary already would take the id from there,
and that piece is also the beginning of longer words; so the text of ours ends in a character of a private plane, which
the normalizer removes again before texts are searched.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Sequence
from typing import Any

import torch
from tokenizers import AddedToken, Tokenizer, normalizers
from torch import Tensor

from unshaken.errors import UnshakenError
from unshaken.pretrained import load
from unshaken.substitutions import match_case, segment

MARK = "\U000f5b00"


def backend_of(tokenizer: Any) -> Tokenizer:
    """A copy of the Rust part, without padding and truncation."""
    if not getattr(tokenizer, "is_fast", False):
        raise UnshakenError(
            f"{type(tokenizer).__name__} is a slow tokenizer; smoothing adds words to a fast one: load it with "
            "AutoTokenizer.from_pretrained"
        )
    backend = Tokenizer.from_str(tokenizer.backend_tokenizer.to_str())
    backend.no_truncation()
    backend.no_padding()
    return backend


def folding(tokenizer: Any) -> Callable[[str], str | None]:
    """The node of a word: as the tokenizer reads it, in lower case. None for what is no single word to it."""
    normalizer = backend_of(tokenizer).normalizer

    def fold(word: str) -> str | None:
        if segment(word).surfaces != (word,):
            return None
        read = _read(normalizer, word).lower()
        return read if read and segment(read).surfaces == (read,) else None

    return fold


def add_words(tokenizer: Any, words: Sequence[str]) -> tuple[Any, Tensor]:
    """A tokenizer in which each word is one token, and the word of each added token. -> (tokens,)

    Case variants of a word are tokens of their own where the tokenizer tells them apart, and share the word.
    """
    backend = backend_of(tokenizer)
    plain = backend.normalizer
    if plain is None or plain.normalize_str(f"a{MARK}") != plain.normalize_str("a"):
        removed = normalizers.Replace(MARK, "")
        backend.normalizer = removed if plain is None else normalizers.Sequence([removed, plain])
    _begin_words_at_the_start_only(backend)
    strips = blanks_are_pieces(backend)
    forms: dict[str, tuple[str, int]] = {}  # as the tokenizer reads it -> word
    for number, word in enumerate(words):
        for form in (word, match_case("Ab", word), match_case("AB", word)):
            forms.setdefault(_read(plain, form), (form, number))
    contents = [form + MARK for form, _ in forms.values()]
    before = backend.get_vocab_size(with_added_tokens=True)
    backend.add_tokens([AddedToken(content, single_word=True, normalized=True, lstrip=strips) for content in contents])
    ids = [backend.token_to_id(content) for content in contents]
    if ids != list(range(before, before + len(ids))):
        raise UnshakenError("the tokenizer numbers added words in a way that smoothing does not know; please report it")
    inside = backend.encode_batch([f"a {word} a" for word in words[:100]], add_special_tokens=False)
    if words and {token for text in inside for token in text.ids}.isdisjoint(ids):
        raise UnshakenError(
            f"{type(tokenizer).__name__} still reads {words[0]!r} in pieces inside a text, where smoothing would do "
            "nothing: its normalizer marks where words begin, as Llama's does; take one whose pre-tokenizer marks it"
        )
    return rewrapped(tokenizer, backend), torch.tensor([number for _, number in forms.values()])


def require_loaded_as_saved(tokenizer: Any, config: Any, word: str) -> None:
    """Refuse models beside which transformers loads no tokenizer as it was saved, but builds parts of it again."""
    if not type(config).__module__.startswith("transformers."):
        return  # it may bring code of its own, which is not run unasked
    longer, _ = add_words(tokenizer, [word])
    with tempfile.TemporaryDirectory() as folder:
        config.save_pretrained(folder)
        longer.save_pretrained(folder)
        loaded = load("AutoTokenizer", folder)
    text = f"a {word} a"
    if loaded(text)["input_ids"] != longer(text)["input_ids"]:
        raise UnshakenError(
            f"beside a model of the kind {config.model_type} transformers builds {type(loaded).__name__} again, "
            "whatever was saved, so that the saved model would not be smoothed; take another kind, such as BERT"
        )


def word_starts(tokenizer: Any) -> str | None:
    """Where SentencePiece marks the beginning of a word ("always", "first"); None in a tokenizer that does not."""
    return getattr(tokenizer.backend_tokenizer.pre_tokenizer, "prepend_scheme", None)


def remove_words(tokenizer: Any, starts: str | None = None) -> Any:
    """The tokenizer without the words that `add_words` added, and with the `word_starts` that it had before."""
    parts = json.loads(tokenizer.backend_tokenizer.to_str())
    parts["added_tokens"] = [token for token in parts["added_tokens"] if not token["content"].endswith(MARK)]
    normalizer = parts["normalizer"] or {}
    own = {"type": "Replace", "pattern": {"String": MARK}, "content": ""}
    if normalizer == own:
        parts["normalizer"] = None
    elif normalizer.get("type") == "Sequence" and normalizer["normalizers"][:1] == [own]:
        parts["normalizer"] = {**normalizer, "normalizers": normalizer["normalizers"][1:]}  # ours is flat with the rest
    if starts is not None:
        parts["pre_tokenizer"]["prepend_scheme"] = starts
    return rewrapped(tokenizer, Tokenizer.from_str(json.dumps(parts)))


def blanks_are_pieces(backend: Tokenizer) -> bool:
    """Whether a blank that is left over beside an added token would become a token of its own."""
    return len(backend.encode("a ", add_special_tokens=False)) > len(backend.encode("a", add_special_tokens=False))


def rewrapped(tokenizer: Any, backend: Tokenizer) -> Any:
    """A tokenizer of the general class: a model's own class would build its normalizer again when it is loaded."""
    from transformers import PreTrainedTokenizerFast

    return PreTrainedTokenizerFast(
        tokenizer_object=backend,
        model_max_length=tokenizer.model_max_length,
        model_input_names=tokenizer.model_input_names,
        padding_side=tokenizer.padding_side,
        truncation_side=tokenizer.truncation_side,
        **tokenizer.special_tokens_map,
    )


def _read(normalizer: Any, word: str) -> str:
    return word if normalizer is None else str(normalizer.normalize_str(word)).strip(" ▁")


def _begin_words_at_the_start_only(backend: Tokenizer) -> None:
    """SentencePiece marks where a word begins, and would mark a comma after an added token as a word, too."""
    parts = json.loads(backend.to_str())["pre_tokenizer"] or {}
    if parts.get("type") == "Metaspace" and parts.get("prepend_scheme") == "always":
        backend.pre_tokenizer.prepend_scheme = "first"
