"""What a smoothed vocabulary reads, against the formula written out; its gradients; its files."""

from __future__ import annotations

import contextlib
import copy
import hashlib
import pickle
from inspect import signature
from typing import Any

import pytest
import torch

from unshaken import Smoothing, smooth, unsmooth
from unshaken.errors import IncompatibleModelError, UnshakenError
from unshaken.examples import Example, Examples
from unshaken.readers import KnownWords, Misread
from unshaken.readers import parse as parse_readers
from unshaken.smoothing import SmoothedEmbedding, WordGraph, parse, settle, settled_on_save, smoothing_of
from unshaken.smoothing.tokens import MARK, folding
from unshaken.substitutions import All, Dictionary, TwoHops, Typos, WordNet, parse_substitutions

TEXTS = ["a good film", "The movie, well-made and slow!", "goodness (bad) plots", "an unknown thing"]


def smoothed(bert: tuple[Any, Any], words: Any, hops: int = 2, **options: Any) -> tuple[Any, Any, SmoothedEmbedding]:
    model, tokenizer = smooth(*bert, Smoothing(substitutions=words, hops=hops), **options)
    return model, tokenizer, model.get_input_embeddings()


def literal(graph: WordGraph, theta: torch.Tensor, hops: int) -> torch.Tensor:
    """E' = P^k Theta with P = D^-1 (A + A^T + I), by two loops."""
    size = len(graph.words)
    P = torch.zeros(size, size, dtype=theta.dtype)
    for one, other in graph.edges.T.tolist():
        P[one, other] = 1
    P /= P.sum(1, keepdim=True)
    for _ in range(hops):
        theta = P @ theta
    return theta


def test_one_hop_over_sixty_thousand_words_is_meant_wherever_nothing_is_said() -> None:
    made = Smoothing(substitutions=WordNet())
    assert (made.hops, made.most_words) == (1, 60_000)
    assert parse("wordnet") == made
    assert signature(WordGraph.build).parameters["most_words"].default == made.most_words


def test_what_checkpoints_are_compared_by_stays_what_earlier_ones_have() -> None:
    """Sixty digits of a SHA-256 of hops and words, each after its length; another would refuse whole checkpoints."""
    graph = WordGraph.build([Dictionary(entries={"good": ["fine"]})])
    for hops in (1, 2):
        parts = [part.encode() for part in (str(hops), "good", "fine")]
        digest = hashlib.sha256(b"".join(len(part).to_bytes(8, "big") + part for part in parts)).hexdigest()
        assert graph.words == ("good", "fine")
        assert graph.spelt(hops).tolist() == [int(digest[at : at + 15], 16) for at in (0, 15, 30, 45)]


def test_the_graph_holds_the_sets_edges_both_ways_and_loops() -> None:
    graph = WordGraph.build([Dictionary(entries={"good": ["fine", "Great"], "bad": ["poor"]})])
    node = {word: number for number, word in enumerate(graph.words)}
    assert set(node) == {"good", "fine", "great", "bad", "poor"}
    swaps = {("good", "fine"), ("good", "great"), ("bad", "poor")}
    expected = {(node[a], node[b]) for a, b in swaps} | {(node[b], node[a]) for a, b in swaps}
    assert {tuple(pair) for pair in graph.edges.T.tolist()} == expected | {(n, n) for n in node.values()}


class Few(Dictionary):
    """Has substitutes for more words than it lists."""

    def vocabulary(self) -> list[str]:
        return ["a", "very b"]


@pytest.mark.parametrize(
    ("most_words", "words", "joined"), [(9, "abcde", ["ab", "ac", "bc", "bd", "de"]), (3, "abc", ["ab", "ac", "bc"])]
)
def test_the_graph_is_written_out(most_words: int, words: str, joined: list[str]) -> None:
    """Words of the texts without substitutes and phrases have no node; a word that is full joins those that are in."""
    entries = {"a": ["b", "aa", "very b", "c"], "c": ["b"], "b": ["d"], "very b": ["e"], "d": ["e"]}
    fold = lambda word: None if " " in word else word.lower().replace("aa", "a")  # noqa: E731
    graph = WordGraph.build([Few(entries=entries)], texts=["x A"], fold=fold, most_words=most_words)
    assert graph.words == tuple(words)
    pairs = [(words.index(one), words.index(other)) for one, other in joined]
    both = [*pairs, *((other, one) for one, other in pairs), *((one, one) for one in range(len(words)))]
    assert graph.edges.T.tolist() == [list(pair) for pair in sorted(both)]
    with pytest.raises(UnshakenError, match="join no two words"):
        WordGraph.build([Dictionary(entries={"a": ["A"]})])


