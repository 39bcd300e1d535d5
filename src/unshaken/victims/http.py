"""`HttpVictim`: a classifier behind an address, asked no faster than allowed and again after a failure."""

from __future__ import annotations

import hashlib
import http.client
import json
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import monotonic, sleep
from typing import Any

import numpy as np

from unshaken.display import duration, note
from unshaken.errors import UnshakenError
from unshaken.files import parse_checked, with_check
from unshaken.schema import decode
from unshaken.victims.answers import as_probabilities, probe_classes
from unshaken.victims.base import Texts, Victim, checked, log_of, require_classes

AGAIN = {408, 425, 429, 500, 502, 503, 504}  # worth another try
FIRST_WAIT = 0.5  # seconds before the second try; doubled before each further one
LONG_WAIT = 2.0  # seconds from which on a wait is told


class HttpVictim(Victim):
    """A web service that takes JSON and answers with probabilities, or with labels and scores.

    Answers are remembered, and searches ask nothing twice; what is to be confirmed or averaged is asked anew.
    """

    def __init__(
        self,
        url: str,
        *,
        request: Any = None,
        answer: str = "",
        label_names: Sequence[str] = (),
        num_labels: int | None = None,
        headers: Mapping[str, str] | None = None,
        rate: float | None = None,
        batch_size: int = 32,
        retries: int = 5,
        timeout: float = 30.0,
        cache: str | Path | None = None,
        name: str | None = None,
    ) -> None:
        if not url.startswith(("http://", "https://")):
            raise UnshakenError(f"{url!r} is no web address; it starts with http:// or https://")
        if rate is not None and rate <= 0:
            raise UnshakenError(f"rate is {rate}; it is requests per second, above 0")
        self.url, self.request, self.answer = url, _template(request), answer
        self.headers = {"Content-Type": "application/json", **(headers or {})}
        self.rate, self.retries, self.timeout = rate, retries, timeout
        self.one_at_a_time = "$texts" not in json.dumps(self.request)
        self.batch_size = 1 if self.one_at_a_time else batch_size
        self.name = name or url
        self.requests = 0  # sent so far, repeats after failures included
        self._last = 0.0
        self._known: dict[Texts, list[Any]] = {}  # every answer, in order
        self._cache = None if cache is None else Path(cache)
        self._read_cache()
        self.label_names = tuple(label_names)
        self.num_labels = num_labels or len(label_names)
        if not self.num_labels:
            self.num_labels, self.label_names = probe_classes(self._ask([("a",)]), self.name)
        require_classes(self.num_labels, self.name, self.label_names)

    @property
    def fingerprint(self) -> str:
        """Of the question asked; what the service does with it, nobody can know."""
        return hashlib.sha256(json.dumps([self.url, self.request, self.answer]).encode()).hexdigest()

    def _predict(self, texts: Sequence[Texts]) -> np.ndarray:
        return self._answers(texts, 0)

    def ask_again(self, texts: Sequence[Texts], number: int) -> np.ndarray:
        return checked(self._answers(texts, number), len(texts), self.num_labels, self.name)

    def _answers(self, texts: Sequence[Texts], number: int) -> np.ndarray:
        while new := [row for row in dict.fromkeys(texts) if len(self._known.get(row, ())) <= number]:
            for start in range(0, len(new), self.batch_size):
                self._ask(new[start : start + self.batch_size])
        answers = [self._known[row][number] for row in texts]
        return log_of(as_probabilities(answers, self.label_names, self.num_labels, self.name), len(texts), self)

    def _ask(self, texts: Sequence[Texts]) -> list[Any]:
        """Answers to a batch, remembered; each goes to the file at once, so that a killed run asks nothing again."""
        plain = [row[0] if len(row) == 1 else list(row) for row in texts]
        body = _filled(self.request, {"$text": plain[0], "$texts": plain})
        found = _at(self._send(json.dumps(body).encode()), self.answer, self.name)
        answers = [found] if self.one_at_a_time else found
        if not isinstance(answers, list):
            raise UnshakenError(f"{self.name} gave no list of answers; name the place with answer='a.b' (--answer)")
        if len(answers) != len(texts):
            raise UnshakenError(f"{self.name} gave {len(answers)} answers to {len(texts)} texts; it must give one each")
        if self.one_at_a_time and isinstance(found, list) and len(found) == 1 and isinstance(found[0], list):
            answers = found  # a list of one, as if there were several
        for row, answer in zip(texts, answers, strict=True):
            self._known.setdefault(row, []).append(answer)
        if self._cache is not None:
            with self._cache.open("a", encoding="utf-8") as stream:
                stream.writelines(
                    with_check(json.dumps({"key": self.fingerprint, "texts": row, "answer": answer})) + "\n"
                    for row, answer in zip(texts, answers, strict=True)
                )
        return answers

    def _send(self, body: bytes) -> Any:
        for attempt in range(self.retries + 1):
            self._wait_for_turn()
            self.requests += 1
            try:
                call = urllib.request.Request(self.url, data=body, headers=self.headers, method="POST")
                with urllib.request.urlopen(call, timeout=self.timeout) as response:
                    return json.loads(response.read())
            except urllib.error.HTTPError as error:
                reason, wait = f"HTTP {error.code} {error.reason}", error.headers.get("Retry-After", "")
                if error.code not in AGAIN:
                    said = error.read(300).decode("utf-8", "replace")
                    raise UnshakenError(f"{self.name} refused the request: {reason}; {said}") from error
            # An answer that breaks off half-way (HTTPException) is no URLError.
            except (urllib.error.URLError, TimeoutError, ConnectionError, http.client.HTTPException) as error:
                reason, wait = str(getattr(error, "reason", error)), ""
            except ValueError as error:
                raise UnshakenError(f"{self.name} did not answer with JSON ({error})") from error
            if attempt < self.retries:
                seconds = float(wait) if wait.isdecimal() else FIRST_WAIT * 2**attempt
                if seconds >= LONG_WAIT:
                    note(f"{self.name}: {reason}; asked again in {duration(seconds)}")
                sleep(seconds)
        asked = json.dumps(self.request)
        raise UnshakenError(
            f"{self.name} did not answer after {self.retries + 1} tries: {reason}; it was sent {asked}, which request "
            "(--request) changes"
        )

    def _wait_for_turn(self) -> None:
        if self.rate is not None:
            sleep(max(0.0, self._last + 1 / self.rate - monotonic()))
        self._last = monotonic()

    def _read_cache(self) -> None:
        if self._cache is None or not self._cache.is_file():
            return
        for line in self._cache.read_bytes().split(b"\n"):
            try:
                entry = decode(_Known, parse_checked(line, "a line"), "a line")
            except UnshakenError:
                continue  # a line that a kill cut off or a disk bent: it is asked again
            if entry.key == self.fingerprint:
                self._known.setdefault(entry.texts, []).append(entry.answer)


