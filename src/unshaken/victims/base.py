"""`Victim`: a classifier under attack, texts in and log-probabilities out. Any function or pipeline will do."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from unshaken.errors import UnshakenError
from unshaken.names import at
from unshaken.victims.answers import probe_classes
from unshaken.victims.object_digest import object_digest

if TYPE_CHECKING:
    from torch import Tensor

    from unshaken.readers import Readers
    from unshaken.victims.callables import CallableVictim
    from unshaken.victims.hugging_face import ModelVictim

Texts = tuple[str, ...]  # one text, or two of a pair task
Close = Callable[[np.ndarray], np.ndarray]


class Victim(ABC):
    """A classifier under attack.

    Attributes:
        num_labels: Number of classes, at least two.
        name: How reports call it.
        fingerprint: SHA-256 of what decides its answers, as far as that can be known.
        max_length: Longest input in tokens; 0 if the victim does not count tokens.
        label_names: Names of the classes in their order; empty if nobody gave them any.
        unknown: What stands for a word the victim does not know, for attacks that ask how much a word matters.
        reader: What its texts go through first, which whoever attacks it knows, too; None if nothing is known of one.

    Example:
        >>> victim = Victim.from_pretrained("textattack/bert-base-uncased-SST-2")
        >>> victim.log_probabilities([("a good film",)]).shape
        (1, 2)
    """

    num_labels: int
    name: str
    max_length: int = 0
    label_names: tuple[str, ...] = ()
    unknown: str = "[UNK]"
    reader: Readers | None = None
    runs_beside_python: bool = False  # whether a forward pass leaves the CPU free to prepare the next one

    def __repr__(self) -> str:
        classes = ", ".join(self.label_names) or f"{self.num_labels} classes"
        return f"{type(self).__name__}({self.name!r}: {classes})"

    @property
    @abstractmethod
    def fingerprint(self) -> str: ...

    @property
    def folder(self) -> str:
        """Where training may have left its record: what wraps a victim points to that of the victim."""
        return self.name

    @property
    def network(self) -> ModelVictim | None:
        """The Hugging Face model whose gradients a white-box attack follows; None if there is none."""
        return None

    @abstractmethod
    def _predict(self, texts: Sequence[Texts]) -> np.ndarray: ...  # (n, classes) log-probabilities

    def log_probabilities(self, texts: Sequence[Texts]) -> np.ndarray:
        """Log-probabilities of each class, float32 (n, classes). A wrong shape or a NaN is an error."""
        if not texts:
            return np.empty((0, self.num_labels), np.float32)
        return checked(self._predict(texts), len(texts), self.num_labels, self.name)

    def ask_again(self, texts: Sequence[Texts], number: int) -> np.ndarray:
        """`log_probabilities`, asked for the so-many-th time from 0: what remembers its answers must not repeat them
        here, or nobody would see that they are drawn at random. (n, classes)"""
        return self.log_probabilities(texts)

    def answer_alone(self, texts: Texts) -> np.ndarray:
        """Log-probabilities of one text by itself, as exactly as the victim can say them. (classes,)"""
        return np.asarray(self.exact.ask_again([texts], 1)[0])

    def answers_alone(self, texts: Sequence[Texts], close: Close | None = None) -> np.ndarray:
        """The same for many texts, each as if it were alone. (n, classes)

        Args:
            close: Which answers are so near to another outcome that rounding might decide: (n, classes) -> (n,). Those
                texts are asked about truly alone where the others are not.
        """
        answers = [self.answer_alone(row) for row in texts]
        return np.stack(answers) if answers else np.empty((0, self.num_labels), np.float32)

    @property
    def exact(self) -> Victim:
        """The same victim as exact as it can be, for what half precision leaves in doubt."""
        return self

    def tables(self, columns: int) -> Any:
        """What puts wordings together for `predict_table`, in tables on the model's device; None if texts are read."""
        return None

    def predict_table(self, table: Any, owner: Tensor, choices: Tensor) -> Tensor:
        """Log-probabilities of wordings, put together and answered on the device; float32 (n, classes).

        Args:
            table: The examples, as `tables` makes it.
            owner: The example of each row. (n,)
            choices: What it writes at each place. (n, places)
        """
        raise NotImplementedError(f"{type(self).__name__} reads texts")

    def read_ahead(self, texts: Sequence[Texts]) -> None:  # noqa: B027 - most have nothing to prepare
        """Texts that will be asked about alone: what a victim can prepare for them beside its work, it may."""

    @staticmethod
    def from_pretrained(
        path_or_name: str | Path,
        *,
        device: str | None = None,
        dtype: Any = None,
        compile: bool = False,
        batch_tokens: int | None = None,
        max_length: int | None = None,
        scoring_dtype: Any = None,
        trust_remote_code: bool = False,
    ) -> ModelVictim:
        """A Hugging Face sequence classifier, hardened by this library or not, from a folder or the hub.

        It reads as many tokens as its training did, where a record beside it tells, and else as many as it can.
        `scoring_dtype="bf16"` answers the queries of a search in half precision, which is faster on a GPU.
        `trust_remote_code` runs the Python files that some models bring with them; read them first.
        """
        return _model_victim().load(
            path_or_name,
            device=device,
            dtype=dtype,
            compile=compile,
            batch_tokens=batch_tokens,
            max_length=max_length,
            scoring_dtype=scoring_dtype,
            trust_remote_code=trust_remote_code,
        )

    @staticmethod
    def from_model(
        model: Any,
        tokenizer: Any,
        *,
        name: str | None = None,
        compile: bool = False,
        batch_tokens: int | None = None,
        max_length: int | None = None,
        reader: Readers | None = None,
        scoring_dtype: Any = None,
    ) -> ModelVictim:
        """A model in memory, on the device it is on, with what reads its texts. It is put into evaluation mode."""
        return _model_victim()(
            model,
            tokenizer,
            name=name,
            compile=compile,
            batch_tokens=batch_tokens,
            max_length=max_length,
            reader=reader,
            scoring_dtype=scoring_dtype,
        )

    @staticmethod
    def from_callable(
        function: Callable[[list[Any]], Any],
        num_labels: int | None = None,
        *,
        label_names: Sequence[str] = (),
        name: str | None = None,
        batch_size: int = 256,
        unknown: str = "[UNK]",
    ) -> Victim:
        """Any function from a list of texts (or of pairs) to probabilities (n, classes).

        Answers may also be dicts of scores, lists of labels with scores, or with two classes the probability of the
        last one. What is not said about the classes is learned from one question.
        """
        if num_labels is None and not label_names:
            called = name or str(getattr(function, "__name__", type(function).__name__))
            num_labels, label_names = probe_classes(function(["a"]), called)
        return _callable_victim()(
            function,
            num_labels or len(label_names),
            label_names=label_names,
            name=name,
            batch_size=batch_size,
            unknown=unknown,
        )

    @staticmethod
    def from_pipeline(pipeline: Any, *, name: str | None = None, max_length: int | None = None) -> ModelVictim:
        """A `transformers.pipeline("text-classification", ...)`: its model and tokenizer, asked in full batches.

        Texts go through the reader that was saved beside the model. The pipeline itself has none: ask the victim.
        """
        if getattr(pipeline, "task", None) not in ("text-classification", "sentiment-analysis"):
            raise UnshakenError(f"{type(pipeline).__name__} is no text-classification pipeline")
        folder = pipeline.model.name_or_path  # empty for a model that was made in memory
        reader = at("unshaken.readers:load")(folder) if folder else None
        return _model_victim()(pipeline.model, pipeline.tokenizer, name=name, max_length=max_length, reader=reader)

    @staticmethod
    def from_onnx(path: str | Path, **options: Any) -> Victim:
        """A classifier in an .onnx file; options are those of `unshaken.victims.onnx.OnnxVictim`.

        Example:
            >>> Victim.from_onnx("guard/model.onnx", label_names=("safe", "injection"))
        """
        victim: Victim = at("unshaken.victims.onnx:OnnxVictim")(path, **options)
        return victim

    @staticmethod
    def from_http(url: str, **options: Any) -> Victim:
        """A classifier behind an address; options are those of `unshaken.victims.http.HttpVictim`.

        Args:
            url: Where to send a POST request.
            options: `request` is the JSON to send, with `$text` or `$texts` in it; `answer` the path to the answer
                ("result.scores"); `label_names`; `headers`; `rate` in requests per second; `retries`; `cache`, a file
                that keeps every answer, so that a killed run asks nothing twice.

        Example:
            >>> Victim.from_http("http://localhost:8000/spam", request={"text": "$text"}, label_names=("ham", "spam"))
        """
        victim: Victim = at("unshaken.victims.http:HttpVictim")(url, **options)
        return victim

    @staticmethod
    def of(anything: Any, **options: Any) -> Victim:
        """The victim that something is: a victim, a folder or hub name, an .onnx file, an address, a transformers
        pipeline, a scikit-learn pipeline, or any function from texts to probabilities."""
        if isinstance(anything, Victim):
            return anything
        if isinstance(anything, str | Path):
            if str(anything).startswith(("http://", "https://")):
                return Victim.from_http(str(anything), **options)
            if str(anything).endswith(".onnx"):
                return Victim.from_onnx(anything, **options)
            return Victim.from_pretrained(anything, **options)
        if hasattr(anything, "task") and hasattr(anything, "tokenizer"):
            return Victim.from_pipeline(anything, **options)
        if hasattr(anything, "predict_proba"):
            return Victim.from_sklearn(anything, **options)
        if callable(anything):
            return Victim.from_callable(anything, **options)
        raise UnshakenError(
            f"{type(anything).__name__} is no classifier: give a model, a pipeline, a path or a function"
        )

    @staticmethod
    def from_labels(
        function: Callable[[list[Any]], Any], num_labels: int, *, name: str | None = None, batch_size: int = 256
    ) -> Victim:
        """Any function from a list of texts (or of pairs) to labels: an API that gives decisions only.

        Attack it with `HardLabel`; other searches have no score to climb.
        """
        name = name or str(getattr(function, "__name__", type(function).__name__))

        def decisions(texts: list[Any]) -> np.ndarray:
            labels = np.asarray(function(texts))
            if labels.shape != (len(texts),) or not np.isin(labels, range(num_labels)).all():
                raise UnshakenError(
                    f"{name} returned {labels.tolist()!r:.80} for {len(texts)} texts; expected a label for each, 0 to "
                    f"{num_labels - 1}"
                )
            return np.asarray(np.eye(num_labels)[labels.astype(int)])

        return _callable_victim()(decisions, num_labels, name=name, batch_size=batch_size)

    @staticmethod
    def from_sklearn(pipeline: Any, *, name: str | None = None, batch_size: int = 4096) -> Victim:
        """A scikit-learn pipeline that starts from raw text and has `predict_proba`; label i is `classes_[i]`."""
        if not hasattr(pipeline, "predict_proba"):
            raise UnshakenError(
                f"{type(pipeline).__name__} has no predict_proba; wrap it in CalibratedClassifierCV or use "
                "Victim.from_callable"
            )
        return _callable_victim()(
            pipeline.predict_proba,
            len(pipeline.classes_),
            label_names=tuple(map(str, pipeline.classes_)),
            name=name or type(pipeline).__name__,
            batch_size=batch_size,
            content=object_digest(pipeline),
        )