def test_sets_that_list_nothing_start_from_the_texts() -> None:
    graph = WordGraph.build([Typos(kinds=("swap",))], texts=["films"], most_words=3)
    assert graph.words == ("films", "flims", "fimls")


def test_substitutes_bring_their_own_neighbours() -> None:
    """A word outside the listed ones whose neighbours a set knows must be averaged with them too."""
    graph = WordGraph.build([WordNet(limit=3)], texts=["movie"], most_words=200)
    assert graph.words[0] == "movie"
    assert "film" in graph.words
    assert len(graph.words) == 200


def test_frequent_words_of_the_texts_come_first(words: Dictionary) -> None:
    graph = WordGraph.build([words], texts=["a bad film", "The Film"], most_words=3)
    assert set(graph.words) == {"film", "movie", "picture"}


def test_a_word_starts_from_its_pieces_inside_a_text_and_all_its_cases_read_one_mean(
    tokenizer: Any, make_smoothed: Any, words: Dictionary
) -> None:
    model, longer = make_smoothed(tokenizer)
    table, graph = model.get_input_embeddings(), WordGraph.build([words], fold=folding(tokenizer))

    def inside(tokenizer: Any, word: str) -> list[int]:
        """The tokens of a word that stands behind another."""
        both, before = (tokenizer(text, add_special_tokens=False)["input_ids"] for text in (f"plot {word}", "plot"))
        return list(both[len(before) :])

    expected = torch.stack([table.weight[inside(tokenizer, word)].mean(0) for word in graph.words])
    torch.testing.assert_close(table.theta, expected, check_stride=False)
    means = literal(graph, table.theta.detach(), 2)
    for written in ("good", "Good", "GOOD", "Film", "SLOW"):
        (token,) = inside(longer, written)
        torch.testing.assert_close(table(torch.tensor([token]))[0], means[graph.words.index(written.lower())])
        torch.testing.assert_close(table.table()[token], means[graph.words.index(written.lower())])


@pytest.mark.parametrize("padding", [0, None])
@pytest.mark.parametrize("hops", [1, 2, 3])
def test_forward_and_gradient_are_the_formulas(
    bert: tuple[Any, Any], words: Dictionary, hops: int, padding: int | None
) -> None:
    before = bert[0].get_input_embeddings().weight.detach().clone()
    bert[0].get_input_embeddings().padding_idx = padding
    _, tokenizer, table = smoothed(bert, words, hops)
    graph = WordGraph.build([words], fold=lambda word: {"café": "cafe"}.get(word, word))
    expected_theta = torch.stack(
        [before[ids].mean(0) for ids in bert[1](list(graph.words), add_special_tokens=False)["input_ids"]]
    )
    torch.testing.assert_close(table.theta.detach(), expected_theta)
    with torch.no_grad():
        table.theta.normal_(generator=torch.Generator().manual_seed(3))
    ids = tokenizer(TEXTS, padding=True, return_tensors="pt")["input_ids"]
    theta = table.theta.detach().clone().requires_grad_()
    weight = table.weight.detach().clone().requires_grad_()
    own = literal(graph, theta, hops)
    position = {token: number for number, token in enumerate(range(table.first, len(tokenizer)))}
    rows = [
        own[table.words[position[token]]] if token in position else weight[token] for token in ids.flatten().tolist()
    ]
    expected = torch.stack(rows).view(*ids.shape, -1)
    found = table(ids)
    torch.testing.assert_close(found, expected)
    assert (ids >= table.first).any()
    assert (ids < table.first).any()

    cotangent = torch.randn(found.shape, dtype=found.dtype, generator=torch.Generator().manual_seed(1))
    found.backward(cotangent)
    expected.backward(cotangent)
    assert (ids == 0).any()
    if padding is not None:
        weight.grad[padding] = 0  # torch gives padding no gradient
    torch.testing.assert_close(table.theta.grad, theta.grad)
    torch.testing.assert_close(table.weight.grad, weight.grad)


