"""`ModelVictim`: a Hugging Face classifier that answers ragged token rows in length-sorted batches."""

from __future__ import annotations

import contextlib
import copy
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from unshaken.attention import attention_for_any_shape
from unshaken.errors import UnshakenError
from unshaken.files import trained_length
from unshaken.matching import check_padding, check_tokenizer, check_tokens, check_vocabulary, table_rows
from unshaken.names import lookup
from unshaken.precision import full_products
from unshaken.pretrained import CLASSIFIER, DTYPES, explained, fingerprint, locate
from unshaken.pretrained import load as load_pretrained
from unshaken.processes import own_device
from unshaken.readers import Readers
from unshaken.readers import load as load_reader
from unshaken.truncation import as_read, tokenised
from unshaken.victims.alone import Alone
from unshaken.victims.bare_encoder import BareEncoder, same_answers
from unshaken.victims.base import Close, Texts, Victim, checked, log_softmax, require_classes
from unshaken.victims.batches import AssembledRows, Batch, RaggedRows
from unshaken.wordings import Rows, TokenAssembler, TokenTable

# Measured: beyond these sizes a forward pass gains nothing (GPU) or falls out of the caches (CPU).
BATCH_TOKENS = {"cuda": 131_072, "cpu": 4_096}
# A forward pass of its own costs as much as this much padding, so rows of unlike lengths are kept apart beyond it.
# On an H200 MiniLM reads 7 million tokens a second, and 2 to 3 ms go into the launches of a pass.
LAUNCH_TOKENS = {"cuda": 12_288, "cpu": 32}


