"""Texts side by side: the same predictions and gradients from fewer rows, and nothing that leaks from text to text."""

from __future__ import annotations

import contextlib
import copy
import functools
import io
from types import FunctionType, MethodType
from typing import Any

import numpy as np
import pytest
import torch
from backbones import BACKBONES, PAD, VOCABULARY, tiny_model
from hypothesis import given
from hypothesis import strategies as st
from test_trainer import arguments, network, tokenizer, weights
from torch import Tensor
from torch.nn.modules.module import register_module_forward_hook
from transformers import (
    AutoModelForSequenceClassification,
    AutoTokenizer,
    BertForSequenceClassification,
    BertForTokenClassification,
    TrainerCallback,
)
from transformers.models.bert.modeling_bert import BertLayer, BertPooler
from uneven import NEIGHBOURS, uneven

from unshaken import Connection, RobustTrainer, connect
from unshaken.defences import parse
from unshaken.embedded import minilm_path
from unshaken.packing import Arrangement, Packed, can_pack, fitted, packed
from unshaken.replays import Replays
from unshaken.substitutions.dictionary import Dictionary
from unshaken.substitutions.hull import Hull
from unshaken.substitutions.hull_search import HullSearch
from unshaken.word_gradients import are_all_wanted, word_gradients

__all__ = ["tokenizer"]  # the fixture

OTHERS = ("mpnet", "deberta-v2")
PACKABLE = [kind for kind in BACKBONES if kind not in OTHERS]


def tiny(kind: str, attention: str = "sdpa") -> Any:
    model = tiny_model(kind, num_labels=2, dropout=0.0).eval()
    if kind in PACKABLE:
        model.set_attn_implementation(attention)
    return model


def batch(lengths: tuple[int, ...] = (3, 12, 4, 2, 5, 3, 9, 1), width: int = 14, left: bool = False) -> dict[str, Any]:
    """Random ids, padded to more than the longest, and labels."""
    ids = torch.randint(PAD + 1, VOCABULARY, (len(lengths), width), generator=torch.Generator().manual_seed(1))
    at = torch.arange(width)[None]
    size = torch.tensor(lengths)[:, None]
    real = at >= width - size if left else at < size
    labels = torch.arange(len(lengths)) % 2
    return {"input_ids": torch.where(real, ids, PAD), "attention_mask": real.long(), "labels": labels}


def stack_of(model: Any) -> Any:
    return getattr(model.base_model, "encoder", None) or model.base_model.transformer


def watch(model: Any) -> list[tuple[int, int]]:
    """The rows and widths that the layers are given."""
    stack, seen = stack_of(model), []
    own = stack.forward

    def forward(*args: Any, **kwargs: Any) -> Any:
        seen.append(tuple((args[0] if args else kwargs["hidden_states"]).shape[:2]))
        return own(*args, **kwargs)

    stack.forward = trusted(forward)
    return seen


def trusted(function: Any) -> Any:
    """As if it were ours: layers that a stranger looks into run padded."""
    return FunctionType(function.__code__, {**globals(), "__name__": "unshaken.tests"}, closure=function.__closure__)


def answered(model: Any, inputs: dict[str, Tensor], **options: Any) -> tuple[Any, dict[str, Tensor]]:
    model.zero_grad()
    output = model(**inputs, output_hidden_states=True, **options)
    output.loss.backward()
    return output, {name: weight.grad.clone() for name, weight in model.named_parameters() if weight.grad is not None}


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
@pytest.mark.parametrize("kind", PACKABLE)
def test_predictions_states_and_all_gradients_are_those_of_the_padded_batch(kind: str, attention: str) -> None:
    model, inputs = tiny(kind, attention), batch()
    expected, slopes = answered(model, inputs)
    rows = watch(model)
    with packed(model):
        found, own = answered(model, inputs)
    assert rows == [(3, 16)]  # 39 tokens of 112 places, in three rows as wide as the longest, to a multiple of 8
    torch.testing.assert_close(found.logits, expected.logits, rtol=0, atol=1e-12)
    assert slopes.keys() == own.keys()
    for name, slope in slopes.items():
        torch.testing.assert_close(own[name], slope, rtol=1e-9, atol=1e-12, msg=name)
    real = inputs["attention_mask"].bool()
    assert len(found.hidden_states) == len(expected.hidden_states) == 3
    for state, other in zip(found.hidden_states, expected.hidden_states, strict=True):
        torch.testing.assert_close(state[real], other[real], rtol=0, atol=1e-12)
        assert state.shape == other.shape
        assert not state[~real].any() or torch.equal(state, other)  # the first one may be the embeddings as they are