def test_follows_its_weights_to_another_precision_and_device(bert: tuple[Any, Any], words: Dictionary) -> None:
    model, tokenizer, table = smoothed(bert, words)
    ids = tokenizer(TEXTS, padding=True, return_tensors="pt")["input_ids"]
    expected = table(ids).double()
    torch.testing.assert_close(model.double().get_input_embeddings()(ids), expected)
    torch.testing.assert_close(model.float().get_input_embeddings()(ids), expected.float())
    there = table._spans_on(torch.device("meta"))
    assert there.device.type == "meta"
    torch.testing.assert_close(table(ids), expected.float())  # and back


def test_a_swap_moves_the_input_less_than_it_did(bert: tuple[Any, Any], words: Dictionary) -> None:
    before = bert[0].get_input_embeddings().weight.detach().clone()
    pieces = [before[ids].mean(0) for ids in bert[1](["good", "great"], add_special_tokens=False)["input_ids"]]
    _, tokenizer, table = smoothed(bert, words, 1)
    (good,), (great,) = tokenizer(["good", "great"], add_special_tokens=False)["input_ids"]
    one, other = table(torch.tensor([good, great])).detach()
    assert (one - other).norm() < 0.8 * (pieces[0] - pieces[1]).norm()


def test_padding_and_batch_do_not_matter(bert: tuple[Any, Any], words: Dictionary) -> None:
    model, tokenizer, _ = smoothed(bert, words)
    together = model(**tokenizer(TEXTS, padding=True, return_tensors="pt")).logits
    wide = model(**tokenizer(TEXTS, padding="max_length", max_length=40, return_tensors="pt")).logits
    alone = torch.cat([model(**tokenizer([text], return_tensors="pt")).logits for text in TEXTS])
    torch.testing.assert_close(together, alone)
    torch.testing.assert_close(wide, alone)


def test_a_batch_without_smoothed_words(bert: tuple[Any, Any], words: Dictionary) -> None:
    _, tokenizer, table = smoothed(bert, words)
    ids = tokenizer(["an unknown thing", "(!)"], padding=True, return_tensors="pt")["input_ids"]
    assert (ids < table.first).all()
    found = table(ids)
    torch.testing.assert_close(found, table.weight[ids])
    found.sum().backward()
    assert not table.theta.grad.any()
    assert table(ids[:0]).shape == (0, *found.shape[1:])


def test_smoothed_again_over_another_set(bert: tuple[Any, Any], words: Dictionary) -> None:
    other = Dictionary(entries={"film": ["movie", "slow"], "good": ["bad"]})
    fresh, tokenizer, _ = smoothed(copy.deepcopy(bert), other)
    inputs = tokenizer(TEXTS, padding=True, return_tensors="pt")
    used, used_tokenizer, _ = smoothed(bert, words)
    used(**used_tokenizer(TEXTS, padding=True, return_tensors="pt"))
    again, _, _ = smoothed(unsmooth(used, used_tokenizer), other)
    torch.testing.assert_close(again(**inputs).logits, fresh(**inputs).logits)


def test_settled_and_unsmoothed(bert: tuple[Any, Any], words: Dictionary) -> None:
    plain, plain_tokenizer = copy.deepcopy(bert[0]), bert[1]
    clean = plain(**plain_tokenizer(TEXTS, padding=True, return_tensors="pt")).logits
    model, tokenizer, _ = smoothed(bert, words)
    inputs = tokenizer(TEXTS, padding=True, return_tensors="pt")
    expected = model(**inputs).logits
    stock = settle(copy.deepcopy(model))
    assert type(stock.get_input_embeddings()) is torch.nn.Embedding
    assert stock.get_input_embeddings().weight.shape[0] == len(tokenizer) == stock.config.vocab_size
    torch.testing.assert_close(stock(**inputs).logits, expected)
    for one in (stock, model):
        back, back_tokenizer = unsmooth(one, tokenizer)
        assert back_tokenizer.backend_tokenizer.to_str() == plain_tokenizer.backend_tokenizer.to_str()
        assert smoothing_of(back) is None
        found = back(**back_tokenizer(TEXTS, padding=True, return_tensors="pt")).logits
        torch.testing.assert_close(found, clean)


