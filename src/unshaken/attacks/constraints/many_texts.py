"""`SentenceSimilarity` for a cohort: the words around a swap go to the encoder as tokens, and are never written out."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from unshaken.attacks.constraints.base import Together
from unshaken.attacks.constraints.encoder import CACHED, SentenceEncoder
from unshaken.victims.batches import AssembledRows
from unshaken.wordings import Windows

if TYPE_CHECKING:
    from unshaken.attacks.constraints.similarity import SentenceSimilarity

NEAR = 0.004  # of cosines; half precision moves one of MiniLM's by about a tenth of that


class Compared(NamedTuple):
    """Rows in which a column has changed, and the stretch of its words that is compared. Each (some,)"""

    numbers: Tensor
    start: Tensor
    stop: Tensor
    least: Tensor  # the threshold; -inf where none is set

    def only(self, chosen: Tensor) -> Compared:
        return Compared(*(part[chosen] for part in self))


class ManySimilarities:
    """What `SentenceSimilarity` says of rows of many examples."""

    def __init__(self, measure: SentenceSimilarity, cohort: Together) -> None:
        self.measure, self.cohort = measure, cohort
        self.encoder = SentenceEncoder.load(measure.model)
        self.device = self.encoder.device
        columns = [at for at in range(len(cohort.spaces[0].words)) if at not in cohort.frozen_columns]
        with self.encoder.lock:
            self.columns = [
                (
                    Windows(self.encoder.assembler, cohort.spaces, at, self.device),
                    [self.encoder.new_memory(), self.encoder.new_memory()],  # of rough and of exact vectors
                )
                for at in columns
            ]
        self._known = torch.stack([windows.known for windows, _ in self.columns]).all(0)
        self._all_known = bool(self._known.all())

    @staticmethod
    def of(measure: SentenceSimilarity, cohort: Together) -> ManySimilarities:
        """One for a cohort, made where it is first needed."""
        if measure not in cohort.notes:
            cohort.notes[measure] = ManySimilarities(measure, cohort)
        found: ManySimilarities = cohort.notes[measure]
        return found

    def allowed(self, owner: Tensor, rows: Tensor, previous: Tensor) -> Tensor:
        """As `check`. (n,) booleans"""
        found = torch.ones_like(owner, dtype=torch.bool)
        told, untold = self._told(owner)
        if len(untold):
            found[untold] = self.cohort.check_texts(self.measure, owner[untold], rows[untold], previous[untold])
        parts = self._here(owner[told], rows[told], previous[told])
        passed = torch.ones(len(told), dtype=torch.bool, device=self.device)
        for column, changed in self._compared(*parts):
            compared = self._with_threshold(changed)
            cosines = self._cosines(column, compared, *parts)
            if self.encoder.is_rough:
                away = (cosines - self.measure.as_cosines(compared.least)).abs() >= NEAR  # false for NaN: measure again
                near = (~away).nonzero()[:, 0]
                if len(near):
                    cosines[near] = self._cosines(column, compared.only(near), *parts, exact=True)
            passed[compared.numbers] &= self.measure.of_cosines(cosines) >= compared.least
        return found.index_put((told,), passed.to(owner.device))

    def of_swaps(self, owner: Tensor, rows: Tensor, previous: Tensor) -> Tensor:
        """How similar each row is in the column in which it left `previous`. (n,) float64

        Exact where that decides which row of an example is the most similar one.
        """
        found = torch.ones(len(owner), dtype=torch.float64, device=owner.device)
        told, untold = self._told(owner)
        if len(untold):
            made = self.cohort.candidates(owner[untold], rows[untold], previous[untold], changed_only=True)
            texts = [candidate for own in made for candidate in own]
            found[untold] = torch.tensor(self.measure.scores(texts), dtype=found.dtype, device=found.device)
        parts = self._here(owner[told], rows[told], previous[told])
        cosines = torch.ones(len(told), device=self.device)
        swapped = list(self._compared(*parts, changed_only=True))
        for column, compared in swapped:
            cosines[compared.numbers] = self._cosines(column, compared, *parts)
        if self.encoder.is_rough:
            open_to_doubt = self._may_be_best(parts[0], cosines)
            for column, compared in swapped:
                closely = compared.only(open_to_doubt[compared.numbers])
                if len(closely.numbers):
                    cosines[closely.numbers] = self._cosines(column, closely, *parts, exact=True)
        return found.index_put((told,), self.measure.of_cosines(cosines).to(found.device))

    def _may_be_best(self, owner: Tensor, cosines: Tensor) -> Tensor:
        """Rows so near to the best of their example that rounding might decide between them. (n,) booleans"""
        examples = len(self.cohort.spaces)
        lost = cosines.isnan()  # half precision ran over
        known = cosines.masked_fill(lost, -torch.inf)
        best = cosines.new_full((examples,), -torch.inf).scatter_reduce(0, owner, known, "amax")
        near = lost | (cosines > best[owner] - NEAR)
        rivals = owner.new_zeros(examples).index_add(0, owner, near.long())
        return lost | (near & (rivals[owner] > 1))

    def _here(self, owner: Tensor, rows: Tensor, previous: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """On the device of the encoder, which need not be the victim's."""
        return owner.to(self.device), rows.to(self.device), previous.to(self.device)

    def _told(self, owner: Tensor) -> tuple[Tensor, Tensor]:
        """The rows of examples that can be cut at every word, and the others, whose texts are looked at."""
        if self._all_known:
            return torch.arange(len(owner), device=owner.device), owner[:0]
        known = self._known.to(owner.device)[owner]
        return known.nonzero()[:, 0], (~known).nonzero()[:, 0]

    def _compared(
        self, owner: Tensor, rows: Tensor, previous: Tensor, *, changed_only: bool = False
    ) -> Iterator[tuple[int, Compared]]:
        """The rows to compare in each column: those that have changed it, and, if asked, just now."""
        before = self._before(previous)
        for column, (windows, _) in enumerate(self.columns):
            word = windows.word_of[owner]  # (n, places)
            own = word >= 0
            differ = (rows != before) & own
            chosen = differ.any(1) & ((rows != 0) & own).any(1)
            if changed_only:
                chosen &= ((rows != previous) & own).any(1)
            numbers = chosen.nonzero()[:, 0]
            if len(numbers):
                word, differ = word[numbers], differ[numbers]
                first, last = word.masked_fill(~differ, 1 << 30).amin(1), word.masked_fill(~differ, -1).amax(1)
                yield column, self._stretch(numbers, first, last, windows.words[owner[numbers]])

    def _stretch(self, numbers: Tensor, first: Tensor, last: Tensor, words: Tensor) -> Compared:
        """As `_window` and `_least` of the constraint have it for one row."""
        measure, window = self.measure, self.measure.window
        least = torch.full(numbers.shape, measure.threshold, dtype=torch.float64, device=self.device)
        if window is None:
            return Compared(numbers, torch.full_like(first, -1), words + 1, least)
        short = -torch.inf if measure.short_threshold is None else measure.short_threshold
        half = (window - 1) // 2
        start, stop = first - half, last + half + 1
        stop = stop.clamp_min(window).where(start < 0, stop)
        start = start.clamp_min(0)
        start = torch.minimum(start, words - window).where(stop > words, start).clamp_min(0)
        return Compared(numbers, start, torch.minimum(stop, words), least.masked_fill(words < window, short))

    def _with_threshold(self, compared: Compared) -> Compared:
        """Without the rows of short texts if these have none: no encoder need look at them."""
        if self.measure.window is None or self.measure.short_threshold is not None:
            return compared
        return compared.only(compared.least.isfinite().nonzero()[:, 0])

    def _before(self, previous: Tensor) -> Tensor:
        return previous if self.measure.compared_with == "previous" else torch.zeros_like(previous)

    def _cosines(
        self, column: int, compared: Compared, owner: Tensor, rows: Tensor, previous: Tensor, *, exact: bool = False
    ) -> Tensor:
        """Those of stretches with what stood there before. (some,)"""
        windows, memories = self.columns[column]
        numbers, start, stop, _ = compared
        owner = owner[numbers]
        choices = [
            windows.choices(owner, part[numbers], start, stop) for part in (rows, self._before(previous))
        ]  # of the new stretches and of the old
        both, all_choices = owner.repeat(2), torch.cat(choices)
        if len(memories[exact].answers) > CACHED:
            memories[exact] = self.encoder.new_memory()
        memory = memories[exact]
        known = memory.look_up(windows.table.keys(both, all_choices))
        if len(known.new):
            source = AssembledRows(windows.table, both[known.new], all_choices[known.new])
            memory.add(self.encoder.vectors(source, exact=exact))
        vectors = memory.answers[known.numbers]
        new, old = vectors[: len(owner)], vectors[len(owner) :]
        return (new * old).sum(-1).clamp(-1, 1)