@pytest.mark.parametrize("change", ["left", "hole", "embedded", "bool"])
def test_any_mask_and_embedded_texts_are_packed_alike(change: str) -> None:
    model, inputs = tiny("bert"), batch(left=change == "left")
    if change == "hole":
        inputs["attention_mask"][1, 4:7] = 0
    if change == "bool":
        inputs["attention_mask"] = inputs["attention_mask"].bool()
    if change == "embedded":
        vectors = model.get_input_embeddings()(inputs.pop("input_ids")).detach()
        inputs["inputs_embeds"] = vectors.requires_grad_()
    real = inputs["attention_mask"].bool()
    expected = model(**inputs, output_hidden_states=True)
    with packed(model):
        found = model(**inputs, output_hidden_states=True)
    torch.testing.assert_close(found.hidden_states[-1][real], expected.hidden_states[-1][real], rtol=0, atol=1e-12)
    torch.testing.assert_close(found.logits, expected.logits, rtol=0, atol=1e-12)  # also if the head reads padding
    if change == "embedded":
        slopes = [torch.autograd.grad(output.loss, vectors)[0] for output in (found, expected)]
        torch.testing.assert_close(*slopes, rtol=0, atol=1e-12)
        assert slopes[0][inputs["attention_mask"].bool()].abs().min() > 0


def test_what_stands_beside_a_text_changes_nothing_about_it() -> None:
    model, inputs = tiny("bert"), batch()
    other = {**inputs, "input_ids": inputs["input_ids"].clone()}
    other["input_ids"][1:, :] = torch.where(inputs["attention_mask"][1:].bool(), 7, PAD)
    with packed(model):
        before, after = model(**inputs).logits, model(**other).logits
    assert torch.equal(before[0], after[0])
    assert not torch.allclose(before[1:], after[1:])


def test_dropout_is_drawn_anew_for_every_text() -> None:
    torch.manual_seed(0)
    model = network(dropout=0.5).train()
    inputs = {name: values[:1].expand(8, -1) % 14 for name, values in batch((3,)).items() if name != "labels"}
    with packed(model):
        logits = model(**inputs).logits
    assert len({tuple(row) for row in logits.tolist()}) == 8


def test_a_mask_that_was_written_to_is_looked_at_again() -> None:
    model, inputs = tiny("bert"), batch()
    with packed(model):
        model(**inputs)
        inputs["attention_mask"][1, 6:] = 0
        found = model(**inputs).logits
    torch.testing.assert_close(found, model(**inputs).logits, rtol=0, atol=1e-12)


def test_one_arrangement_serves_all_passes_over_a_batch(monkeypatch: Any) -> None:
    made, of = [], Arrangement.of
    monkeypatch.setattr(Arrangement, "of", staticmethod(lambda *given: made.append(given) or of(*given)))
    model, inputs = tiny("bert"), batch()
    with packed(model):
        for _ in range(5):
            model(**inputs)
    assert len(made) == 1


def test_batches_of_one_shape_are_told_apart_and_few_are_remembered() -> None:
    model = tiny("bert")
    batches = [batch((12, *[length] * 7)) for length in (2, 3, 4, 5, 1, 6, 2, 4)]
    expected = [model(**inputs).logits for inputs in batches]
    with packed(model) as rows:
        for _ in range(2):
            for inputs, logits in zip(batches, expected, strict=True):
                torch.testing.assert_close(model(**inputs).logits, logits, rtol=0, atol=1e-12)
        assert len(rows._known) == 4