@dataclass(frozen=True, kw_only=True)
class _Known:
    """A line of the cache."""

    key: str
    texts: tuple[str, ...]
    answer: Any


def _template(request: Any) -> Any:
    """What is sent: `$text` stands for one text, `$texts` for a list of them."""
    if request is None:
        return {"inputs": "$texts"}  # as Hugging Face's inference servers take it
    if isinstance(request, str):
        try:
            request = json.loads(request)
        except ValueError as error:
            raise UnshakenError(f"the request template is not JSON ({error}): {request!r}") from error
    if "$text" not in json.dumps(request):
        raise UnshakenError(f"the request template has neither $text nor $texts: {request!r}")
    return request


def _filled(template: Any, values: Mapping[str, Any]) -> Any:
    if isinstance(template, Mapping):
        return {key: _filled(value, values) for key, value in template.items()}
    if isinstance(template, list):
        return [_filled(value, values) for value in template]
    return values.get(template, template) if isinstance(template, str) else template


def _at(value: Any, path: str, name: str) -> Any:
    """The part of an answer at `a.0.b`."""
    for key in filter(None, path.split(".")):
        try:
            value = value[int(key)] if isinstance(value, list) else value[key]
        except (KeyError, IndexError, TypeError, ValueError):
            found = ", ".join(map(str, value)) if isinstance(value, Mapping) else type(value).__name__
            raise UnshakenError(f"the answer of {name} has no {key!r} of {path!r}; it has {found}") from None
    return value