@pytest.mark.parametrize("trained", [True, False])
@pytest.mark.parametrize("spare", [0, 6])
def test_frozen_rows_stay_frozen_and_sizes_are_those_of_the_tokenizer(
    bert: tuple[Any, Any], words: Dictionary, trained: bool, spare: int
) -> None:
    """Also in a table that is rounded up beyond its tokenizer."""
    size, table = len(bert[1]), bert[0].get_input_embeddings()
    own = table.weight.detach().clone()
    table.weight = torch.nn.Parameter(torch.cat([own, own[:spare]]), requires_grad=trained)
    table.num_embeddings = bert[0].config.vocab_size = size + spare
    names = set(bert[0].state_dict())
    model, longer, _ = smoothed(bert, words)
    assert (table.weight.requires_grad, table.theta.requires_grad) == (trained, trained)
    assert (table.first, len(table.weight)) == (size, size)
    assert model.config.vocab_size == table.num_embeddings == len(table.table()) == len(longer)
    assert model.config.smoothing == {
        **{"substitutions": [words.described()], "hops": 2},
        **{"words": len(table.theta), "first": size},
    }
    rows = table.table()
    stock = settle(copy.deepcopy(model))
    settled = stock.get_input_embeddings()
    assert (settled.weight.requires_grad, settled.weight.is_leaf) == (trained, True)
    assert set(stock.state_dict()) == names
    assert not {"theta", "first", "kernel", "graph", "spelt", "words", "_spans"} & set(vars(settled))
    torch.testing.assert_close(settled.weight.detach(), rows, rtol=0, atol=0)
    with pytest.raises(UnshakenError, match="settled already"):
        settle(stock)
    for one in (stock, model):
        back, _ = unsmooth(one, longer)
        plain = back.get_input_embeddings()
        assert back.config.vocab_size == plain.num_embeddings == len(plain.weight) == size
        assert plain.weight.requires_grad is trained
        assert set(back.state_dict()) == names
        torch.testing.assert_close(plain.weight.detach(), own, rtol=0, atol=0)
        with pytest.raises(UnshakenError, match="is not smoothed"):
            unsmooth(back, longer)


def test_a_state_is_an_ordinary_table_with_theta_or_without_while_a_model_is_saved(
    bert: tuple[Any, Any], words: Dictionary
) -> None:
    model, _, table = smoothed(bert, words)
    name = next(name for name in model.state_dict() if name.endswith(".theta")).removesuffix("theta")
    whole = set(model.state_dict())
    training = {name + own for own in ("theta", "graph", "spelt")}
    assert whole > training
    with settled_on_save(model):
        state = model.state_dict()
    assert set(state) == whole - training
    with settled_on_save(torch.nn.Sequential(model)):  # as it is wrapped for several processes
        assert not any(key.endswith(tuple(training)) for key in model.state_dict())
    torch.testing.assert_close(state[name + "weight"], table.table(), rtol=0, atol=0)
    with contextlib.suppress(InterruptedError), settled_on_save(model):
        raise InterruptedError  # a disk that is full
    assert set(model.state_dict()) == whole
    torch.testing.assert_close(model.state_dict()[name + "weight"], table.table(), rtol=0, atol=0)
    rest = {key: value for key, value in model.state_dict().items() if key != name + "graph"}
    model.load_state_dict(rest)  # of a graph that nobody tells nothing is refused