def test_a_batch_serves_passes_of_several_precisions_and_modes() -> None:
    """What is made of a mask in half precision, or where nothing is recorded, serves no pass of another kind."""
    model, inputs = tiny("bert").float(), batch()
    expected = model(**inputs)
    with packed(model):
        with torch.inference_mode():
            model(**inputs)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            model(**inputs)
        found = model(**inputs)
        found.loss.backward()
    torch.testing.assert_close(found.logits, expected.logits, rtol=0, atol=1e-6)


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
@pytest.mark.parametrize("lengths", [(12, 12, 0, 12), (12, 3, 0, 2, 4, 1)])
def test_a_text_without_tokens_is_answered_as_always(attention: str, lengths: tuple[int, ...]) -> None:
    model, inputs = tiny("bert", attention), batch(lengths, width=12)
    expected = model(**inputs).logits
    with packed(model):
        torch.testing.assert_close(model(**inputs).logits, expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("shape", [(0, 5), (3, 0), (0, 0)])
def test_a_batch_without_texts_is_left_to_the_model(shape: tuple[int, int]) -> None:
    assert Arrangement.of(np.zeros(shape, bool), torch.device("cpu")) is None


@pytest.mark.parametrize("lengths", [(12, 12, 12), (12, 11, 12, 12)])
def test_texts_that_fill_their_rows_stay_where_they_are(lengths: tuple[int, ...]) -> None:
    model, inputs = tiny("bert"), batch(lengths, width=12)
    expected, rows = model(**inputs).logits, watch(model)
    with packed(model):
        torch.testing.assert_close(model(**inputs).logits, expected, rtol=0, atol=1e-12)
    assert rows == [(len(lengths), 12)]


@pytest.mark.parametrize("asked", ["attentions", "attentions by configuration", "tuple", "no mask", "made mask"])
def test_what_is_asked_for_besides_comes_as_always(asked: str) -> None:
    model, inputs = tiny("bert", "eager"), batch()
    del inputs["labels"]
    model.config.output_attentions = asked == "attentions by configuration"
    options: dict[str, Any] = {"attentions": {"output_attentions": True}, "tuple": {"return_dict": False}}.get(
        asked, {}
    )
    if asked == "no mask":
        del inputs["attention_mask"]
    if asked == "made mask":
        hidden = inputs["attention_mask"] == 0
        inputs["attention_mask"] = torch.zeros(8, 1, 14, 14).double().masked_fill(hidden[:, None, None], -torch.inf)
    expected = model(**inputs, **options)
    with packed(model):
        found = model(**inputs, **options)
    torch.testing.assert_close(found[0], expected[0], rtol=0, atol=1e-12)
    assert type(found) is type(expected)
    if "attentions" in asked:
        assert [part.shape for part in found.attentions] == [part.shape for part in expected.attentions]


class MeanHead(BertForSequenceClassification):
    """Reads padding, as heads of one's own may."""

    def forward(self, input_ids: Any, attention_mask: Any, **_: Any) -> Any:
        return self.classifier(self.bert(input_ids, attention_mask=attention_mask).last_hidden_state.mean(1))


def unfit(kind: str) -> Any:
    if kind in OTHERS:
        return tiny(kind)
    model = tiny("bert")
    if kind == "connected":
        return connect(model, Connection())
    if kind == "own class":
        model.__class__ = MeanHead
    if kind == "own pooler":
        model.bert.pooler = OwnPooler()
    if kind == "other task":
        return BertForTokenClassification(model.config).eval()
    if kind == "decoder":
        model.config.is_decoder = True
    if kind == "relative":
        model.config.position_embedding_type = "relative_key"
    if kind == "other attention":
        model.config._attn_implementation_internal = "flash_attention_2"
    if kind.startswith("register"):
        getattr(model.bert.encoder.layer[0], kind)(lambda *_: None)
    if kind == "builtin hook":
        model.bert.encoder.layer[0].register_forward_hook([].append)  # which names no module
    if kind == "hook on the encoder":
        model.bert.register_forward_hook(lambda module, given, found: found)
    if kind == "patched pooler":
        model.bert.pooler.forward = lambda states: states.mean(1)
    if kind == "dressed patch":
        layer = model.bert.encoder.layer[0]
        layer.forward = functools.wraps(type(layer).forward)(lambda states, *_, **__: states + states.mean(1, True))
    if kind == "dressed by torch":
        model.bert.pooler.forward = torch.no_grad()(lambda states: states.mean(1))
    if kind == "hook dressed by torch":
        model.bert.encoder.layer[0].register_forward_hook(torch.autocast("cpu", enabled=False)(lambda *_: None))
    if kind == "patched chunk":
        layer = model.bert.encoder.layer[0]
        layer.feed_forward_chunk = MethodType(OwnFeedForward.feed_forward_chunk, layer)
    if kind == "patched model":
        model.forward = MethodType(MeanHead.forward, model)
    if kind == "pooling by torch":
        model.bert.pooler = torch.nn.Sequential(torch.nn.AdaptiveAvgPool2d((1, 16)), torch.nn.Flatten(1))
    if kind == "convolution":
        model.classifier = torch.nn.Conv1d(1, 1, 3)
    if kind == "attention of torch":
        model.bert.pooler = torch.nn.MultiheadAttention(16, 2)
    if kind == "layer of another family":
        model.bert.encoder.layer[0] = tiny("roberta").roberta.encoder.layer[0]
    if kind == "own feed-forward":
        model.bert.encoder.layer[0].__class__ = OwnFeedForward
    if kind == "chunks":
        model.config.chunk_size_feed_forward = 7
    if kind == "compiled layers":
        model.bert.encoder = torch.compile(model.bert.encoder)
    return model


class OwnFeedForward(BertLayer):
    def feed_forward_chunk(self, states: Tensor) -> Tensor:
        return super().feed_forward_chunk(states) + states.mean(1, keepdim=True)


class OwnPooler(torch.nn.Module):
    def forward(self, states: Tensor) -> Tensor:
        return states.mean(1)


KINDS = ["connected", "own class", "own pooler", "other task", "decoder", "relative", "other attention", "builtin hook"]
KINDS += ["hook on the encoder", "patched pooler", "dressed patch", "patched model", "pooling by torch", "convolution"]
KINDS += [
    "dressed by torch",
    "hook dressed by torch",
    "patched chunk",
    "attention of torch",
    "layer of another family",
    "own feed-forward",
    "chunks",
    "compiled layers",
]
HOOKS = ["forward_hook", "forward_pre_hook", "full_backward_hook", "full_backward_pre_hook"]


@pytest.mark.filterwarnings("ignore:.torch.jit.script:DeprecationWarning")  # transformers' DeBERTa-v2
@pytest.mark.parametrize("kind", [*OTHERS, *KINDS, *(f"register_{hook}" for hook in HOOKS)])
def test_models_whose_layers_or_heads_need_their_rows_run_as_always(kind: str) -> None:
    model = unfit(kind)
    assert can_pack(tiny("bert"))
    assert not can_pack(model)
    with packed(model):
        assert "forward" not in vars(model.base_model)


def test_a_class_that_was_patched_and_hooks_for_all_modules_run_as_always(monkeypatch: Any) -> None:
    model = tiny("bert")
    with monkeypatch.context() as patch:
        patch.setattr(BertPooler, "forward", lambda self, states: states.mean(1))
        assert not can_pack(model)
    with monkeypatch.context() as patch:
        patch.setattr(BertLayer, "feed_forward_chunk", lambda self, states: states.mean(1, keepdim=True))
        assert not can_pack(model)
    assert can_pack(model)
    hook = register_module_forward_hook(lambda *_: None)
    assert not can_pack(model)
    hook.remove()
    assert can_pack(model)


def test_who_looks_into_the_model_while_it_is_open_sees_padded_rows() -> None:
    """As a mixup of hidden states does, which hooks a layer for one pass."""
    model, inputs = tiny("bert"), batch()
    layer = model.bert.encoder.layer[0]

    def mixed() -> Tensor:
        hook = layer.register_forward_hook(lambda module, given, found: 0.7 * found + 0.3 * found.mean(1, keepdim=True))
        try:
            return model(**inputs).logits
        finally:
            hook.remove()

    expected, plain = mixed(), model(**inputs).logits
    assert not torch.allclose(expected, plain)
    rows = watch(model)
    with packed(model):
        torch.testing.assert_close(mixed(), expected, rtol=0, atol=1e-12)
        torch.testing.assert_close(model(**inputs).logits, plain, rtol=0, atol=1e-12)
        torch.testing.assert_close(mixed(), expected, rtol=0, atol=1e-12)
    assert rows == [(8, 14), (3, 16), (8, 14)]


def test_a_part_that_is_replaced_while_it_is_open_sees_padded_rows() -> None:
    model, inputs = tiny("bert"), batch()
    with packed(model):
        model.bert.pooler = OwnPooler()
        found = model(**inputs).logits
    torch.testing.assert_close(found, model(**inputs).logits, rtol=0, atol=1e-12)


def test_mixed_precision_dresses_the_model_and_hides_nobody(tmp_path: Any, tokenizer: Any) -> None:
    """Under bf16 the model's forward is a function of accelerate's around the one that was there."""
    for own, is_fit in ((False, True), (True, False)):
        trainer = plain_trainer(tmp_path, tokenizer, bf16=True, use_cpu=True)
        if own:
            trainer.model.forward = MethodType(MeanHead.forward, trainer.model)
        prepared = trainer.accelerator.prepare_model(trainer.model)
        assert "forward" in vars(prepared)
        assert can_pack(prepared) is is_fit


def test_a_copy_made_while_it_is_open_is_a_model_of_its_own() -> None:
    """As a teacher that a defence makes when it is first asked for its loss."""
    model, inputs = tiny("bert"), batch()
    with packed(model):
        copied = copy.deepcopy(model)
    expected = model(**inputs, output_hidden_states=True)
    found = copied(**inputs, output_hidden_states=True)
    rows = watch(copied)
    torch.testing.assert_close(copied(**inputs).logits, expected.logits, rtol=0, atol=1e-12)
    assert rows == [(8, 14)]
    for one, other in zip(found.hidden_states, expected.hidden_states, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-12)  # at padding, too
    with packed(copied):
        torch.testing.assert_close(copied(**inputs).logits, expected.logits, rtol=0, atol=1e-12)
    assert rows == [(8, 14), (3, 16)]


@pytest.mark.parametrize(("rows", "width"), [(1, 14), (4, 14), (8, 12)])
def test_a_mask_of_another_shape_is_refused_as_always(rows: int, width: int) -> None:
    model, inputs = tiny("bert"), batch()
    inputs["attention_mask"] = inputs["attention_mask"][:rows, :width]
    with packed(model), pytest.raises((RuntimeError, IndexError)):
        model(**inputs)


def test_masks_and_weights_of_other_precisions() -> None:
    model, inputs = tiny("bert"), batch()
    expected = model(**inputs).logits
    rows = watch(model)
    with packed(model):
        for kind in (torch.bfloat16, torch.float16, torch.bool):
            found = model(**{**inputs, "attention_mask": inputs["attention_mask"].to(kind)}).logits
            torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)
        with torch.autocast("cpu", dtype=torch.bfloat16):  # which leaves float64 as it is
            torch.testing.assert_close(model(**inputs).logits, expected, rtol=0, atol=1e-12)
    assert rows == [(3, 16)] * 4


