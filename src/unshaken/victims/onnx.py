"""`OnnxVictim`: a classifier exported to ONNX, run by onnxruntime as it runs in production."""

from __future__ import annotations

import hashlib
import json
import mmap
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from unshaken.errors import UnshakenError
from unshaken.files import trained_length
from unshaken.names import optional
from unshaken.pretrained import add_tokenizer
from unshaken.pretrained import load as load_pretrained
from unshaken.readers import load as load_reader
from unshaken.truncation import tokenised
from unshaken.victims.base import Texts, Victim, log_of, log_softmax, require_classes

TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json", "vocab.txt", "vocab.json", "spiece.model")
LONGEST = 512  # tokens, where neither the tokenizer nor the caller says


class OnnxVictim(Victim):
    """A sequence classifier in one .onnx file, with a Hugging Face tokenizer beside it, and its reader if it has one.

    Inputs are taken by their usual names (input_ids, attention_mask, token_type_ids); the first output is the logits,
    or probabilities if they come out as such.
    """

    def __init__(
        self,
        path: str | Path,
        *,
        tokenizer: Any = None,
        name: str | None = None,
        label_names: Sequence[str] = (),
        batch_size: int = 64,
        max_length: int | None = None,
        providers: Sequence[str] = ("CPUExecutionProvider",),
    ) -> None:
        onnxruntime = optional("onnxruntime", 'ONNX models need onnxruntime; pip install "unshaken[onnx]"')
        self.path = Path(path)
        if not self.path.is_file():
            raise UnshakenError(f"no such file: {path}")
        try:
            self.session = onnxruntime.InferenceSession(str(self.path), providers=list(providers))
        except Exception as error:  # onnxruntime has a dozen kinds, all of which say what is wrong with the file
            raise UnshakenError(f"{path}: not a model onnxruntime can run ({str(error).splitlines()[0]})") from error
        if tokenizer is None and not any((self.path.parent / file).is_file() for file in TOKENIZER_FILES):
            raise UnshakenError(f"{path} has no tokenizer beside it; put its files there, such as {TOKENIZER_FILES[0]}")
        if tokenizer is None or isinstance(tokenizer, str | Path):
            tokenizer = load_pretrained("AutoTokenizer", tokenizer or self.path.parent)
        self.tokenizer = tokenizer
        self.reader = load_reader(self.path.parent)  # no part of what an exporter writes, but of the model
        self.inputs = [item.name for item in self.session.get_inputs()]
        self.name = name or str(path)
        self.batch_size = batch_size
        longest = min(int(tokenizer.model_max_length), LONGEST)
        self.max_length = max_length or min(trained_length(self.path.parent) or longest, longest)
        self.unknown = tokenizer.unk_token or ""
        unknown = set(self.inputs) - set(self._encode([("a",)]))
        if unknown:
            raise UnshakenError(f"{path} wants the input {min(unknown)!r}, which its tokenizer does not make")
        probes = np.concatenate([self._logits([(text,)]) for text in ("a", "another text")])
        self.num_labels = int(probes.shape[-1])
        require_classes(self.num_labels, self.name, label_names)
        self.label_names = tuple(label_names) or _names_beside(self.path, self.num_labels)
        # A softmax inside the file: another one after it would bring all probabilities together.
        self.has_softmax = bool((probes >= 0).all() and np.allclose(probes.sum(-1), 1, atol=1e-3))

    @property
    def fingerprint(self) -> str:
        with self.path.open("rb") as stream:
            digest = hashlib.file_digest(stream, "sha256")
        digest.update(str(self.max_length).encode())
        for path in _weights_beside(self.path):
            with path.open("rb") as stream:
                digest.update(hashlib.file_digest(stream, "sha256").digest())
        add_tokenizer(digest, self.tokenizer)
        if self.reader is not None:
            digest.update(self.reader.fingerprint.encode())
        return digest.hexdigest()

    def _predict(self, texts: Sequence[Texts]) -> np.ndarray:
        order = sorted(range(len(texts)), key=lambda index: sum(map(len, texts[index])))
        logits = np.empty((len(texts), self.num_labels), np.float64)
        for start in range(0, len(order), self.batch_size):
            batch = order[start : start + self.batch_size]
            logits[batch] = self._logits([texts[index] for index in batch])
        return log_of(logits, len(texts), self) if self.has_softmax else log_softmax(logits)

    def _encode(self, texts: Sequence[Texts]) -> dict[str, np.ndarray]:
        encoded = tokenised(self.tokenizer, texts, self.max_length, self.reader, padding=True, return_tensors="np")
        return {name: np.asarray(values, np.int64) for name, values in encoded.items()}

    def _logits(self, texts: Sequence[Texts]) -> np.ndarray:
        encoded = self._encode(texts)
        return np.asarray(self.session.run(None, {name: encoded[name] for name in self.inputs})[0])


def _weights_beside(path: Path) -> list[Path]:
    """The files below its folder that a graph keeps its weights in: it says "location", a length and a path."""
    with path.open("rb") as stream, mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as graph:
        found = re.finditer(rb"\x08location\x12([\x01-\x7f])", graph)
        named = {graph[match.end() : match.end() + match[1][0]] for match in found}
    home = path.parent.resolve()
    files = (home / name.decode("utf-8", "ignore") for name in sorted(named) if b"\0" not in name)
    return [file for file in files if home in file.resolve().parents and file.is_file()]


def _names_beside(path: Path, num_labels: int) -> tuple[str, ...]:
    """The class names of a config.json beside the file, as exporters leave it."""
    config = path.parent / "config.json"
    try:
        names = json.loads(config.read_text(encoding="utf-8")).get("id2label", {}) if config.is_file() else {}
    except (ValueError, AttributeError, OSError):
        return ()
    if not isinstance(names, dict) or len(names) != num_labels or not all(str(key).isdecimal() for key in names):
        return ()
    return tuple(str(names[key]) for key in sorted(names, key=int))
