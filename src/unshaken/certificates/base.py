"""What a certificate is: random changes of a text, their majority, and how far an attacker can push it."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from typing import Any, ClassVar

import numpy as np

from unshaken.errors import UnshakenError
from unshaken.examples import Example, random_stream
from unshaken.names import optional
from unshaken.proportion import Proportion
from unshaken.substitutions.base import Substitutions
from unshaken.victims.base import Texts, Victim
from unshaken.victims.classes import require_same_classes

ALL_WORDS = 10**9  # a radius beyond the length of any text
MAJORITY = 0.5 + 1e-9  # a tie proves nothing, nor does rounding
ASKED_TWICE = 16  # changes of the first text, to see whether answers are drawn at random
ROUNDING = 2e-2  # of a probability, in the least precise type


def lower_bound(hits: int, samples: int, alpha: float) -> float:
    """Clopper and Pearson's: a share below it would give so many hits with probability at most `alpha`."""
    stats = optional("scipy.stats", "certificates need scipy: pip install 'unshaken[report]'")
    test = stats.binomtest(hits, samples, alternative="greater")
    return float(test.proportion_ci(confidence_level=1 - alpha, method="exact").low)


@dataclass(frozen=True, kw_only=True)
class CertifiedText:
    """What is proved of one text.

    Attributes:
        prediction: The answer of the smoothed classifier; None if it abstains.
        share: Lower bound of the share of random changes with that answer.
        radius: How many words may be changed, as the certificate says, without changing the answer; `ALL_WORDS` where
            all may. -1 where the classifier abstains.
    """

    example_id: str
    label: int
    prediction: int | None
    share: float
    radius: int

    def holds(self, radius: int) -> bool:
        """Whether the answer is right, and proved to stay right."""
        return self.prediction == self.label and self.radius >= radius


@dataclass(frozen=True, kw_only=True)
class Certified:
    """Certified accuracy of one victim: a column of its own, beside accuracies under attack and never among them.

    Attributes:
        settings: Every setting, the numbers of samples and the chance of error among them.
        rows: One per text, in the order of the examples.
        asked: Texts that the model answered for it, each once.
        seconds: What it took.
    """

    certificate: str
    settings: dict[str, Any]
    victim: str
    fingerprint: str
    rows: tuple[CertifiedText, ...]
    asked: int
    seconds: float

    def accuracy(self, radius: int = ALL_WORDS) -> float:
        """The share of right answers that nobody can change by changing `radius` words."""
        return self.proved(radius).value

    def proved(self, radius: int = ALL_WORDS) -> Proportion:
        """The same with its interval, as another sample of texts would have moved it."""
        return Proportion(hits=sum(row.holds(radius) for row in self.rows), total=len(self.rows))

    @property
    def clean(self) -> float:
        """Accuracy of the smoothed classifier where nothing is changed; it is wrong where it abstains."""
        return self.accuracy(0)

    @property
    def abstained(self) -> float:
        return sum(row.prediction is None for row in self.rows) / len(self.rows)


