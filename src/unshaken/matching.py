"""Whether a tokenizer is a model's own: what it would write has to be what the model was trained to read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from unshaken.errors import UnshakenError

FEWEST = 0.5  # of the words a model knows, in its tokenizer: less is another model's, or none at all
WRITTEN = ("bos_token_id", "cls_token_id", "eos_token_id", "pad_token_id", "sep_token_id", "unk_token_id")
CURE = (
    "give the model its own tokenizer; if you added tokens to it, call model.resize_token_embeddings(len(tokenizer)) "
    "and train the model on them"
)


def table_rows(model: Any) -> int | None:
    """How many tokens a model has an embedding for; None if it does not look them up in one table."""
    try:
        table = model.get_input_embeddings()
    except (AttributeError, NotImplementedError):
        return None
    if hasattr(table, "num_embeddings"):
        return int(table.num_embeddings)
    # I-BERT's table does not say how many rows it has; a quantized one may hold them in another shape.
    return len(table.weight) if hasattr(table, "weight") else None


def check_tokenizer(tokenizer: Any, model: Any, name: str | Path) -> None:
    """Refuse a tokenizer that cannot be the model's: without its files transformers makes up one of five words."""
    known = getattr(model.config, "vocab_size", None)
    if isinstance(known, int) and len(tokenizer) < FEWEST * known:
        raise UnshakenError(
            f"the tokenizer of {str(name)!r} has {len(tokenizer):,} words, its model {known:,}: the folder lacks the "
            "tokenizer's files (tokenizer.json, vocab.txt or the like); save the tokenizer into it"
        )


def check_padding(tokenizer: Any, model: Any, name: str | Path) -> None:
    """Refuse padding that the model has no embedding for, or that it would read for the end of a text."""
    if getattr(model.config, "summary_type", None) == "last":  # XLNet's: the others find the last token themselves
        raise UnshakenError(
            f"{name} answers by the last place of a row, which is padding where texts share a pass: its answers would "
            "depend on the texts beside a text; use another encoder"
        )
    size = table_rows(model)
    if size is None:
        raise UnshakenError(f"{name} looks its tokens up in no table of embeddings; use another encoder")
    if tokenizer.pad_token_id is not None and not 0 <= tokenizer.pad_token_id < size:
        raise UnshakenError(
            f"the padding token {tokenizer.pad_token!r} of {name} is number {tokenizer.pad_token_id}, and the model "
            f"knows {size} tokens; name one of those as pad_token in tokenizer_config.json"
        )


def check_vocabulary(tokenizer: Any, model: Any, name: str | Path = "") -> None:
    """Refuse a tokenizer with numbers beyond the model's table, which torch would only tell of at a text with one.

    Special tokens that no text gets may lie beyond: published models have such, for images. `check_tokens` refuses the
    text that spells one out.
    """
    size = table_rows(model)
    if size is None or not hasattr(tokenizer, "get_vocab"):
        return
    added = getattr(tokenizer, "added_tokens_decoder", {})
    written = {getattr(tokenizer, key, None) for key in WRITTEN}
    beyond = {
        number: token
        for token, number in tokenizer.get_vocab().items()
        if number >= size and (number in written or number not in added or not added[number].special)
    }
    if beyond:
        last = max(beyond)
        name = name or getattr(model.config, "_name_or_path", "") or type(model).__name__
        raise UnshakenError(
            f"the tokenizer of {str(name)!r} has {len(tokenizer):,} tokens, with numbers from 0 to {last:,} "
            f"({beyond[last]!r}), and the model's embedding table {size:,} rows: {CURE}"
        )


def check_tokens(largest: int, size: int | None, tokenizer: Any) -> None:
    """Refuse a batch whose largest token has no row in a table of that size: on a GPU it would end the process."""
    if size is not None and largest >= size:
        raise UnshakenError(
            f"a text holds {tokenizer.convert_ids_to_tokens(largest)!r}, which is token {largest:,}, and the model's "
            f"embedding table has {size:,} rows: take it out of the text, or {CURE}"
        )
