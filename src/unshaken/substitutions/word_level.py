"""RIFT's official tokenisation: every word is one id, or unknown. For comparison with the paper only."""

from __future__ import annotations

import copy
from typing import Any

from tokenizers import Regex, Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from unshaken.errors import UnshakenError

# Treebank-like words, as the official code has them from nltk: contractions are cut before their n't or 's.
_WORDS = r"\w+(?=n't\b)|n't\b|'(?:s|m|d|ll|re|ve)\b|\w+(?:-\w+)*|[^\w\s]"


def word_level(tokenizer: Any) -> Any:
    """A copy of a WordPiece tokenizer that never splits a word: what is no whole vocabulary entry becomes [UNK].

    Give it to the trainer in the place of the model's own tokenizer. It is saved with the model, so attacks and reports
    use it too and the two tokenisations are never mixed. Clean accuracy falls (the paper's Table 4: IMDB about 78%)
    because the model no longer reads rare words; numbers are comparable with the paper's, not with other runs.

    Example:
        >>> tokenizer = word_level(AutoTokenizer.from_pretrained("bert-base-uncased"))
        >>> tokenizer.tokenize("an unbelievability")
        ['an', '[UNK]']
    """
    backend: Tokenizer | None = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None or not isinstance(backend.model, models.WordPiece):
        raise UnshakenError(
            f"{type(tokenizer).__name__} is no fast WordPiece tokenizer; RIFT's word-level tokenisation is defined "
            "here for BERT vocabularies only (its RoBERTa form keeps first sub-pieces and loses the alignment)"
        )
    whole = copy.deepcopy(backend)
    whole.model = models.WordLevel(backend.get_vocab(with_added_tokens=False), unk_token=tokenizer.unk_token)
    whole.pre_tokenizer = pre_tokenizers.Sequence(
        # The pattern passes over white space only, which the second split removes.
        [pre_tokenizers.Split(Regex(_WORDS), behavior="isolated"), pre_tokenizers.WhitespaceSplit()]
    )
    # Not BERT's own class: that one would build WordPiece again when the folder is loaded.
    return PreTrainedTokenizerFast(
        tokenizer_object=whole,
        model_max_length=tokenizer.model_max_length,
        model_input_names=tokenizer.model_input_names,
        **tokenizer.special_tokens_map,
    )