def test_tables_that_do_more_or_are_shared_are_refused(bert: tuple[Any, Any], words: Dictionary) -> None:
    class Scaled(torch.nn.Embedding):
        pass

    class Vision(torch.nn.Linear):
        def get_input_embeddings(self) -> Any:
            raise NotImplementedError

    model, tokenizer = bert
    smoothing, table = Smoothing(substitutions=words), model.get_input_embeddings()
    model.twin = torch.nn.Embedding(1, 1)
    model.twin.weight = table.weight
    with pytest.raises(IncompatibleModelError, match="shares its token table"):
        smooth(model, tokenizer, smoothing)
    del model.twin
    table.__class__ = Scaled
    with pytest.raises(IncompatibleModelError, match="token embeddings are Scaled"):
        smooth(model, tokenizer, smoothing)
    for without in (torch.nn.Linear(1, 1), Vision(1, 1)):
        with pytest.raises(IncompatibleModelError, match="token embeddings are NoneType"):
            smooth(without, tokenizer, smoothing)
    table.__class__ = torch.nn.Embedding
    for option, value in (("max_norm", 1.0), ("scale_grad_by_freq", True)):
        usual = getattr(table, option)
        setattr(table, option, value)
        with pytest.raises(IncompatibleModelError, match="max_norm or scale_grad_by_freq"):
            smooth(model, tokenizer, smoothing)
        setattr(table, option, usual)
    table.num_embeddings = len(tokenizer) - 1
    with pytest.raises(UnshakenError, match="not its own one"):
        smooth(model, tokenizer, smoothing)


def test_state_goes_on_and_refuses_another_graph(bert: tuple[Any, Any], words: Dictionary) -> None:
    fresh = copy.deepcopy(bert)
    model, tokenizer, table = smoothed(bert, words)
    with torch.no_grad():
        table.theta.add_(0.3)
    state = {name: value.clone() for name, value in model.state_dict().items()}
    again, _, _ = smoothed(copy.deepcopy(fresh), words)
    again.load_state_dict(state)
    inputs = tokenizer(TEXTS, padding=True, return_tensors="pt")
    torch.testing.assert_close(again(**inputs).logits, model(**inputs).logits, rtol=0, atol=0)
    torch.testing.assert_close(again.get_input_embeddings().theta, table.theta)
    renamed = {word: near for word, near in words.entries.items() if word != "bad"} | {"plot": ["poor", "awful"]}
    swapped = {word: near[::-1] for word, near in words.entries.items()}
    for entries, hops in (
        ({**words.entries, "plot": ["story"]}, 2),
        (swapped, 2),  # as many edges
        (renamed, 2),
        (words.entries, 1),
    ):
        elsewhere, _, _ = smoothed(copy.deepcopy(fresh), Dictionary(entries=entries), hops)
        with pytest.raises(RuntimeError, match="another graph of words"):
            elsewhere.load_state_dict(state)


def test_a_state_over_other_words_that_are_joined_alike_is_refused(bert: tuple[Any, Any]) -> None:
    """Or vectors of one word would become those of another."""
    sets = (Dictionary(entries={one: [two]}) for one, two in (("good", "fine"), ("bad", "poor")))
    (one, _, table), (other, _, other_table) = (smoothed(copy.deepcopy(bert), words) for words in sets)
    assert torch.equal(table.graph, other_table.graph)
    with pytest.raises(RuntimeError, match="another graph of words"):
        other.load_state_dict(one.state_dict())
    earlier = {name: value for name, value in one.state_dict().items() if not name.endswith(".spelt")}
    other.load_state_dict(earlier)  # which was not told


def test_typing_errors_are_smoothed_over_as_their_reader_leaves_them(bert: tuple[Any, Any], words: Dictionary) -> None:
    text = "a form that comes from a farm"
    reader = parse_readers("spelling", KnownWords.of([text]))
    sets = Smoothing(substitutions=(words, Typos())).read_by(reader)
    assert sets == (words, Misread(Typos(), reader))
    nothing = Misread(Typos(), parse_readers("spelling", KnownWords()))
    assert Smoothing(substitutions=nothing).read_by(None) == (nothing,)  # it lists its words, and has none
    graph = WordGraph.build(sets, texts=[text])
    joined = {(graph.words[one], graph.words[other]) for one, other in graph.edges.T.tolist()}
    assert {("form", "from"), ("from", "form"), ("farm", "form")} < joined  # "from" is "form" with a letter swapped
    assert ("comes", "form") not in joined
    _, _, table = smoothed(bert, (words, Typos()), texts=[text], reader=reader)
    torch.testing.assert_close(table.graph, graph.edges)
    assert len(table.theta) == len(graph.words)


