"""Victims of other kinds: a transformers pipeline, dicts of scores, an ONNX file, and a web service."""

from __future__ import annotations

import json
import re
import shutil
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy
from onnx_bag import write_onnx_bag
from transformers import PreTrainedTokenizerFast
from victims import TEXTS, WORD_LIST, bag_of_words, labelled, make_tokenizer, tiny_bert

from unshaken.attacks import PWWS, Victim
from unshaken.detection import Agreement, Guarded
from unshaken.errors import UnshakenError
from unshaken.evaluation import evaluate
from unshaken.examples import Example, Examples
from unshaken.play.watching import Watched
from unshaken.readers import KnownWords, parse
from unshaken.scanning.scan import Detector
from unshaken.substitutions import Typos
from unshaken.victims import Averaged, Reading, Vote
from unshaken.victims import http as http_victims
from unshaken.victims.base import log_softmax
from unshaken.victims.calibrated import at_temperature

ROWS = [(text,) for text in TEXTS]
NAMES = ("bad", "good")


def bag_probabilities() -> np.ndarray:
    return np.array(bag_of_words(list(TEXTS)))


# ------------------------------------------------------------------------------------------------ functions


def labels_and_scores(texts: list[str]) -> list[list[dict[str, Any]]]:
    """As `transformers.pipeline(top_k=None)` answers: the best class first."""
    rows = [[{"label": n, "score": p} for n, p in zip(NAMES, row, strict=True)] for row in bag_of_words(texts)]
    return [sorted(row, key=lambda item: -item["score"]) for row in rows]


@pytest.mark.parametrize(
    "function",
    [
        bag_of_words,
        labels_and_scores,
        lambda texts: [row[0] for row in labels_and_scores(texts)],  # the best class alone: the other has the rest
        lambda texts: [dict(zip(NAMES, row, strict=True)) for row in bag_of_words(texts)],
        lambda texts: [row[1] for row in bag_of_words(texts)],
        lambda texts: np.array(bag_of_words(texts))[:, 1:],
    ],
)
def test_every_form_of_answer_is_the_same_victim(function: Any) -> None:
    victim = Victim.from_callable(function, label_names=NAMES)
    np.testing.assert_allclose(np.exp(victim.log_probabilities(ROWS)), bag_probabilities(), rtol=1e-5)


def always(label: str, names: tuple[str, ...]) -> Victim:
    return Victim.from_callable(lambda texts: [{"label": label, "score": 1.0}] * len(texts), label_names=names)


def test_classes_are_learned_from_one_answer() -> None:
    assert Victim.of(bag_of_words).num_labels == 2
    assert Victim.of(labels_and_scores).label_names == NAMES
    with pytest.raises(UnshakenError, match="give label_names"):
        Victim.of(lambda texts: [row[0] for row in labels_and_scores(texts)])
    for classes in (2, 3, 5):
        for kind in (np.array, list):
            victim = Victim.of(lambda texts, kind=kind, classes=classes: kind([[1 / classes] * classes] * len(texts)))
            assert (victim.num_labels, victim.label_names) == (classes, ())
    for answer in (0.5, [0.5]):  # one number a text may be that of two classes, and is not said to be
        for kind in (np.array, list):
            with pytest.raises(UnshakenError, match="give num_labels"):
                Victim.of(lambda texts, kind=kind, answer=answer: kind([answer] * len(texts)))
    with pytest.raises(UnshakenError, match="did you mean 'good'"):
        always("goood", NAMES).log_probabilities(ROWS[:1])
    with pytest.raises(UnshakenError, match="no score for 'b'"):
        always("a", ("a", "b", "c")).log_probabilities(ROWS)


def test_log_softmax_is_scipys_however_large_the_logits() -> None:
    for logits in ([[1.0, 2.0, -0.5]], [[1e3, 0.0, -1e3], [-1e5, -1e5, -1e5]], [[3e38, 0.0, -3e38]]):
        values = np.array(logits, np.float32)
        np.testing.assert_allclose(log_softmax(values), scipy.special.log_softmax(values.astype(float), -1), rtol=1e-12)