@dataclass(frozen=True, kw_only=True)
class Certificate(ABC):
    """Base of all certificates, frozen dataclasses of their settings.

    A few samples choose the class, and others, drawn anew, bound its share (Cohen et al. 2019), so the bound holds with
    probability 1 - `alpha` for each text. Each text draws from a stream of its own, whatever the batch.

    Attributes:
        samples: Random changes of a text for the bound.
        guesses: Random changes of a text to choose the class.
        alpha: The chance that a proof is wrong, for each text.
        seed: Of the random changes.
    """

    name: ClassVar[str]
    citation: ClassVar[tuple[str, ...]] = ()  # keys of citations.bib, or whole BibTeX entries

    samples: int = 1000
    guesses: int = 100
    alpha: float = 0.001
    seed: int = 0

    def __post_init__(self) -> None:
        if self.samples < 1 or self.guesses < 1 or not 0 < self.alpha < 1 or self.seed < 0:
            raise UnshakenError(
                f"{type(self).__name__} needs samples and guesses >= 1, 0 < alpha < 1 and seed >= 0; given "
                f"{self.samples}, {self.guesses}, {self.alpha}, {self.seed}"
            )

    @abstractmethod
    def draw(self, texts: Texts, count: int, rng: np.random.Generator, mask: str) -> list[Texts]:
        """Random changes of a text; `mask` stands for a hidden word."""

    @abstractmethod
    def radius(self, texts: Texts, share: float) -> int:
        """The most words that can be changed where at least `share` of the draws have the winning class; -1: none."""

    def __call__(self, victim: Victim, examples: Sequence[Example], *, progress: bool = False) -> Certified:
        """Certify every example.

        Args:
            victim: The classifier inside the smoothed one.
            examples: Texts with their labels.
            progress: Show a progress bar.
        """
        if not len(examples):
            raise UnshakenError("there are no examples to certify")
        require_same_classes(victim, examples)
        self._require_fixed_answers(victim, examples[0])
        from rich.progress import track

        start = time.perf_counter()
        rows = track(examples, description=self.name, disable=not progress, transient=True)
        found = [self._certified(victim, row) for row in rows]
        return Certified(
            certificate=self.name,
            settings=self.settings(),
            victim=victim.name,
            fingerprint=victim.fingerprint,
            rows=tuple(row for row, _ in found),
            asked=sum(asked for _, asked in found),
            seconds=time.perf_counter() - start,
        )

    def _require_fixed_answers(self, victim: Victim, example: Example) -> None:
        """Equal changes are asked about once, so one lucky answer would count for all of them."""
        drawn = list(dict.fromkeys(self._drawn(victim, example, ASKED_TWICE)))
        first, again = (np.exp(victim.ask_again(drawn, number)) for number in range(2))
        if np.abs(first - again).max() > ROUNDING:
            raise UnshakenError(
                f"{victim.name} answers a text otherwise when it is asked again, and nothing can be proved of that; "
                "take away what it draws at random, such as dropout or sampling, or certify the model inside"
            )

    def _drawn(self, victim: Victim, example: Example, count: int) -> list[Texts]:
        mask = str(getattr(getattr(victim, "tokenizer", None), "mask_token", None) or victim.unknown)
        return self.draw(example.texts, count, random_stream("\0".join(example.texts), self.seed), mask)

    def _certified(self, victim: Victim, example: Example) -> tuple[CertifiedText, int]:
        """What is proved of one text, and how many texts the model answered for it."""
        drawn = self._drawn(victim, example, self.guesses + self.samples)
        answers = _answers(victim, drawn)
        winner = int(np.bincount(answers[: self.guesses], minlength=victim.num_labels).argmax())
        share = lower_bound(int((answers[self.guesses :] == winner).sum()), self.samples, self.alpha)
        radius = self.radius(example.texts, share) if share > MAJORITY else -1
        proved = CertifiedText(
            example_id=example.id,
            label=int(example.label),
            prediction=winner if share > MAJORITY else None,
            share=share,
            radius=radius,
        )
        return proved, len(set(drawn))

    def settings(self) -> dict[str, Any]:
        """Every setting as plain JSON."""
        own = {item.name: getattr(self, item.name) for item in fields(self) if item.init}
        plain = {key: value.described() if isinstance(value, Substitutions) else value for key, value in own.items()}
        return {"name": self.name, **plain}


def _answers(victim: Victim, drawn: Sequence[Texts]) -> np.ndarray:
    """The class of each draw; equal ones are asked once. (n,)"""
    number: dict[Texts, int] = {}
    rows = [number.setdefault(row, len(number)) for row in drawn]
    return np.asarray(victim.log_probabilities(list(number)).argmax(-1)[rows])


def largest_radius(allowed: Iterator[bool]) -> int:
    """How many words, from none on, may be changed before one is not allowed; -1 if not even none."""
    found = -1
    for good in allowed:
        if not good:
            return found
        found += 1
    return found