def test_sets_joined_to_one_are_smoothed_over_as_the_same_sets_apart(words: Dictionary) -> None:
    """One that makes words up hides neither the words that another lists nor its own errors."""
    text = "a form that comes from a farm"
    reader = parse_readers("spelling", KnownWords.of([text]))
    apart, joined, first = (
        WordGraph.build(Smoothing(substitutions=sets).read_by(reader), texts=[text])
        for sets in ((words, Typos()), All((words, Typos()), limit=None), All((words, Typos()), limit=1))
    )
    assert joined.words == apart.words
    torch.testing.assert_close(joined.edges, apart.edges)
    edges = {(first.words[one], first.words[other]) for one, other in first.edges.T.tolist()}
    assert ("good", "fine") in edges  # the first that the dictionary has, and no other
    assert ("good", "great") not in edges
    with pytest.raises(UnshakenError, match="cannot list its words"):
        Smoothing(substitutions=All((words, Typos()))).read_by(None)
    listed = All((words, words))
    assert Smoothing(substitutions=listed).read_by(reader) == (listed,)


def test_the_words_of_examples_come_first_and_words_that_are_read_alike_share_a_node(bert: tuple[Any, Any]) -> None:
    words = Dictionary(entries={"good": ["fine"], "café": ["a bar", "bistro"], "cafe": ["inn"], "film": ["movie"]})
    rows = Examples(rows=(Example(id="0", texts=("a Film", "the Café"), label=0),))
    model, tokenizer = smooth(*bert, Smoothing(substitutions=words, most_words=4), texts=rows)
    assert model.config.smoothing["words"] == 4
    added = {token.removesuffix(MARK).lower() for token in tokenizer.get_vocab() if token.endswith(MARK)}
    assert added == {"film", "movie", "cafe", "bistro"}