def test_answers_that_are_no_numbers_are_counted_by_text() -> None:
    answers = np.array([[np.nan, np.nan], [0.4, 0.6], [0.4, np.nan], [0.5, 0.5]])
    victim = Victim.from_callable(lambda texts: answers[: len(texts)], 2, name="odd")
    for count, wrong in ((4, 2), (2, 1)):
        with pytest.raises(UnshakenError, match=f"odd returned NaN for {wrong} of {count} texts"):
            victim.log_probabilities(ROWS[:count])


def test_a_victim_of_which_nothing_else_is_said() -> None:
    victim = Victim.of(bag_of_words)
    assert victim.log_probabilities([]).shape == victim.answers_alone([]).shape == (0, 2)
    assert (victim.max_length, victim.runs_beside_python, victim.reader, victim.network) == (0, False, None, None)


@pytest.mark.parametrize("names", [("bad",), ("bad", "fair", "good")])
def test_as_many_names_as_classes(names: tuple[str, ...]) -> None:
    with pytest.raises(UnshakenError, match=f"{len(names)} class names, and bag_of_words has 2 classes"):
        Victim.from_callable(bag_of_words, 2, label_names=names)


@pytest.mark.parametrize("odd", [[1.5, -0.5], [0.4, 0.4], [-0.1, 1.1], [3.0, 2.0]])
def test_the_answer_that_is_no_distribution_is_the_one_that_is_shown(odd: list[float]) -> None:
    victim = Victim.from_callable(lambda texts: np.array([[0.3, 0.7], [0.25, 0.7502], odd]), 2, name="odd")
    with pytest.raises(UnshakenError, match=re.escape(f"odd returned {odd} for a text")):
        victim.log_probabilities(ROWS[:3])


def test_a_transformers_pipeline(tmp_path: Path) -> None:
    from transformers import pipeline

    tokenizer = make_tokenizer(tmp_path)
    model = tiny_bert(tokenizer).float()
    pipe = pipeline("text-classification", model=model, tokenizer=tokenizer, device="cpu")
    own = [{item["label"]: item["score"] for item in row} for row in pipe(list(TEXTS), top_k=None)]
    wanted = np.array([[row["LABEL_0"], row["LABEL_1"]] for row in own])
    for victim in (Victim.of(pipe), Victim.from_callable(lambda texts: pipe(texts, top_k=None))):
        np.testing.assert_allclose(np.exp(victim.log_probabilities(ROWS)), wanted, atol=1e-6)
    victim = Victim.of(pipe)
    assert PWWS(substitutions=WORD_LIST)(victim, labelled(victim)).tally("success")


def test_a_reader_beside_a_pipelines_model_reads_for_it(tmp_path: Path) -> None:
    from transformers import pipeline

    tokenizer = make_tokenizer(tmp_path)
    tiny_bert(tokenizer).float().save_pretrained(tmp_path / "model")
    tokenizer.save_pretrained(tmp_path / "model")
    reader = parse("leet", KnownWords.of([text for row in ROWS for text in row]))
    reader.save(tmp_path / "model")
    pipe = pipeline("text-classification", model=str(tmp_path / "model"), device="cpu")
    written = [(text.replace("o", "0"),) for (text,) in ROWS]
    wanted = Victim.from_model(pipe.model, pipe.tokenizer).log_probabilities([reader.texts(row) for row in written])
    assert abs(wanted - Victim.from_model(pipe.model, pipe.tokenizer).log_probabilities(written)).max() > 0.01
    np.testing.assert_allclose(Victim.of(pipe).log_probabilities(written), wanted, atol=1e-6)


