"""`smooth`, `unsmooth` and `settle`: a model and its tokenizer with a smoothed vocabulary, and back."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from unshaken.errors import IncompatibleModelError, UnshakenError
from unshaken.examples import Examples
from unshaken.readers import Readers
from unshaken.smoothing.embedding import SmoothedEmbedding
from unshaken.smoothing.graph import WordGraph
from unshaken.smoothing.smoothing import Smoothing
from unshaken.smoothing.tokens import (
    add_words,
    backend_of,
    blanks_are_pieces,
    folding,
    remove_words,
    require_loaded_as_saved,
    word_starts,
)

STARTS = "word_starts"  # in the configuration: what the tokenizer had, where `smooth` changed it


def smooth(
    model: Any,
    tokenizer: Any,
    smoothing: Smoothing,
    *,
    texts: Examples | Iterable[str] = (),
    reader: Readers | None = None,
) -> tuple[Any, Any]:
    """Give every word of the substitution sets one token that reads the mean over its neighbours.

    The model is changed in place; the tokenizer is a new one. What the model read at a word, the mean of its pieces'
    vectors, is where training starts. Train it with any defence; `RobustTrainer.save_model` (or `settle`) leaves an
    ordinary checkpoint that plain transformers loads.

    Args:
        model: A Hugging Face classifier, connected or not.
        tokenizer: Its fast tokenizer.
        smoothing: Which words, and how far.
        texts: Training texts, whose words come first where the sets have more than `smoothing.most_words`.
        reader: What reads texts before this model; needed to smooth over typing errors.

    Example:
        >>> model, tokenizer = unshaken.smooth(model, tokenizer, Smoothing(substitutions=WordNet(limit=8)), texts=train)
    """
    if smoothing_of(model) is not None:
        raise UnshakenError(f"{type(model).__name__} is smoothed already: unsmooth(model, tokenizer) first")
    table: Any = _table(model)
    raw = (text for row in texts for text in row.texts) if isinstance(texts, Examples) else texts
    graph = WordGraph.build(
        smoothing.read_by(reader), texts=raw, fold=folding(tokenizer), most_words=smoothing.most_words
    )
    kernel = graph.kernel(smoothing.hops)  # what is too large is refused before anything changes
    require_loaded_as_saved(tokenizer, model.config, graph.words[0])
    longer, words = add_words(tokenizer, graph.words)
    first = len(longer) - len(words)
    if table.num_embeddings < first:
        raise UnshakenError(f"the tokenizer has {first} tokens and the model {table.num_embeddings}: not its own one")
    theta = _mean_of_pieces(table.weight, _pieces(tokenizer, graph.words))
    if table.num_embeddings > first:  # rows that only round the table up to a multiple of eight or so
        table.weight = nn.Parameter(table.weight.detach()[:first].clone(), table.weight.requires_grad)
    table.__class__ = SmoothedEmbedding
    table.theta = nn.Parameter(theta, table.weight.requires_grad)
    table.first, table.kernel, table.words = first, kernel, words
    table.graph, table.spelt = graph.edges, graph.spelt(smoothing.hops)
    model.config.vocab_size = table.num_embeddings = len(longer)
    model.config.smoothing = {**smoothing.to_dict(), "words": len(graph.words), "first": first}
    if (starts := word_starts(tokenizer)) != word_starts(longer):
        model.config.smoothing[STARTS] = starts
    return model, longer


def settle(model: Any) -> Any:
    """Write E' into ordinary rows, in place: a stock model, whose smoothed words are trained apart from now on."""
    table = _smoothed(model)
    rows = table.table()
    _forget(table)
    table.weight = nn.Parameter(rows, table.weight.requires_grad)
    return model


def unsmooth(model: Any, tokenizer: Any) -> tuple[Any, Any]:
    """Undo `smooth`, also in a model that was saved and loaded: the pieces read what they read in training."""
    known = smoothing_of(model)
    if known is None:
        raise UnshakenError(f"{type(model).__name__} is not smoothed")
    table = model.get_input_embeddings()
    if isinstance(table, SmoothedEmbedding):
        _forget(table)
    table.weight = nn.Parameter(table.weight.detach()[: known["first"]].clone(), table.weight.requires_grad)
    model.config.vocab_size = table.num_embeddings = known["first"]
    del model.config.smoothing
    return model, remove_words(tokenizer, known.get(STARTS))


def smoothing_of(model: Any) -> dict[str, Any] | None:
    """What a model's vocabulary was smoothed over: sets with hashes, hops, number of words. None for a plain one."""
    return getattr(getattr(model, "config", None), "smoothing", None)


@contextlib.contextmanager
def settled_on_save(model: nn.Module) -> Iterator[None]:
    """While it is open, the model's state is that of an ordinary model, without Theta and the graph."""
    tables = [module for module in model.modules() if isinstance(module, SmoothedEmbedding)]
    for table in tables:
        table.settled_in_state = True
    try:
        yield
    finally:
        for table in tables:
            table.settled_in_state = False


def _table(model: Any) -> nn.Embedding:
    try:
        table: nn.Embedding = model.get_input_embeddings()
    except (AttributeError, NotImplementedError):
        table = None  # type: ignore[assignment]
    problems = []
    if type(table) is not nn.Embedding:
        reason = f"its token embeddings are {type(table).__name__}, which may do more than look rows up"
        problems.append((reason, "take a model whose table is torch's own nn.Embedding"))
    elif table.max_norm is not None or table.scale_grad_by_freq:
        problems.append(("max_norm or scale_grad_by_freq of its token table does more than look rows up", "unset it"))
    elif sum(getattr(module, "weight", None) is table.weight for module in model.modules()) > 1:
        problems.append(("another part of it shares its token table", "take an encoder such as BERT or RoBERTa"))
    if problems:
        raise IncompatibleModelError(type(model).__name__, problems)
    return table


def _smoothed(model: Any) -> SmoothedEmbedding:
    table = model.get_input_embeddings()
    if not isinstance(table, SmoothedEmbedding):
        raise UnshakenError(f"{type(model).__name__} has no smoothed vocabulary (or it is settled already)")
    return table


def _forget(table: SmoothedEmbedding) -> None:
    for name in ("theta", "first", "kernel", "graph", "spelt", "words"):
        delattr(table, name)
    table.__dict__.pop("_spans", None)  # there if anything was embedded
    table.__class__ = nn.Embedding  # type: ignore[assignment]


def _pieces(tokenizer: Any, words: Sequence[str]) -> list[list[int]]:
    """The tokens of each word inside a text, in the tokenizer as it was."""
    backend = backend_of(tokenizer)
    before = " " if blanks_are_pieces(backend) else ""
    return [own.ids for own in backend.encode_batch([before + word for word in words], add_special_tokens=False)]


def _mean_of_pieces(weight: Tensor, pieces: Sequence[Sequence[int]]) -> Tensor:
    flat = torch.tensor([token for own in pieces for token in own], device=weight.device)
    starts = torch.tensor([0, *(len(own) for own in pieces[:-1])], device=weight.device).cumsum(0)
    with torch.no_grad():
        return torch.nn.functional.embedding_bag(flat, weight, starts, mode="mean")
