"""What a scan found, as plain values that become a table, JSON, a page, JUnit and SARIF."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from unshaken.errors import UnshakenError
from unshaken.files import read_json, write_json, write_text
from unshaken.names import at
from unshaken.schema import decode, encode

SCHEMA_VERSION = 1
OWN_ANSWERS = "texts, with the victim's own answers"  # the data of a scan of texts without labels


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
        searched: How many of the rest a search was tried on; 0 if none was.
        found: How many of those it broke.
        harmless: Harmless examples, which the edit should not turn into alarms.
        alarms_before: How many of them raise an alarm as they are.
        alarms_after: How many of them do under the fixed edit.
        queries: Texts that were asked about.
        broken: The texts, up to a limit.
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

    @property
    def fixed_share(self) -> float:
        """Right answers that survive the fixed edit; none if there was none, so that no such guard passes a gate."""
        return self.kept_fixed / self.total if self.total else 0.0

    @property
    def kept_share(self) -> float:
        """Right answers that survive the edit and the search; survivors that were not searched count by the rate."""
        if not self.searched:
            return self.fixed_share
        return self.fixed_share * (1 - self.found / self.searched)


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

    def __repr__(self) -> str:
        right = f"{self.right} of {self.relevant} right"
        return f"ScanResult({self.victim}: {right}, {self.worst.name} keeps {self.worst.kept_share:.0%})"

    @property
    def worst(self) -> FamilyResult:
        return min(self.families, key=lambda family: family.kept_share)

    @property
    def score(self) -> float:
        """Percent of the right answers that survive the worst family."""
        return 100 * self.worst.kept_share

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
        worst, start = self.worst, f"{start}."
        return f"{start} Under the worst edits, {worst.name} ({worst.title}), {worst.kept_share:.0%} of them still are."

    def sampling(self) -> str:
        """How the searched survivors were chosen; empty where all were searched, or none."""
        if not any(0 < family.searched < family.kept_fixed for family in self.families):
            return ""
        how = "the first ones" if self.seed is None else f"drawn at random (seed {self.seed})"
        most = max(family.searched for family in self.families)
        return f"Searches were tried on at most {most} survivors of each family, {how}."

    def failures(self, fail_under: float) -> list[FamilyResult]:
        """The families that keep less than so many percent."""
        return [family for family in self.families if 100 * family.kept_share < fail_under]

    def to_json(self) -> dict[str, Any]:
        return {"schema_version": SCHEMA_VERSION, **encode(self)}

    @classmethod
    def load(cls, path: Path | str) -> ScanResult:
        value = read_json(path)
        if not isinstance(value, dict) or value.pop("schema_version", None) != SCHEMA_VERSION:
            raise UnshakenError(f"{path}: not a scan of schema version {SCHEMA_VERSION}")
        result = decode(cls, value, str(path))
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