# ----------------------------------------------------------------------------------------------------- ONNX


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Mean of word vectors, then a linear layer: small enough to write down, and answers known in closed form."""
    pytest.importorskip("onnx")
    pytest.importorskip("onnxruntime")
    folder = tmp_path_factory.mktemp("onnx")
    np.savez(folder / "truth.npz", **write_onnx_bag(folder, make_tokenizer(folder), 3))
    (folder / "config.json").write_text(json.dumps({"id2label": {"0": "no", "1": "maybe", "2": "yes"}}))
    return folder


def test_an_onnx_file_answers_as_its_equation_says(exported: Path) -> None:
    victim = Victim.of(exported / "model.onnx", tokenizer=make_tokenizer(exported), batch_size=3)
    assert (victim.num_labels, victim.label_names) == (3, ("no", "maybe", "yes"))
    truth = np.load(exported / "truth.npz")
    tokenizer = make_tokenizer(exported)
    for (text,), found in zip(ROWS, victim.log_probabilities(ROWS), strict=True):
        logits = truth["table"][tokenizer(text)["input_ids"]].mean(0) @ truth["weight"]
        np.testing.assert_allclose(np.exp(found), np.exp(logits) / np.exp(logits).sum(), atol=1e-5)
    results = PWWS(substitutions=WORD_LIST)(victim, labelled(victim))
    for row in results:
        if row.outcome == "success":
            assert victim.log_probabilities([row.adversarial]).argmax() == row.adversarial_prediction != row.label
    assert results.tally("success")


def test_a_reader_beside_an_onnx_file_reads_for_it(exported: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(exported, tmp_path / "read"))
    reader = parse("leet", KnownWords.of([text for row in ROWS for text in row]))
    reader.save(folder)
    plain, reading = Victim.of(exported / "model.onnx"), Victim.of(folder / "model.onnx")
    written = [(text.replace("o", "0"),) for (text,) in ROWS]
    wanted = plain.log_probabilities([reader.texts(row) for row in written])
    assert abs(wanted - plain.log_probabilities(written)).max() > 0.01
    np.testing.assert_allclose(reading.log_probabilities(written), wanted, atol=1e-6)
    assert reading.fingerprint != plain.fingerprint


def test_the_tokenizer_of_an_onnx_file_is_part_of_its_fingerprint(exported: Path, tmp_path: Path) -> None:
    """Another one makes other tokens of the same texts, and so another victim of the same file."""
    folder = Path(shutil.copytree(exported, tmp_path / "cased"))
    parts = json.loads((folder / "tokenizer.json").read_text())
    parts["normalizer"]["lowercase"] = False
    (folder / "tokenizer.json").write_text(json.dumps(parts))
    plain, cased = (Victim.from_onnx(of / "model.onnx", tokenizer=fast(of)) for of in (exported, folder))
    capitals = [(text.upper(),) for (text,) in ROWS]
    assert abs(plain.log_probabilities(capitals) - cased.log_probabilities(capitals)).max() > 0.01
    assert plain.fingerprint != cased.fingerprint
    assert plain.fingerprint == Victim.from_onnx(exported / "model.onnx", tokenizer=fast(exported)).fingerprint
    plain.log_probabilities(ROWS)  # what the tokenizer was asked for last does not count
    assert plain.fingerprint == Victim.from_onnx(exported / "model.onnx", tokenizer=fast(exported)).fingerprint


def fast(folder: Path) -> Any:
    """The tokenizer as its file has it, whatever its class would make of it."""
    return PreTrainedTokenizerFast(
        tokenizer_file=str(folder / "tokenizer.json"), pad_token="[PAD]", unk_token="[UNK]", model_max_length=64
    )


@pytest.mark.parametrize("location", ["w.bin", "weights/w.bin"])
def test_weights_outside_an_onnx_file_are_told_apart(exported: Path, tmp_path: Path, location: str) -> None:
    import onnx

    folder, path = tmp_path, tmp_path / "model.onnx"
    make_tokenizer(exported).save_pretrained(folder)
    (folder / location).parent.mkdir(exist_ok=True)
    onnx.save(
        onnx.load(exported / "model.onnx"), path, save_as_external_data=True, location=location, size_threshold=100
    )
    first, graph = Victim.of(path).fingerprint, path.read_bytes()
    (folder / "location").write_text("a word that the graph holds, and no weights")
    assert Victim.of(path).fingerprint == first
    weights = bytearray((folder / location).read_bytes())
    weights[:4] = np.float32(0.5).tobytes()
    (folder / location).write_bytes(weights)
    assert path.read_bytes() == graph
    assert Victim.of(path).fingerprint != first


def test_onnx_files_that_are_none(exported: Path, tmp_path: Path) -> None:
    with pytest.raises(UnshakenError, match="no such file"):
        Victim.from_onnx(tmp_path / "none.onnx")
    (tmp_path / "text.onnx").write_text("this is no model")
    with pytest.raises(UnshakenError, match="not a model onnxruntime can run"):
        Victim.from_onnx(tmp_path / "text.onnx", tokenizer=make_tokenizer(exported))

    with pytest.raises(UnshakenError, match="has 3 classes"):
        Victim.from_onnx(exported / "model.onnx", label_names=("no", "yes"))
    shutil.copy(exported / "model.onnx", tmp_path)
    with pytest.raises(UnshakenError, match=r"no tokenizer beside it; put its files there, such as tokenizer\.json"):
        Victim.from_onnx(tmp_path / "model.onnx")


def test_probabilities_of_an_onnx_file_are_not_squeezed_again(exported: Path, tmp_path: Path) -> None:
    """A file with the softmax inside answers as the one without."""
    import onnx

    folder = Path(shutil.copytree(exported, tmp_path / "inside"))
    model = onnx.load(exported / "model.onnx")
    (output,) = model.graph.output
    model.graph.node.append(onnx.helper.make_node("Softmax", [output.name], ["probabilities"], axis=-1))
    output.name = "probabilities"
    onnx.save(model, folder / "model.onnx")
    logits, inside = (Victim.of(home / "model.onnx") for home in (exported, folder))
    np.testing.assert_allclose(inside.log_probabilities(ROWS), logits.log_probabilities(ROWS), atol=1e-5)


# ----------------------------------------------------------------------------------------------------- HTTP


CUT_SHORT, NO_HTTP = 0, 1  # failures without a status: an answer that breaks off, and one that is none


class Service(BaseHTTPRequestHandler):
    """The bag of words behind an address. It is down for the first requests where it is told to be."""

    seen: list[Any] = []  # noqa: RUF012
    failures: list[int] = []  # noqa: RUF012

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        Service.seen.append((self.path, asked, dict(self.headers)))
        if Service.failures:
            self._reply(Service.failures.pop(0), {"error": "later"})
        elif self.path == "/random":
            scores = np.random.default_rng(len(Service.seen)).random(len(asked["inputs"]))
            self._reply(200, [[score, 1 - score] for score in scores.tolist()])
        elif self.path == "/one":
            self._reply(200, {"result": {"score": bag_of_words([asked["text"]])[0][1]}})
        elif self.path == "/secret" and self.headers.get("Authorization") != "Bearer key":
            self._reply(401, {"error": "who are you?"})
        else:
            self._reply(200, labels_and_scores(asked["inputs"]))

    def _reply(self, code: int, value: Any) -> None:
        body = json.dumps(value).encode()
        if code == NO_HTTP:
            self.wfile.write(b"later\r\n\r\n")
            return
        self.send_response(200 if code == CUT_SHORT else code)
        self.send_header("Content-Length", str(len(body) + (code == CUT_SHORT)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        """Nothing on the terminal."""


@pytest.fixture
def service(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    Service.seen, Service.failures = [], []
    monkeypatch.setattr(http_victims, "FIRST_WAIT", 0.001)
    server = HTTPServer(("127.0.0.1", 0), Service)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()
    thread.join()


def test_a_service_in_batches_and_one_text_at_a_time(service: str) -> None:
    batches = Victim.of(f"{service}/many", batch_size=3)
    assert batches.label_names == NAMES
    single = Victim.from_http(f"{service}/one", request='{"text": "$text"}', answer="result.score", label_names=NAMES)
    for victim in (batches, single):
        np.testing.assert_allclose(np.exp(victim.log_probabilities(ROWS)), bag_probabilities(), rtol=1e-5)
    assert [len(asked["inputs"]) for path, asked, _ in Service.seen if path == "/many"] == [1, 3, 3, 2]
    assert sum(path == "/one" for path, _, _ in Service.seen) == len(ROWS)
    before = len(Service.seen)
    single.log_probabilities(ROWS)  # known already
    assert len(Service.seen) == before


def test_an_attack_through_the_service_is_the_attack_on_the_function(service: str) -> None:
    direct = Victim.from_callable(bag_of_words, 2)
    remote = Victim.from_http(f"{service}/many", label_names=NAMES)
    attack, examples = PWWS(substitutions=WORD_LIST), labelled(direct)
    far, near = ([row.adversarial for row in attack(victim, examples)] for victim in (remote, direct))
    assert far == near


def test_failures_are_tried_again_and_refusals_are_not(service: str) -> None:
    Service.failures = [503, 429, 500]
    victim = Victim.from_http(f"{service}/many", label_names=NAMES)
    assert victim.log_probabilities(ROWS).shape == (len(ROWS), 2)
    assert len(Service.seen) == 4
    Service.failures = [500] * 9
    stubborn = Victim.from_http(f"{service}/many", label_names=NAMES, retries=2)
    with pytest.raises(UnshakenError, match="after 3 tries: HTTP 500"):
        stubborn.log_probabilities([("new",)])
    Service.failures = []
    with pytest.raises(UnshakenError, match=r"HTTP 401.*who are you"):
        Victim.from_http(f"{service}/secret", label_names=NAMES).log_probabilities(ROWS)
    allowed = Victim.from_http(f"{service}/secret", label_names=NAMES, headers={"Authorization": "Bearer key"})
    assert allowed.log_probabilities(ROWS).shape == (len(ROWS), 2)


def test_an_answer_that_breaks_off_is_asked_for_again(service: str) -> None:
    Service.failures = [CUT_SHORT, NO_HTTP]
    victim = Victim.from_http(f"{service}/many", label_names=NAMES)
    np.testing.assert_allclose(np.exp(victim.log_probabilities(ROWS)), bag_probabilities(), rtol=1e-5)
    assert len(Service.seen) == 3
    Service.failures = [CUT_SHORT] * 9
    stubborn = Victim.from_http(f"{service}/many", label_names=NAMES, retries=1)
    with pytest.raises(UnshakenError, match="after 2 tries: IncompleteRead"):
        stubborn.log_probabilities(ROWS)


def test_the_letters_of_a_name_are_no_classes() -> None:
    with pytest.raises(UnshakenError, match=r"answered 'pos'; it does not say how many classes there are"):
        Victim.from_callable(lambda texts: ["pos"] * len(texts))


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (["pos", "neg"], r"answered 'pos'; it must give 2 probabilities for every text"),
        ([[0.1, 0.9], [0.2, 0.3, 0.5]], r"answered '\[0.2, 0.3, 0.5\]'; it must give 2 probabilities"),
        ([{"neg": None, "pos": 0.4}] * 2, "it must give 2 probabilities"),
        (None, "it must give 2 probabilities"),
        ([[0.1, 0.9]], r"returned shape \(1, 2\) for 2 texts"),
    ],
)
def test_what_no_probabilities_can_be_made_of_is_told(answer: Any, message: str) -> None:
    victim = Victim.from_callable(lambda _: answer, label_names=("neg", "pos"))
    with pytest.raises(UnshakenError, match=message):
        victim.log_probabilities([("one",), ("two",)])


def test_long_waits_for_a_service_are_told(
    service: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    waited: list[float] = []
    monkeypatch.setattr(http_victims, "sleep", waited.append)
    monkeypatch.setattr(http_victims, "FIRST_WAIT", 0.5)
    Service.failures = [500] * 4
    Victim.from_http(f"{service}/many", label_names=NAMES).log_probabilities(ROWS)
    assert waited == [0.5, 1.0, 2.0, 4.0]
    told = capsys.readouterr().err.splitlines()
    assert [line.partition("; ")[2] for line in told] == ["asked again in 2.0 s", "asked again in 4.0 s"]


def test_answers_are_kept_in_a_file_and_asked_once(service: str, tmp_path: Path) -> None:
    options: dict[str, Any] = {"label_names": NAMES, "cache": tmp_path / "answers.jsonl"}
    first = Victim.from_http(f"{service}/many", **options).log_probabilities(ROWS[:5])
    with (tmp_path / "answers.jsonl").open("a") as stream:
        stream.write('{"key": "cut off by a k')
    asked = len(Service.seen)
    again = Victim.from_http(f"{service}/many", **options)
    np.testing.assert_array_equal(again.log_probabilities(ROWS[:5]), first)
    assert (len(Service.seen), again.requests) == (asked, 0)
    again.log_probabilities(ROWS)
    assert [len(entry[1]["inputs"]) for entry in Service.seen[asked:]] == [3]


def test_a_service_that_answers_at_random_is_found_out_and_averaged(service: str, tmp_path: Path) -> None:
    """Searches ask nothing twice; a mean is of other answers, a success is confirmed by another, and a flag says so."""
    options: dict[str, Any] = {"label_names": NAMES, "cache": tmp_path / "answers.jsonl"}
    victim = Victim.from_http(f"{service}/random", **options)
    np.testing.assert_array_equal(victim.log_probabilities(ROWS), victim.log_probabilities(ROWS))
    answers = [victim.ask_again(ROWS, number) for number in range(8)]
    assert len(np.unique(np.stack(answers))) == 8 * len(ROWS) * 2
    assert victim.requests == 8
    for asked in (victim, Victim.from_http(f"{service}/random", **options)):  # from memory, and from the file
        mean = np.exp(Averaged(asked, times=8).log_probabilities(ROWS))
        np.testing.assert_allclose(mean, np.exp(answers).mean(0), rtol=1e-5)
    assert len(Service.seen) == 8

    rows = Examples(rows=tuple(Example(id=str(n), texts=row, label=0) for n, row in enumerate(ROWS)))
    reading = Reading(victim, parse("unicode", KnownWords()))
    vote = Vote(victim, k=2, substitutions=Typos())
    means = (Averaged(victim, times=4), at_temperature(victim, 2.0), vote)
    for wrapped in (victim, *means, reading, Detector(victim, 1)):
        (found,) = evaluate(wrapped, rows).evaluations
        assert found.probes.repeat_difference > 0.01
        assert (wrapped.answer_alone(ROWS[0]) != wrapped.log_probabilities(ROWS[:1])[0]).all()
    watched = Watched(victim, ROWS[0][0], 0, lambda _: None)
    for other in (Guarded(Agreement(vote), 0.5), watched):
        assert (other.ask_again(ROWS, 0) != other.ask_again(ROWS, 1)).any(1).all()
        assert (other.answer_alone(ROWS[0]) != other.log_probabilities(ROWS[:1])[0]).any()
    assert watched.asked == 1  # a confirmation is no question of the search


def test_a_service_that_answers_alike_is_not_called_random(service: str) -> None:
    rows = Examples(rows=tuple(Example(id=str(n), texts=row, label=0) for n, row in enumerate(ROWS)))
    (found,) = evaluate(Victim.from_http(f"{service}/many", label_names=NAMES), rows).evaluations
    assert (found.probes.repeat_difference, found.probes.batch_difference) == (0, 0)


def test_the_rate_is_kept(service: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a clock of our own: no test waits for a real one."""
    now = [100.0]
    monkeypatch.setattr(http_victims, "monotonic", lambda: now[0])
    monkeypatch.setattr(http_victims, "sleep", lambda seconds: now.__setitem__(0, now[0] + seconds))
    options: dict[str, Any] = {"request": {"text": "$text"}, "answer": "result.score", "label_names": NAMES}
    victim = Victim.from_http(f"{service}/one", rate=4, **options)
    victim.log_probabilities(ROWS)
    assert now[0] == pytest.approx(100 + (len(ROWS) - 1) / 4)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"request": "{no json"}, "is not JSON"),
        ({"request": {"text": "x"}}, "neither"),
        ({"answer": "result.scores", "request": {"text": "$text"}}, "has no 'scores'"),
        ({"rate": 0}, "above 0"),
        ({"num_labels": 3}, "2 class names, and .* has 3 classes"),
    ],
)
def test_settings_of_a_service_that_cannot_be(service: str, options: dict[str, Any], message: str) -> None:
    with pytest.raises(UnshakenError, match=message):
        Victim.from_http(f"{service}/one", **{"label_names": NAMES, **options}).log_probabilities(ROWS)