def _callable_victim() -> type[CallableVictim]:
    kind: type[CallableVictim] = at("unshaken.victims.callables:CallableVictim")
    return kind


def _model_victim() -> type[ModelVictim]:
    kind: type[ModelVictim] = at("unshaken.victims.hugging_face:ModelVictim")
    return kind


def log_of(probabilities: np.ndarray, rows: int, victim: Victim) -> np.ndarray:
    """The logarithm of probabilities, after a look whether they are any."""
    require_shape(probabilities, rows, victim.num_labels, victim.name)
    wrong = (probabilities < 0).any(-1) | (np.abs(probabilities.sum(-1) - 1) > 1e-3)
    if wrong.any():
        raise UnshakenError(
            f"{victim.name} returned {probabilities[wrong.argmax()].tolist()} for a text, which is no distribution; "
            "return softmax probabilities, not logits"
        )
    return np.asarray(np.log(np.maximum(probabilities, np.finfo(np.float32).tiny)))


def require_classes(num_labels: int, who: str, label_names: Sequence[str] = ()) -> None:
    if num_labels < 2:
        raise UnshakenError(
            f"{who} has {num_labels} label; an attack changes the predicted class and needs a classifier with two or "
            "more (a regression head has none to change)"
        )
    if label_names and len(label_names) != num_labels:
        raise UnshakenError(f"{len(label_names)} class names, and {who} has {num_labels} classes")


def require_shape(values: np.ndarray, rows: int, classes: int, name: str) -> None:
    if values.shape != (rows, classes):
        raise UnshakenError(f"{name} returned shape {values.shape} for {rows} texts; expected ({rows}, {classes})")
    if np.isnan(values).any():
        raise UnshakenError(f"{name} returned NaN for {int(np.isnan(values).any(-1).sum())} of {rows} texts")


def checked(values: np.ndarray, rows: int, classes: int, name: str) -> np.ndarray:
    """Log-probabilities as float32, or an error that says what is wrong with them."""
    require_shape(values, rows, classes, name)
    return values.astype(np.float32)


def log_softmax(logits: np.ndarray) -> np.ndarray:
    """In float64, so that a confident model's log-probabilities stay apart instead of all rounding to zero."""
    shifted = logits.astype(np.float64) - logits.max(-1, keepdims=True)
    return np.asarray(shifted - np.log(np.exp(shifted).sum(-1, keepdims=True)))
