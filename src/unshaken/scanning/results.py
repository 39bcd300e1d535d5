"""What a scan found, as plain values that become a table, JSON, a page, JUnit and SARIF."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from math import inf
from pathlib import Path
from typing import Any

from unshaken.errors import UnshakenError
from unshaken.files import read_json, write_json, write_text
from unshaken.names import at
from unshaken.schema import decode, encode

SCHEMA_VERSION = 1
OWN_ANSWERS = "texts, with the victim's own answers"  # the data of a scan of texts without labels


def percent(share: float, *, below: float = inf) -> str:
    """A share in as few digits as are true: what is not all is not called 100%, nor 0% what is not none.

    Args:
        below: What it falls short of, if anything: 79.6% of at least 80% is not called 80%.
    """
    for digits in range(16):
        said = f"{100 * share:.{digits}f}"
        if (float(said) >= 100) == (share >= 1) and (float(said) <= 0) == (share <= 0) and float(said) < below:
            break
    return f"{said}%"


@dataclass(frozen=True, kw_only=True)
class Broken:
    """One text whose answer an edit changed.

    Attributes:
        id: Of the example.
        before: The text as it was.
        after: The text that changed the answer.
        answer: The new answer.
        confidence: Its probability.
        by_search: Whether a search was needed; the fixed edit alone had not been enough.
    """

    id: str
    before: tuple[str, ...]
    after: tuple[str, ...]
    answer: str
    confidence: float
    by_search: bool


@dataclass(frozen=True, kw_only=True)
class FamilyResult:
    """One family of edits.

    Attributes:
        total: Examples that were answered rightly before; of a protected class, those that were caught.
        kept_fixed: How many of them the fixed edit left right.
        searched: On how many of the rest a search came to an end; 0 if on none.
        found: How many of those it broke.
        harmless: Harmless examples, which the edit should not turn into alarms.
        alarms_before: How many of them raise an alarm as they are.
        alarms_after: How many of them do under the fixed edit.
        queries: Texts that were asked about.
        broken: The texts, up to a limit.
        errors: Searches that ended in an error, as the victim did not answer: neither broken nor withstood.
        error: What the first of them said.
    """

    name: str
    title: str
    people: str
    total: int
    kept_fixed: int
    searched: int
    found: int
    harmless: int
    alarms_before: int
    alarms_after: int
    queries: int
    seconds: float
    broken: tuple[Broken, ...]
    errors: int = 0  # it and `error` are not in files of earlier releases
    error: str | None = None

    @property
    def lost(self) -> int:
        """Texts whose answer an edit changed, of which `broken` has the first ones."""
        return self.total - self.kept_fixed + self.found

    @property
    def tried(self) -> int:
        """Survivors on which a search was tried, to its end or not."""
        return self.searched + self.errors

    @property
    def is_unknown(self) -> bool:
        """Whether every search ended in an error, so that nobody knows what survives one."""
        return bool(self.errors) and not self.searched

    @property
    def fixed_share(self) -> float:
        """Right answers that survive the fixed edit; none if there was none, so that no such guard passes a gate."""
        return self.kept_fixed / self.total if self.total else 0.0

    @property
    def kept_share(self) -> float:
        """Right answers that survive the edit and the search; survivors that were not searched count by the rate.

        None of them if every search ended in an error: what is not known passes no gate.
        """
        return float(self.kept)

    def keeps(self, least: float) -> bool:
        """Whether so many percent are kept. Counted in fractions: 57 of 100 are 57%, and 100 * 0.57 is less."""
        return not self.is_unknown and 100 * self.kept >= Fraction(str(float(least)))

    @property
    def kept(self) -> Fraction:
        """`kept_share` as a fraction, which is not rounded."""
        if not self.total or self.is_unknown:
            return Fraction(0)
        fixed = Fraction(self.kept_fixed, self.total)
        return fixed * Fraction(self.searched - self.found, self.searched) if self.searched else fixed


@dataclass(frozen=True, kw_only=True)
class ScanResult:
    """A scan of one classifier.

    Attributes:
        protect: The class that must stay what it is; None if every right answer counts.
        threshold: The probability from which the protected class counts as found.
        examples: All of them, the harmless ones included.
        right: Those answered rightly as they are; of a protected class, those caught.
        relevant: Those that count: of the protected class, or all.
        seed: Drew the survivors that were searched; None in a scan of an earlier release, which took the first ones.
        file: The path of the file that the texts are from; None if they are from none, or it is not known.
    """

    victim: str
    data: str
    protect: str | None
    threshold: float
    examples: int
    relevant: int
    right: int
    families: tuple[FamilyResult, ...]
    seed: int | None = None
    file: str | None = None

    def __repr__(self) -> str:
        right = f"{self.right} of {self.relevant} right"
        worst = self.worst
        kept = f"{worst.name} is unknown" if worst.is_unknown else f"{worst.name} keeps {percent(worst.kept_share)}"
        return f"ScanResult({self.victim}: {right}, {kept})"

    @property
    def worst(self) -> FamilyResult:
        return min(self.families, key=lambda family: family.kept_share)

    @property
    def score(self) -> float:
        """Percent of the right answers that survive the worst family; 0 if a family is unknown."""
        return float(100 * self.worst.kept)

    def sentence(self) -> str:
        """What was found, in plain words."""
        if self.data == OWN_ANSWERS:
            which = "answers count as right" if self.protect is None else f"texts are {self.protect}"
            start = f"{self.right} of {self.examples} {which} by the victim's own answers, as there are no labels"
        else:
            which = "texts are answered rightly" if self.protect is None else f"{self.protect} texts are caught"
            start = f"{self.right} of {self.relevant} {which} as they are"
            if 2 * self.worst.alarms_before > self.worst.harmless:  # a guard that stops everything misses nothing
                start += f", and so are {self.worst.alarms_before} of {self.worst.harmless} others"
        if not self.right:
            hint = " Are the victim's classes named in their order?" if self.data != OWN_ANSWERS else ""
            return f"{start}: there is nothing that an edit could break.{hint}"
        known = [family for family in self.families if not family.is_unknown]
        if not known:
            return f"{start}. How many of them still are under edits is not known."
        worst = min(known, key=lambda family: family.kept_share)
        edits = f"Under the worst edits{' that are known' if len(known) < len(self.families) else ''}, {worst.name}"
        return f"{start}. {edits} ({worst.title}), {percent(worst.kept_share)} of them still are."

    def sampling(self) -> str:
        """How the searched survivors were chosen; empty where all were searched, or none."""
        if not any(0 < family.tried < family.kept_fixed for family in self.families):
            return ""
        how = "the first ones" if self.seed is None else f"drawn at random (seed {self.seed})"
        most = max(family.tried for family in self.families)
        return f"Searches were tried on at most {most} survivors of each family, {how}."

    def unanswered(self) -> str:
        """Which searches ended in an error; empty where none did."""
        failed = [family for family in self.families if family.errors]
        if not failed:
            return ""
        counts = ", ".join(f"{family.name} {family.errors} of {family.tried}" for family in failed)
        said = next((f" The first error: {family.error}" for family in failed if family.error), "")
        return f"Searches that ended in an error, and count as neither broken nor withstood: {counts}.{said}"

    def failures(self, fail_under: float) -> list[FamilyResult]:
        """The families that keep less than so many percent, or of which it is not known, as no search was answered."""
        return [family for family in self.families if not family.keeps(fail_under)]

    def to_json(self) -> dict[str, Any]:
        return {"schema_version": SCHEMA_VERSION, **encode(self)}

    @classmethod
    def load(cls, path: Path | str) -> ScanResult:
        value = read_json(path)
        if not isinstance(value, dict) or value.pop("schema_version", None) != SCHEMA_VERSION:
            raise UnshakenError(f"{path}: not a scan of schema version {SCHEMA_VERSION}")
        result = decode(cls, value, str(path), written_by_hand=True)  # earlier releases wrote fewer fields
        if not result.families:
            raise UnshakenError(f"{path}: a scan of no families; scan again")
        return result

    def save(self, path: Path | str, *, fail_under: float | None = None) -> Path:
        """Write the view that the suffix names: .json, .html, .xml (JUnit) or .sarif."""
        path, limit = Path(path), 0.0 if fail_under is None else fail_under
        if path.suffix == ".json":
            return write_json(path, self.to_json())
        if path.suffix == ".sarif":
            return write_json(path, at("unshaken.scanning.formats:sarif")(self, limit))
        if path.suffix == ".xml":
            return write_text(path, at("unshaken.scanning.formats:junit")(self, limit))
        if path.suffix == ".html":
            return write_text(path, at("unshaken.scanning.formats:page")(self))
        raise UnshakenError(f"cannot write a scan as {path.suffix or path.name!r}; known: .json .html .xml .sarif")

    def __rich__(self) -> Any:
        return at("unshaken.scanning.formats:terminal")(self)

    def _repr_html_(self) -> str:
        return str(at("unshaken.scanning.formats:table")(self))
