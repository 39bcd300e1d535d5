"""What SWAP draws and where it keeps what it learnt, against the numbers worked out one by one."""

from __future__ import annotations

import zlib
from collections import Counter
from typing import Any

import numpy as np
import pytest
import torch
from tiny import ready, tiny_model
from tiny_texts import text_step, tokenizer

from unshaken.defences import SWAP, Passes, swap
from unshaken.examples import Example
from unshaken.substitutions.dictionary import Dictionary
from unshaken.substitutions.joined import All

GOOD = Dictionary(entries={"good": ["fine"], "film": ["movie"]})
MORE = Dictionary(entries={"good": ["great", "poor", "awful"], "bad": ["end", "plot"]})
UNTOUCHED = Example(id="none", texts=("the end of it",), label=0)


def made(**options: Any) -> SWAP:
    return ready(SWAP(**options), tiny_model(), tokenizer())


def test_numbers_are_those_of_splitmix64() -> None:
    gamma, seed = 0x9E3779B97F4A7C15, 1234567
    states = np.array([(seed + count * gamma) % 2**64 for count in range(1, 6)], dtype=np.uint64)
    published = [6457827717110365317, 3203168211198807973, 9817491932198370423, 4593380528125082431]
    assert swap._mixed(states).tolist() == [*published, 16408922859458223821]
    start = int(swap._mixed(np.array([seed], dtype=np.uint64))[0])
    streams = np.array([(start + draw * gamma) % 2**64 for draw in (1, 2, 3)], dtype=np.uint64)
    expected = [(number >> 11) / 2**53 for number in swap._mixed(streams).tolist()]
    assert swap._uniform(np.array([seed], dtype=np.uint64), 3)[:, 0].tolist() == expected


def test_a_key_is_the_examples_checksum_and_the_place() -> None:
    defence = made(substitutions=GOOD, recall=0.5)
    examples = [Example(id=name, texts=("good film good",), label=0) for name in ("a", "b")]
    expected = [zlib.crc32(name, 9) * 2**32 + place for name in (b"a", b"b") for place in range(3)]
    assert defence._keys(examples, 9).tolist() == expected
    slots = defence._keys(examples, zlib.crc32(b"worst"))
    assert defence._slots(examples).tolist() == (swap._mixed(slots) % np.uint64(2**22)).tolist()


def test_a_gain_lies_where_checkpoints_of_before_have_it() -> None:
    defence = made(substitutions=GOOD, greed=0.5)
    examples = [Example(id=str(label), texts=("good film",), label=label) for label in (0, 3)]
    hashes = defence._wording(("good film",)).hashes.tolist()
    expected = [(number + label * 0x9E3779B1) % 2**32 % 2**18 for label in (0, 3) for number in hashes]
    first, owner, entries = defence._entries(examples)
    assert entries.tolist() == expected
    assert (first.tolist(), owner.tolist()) == ([0, 2, 4, 6], [0, 0, 1, 1])


def test_each_swap_of_each_place_gets_its_own_gain() -> None:
    """Two places, several substitutes: a third of the way to what its variants lost above their text's mean."""
    defence = made(substitutions=MORE, greed=0.5)
    example = Example(id="a", texts=("good bad",), label=1)
    defence.remember([example], np.array([[3, 1], [0, 2], [2, 2]]), torch.tensor([[6.0], [0.0], [3.0]]))
    first, _, entries = defence._entries([example])
    assert first.tolist() == [0, 4]
    found = defence.gains[entries.astype(np.int64)].tolist()
    # good great poor awful, bad end plot: the means of 3, -3 and 0 over the variants that made the swap
    seen = [0, 0, 0.3 * 0.0, 0.3 * 3.0, 0, 0.3 * 3.0, (1 - 0.7**2) * -1.5]
    assert found == pytest.approx(seen)
    assert defence.gains.count_nonzero() == 3


def test_memories_have_the_size_they_are_said_to_have() -> None:
    defence = made(substitutions=GOOD, greed=0.5, recall=0.5)
    assert (defence.gains.nbytes, defence.worst.nbytes) == (2**20, 2**23)
    assert swap.MOMENTUM == 0.3
    assert SWAP(variants=2).passes() == Passes(forward=4, activations=2, weights=2)


def test_of_several_sources_one_is_drawn_first() -> None:
    defence = made(substitutions=All((GOOD, MORE)), variants=2, rate=1.0)
    examples = [Example(id=str(number), texts=("good bad film",), label=0) for number in range(3000)]
    drawn = Counter(word for (text,) in defence.draw(text_step(tiny_model()), examples) for word in text.split())
    shares = {"fine": 1 / 2, "great": 1 / 6, "poor": 1 / 6, "awful": 1 / 6, "end": 1 / 2, "plot": 1 / 2, "movie": 1}
    assert drawn.keys() == shares.keys()
    for word, share in shares.items():
        assert drawn[word] / 6000 == pytest.approx(share, abs=0.02)


@pytest.mark.parametrize("words", [GOOD, All((GOOD, MORE))])
def test_a_batch_in_which_no_word_may_change_stays_as_it_is(words: Any) -> None:
    defence = made(substitutions=words, variants=2, rate=1.0, greed=1.0, recall=0.5)
    assert defence.draw(text_step(tiny_model()), [UNTOUCHED]) == [UNTOUCHED.texts] * 2


def test_forgetting_texts_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    examples = [Example(id=str(number), texts=(text,), label=0) for number, text in enumerate(("good", "bad", "film"))]
    options: dict[str, Any] = {"substitutions": All((GOOD, MORE)), "variants": 2}
    step = text_step(tiny_model())
    expected = made(**options).draw(step, examples)
    monkeypatch.setattr(swap, "REMEMBERED", 1)
    defence = made(**options)
    for _ in range(3):
        assert defence.draw(step, examples) == expected
    for number in range(9):
        defence.draw(step, [Example(id="x", texts=(f"good {number}",), label=0)])
    assert 1 <= len(defence._wordings) == len(defence._shares or {}) <= 2
    monkeypatch.setattr(swap, "REMEMBERED", 100)
    for number in range(9):
        defence.draw(step, [Example(id="x", texts=(f"good {number}",), label=0)])
    assert len(defence._wordings) >= 9


def test_a_remembered_choice_that_a_place_has_not_is_its_last() -> None:
    """Two places may share an entry of the memory."""
    defence = made(substitutions=MORE, variants=2, rate=1.0, recall=0.999)
    defence.worst.fill_(31)
    examples = [Example(id=str(number), texts=("good bad",), label=0) for number in range(200)]
    drawn = Counter(text for (text,) in defence.draw(text_step(tiny_model()), examples))
    assert drawn["awful plot"] > 390


def test_a_single_variant_is_not_measured() -> None:
    model = tiny_model()
    passes: list[Any] = []
    model.register_forward_hook(lambda module, given, output: passes.append(output))
    for variants, expected in ((1, 1), (2, 2)):
        passes.clear()
        ready(SWAP(substitutions=GOOD, variants=variants), model, tokenizer()).loss(text_step(model))
        assert len(passes) == expected
    assert torch.is_grad_enabled()


def test_texts_without_words_have_no_chances() -> None:
    assert swap._rising([]).shape == (0,)
    assert swap._rising([[["a"], [], ["b", "c"]], [[], ["d"]]]).tolist() == [0.5, 0.75, 1.0, 1.0]
