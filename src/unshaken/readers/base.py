"""What a reader is: text in, plain text out, before the tokenizer. It belongs to the model and is saved with it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

from unshaken.errors import UnshakenError
from unshaken.examples import Examples
from unshaken.files import read_json, write_json
from unshaken.readers.known import KnownWords
from unshaken.substitutions.base import content_hash

FILE_NAME = "unshaken_reader.json"
REMEMBERED = 2**16  # texts, and as many groups of forms
CHARACTERS = 2**23  # of the texts remembered, as read and as written: so many reviews would fill hundreds of megabytes
ROUNDS = 8  # until nothing changes; two are enough for nearly all texts

Forms = tuple[str, ...]  # what may stand in one place of a text, by turns


class Reader(ABC):
    """Base of all readers, frozen dataclasses of their settings. Deterministic, and reading twice changes nothing.

    Attributes:
        name: In files and on command lines.
        knows: The substitution sets whose words it maps back, as far as it can.
        word_local: Whether what stands between two blanks is always read by itself, so that a text may be cut before
            any blank and read part by part. Where that holds for some texts only, `stays_apart` says for which.
    """

    name: ClassVar[str]
    knows: ClassVar[tuple[str, ...]] = ()
    word_local: ClassVar[bool] = False

    @abstractmethod
    def __call__(self, text: str) -> str: ...

    def part(self, text: str) -> str:
        """A part of a text whose parts stay apart."""
        return self(text)

    def stays_apart(self, parts: Sequence[Forms]) -> bool:
        """Whether a text is read as its parts are, end to end, whichever forms of them are written.

        Args:
            parts: A text cut before blanks: what may stand in each part. All but the first begin with their blank.
        """
        return self.word_local

    def to_dict(self) -> dict[str, Any]:
        """Name and settings as JSON, but for the words, which readers of one model share."""
        own = {item.name: getattr(self, item.name) for item in fields(self) if item.init and item.name != "known"}  # type: ignore[arg-type]
        return {"name": self.name, **own}


@dataclass(frozen=True)
class Readers(Reader):
    """Several readers, one after the other, until nothing changes.

    Example:
        >>> read = Readers((Unicode(), Spelling(known=KnownWords.of(data.train))))
        >>> read("a g\u043eod moive")
        'a good movie'
    """

    name: ClassVar[str] = "readers"

    parts: Sequence[Reader]
    _memory: dict[str, str] = field(default_factory=dict, repr=False, compare=False)
    _groups: dict[tuple[int, Forms], Forms] = field(default_factory=dict, repr=False, compare=False)
    _held: list[int] = field(default_factory=lambda: [0], repr=False, compare=False)  # characters in memory

    def __post_init__(self) -> None:
        object.__setattr__(self, "parts", tuple(self.parts))
        if not self.parts:
            raise UnshakenError("Readers() joins readers, and none is given")
        words = [part.known for part in self.parts if hasattr(part, "known")]
        if any(
            known is not words[0] and known.counts != words[0].counts for known in words
        ):  # one set of words is saved for all
            raise UnshakenError("the readers that Readers() joins know different words; give all of them the same")

    @property
    def knows(self) -> tuple[str, ...]:  # type: ignore[override]
        return tuple(dict.fromkeys(name for part in self.parts for name in part.knows))

    def __call__(self, text: str) -> str:
        found = self._memory.get(text)
        if found is None:
            found = self._read(text)
            size = len(text) + len(found)
            if len(self._memory) >= REMEMBERED or self._held[0] + size > CHARACTERS:
                self._memory.clear()
                self._held[0] = 0
            if size <= CHARACTERS:
                self._memory[text] = found
                self._held[0] += size
        return found

    def _read(self, text: str) -> str:
        for _ in range(ROUNDS):
            before = text
            for part in self.parts:
                text = part(text)
            if text == before:
                break
        return text

    def apart(self, parts: Sequence[Forms]) -> list[Forms] | None:
        """What each form of each part is read as, where that depends on no other part; None if it might.

        All readers work on all parts in step, so every text that the forms make is followed through every round.
        """
        read = list(parts)
        if any("" in forms for forms in read):  # what stands beside it would meet
            return None
        for _ in range(ROUNDS):
            before = read
            for number, part in enumerate(self.parts):
                if not part.stays_apart(read):
                    return None
                read = [self._group(number, forms) for forms in read]
            if read == before:
                break
        return read

    def _group(self, number: int, forms: Forms) -> Forms:
        found = self._groups.get((number, forms))
        if found is None:
            found = tuple(map(self.parts[number].part, forms))
            if len(self._groups) >= REMEMBERED:
                self._groups.clear()
            self._groups[number, forms] = found
        return found

    @property
    def sets(self) -> list[Mapping[str, str]]:
        """Name and fingerprint of the substitution sets that its parts are made of."""
        return [one for part in self.parts for one in getattr(part, "sets", ())]

    def texts(self, texts: Sequence[str]) -> tuple[str, ...]:
        return tuple(map(self, texts))

    def examples(self, examples: Examples) -> Examples:
        """The same examples with their texts read."""
        return examples.with_rows(row.with_texts(self.texts(row.texts)) for row in examples)

    @cached_property
    def known(self) -> KnownWords | None:
        return next((part.known for part in self.parts if hasattr(part, "known")), None)

    @property
    def names(self) -> str:
        """Of its parts, as a command line has them."""
        return ",".join(part.name for part in self.parts)

    @property
    def fingerprint(self) -> str:
        words = {} if self.known is None else self.known.counts
        settings = [repr(sorted(part.to_dict().items(), key=str)) for part in self.parts]
        return content_hash([*settings, *(f"{word} {words[word]}" for word in sorted(words))])

    def to_dict(self) -> dict[str, Any]:
        words = {} if self.known is None else dict(self.known.counts)
        return {"readers": [part.to_dict() for part in self.parts], "words": words}

    def save(self, folder: Path | str) -> Path:
        """Write it into a model's folder."""
        return write_json(Path(folder) / FILE_NAME, self.to_dict())


def from_dict(saved: Any, table: Mapping[str, type[Reader]], where: str) -> Readers:
    """What `Readers.to_dict` wrote. Names and plain values only: nothing in a file is run."""
    from unshaken.names import lookup

    try:
        known = KnownWords({str(word): int(count) for word, count in saved["words"].items()})
        parts = []
        for entry in saved["readers"]:
            options = {str(key): value for key, value in entry.items() if key != "name"}
            kind = lookup("reader", str(entry["name"]), table)
            if any(item.name == "known" for item in fields(kind)):  # type: ignore[arg-type]
                options["known"] = known
            parts.append(kind(**options))
        return Readers(tuple(parts))
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise UnshakenError(f"{where} is no reader of this library: {error}") from error


def saved_reader(folder: Path | str, table: Mapping[str, type[Reader]]) -> Readers | None:
    """The reader of a model's folder; None if it has none."""
    path = Path(folder) / FILE_NAME
    return from_dict(read_json(path), table, str(path)) if path.is_file() else None