class ModelVictim(Victim):
    """A Hugging Face sequence classifier with its tokenizer.

    Rows are sorted by length and padded to the longest of their batch only. A batch that does not fit into memory is
    halved, and the smaller size is kept.

    Args:
        scoring_dtype: Half precision ("bf16", "bfloat16", "float16") in which the queries of a search are answered,
            under autocast. The weights stay as they are.
    """

    def __init__(
        self,
        model: Any,
        tokenizer: Any,
        *,
        name: str | None = None,
        compile: bool = False,
        batch_tokens: int | None = None,
        max_length: int | None = None,
        reader: Readers | None = None,
        scoring_dtype: Any = None,
    ) -> None:
        self.reader = reader
        self.num_labels = int(model.config.num_labels)
        self.label_names = label_names(model.config)
        self.name = name or str(getattr(model.config, "_name_or_path", "") or type(model).__name__)
        require_classes(self.num_labels, self.name)
        if tokenizer.pad_token_id is None:
            raise UnshakenError(
                f"the tokenizer of {self.name} has no padding token; set tokenizer.pad_token and "
                "model.config.pad_token_id first"
            )
        check_padding(tokenizer, model, self.name)
        check_vocabulary(tokenizer, model, self.name)
        if batch_tokens is not None and batch_tokens < 1:
            raise UnshakenError(f"batch_tokens is {batch_tokens}; it must be at least 1")
        self.model: Any = model.eval()
        self.tokenizer = tokenizer
        self.tokenizing = threading.RLock()  # a fast tokenizer refuses a second thread while its settings change
        self.max_length = max_length or _longest_input(model, tokenizer)
        self.unknown = tokenizer.unk_token or ""
        self.device: torch.device = model.device
        self.runs_beside_python = self.device.type != "cpu"
        kind = "cpu" if self.device.type == "cpu" else "cuda"
        self.batch_tokens = batch_tokens or BATCH_TOKENS[kind]
        self._launch_tokens = LAUNCH_TOKENS[kind]
        self._call = torch.compile(model, dynamic=True) if compile else model
        self.scoring_dtype = _dtype(scoring_dtype)
        self._takes_types = "token_type_ids" in tokenizer.model_input_names
        self._fingerprint: tuple[int, str] | None = None  # with the weights' version, as training goes on
        self.notes: dict[Any, Any] = {}  # what white-box attacks keep for the next batch
        self._takes_masks = False
        self._assemblers: dict[tuple[int, int, int], TokenAssembler] = {}
        with full_products():
            self._shortcut = None if compile else BareEncoder.of(model, self._sample())
            self._takes_masks = self._shortcut is not None and self._agrees_on_masks()
        # Texts that are confirmed; on a CPU padding costs more than a pass.
        padding = self._launch_tokens if self.runs_beside_python else 0
        self.alone = Alone(self, padding, rows_are_apart=self._shortcut is not None)

    @classmethod
    def load(
        cls,
        path_or_name: str | Path,
        *,
        device: str | None = None,
        dtype: Any = None,
        trust_remote_code: bool = False,
        **options: Any,
    ) -> ModelVictim:
        device, path_or_name = own_device(device), locate(path_or_name)
        dtype = _dtype(dtype)
        trust: dict[str, Any] = {"trust_remote_code": trust_remote_code}
        tokenizer = load_pretrained("AutoTokenizer", path_or_name, **trust)
        model = load_pretrained(CLASSIFIER, path_or_name, dtype=dtype or torch.float32, **trust)
        options.setdefault("reader", load_reader(path_or_name))
        if not options.get("max_length") and (trained := trained_length(path_or_name)):
            options["max_length"] = min(trained, _longest_input(model, tokenizer))
        check_tokenizer(tokenizer, model, path_or_name)
        with explained(path_or_name, "its first answer", trust_remote_code):
            victim = cls(model.to(device), tokenizer, name=path_or_name, **options)
            victim.log_probabilities([("a good film",)])
        return victim

    @property
    def network(self) -> ModelVictim:
        return self

    @property
    def exact(self) -> ModelVictim:
        if self.scoring_dtype is None:
            return self
        twin = copy.copy(self)  # one model and tokenizer, and what was learnt of words
        twin.scoring_dtype = twin._fingerprint = None
        return twin

    @property
    def version(self) -> int:
        """Grows where the weights change."""
        return sum(parameter._version for parameter in self.model.parameters())

    @property
    def fingerprint(self) -> str:
        """SHA-256 of weights, configuration and tokenizer; hashed again only where the weights were changed."""
        version = self.version
        if self._fingerprint is None or self._fingerprint[0] != version:
            digest = fingerprint(self.model, self.tokenizer)
            digest.update(str(self.max_length).encode())
            if self.reader is not None:
                digest.update(self.reader.fingerprint.encode())
            if self.scoring_dtype is not None:
                digest.update(str(self.scoring_dtype).encode())
            self._fingerprint = (version, digest.hexdigest())
        return self._fingerprint[1]

    def encode(self, texts: Sequence[Texts]) -> Rows:
        """Read, tokenise and truncate whole texts, or pairs."""
        texts = as_read(texts, self.reader)  # outside of the lock: it may take long
        with self.tokenizing:
            encoded = tokenised(self.tokenizer, texts, self.max_length)
        return Rows.from_lists(encoded["input_ids"], encoded.get("token_type_ids") if self._takes_types else None)

    def _predict(self, texts: Sequence[Texts]) -> np.ndarray:
        return self.predict_rows(self.encode(texts))

    def predict_rows(self, rows: Rows) -> np.ndarray:
        """Log-probabilities of token rows, float32 (n, classes), in the order given."""
        if empty := int((rows.lengths == 0).sum()):
            raise UnshakenError(
                f"{self.name} cannot answer {empty} of {len(rows)} texts, which have no token, since its tokenizer "
                "adds none: leave empty texts out"
            )
        if len(rows):
            check_tokens(int(rows.ids.max()), table_rows(self.model), self.tokenizer)
        with self.answering():
            logits = self.logits(self._on_device(rows), self._call, self._launch_tokens)
        return checked(log_softmax(logits.cpu().numpy()), len(rows), self.num_labels, self.name)

    def predict_table(self, table: TokenTable, owner: Tensor, choices: Tensor) -> Tensor:
        if not len(owner):
            return torch.empty(0, self.num_labels, device=self.device)
        with self.answering():
            logits = self.logits(AssembledRows(table, owner, choices), self._call, self._launch_tokens)
        found = logits.double().log_softmax(-1).float()  # as `log_softmax` does it, for the same reason
        if found.isnan().any():
            raise UnshakenError(f"{self.name} returned NaN for {int(found.isnan().any(1).sum())} of {len(found)} texts")
        return found

    def logits(self, source: RaggedRows | AssembledRows, model: Any, padding: int) -> Tensor:
        """A model's answers to all rows of a source, in the order given. (n, classes)"""
        count = len(source.sorted_lengths)
        logits = torch.empty(count, self.num_labels, device=self.device, dtype=self._logits_dtype)
        start = 0
        while start < count:
            batch = source.batch(start, self.batch_end(source.sorted_lengths, start, padding))
            try:
                logits[batch.order] = self.batch_logits(batch, model)
            except (torch.cuda.OutOfMemoryError, RuntimeError) as error:
                self._shrink(error, batch)
                continue
            start += len(batch.order)
        return logits

    def batch_logits(self, batch: Batch, model: Any) -> Tensor:
        """A model's answers to one batch, in the batch's order. (batch, classes)"""
        logits: Tensor = model(**self._inputs(batch)).logits
        return logits.to(self._logits_dtype)

    @property
    def _logits_dtype(self) -> torch.dtype:
        return torch.float64 if self.model.dtype == torch.float64 else torch.float32

    def _on_device(self, rows: Rows) -> RaggedRows:
        return RaggedRows(rows, self.device, self.tokenizer.pad_token_id)

    @contextlib.contextmanager
    def answering(self) -> Iterator[None]:
        """How queries are answered: without gradients, by the fastest kernels, and in half precision only if asked."""
        with contextlib.ExitStack() as stack:
            stack.enter_context(torch.no_grad())
            if self.scoring_dtype is None:
                stack.enter_context(full_products())
            else:
                stack.enter_context(torch.autocast(self.device.type, dtype=self.scoring_dtype))
            if self._shortcut:
                stack.enter_context(self._shortcut.open())
            stack.enter_context(attention_for_any_shape(self.device))
            yield

    def answer_alone(self, texts: Texts) -> np.ndarray:
        return self.alone.answer(texts)

    def answers_alone(self, texts: Sequence[Texts], close: Close | None = None) -> np.ndarray:
        return self.alone.answers(texts, close)

    def answers_together(self, texts: Sequence[Texts]) -> np.ndarray:
        """Log-probabilities of texts that share one padded batch, whatever their lengths. (n, classes)

        Read and answered as queries are, so that only the company differs from that of a text by itself.
        """
        rows = self.encode(texts)
        batch = self._on_device(rows).batch(0, len(rows))
        with self.answering():
            logits = self.batch_logits(batch, self._call)[batch.order.argsort()]
        return checked(log_softmax(logits.cpu().numpy()), len(rows), self.num_labels, self.name)

    def read_ahead(self, texts: Sequence[Texts]) -> None:
        self.alone.read(texts)

    def batches(self, rows: Rows) -> Iterator[tuple[Tensor, dict[str, Tensor]]]:
        """The same batches for passes of one's own (gradients): row numbers and model inputs."""
        ragged, start = self._on_device(rows), 0
        while start < len(rows):
            batch = ragged.batch(start, self.batch_end(ragged.sorted_lengths, start, self._launch_tokens))
            yield batch.order, self._inputs(batch)
            start += len(batch.order)

    def _inputs(self, batch: Batch) -> dict[str, Tensor]:
        mask = batch.mask.bool()[:, None, None] if self._takes_masks else batch.mask.long()  # (batch, 1, 1, seq)
        inputs = {"input_ids": batch.ids, "attention_mask": mask}
        if self._takes_types:
            inputs["token_type_ids"] = batch.types
        return inputs

    def _agrees_on_masks(self) -> bool:
        """Whether stock layers take the mask as attention needs it. Making it of one for tokens, transformers looks
        whether there is any padding, and so waits for the device at each pass."""
        sample = self._sample()
        try:
            with torch.no_grad():
                expected = self.model(**sample).logits
                found = self.model(
                    **{**sample, "attention_mask": sample["attention_mask"].bool()[:, None, None]}
                ).logits
        except (IndexError, RuntimeError, TypeError, ValueError):
            return False
        return same_answers(expected, found)

    def assembler(self, columns: int) -> TokenAssembler:
        """Puts the tokens of wordings together for this victim. What it has learnt of words stays for the next run."""
        key = (columns, self.max_length, len(self.tokenizer))
        known = self._assemblers.get(key)
        if known is None or known.reader is not self.reader:
            # Where a worker runs the model, it tokenises too, and a tokenizer serves one thread at a time.
            tokenizer = copy.deepcopy(self.tokenizer) if self.runs_beside_python else self.tokenizer
            self._assemblers = {key: TokenAssembler(tokenizer, columns, self.max_length, self.reader)}
        return self._assemblers[key]

    def tables(self, columns: int) -> TokenAssembler:
        return self.assembler(columns)

    def _sample(self) -> dict[str, Tensor]:
        """Two short rows of unlike length, as a model takes them."""
        rows = self.encode([("a good film",), ("it is what it is, and no more",)])
        return next(iter(self.batches(rows)))[1]

    def batch_end(self, lengths: np.ndarray, start: int, padding: int) -> int:
        """Where the batch that begins at `start` ends: at the token budget, or before more than so much padding."""
        longest = int(lengths[start])
        end = min(len(lengths), start + max(1, self.batch_tokens // longest))
        padded = np.cumsum(longest - lengths[start:end])
        fitting = start + max(1, int(np.searchsorted(padded, padding, side="right")))
        if fitting == end:
            return end
        # Others of the last length come next anyhow, where none of them is padded.
        return start + int(np.searchsorted(-lengths[start:end], -lengths[fitting]))

    def _shrink(self, error: Exception, batch: Batch) -> None:
        memory = isinstance(error, torch.cuda.OutOfMemoryError) or "can't allocate memory" in str(error)
        if not memory or len(batch.order) == 1:
            raise error
        self.batch_tokens = max(1, batch.ids.numel() // 2)
        if self.device.type == "cuda":
            torch.cuda.empty_cache()


def _longest_input(model: Any, tokenizer: Any) -> int:
    positions = getattr(model.config, "max_position_embeddings", None) or 512
    for name, table in model.named_modules():
        if name.endswith("position_embeddings") and getattr(table, "padding_idx", None) is not None:
            positions -= table.padding_idx + 1  # RoBERTa and its kin count from there on
            break
    return int(min(tokenizer.model_max_length, positions))


def _dtype(given: Any) -> Any:
    return getattr(torch, lookup("dtype", given, DTYPES)) if isinstance(given, str) else given


def label_names(config: Any) -> tuple[str, ...]:
    """The class names of a model, where someone gave it any: LABEL_0, LABEL_1 and so on are transformers' own."""
    names = [str(name) for _, name in sorted(getattr(config, "id2label", {}).items())]
    return () if names == [f"LABEL_{index}" for index in range(len(names))] else tuple(names)
