"""`scan`: what a deployed classifier answers when the same text is written another way."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from unshaken.attacks import Greedy
from unshaken.attacks.faithfulness import alike
from unshaken.attacks.results import AttackResult
from unshaken.errors import UnshakenError
from unshaken.examples import Example, Examples
from unshaken.scanning.families import REWORDING, Family
from unshaken.scanning.families import families as families_called
from unshaken.scanning.results import OWN_ANSWERS, Broken, FamilyResult, ScanResult
from unshaken.tasks import table_examples
from unshaken.tasks.rows import UNLABELLED, is_unlabelled
from unshaken.victims.base import Texts, Victim
from unshaken.victims.classes import class_number, require_same_classes
from unshaken.victims.wrapper import Wrapper

ROUNDING = 1e-6  # of a probability in float32
SHOWN = 20  # broken texts that a result keeps for each family


class Detector(Wrapper):
    """A classifier as a guard sees it: one class to be found, at its threshold, and everything else.

    Its two probabilities are shifted so that the class is ahead exactly where its probability reaches the threshold.
    So every attack works on it, and a flip is what lets a text through.
    """

    def __init__(self, victim: Victim, label: int, threshold: float = 0.5) -> None:
        if not 0 < threshold < 1:
            raise UnshakenError(f"threshold is {threshold}; it is a probability between 0 and 1")
        super().__init__(victim)
        self.label, self.threshold = label, threshold
        self.num_labels = 2
        protected = victim.label_names[label] if victim.label_names else str(label)
        self.label_names = (f"not {protected}", protected)

    @property
    def fingerprint(self) -> str:
        return f"{self.victim.fingerprint}@{self.label}:{self.threshold:g}"

    def _predict(self, texts: Sequence[Texts]) -> np.ndarray:
        return self._shifted(self.victim.log_probabilities(texts))

    def ask_again(self, texts: Sequence[Texts], number: int) -> np.ndarray:
        return self._shifted(self.victim.ask_again(texts, number)).astype(np.float32)

    def answer_alone(self, texts: Texts) -> np.ndarray:
        return np.asarray(self._shifted(self.victim.answer_alone(texts)[None])[0], np.float32)

    def _shifted(self, answers: np.ndarray) -> np.ndarray:
        caught = np.exp(answers[:, self.label].astype(np.float64))
        caught, rest = caught * (1 - self.threshold), (1 - caught) * self.threshold
        # A tie is a find: at the threshold the guard acts, and argmax would take the first class.
        odds = np.stack([rest * (1 - ROUNDING), caught], axis=-1)
        return np.asarray(np.log(np.maximum(odds / odds.sum(-1, keepdims=True), np.finfo(np.float32).tiny)))

    def unshifted(self, answers: np.ndarray) -> np.ndarray:
        """The probabilities behind its answer to one text, as the classifier gives them. (2,)"""
        odds = np.exp(answers.astype(np.float64)) * (1 - self.threshold, self.threshold)
        return np.asarray(odds / odds.sum())


def scan(
    victim: Any,
    texts: Any,
    *,
    protect: str | int | None = None,
    threshold: float = 0.5,
    families: Sequence[str] | None = None,
    search: int = 20,
    query_budget: int = 200,
    masked_lm: str | None = None,
    similarity: float = 0.0,
    seed: int = 0,
    progress: Any = None,
) -> ScanResult:
    """Try ten families of edits on a classifier: fixed edits of every text first, then searches on what survived.

    Args:
        victim: Anything that `Victim.of` takes: a folder, a pipeline, an .onnx file, an address, a function.
        texts: Labelled examples or a table of them; or plain texts, or examples that all have the label -1, whose right
            answers are the victim's own.
        protect: The class that must stay what it is ("toxic"): only its texts are attacked, only misses count, and the
            other texts are watched for false alarms. Every right answer counts if None.
        threshold: The probability from which the protected class counts as found, as deployed.
        families: Names of families; all if None.
        search: On how many survivors of each family, drawn at random, a search is tried; 0 for none.
        query_budget: Most questions a search may ask about one text.
        masked_lm: A masked language model for the family of that name, which is left out if None.
        similarity: How alike a search among synonyms must leave a text, by MiniLM's cosine; 0 for any.
        seed: Draws these survivors, by their ids: the order of the texts does not matter.
        progress: Called with the name of each family before it is tried.

    Example:
        >>> result = scan("path/to/guard", ["ignore all instructions", "what is the weather?"], protect="injection")
        >>> result.save("scan.html")
    """
    model = Victim.of(victim)
    guard, protected = _guard(model, protect, threshold)
    examples = _examples(texts, model, guard, protected)
    if not len(examples):
        raise UnshakenError(f"{examples.name} is empty; there is nothing to scan")
    require_same_classes(model, examples)  # of the classifier itself: a guard has two classes of its own
    label = None if protected is None else 1
    rows = examples.with_rows(
        row if protected is None else Example(id=row.id, texts=row.texts, label=int(row.label == protected))
        for row in examples
    )
    job = _Scan(guard, rows, label, search, query_budget, similarity, seed)
    results = []
    for family in families_called(families, masked_lm=masked_lm):
        if progress is not None:
            progress(family.name)
        results.append(job.family(family))
    return ScanResult(
        victim=model.name,
        data=examples.name,
        protect=None if protected is None else guard.label_names[1],
        threshold=threshold,
        examples=len(examples),
        relevant=len(job.relevant),
        right=len(job.right),
        families=tuple(results),
        seed=seed,
    )


def _examples(texts: Any, victim: Victim, guard: Victim, protected: int | None) -> Examples:
    if isinstance(texts, Sequence) and texts and all(isinstance(text, str) for text in texts):
        texts = Examples.from_lists(list(texts), [UNLABELLED] * len(texts))
    if not isinstance(texts, Examples):
        return table_examples(texts, label_names=victim.label_names or None)
    if not is_unlabelled(texts, texts.name):
        return texts
    own = np.array(victim.log_probabilities(texts.texts))
    if protected is not None:  # as deployed: at the threshold, not where it is the likeliest class
        own[:, protected] = np.where(guard.log_probabilities(texts.texts).argmax(-1) == 1, np.inf, -np.inf)
    rows = (replace(row, label=int(answer)) for row, answer in zip(texts, own.argmax(-1), strict=True))
    return replace(texts.with_rows(rows), name=OWN_ANSWERS, label_names=victim.label_names)


def _guard(victim: Victim, protect: str | int | None, threshold: float) -> tuple[Victim, int | None]:
    """What is scanned, and the number of the protected class."""
    if protect is None:
        if threshold != 0.5:
            raise UnshakenError("a threshold belongs to one class: say which with protect (--protect)")
        return victim, None
    if isinstance(protect, int) or (str(protect).isdecimal() and str(protect) not in victim.label_names):
        number = int(protect)
        if not 0 <= number < victim.num_labels:
            raise UnshakenError(f"protect is class {number}; {victim.name} has classes 0 to {victim.num_labels - 1}")
    elif victim.label_names:
        number = class_number(victim, protect)
    else:
        raise UnshakenError(
            f"{victim.name} has no class names; protect a class by its number, 0 to {victim.num_labels - 1}"
        )
    return Detector(victim, number, threshold), number


@dataclass
class _Scan:
    """The victim's answers to the texts as they are, and what becomes of them under each family."""

    victim: Victim
    examples: Examples
    label: int | None  # the protected one
    search: int
    query_budget: int
    similarity: float
    seed: int

    def __post_init__(self) -> None:
        answers = self.victim.log_probabilities(self.examples.texts).argmax(-1)
        right = [row for row, answer in zip(self.examples, answers, strict=True) if row.label == answer]
        self.relevant = [row for row in self.examples if self.label is None or row.label == self.label]
        if not self.relevant:
            raise UnshakenError(f"{self.examples.name} has no text of the protected class; nothing can be missed")
        self.right = [row for row in right if self.label is None or row.label == self.label]
        self.harmless = [] if self.label is None else [row for row in self.examples if row.label != self.label]
        self.alarms = len(self.harmless) - sum(row.label != self.label for row in right) if self.harmless else 0

    def family(self, family: Family) -> FamilyResult:
        start = time.perf_counter()
        edited = [tuple(map(family.fixed, row.texts)) for row in self.right]
        scores = self.victim.log_probabilities(edited)
        kept = [row.label == answer for row, answer in zip(self.right, scores.argmax(-1), strict=True)]
        broken = [
            self._broken(row, texts, score, by_search=False)
            for row, texts, score, held in zip(self.right, edited, scores, kept, strict=True)
            if not held
        ]
        survivors = [row for row, held in zip(self.right, kept, strict=True) if held]
        # The first would be of one label in a file that is sorted by it.
        drawn = self.examples.with_rows(survivors).sample(self.search, self.seed)
        tried, by_search = self._search(family, list(drawn))
        failed = [row for row in tried if row.outcome == "error"]
        other = self.victim.log_probabilities([tuple(map(family.fixed, row.texts)) for row in self.harmless])
        return FamilyResult(
            name=family.name,
            title=family.title
            + (f"; a search keeps texts {self.similarity:.0%} alike" if self._filters(family) else ""),
            people=family.people,
            total=len(self.right),
            kept_fixed=len(survivors),
            searched=sum(row.outcome in ("success", "failure") for row in tried),  # an error is no survivor
            errors=len(failed),
            error=failed[0].error if failed else None,
            found=len(by_search),
            harmless=len(self.harmless),
            alarms_before=self.alarms,
            alarms_after=int((other.argmax(-1) == self.label).sum()) if self.harmless else 0,
            queries=len(edited) + len(self.harmless) + sum(row.queries for row in tried),
            seconds=round(time.perf_counter() - start, 3),
            broken=tuple((broken + by_search)[:SHOWN]),
        )

    def _search(self, family: Family, rows: list[Example]) -> tuple[Sequence[AttackResult], list[Broken]]:
        """Greedy search for the words and forms that break what the fixed edit did not."""
        if not rows:
            return [], []
        attack = Greedy(
            substitutions=family.substitutions,
            constraints=(alike(self.similarity),) if self._filters(family) else (),
            query_budget=self.query_budget,
        )
        # Survivors are a part: short ones may have no word to change, which is no mistake.
        results = attack(self.victim, replace(self.examples.with_rows(rows), is_part=True))
        hits = [row for row in results if row.outcome == "success" and row.adversarial is not None]
        scores = self.victim.log_probabilities([row.adversarial for row in hits if row.adversarial is not None])
        by_id = {row.id: row for row in rows}
        broken = [
            self._broken(by_id[hit.example_id], hit.adversarial or (), score, by_search=True)
            for hit, score in zip(hits, scores, strict=True)
        ]
        return results, broken

    def _filters(self, family: Family) -> bool:
        return self.similarity > 0 and family.name in REWORDING

    def _broken(self, row: Example, texts: Texts, scores: np.ndarray, *, by_search: bool) -> Broken:
        answer = int(scores.argmax())
        names = self.victim.label_names
        chances = self.victim.unshifted(scores) if isinstance(self.victim, Detector) else np.exp(scores)
        return Broken(
            id=row.id,
            before=row.texts,
            after=texts,
            answer=names[answer] if names else str(answer),
            confidence=round(float(chances[answer]), 4),
            by_search=by_search,
        )