def test_hooks_of_transformers_and_embeddings_of_ones_own_are_no_obstacle() -> None:
    model = tiny("bert")
    model(**batch(), output_hidden_states=True)  # leaves transformers' own hooks on the layers
    assert any(layer._forward_hooks for layer in model.bert.encoder.layer)

    class Own(torch.nn.Embedding):
        def forward(self, ids: Tensor) -> Tensor:
            return 2 * super().forward(ids)

    model.set_input_embeddings(Own(VOCABULARY, 16).double())
    assert can_pack(model)


def test_the_model_is_left_as_it_was_also_by_an_error() -> None:
    model, own = tiny("bert"), trusted(lambda *args, **kwargs: None)
    model.bert.encoder.forward = own
    with contextlib.suppress(ZeroDivisionError), packed(model):
        assert model.bert.encoder.forward is not own
        raise ZeroDivisionError
    assert model.bert.encoder.forward is own
    assert "forward" not in vars(model.bert)


def test_after_a_pass_that_failed_the_next_one_is_right() -> None:
    model, inputs = tiny("bert"), batch()
    mask = inputs.pop("attention_mask")
    expected = model(**inputs).logits
    with packed(model):
        with pytest.raises(IndexError):
            model(input_ids=inputs["input_ids"] + 1000, attention_mask=mask)
        # Without a mask of its own: the layers must not be left with the rows of the pass before.
        torch.testing.assert_close(model(**inputs).logits, expected, rtol=0, atol=1e-12)