def test_rows_of_a_kernel_are_means_and_too_large_ones_are_refused(
    words: Dictionary, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = WordGraph.build([words])
    size = len(graph.words)
    for hops in (1, 3):
        kernel = graph.kernel(hops)
        P = kernel.rows(torch.arange(size), torch.eye(size, dtype=torch.float64))
        torch.testing.assert_close(P, literal(graph, torch.eye(size, dtype=torch.float64), hops), rtol=1e-14, atol=0)
    entries = len(graph.kernel(2).columns)
    monkeypatch.setattr("unshaken.smoothing.graph.LARGEST", entries)
    assert len(graph.kernel(2).columns) == entries
    monkeypatch.setattr("unshaken.smoothing.graph.LARGEST", entries - 1)
    with pytest.raises(UnshakenError, match="take fewer hops"):
        graph.kernel(2)


def test_a_model_that_was_refused_is_as_it_was(
    bert: tuple[Any, Any], words: Dictionary, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fewer hops are then tried on the same model."""
    expected, _, _ = smoothed(copy.deepcopy(bert), words, 1)
    before = {name: value.clone() for name, value in bert[0].state_dict().items()}
    monkeypatch.setattr("unshaken.smoothing.graph.LARGEST", 1)
    with pytest.raises(UnshakenError, match="take fewer hops"):
        smoothed(bert, words, 2)
    assert type(bert[0].get_input_embeddings()) is torch.nn.Embedding
    for name, value in bert[0].state_dict().items():
        torch.testing.assert_close(value, before[name], rtol=0, atol=0)
    model, _, _ = smoothed(bert, words, 1)
    for name, value in model.state_dict().items():
        torch.testing.assert_close(value, expected.state_dict()[name], rtol=0, atol=0)


@pytest.mark.parametrize("more", [0, 1])
def test_a_table_that_was_resized_is_refused_and_comes_back(
    bert: tuple[Any, Any], words: Dictionary, more: int, tmp_path: Any
) -> None:
    """Scripts call it as a matter of course. It knows the ordinary rows alone: what is saved then loads no more."""
    plain, before = bert
    expected = plain(**before(TEXTS, padding=True, return_tensors="pt")).logits
    model, tokenizer = smooth(plain, before, Smoothing(substitutions=words))
    tokenizer.add_tokens(["filmic"][:more])
    model.resize_token_embeddings(len(tokenizer))
    for use in (lambda: model(torch.tensor([[2, 3]])), lambda: settle(model), lambda: model.save_pretrained(tmp_path)):
        with pytest.raises(UnshakenError, match=r"was resized, from .* rows of its own to .*; unsmooth"):
            use()
    model, tokenizer = unsmooth(model, tokenizer)
    assert torch.equal(model(**before(TEXTS, padding=True, return_tensors="pt")).logits, expected)


def test_copies_and_pickles(bert: tuple[Any, Any], words: Dictionary) -> None:
    model, tokenizer, _ = smoothed(bert, words)
    inputs = tokenizer(TEXTS, padding=True, return_tensors="pt")
    for again in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        torch.testing.assert_close(again(**inputs).logits, model(**inputs).logits, rtol=0, atol=0)


def test_says_what_it_knows_and_what_it_cannot(bert: tuple[Any, Any], words: Dictionary) -> None:
    with pytest.raises(UnshakenError, match="cannot list its words"):
        smooth(*bert, Smoothing(substitutions=Typos()))
    with pytest.raises(UnshakenError, match="hops is 0"):
        Smoothing(substitutions=words, hops=0)
    with pytest.raises(UnshakenError, match="hops is 5"):
        Smoothing(substitutions=words, hops=5)
    with pytest.raises(UnshakenError, match="most_words is 1"):
        Smoothing(substitutions=words, most_words=1)
    assert Smoothing(substitutions=words, hops=4, most_words=2).sets == (words,)
    assert Smoothing(substitutions=[words]) == Smoothing(substitutions=words)
    for none in ((), (words, "wordnet")):
        with pytest.raises(UnshakenError, match="at least one"):
            Smoothing(substitutions=none)
    model, tokenizer, _ = smoothed(bert, words)
    known = smoothing_of(model)
    assert known is not None
    assert known["substitutions"][0]["fingerprint"] == words.fingerprint
    with pytest.raises(UnshakenError, match="smoothed already"):
        smooth(model, tokenizer, Smoothing(substitutions=words))


def test_names_of_several_sets(tmp_path: Any) -> None:
    path = tmp_path / "near.json"
    path.write_text('{"film": ["movie"]}')
    wordnet, dictionary = parse_substitutions(f"wordnet:rare=0.1,limit=8,dictionary:{path}")
    assert (wordnet, dictionary) == (WordNet(rare=0.1, limit=8), Dictionary.load(path))
    assert parse_substitutions(f"two-hops:wordnet:limit=8,rare=0.1,two-hops:dictionary:{path}") == (
        TwoHops(wordnet),
        TwoHops(dictionary),
    )
    assert parse_substitutions(f" Two-Hops:wordnet, Dictionary:{path},lowercase=false") == (
        TwoHops(WordNet()),
        Dictionary.load(path, lowercase=False),
    )
    own = "two-hops:unshaken.substitutions.typos:Typos"
    assert parse_substitutions(own, allow_paths=True) == (TwoHops(Typos()),)
    with pytest.raises(UnshakenError, match="is a class path"):
        parse_substitutions(own)
    with pytest.raises(UnshakenError, match="did you mean 'lowercase'"):
        parse_substitutions(f"dictionary:{path},lowecase=false")
    smoothing = parse(f"wordnet:limit=8,dictionary:{path}", 3)
    assert smoothing == Smoothing(substitutions=(WordNet(limit=8), dictionary), hops=3)
    with pytest.raises(UnshakenError, match="did you mean 'wordnet'"):
        parse_substitutions("two-hops:wordnets")
    with pytest.raises(UnshakenError, match="over which set"):
        parse_substitutions("two-hops")
    with pytest.raises(UnshakenError, match="did you mean 'wordnet'"):
        parse_substitutions("wordnets")
    with pytest.raises(UnshakenError, match="which file"):
        parse_substitutions("dictionary")