def test_opening_it_twice_is_opening_it_once() -> None:
    model, inputs = tiny("bert"), batch()
    expected, rows = model(**inputs).logits, Packed(model)
    with rows.standing_in():
        with rows.standing_in():
            torch.testing.assert_close(model(**inputs).logits, expected, rtol=0, atol=1e-12)
        torch.testing.assert_close(model(**inputs).logits, expected, rtol=0, atol=1e-12)
        assert "forward" in vars(model.bert)
    assert "forward" not in vars(model.bert)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_autocast_computes_as_near_as_it_does_on_padded_rows(dtype: torch.dtype) -> None:
    model, inputs = tiny("bert").float(), batch()
    exact = model(**inputs).logits
    with torch.autocast("cpu", dtype=dtype):
        padded = model(**inputs).logits
        with packed(model):
            found = model(**inputs).logits
    assert (found - exact).abs().max() <= 2 * (padded - exact).abs().max() + 1e-3
    assert not torch.equal(found.float(), exact)


@given(st.lists(st.integers(0, 24), min_size=1, max_size=80))
def test_texts_fit_into_rows_and_never_overlap(lengths: list[int]) -> None:
    row, first, count = fitted(np.array(lengths), 24)
    taken = {(row[text], first[text] + place) for text, length in enumerate(lengths) for place in range(length)}
    assert len(taken) == sum(lengths)
    assert all(first[text] + length <= 24 for text, length in enumerate(lengths))
    assert set(row.tolist()) == set(range(count))
    # Best fit decreasing needs at most 11/9 of the fewest rows, and 6/9 of one more.
    assert count <= 11 / 9 * -(-sum(lengths) // 24) + 6 / 9 + sum(length > 12 for length in lengths) or count == 1


def test_a_pretrained_model_trains_on_the_gradients_of_the_padded_batch() -> None:
    encoder = AutoTokenizer.from_pretrained(minilm_path())
    model = AutoModelForSequenceClassification.from_pretrained(minilm_path()).eval()
    texts = [
        "good",
        "a film about grief , told slowly and with great care for its people",
        "no",
        "dull and far too long",
    ]
    inputs = {**encoder(texts, padding=True, return_tensors="pt"), "labels": torch.tensor([1, 1, 0, 0])}
    expected, slopes = answered(model, inputs)
    with packed(model):
        found, own = answered(model, inputs)
    torch.testing.assert_close(found.logits, expected.logits, rtol=0, atol=1e-6)
    largest = max(slope.abs().max() for slope in slopes.values())
    assert max((own[name] - slope).abs().max() for name, slope in slopes.items()) < 1e-5 * largest


# ------------------------------------------------------------------------------------------------------- in training

DEFENCES = ["standard", "freelb", "smart", "creat", "infobert", "ascc:steps=3", "rift:steps=3", "swap:variants=2"]


@pytest.mark.parametrize("name", DEFENCES)
def test_every_defence_trains_as_on_padded_rows(tmp_path: Any, tokenizer: Any, name: str, monkeypatch: Any) -> None:
    seen: list[list[tuple[int, int]]] = []

    def trained(folder: str, defence: Any) -> RobustTrainer:
        torch.manual_seed(0)  # of a defence's own weights
        model = network()
        with torch.no_grad():  # initial weights are so small that the layers would hardly learn
            for parameter in model.parameters():
                parameter.mul_(10 if parameter.ndim > 1 else 1)
        seen.append(watch(model))
        options = {"learning_rate": 1e-2, "optim": "sgd", "num_train_epochs": 1, "balance_classes": True, "seed": 3}
        trainer = RobustTrainer(
            model, arguments(tmp_path / folder, **options), defence=defence, processing_class=tokenizer,
            train_dataset=uneven(), eval_dataset=uneven(8),
        )  # fmt: skip
        trainer.train()
        return trainer

    def defence() -> Any:
        made = parse(name)
        for part in made.modules():
            if hasattr(part, "substitutions"):
                part.substitutions = Dictionary(entries=NEIGHBOURS)
        return made

    side_by_side = trained("packed", defence())
    monkeypatch.setattr("unshaken.packing.can_pack", lambda model: False)
    padded = trained("padded", defence())
    few, all_rows = (sum(rows for rows, _ in passes) for passes in seen)
    assert few < 0.7 * all_rows
    moved = weights(padded)
    for key, weight in weights(side_by_side).items():
        torch.testing.assert_close(weight, moved[key], rtol=1e-4, atol=2e-6, msg=key)
    told = padded.evaluate()["eval_loss"]
    monkeypatch.undo()
    seen[0].clear()
    assert side_by_side.evaluate()["eval_loss"] == pytest.approx(told, rel=1e-4)
    assert [rows for rows, _ in seen[0]] == [2]  # for eight texts


def plain_trainer(folder: Any, tokenizer: Any, **options: Any) -> RobustTrainer:
    return RobustTrainer(
        network(), arguments(folder, **options), processing_class=tokenizer, train_dataset=uneven(),
        eval_dataset=uneven(8),
    )  # fmt: skip


def test_callbacks_of_an_evaluation_see_the_model_as_it_is_and_may_evaluate(tmp_path: Any, tokenizer: Any) -> None:
    copies, told = [], []

    class Keep(TrainerCallback):
        def on_evaluate(self, args: Any, state: Any, control: Any, model: Any = None, **_: Any) -> None:
            copies.append(copy.deepcopy(model))
            torch.save(model, io.BytesIO())
            if len(copies) == 1:
                told.append(trainer.evaluate(uneven(), metric_key_prefix="again"))

    trainer = plain_trainer(tmp_path, tokenizer, eval_strategy="epoch")
    trainer.add_callback(Keep())
    trainer.train()
    assert len(copies) == 2
    assert told[0]["again_accuracy"] >= 0
    assert all("forward" not in vars(part) for kept in copies for part in kept.modules())


@pytest.mark.parametrize("options", [{"cuda_graphs": True}, {"torch_compile": True}, {"n_gpu": 2}, {}], ids=str)
def test_what_holds_one_shape_and_copies_for_several_gpus_run_padded(
    tmp_path: Any, tokenizer: Any, options: dict[str, Any]
) -> None:
    trainer = plain_trainer(tmp_path, tokenizer)
    if "n_gpu" in options:
        trainer.args._n_gpu = options["n_gpu"]
    else:
        for name, value in options.items():
            setattr(trainer.args, name, value)
    with trainer._packed():
        assert ("forward" in vars(trainer.model.bert)) == (not options)


class Held(torch.autograd.Function):
    """A graph as a CPU can have it: one memory for what goes in and comes out, which the next replay writes to."""

    @staticmethod
    def forward(ctx: Any, states: Tensor, mask: Tensor, graph: Any) -> Tensor:
        graph.given = states.detach().clone().requires_grad_()
        with torch.enable_grad():
            graph.made = graph.run(graph.given, mask)
        ctx.graph, graph.turn = graph, graph.turn + 1
        ctx.turn = graph.turn
        graph.result.copy_(graph.made.detach())
        return graph.result.detach()

    @staticmethod
    def backward(ctx: Any, *slopes: Tensor) -> Any:
        assert ctx.turn == ctx.graph.turn  # nothing ran in between
        ctx.graph.slope.copy_(torch.autograd.grad(ctx.graph.made, ctx.graph.given, slopes[0])[0])
        return ctx.graph.slope.detach(), None, None


class Graph:
    def __init__(self, run: Any, samples: tuple[Tensor, Tensor], pool: Any) -> None:
        self.run, self.turn = run, 0
        self.result, self.slope = torch.zeros_like(samples[0]), torch.zeros_like(samples[0])

    def __call__(self, states: Tensor, mask: Tensor) -> Any:
        return Held.apply(states, mask, self)


def search(model: Any, rows: Packed, inputs: dict[str, Tensor], vectors: Tensor, alone: bool = True) -> Tensor:
    with rows.standing_in(), word_gradients(alone=alone):
        logits = model(inputs_embeds=vectors, attention_mask=inputs["attention_mask"]).logits
    (slope,) = torch.autograd.grad(logits.square().sum(), vectors)
    return slope


def test_a_replayed_search_finds_the_gradients_of_one_that_is_run(monkeypatch: Any) -> None:
    held: list[Graph] = []

    def make(run: Any, samples: Any, pool: Any = None) -> Graph:
        held.append(Graph(run, samples, pool))
        return held[-1]

    monkeypatch.setattr(torch.cuda, "make_graphed_callables", make)
    monkeypatch.setattr(torch.cuda, "graph_pool_handle", lambda: 0)
    monkeypatch.setattr("unshaken.replays.OFTEN", 3)
    monkeypatch.setattr(Replays, "_is_on_gpu", staticmethod(lambda states: True))
    model, inputs = tiny("bert"), batch()
    rows, mask = Packed(model), inputs["attention_mask"]

    def run(vectors: Tensor, size: int = 1) -> Tensor:
        logits = model(inputs_embeds=size * vectors, attention_mask=mask).logits
        return torch.autograd.grad(logits.square().sum(), vectors)[0]

    for turn in range(8):
        vectors = torch.randn(8, 14, 16, generator=torch.Generator().manual_seed(turn)).double().requires_grad_()
        torch.testing.assert_close(search(model, rows, inputs, vectors), run(vectors), rtol=0, atol=1e-12)
        if turn == 5:  # training moves weights in their places
            with torch.no_grad():
                model.bert.encoder.layer[1].output.dense.weight.mul_(2)
    assert rows.replays is not None
    assert (rows.replays.replays, len(held)) == (6, 1)  # all but the first two

    # A pass whose gradient is still to come keeps its memory: the next one runs as always.
    with rows.standing_in(), word_gradients(alone=True):
        both = [model(inputs_embeds=size * vectors, attention_mask=mask).logits for size in (1, 2)]
    assert rows.replays.replays == 7
    for size, logits in enumerate(both, start=1):
        found = torch.autograd.grad(logits.square().sum(), vectors)[0]
        torch.testing.assert_close(found, run(vectors, size), rtol=0, atol=1e-12)

    # Another shape, precision or mask has a graph of its own.
    made, rest = len(held), {"attention_mask": mask[:5]}
    for _ in range(4):
        few = vectors[:5].detach().requires_grad_()
        found = search(model, rows, rest, few)
    with torch.enable_grad():
        logits = model(inputs_embeds=few, attention_mask=mask[:5]).logits
    torch.testing.assert_close(found, torch.autograd.grad(logits.square().sum(), few)[0], rtol=0, atol=1e-12)
    assert len(held) == made + 1

    # Weights that were put elsewhere are captured anew.
    dense = model.bert.encoder.layer[0].output.dense
    dense.weight = torch.nn.Parameter(3 * dense.weight.detach())
    for _ in range(4):
        found = search(model, rows, inputs, vectors)
    torch.testing.assert_close(found, run(vectors), rtol=0, atol=1e-12)
    assert len(held) == made + 2

    # So are layers that took the place of others.
    model.bert.encoder = tiny_model("bert", num_labels=2, dropout=0.0).eval().bert.encoder
    for _ in range(4):
        found = search(model, rows, inputs, vectors)
    torch.testing.assert_close(found, run(vectors), rtol=0, atol=1e-12)
    assert len(held) == made + 3


def test_of_all_that_climbs_the_hull_search_alone_asks_for_no_weights_gradient(monkeypatch: Any) -> None:
    asked: list[bool] = []
    model, inputs = tiny("bert"), {name: values[:3] for name, values in batch().items() if name != "labels"}
    hull = Hull(
        words_of_rows=(((0, 1, ("a", "b")),), (), ()), rows=torch.tensor([0]), columns=torch.tensor([1]),
        word_of=torch.tensor([0]), candidates=torch.tensor([[8, 35]]), allowed=torch.tensor([[True, True]]),
        seeds=(1, 2, 3),
    )  # fmt: skip

    def logits() -> Tensor:
        asked.append(are_all_wanted())
        found: Tensor = model(**inputs).logits
        return found

    HullSearch(steps=2)(model, hull, torch.zeros(1, 2).double(), logits, lambda found: found[:, 0], area=42)
    assert asked == [False, False]
    assert are_all_wanted()
    with word_gradients(alone=True), word_gradients():
        assert are_all_wanted()


def test_a_search_asks_for_gradients_at_the_words_alone_and_only_then_passes_are_replayed(monkeypatch: Any) -> None:
    """What a graph would leave out, the gradients of weights, is asked for by everything but an inner search."""
    model = tiny("bert").to("meta")
    held = Replays(model.bert.encoder)
    states = torch.zeros(2, 3, 16, device="meta", requires_grad=True)

    may = held._can_hold
    assert not may(states)
    monkeypatch.setattr(Replays, "_is_on_gpu", staticmethod(lambda states: True))
    assert not may(states)
    with word_gradients():
        assert not may(states)  # a defence that climbs and trains by the same pass
    with word_gradients(alone=True):
        assert may(states)
        assert not may(states.detach())
        with torch.no_grad():
            assert not may(states)
        model.train()
        assert not may(states)  # dropout
        model.eval()
        monkeypatch.setattr(torch.distributed, "is_initialized", lambda: True)
        assert not may(states)


def test_a_model_without_layers_of_its_own_runs_as_always() -> None:
    class Plain(torch.nn.Module):
        def forward(self, values: Tensor) -> Tensor:
            return values + 1

    model = Plain()
    with Packed(model).standing_in():
        assert model(torch.ones(1)).item() == 2
