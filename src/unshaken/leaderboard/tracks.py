"""`Track`: which models are compared with each other, and which attacks each of them has to stand."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from unshaken.attacks import PWWS, Attack, Beam, Exhaustive, Genetic, HullAttack, Transfer
from unshaken.errors import UnshakenError
from unshaken.evaluation.training_record import TrainingRecord
from unshaken.names import nearest, track_parts
from unshaken.substitutions import Substitutions, TwoHops
from unshaken.substitutions.base import made_of
from unshaken.victims.base import Victim

THREATS = {
    "known": "words of a dictionary that training may have used",
    "unseen": "words of a dictionary that training has not used",
    "typos": "typing errors",
    "all": "several sources at once, which is what a real adversary does",
}
SUITES = {
    "full": (
        "PWWS; on what it leaves beam, Genetic 60 x 40, the hull attack, transfers, and exhaustive search if the space "
        "has at most 1e5 texts, each on what is left then"
    ),
    "mini": "PWWS; on what it leaves Genetic 20 x 10, and on the rest exhaustive search up to 1,000 texts; for a CPU",
}
PUBLIC_MODELS = 3  # whose adversarial texts the full suite transfers
# What an entry calls the attacks of each suite; there may be more transfers.
ATTACKS = {
    "full": ("pwws", "beam", "genetic", "hull", "transfer", "transfer 1", "transfer 2", "exhaustive"),
    "mini": ("pwws", "genetic", "exhaustive"),
}


@dataclass(frozen=True, kw_only=True)
class Track:
    """One ranking: an encoder, a threat and a task, such as `minilm/known/sst2`."""

    encoder: str
    threat: str
    task: str

    def __post_init__(self) -> None:
        if self.threat not in THREATS:
            raise UnshakenError(f"unknown threat {self.threat!r}; {nearest(self.threat, THREATS)}")

    @classmethod
    def parse(cls, text: str) -> Track:
        encoder, threat, task = track_parts(text)
        return cls(encoder=encoder, threat=threat, task=task)

    def __str__(self) -> str:
        return f"{self.encoder}/{self.threat}/{self.task}"

    def require_fit(self, record: TrainingRecord | None, substitutions: Substitutions) -> TrainingRecord:
        """The training record, if the model may stand in this track: a claim of "unseen" is checked, not believed."""
        if record is None:
            raise UnshakenError(
                "the model has no record of its training, so nobody can tell what it has seen; train with unshaken"
            )
        used = [one.name for one in _drawn_from(substitutions) if record.has_seen(one.name, one.fingerprint)]
        if self.threat == "unseen" and used:
            raise UnshakenError(f"training used {used[0]} itself; it stands in the track 'known' only")
        wanted = {"typos": "typos", "all": "all"}.get(self.threat, substitutions.name)
        if substitutions.name != wanted:
            asked = {"all": "several sources, such as --substitutions wordnet,typos"}
            needs = asked.get(self.threat, f"--substitutions {wanted}")
            raise UnshakenError(f"the threat {self.threat!r} needs {needs}, not {substitutions.name}")
        return record


def _drawn_from(one: Substitutions) -> Iterator[Substitutions]:
    """The set and those whose swaps it has, however deep; two swaps away none of its source's are left."""
    yield one
    if not isinstance(one, TwoHops) or one.direct:
        for source in made_of(one):
            yield from _drawn_from(source)


@dataclass(frozen=True, kw_only=True)
class Suite:
    """The attacks that every entry of a ranking stands."""

    first: tuple[Attack, ...]  # on all examples
    last: tuple[Attack, ...]  # each on what all before it left, the dearest last: they add to the worst case only

    @property
    def named(self) -> dict[str, Attack]:
        """By what an entry calls them: transfers from several models are counted."""
        found: dict[str, Attack] = {}
        for attack in (*self.first, *self.last):
            before = sum(other.name == attack.name for other in found.values())
            found[f"{attack.name} {before}" if before else attack.name] = attack
        return found


def require_public(name: str, count: int) -> None:
    """Refuse a full suite with too few models to transfer from; asked before any model is loaded, too."""
    if name == "full" and count < PUBLIC_MODELS:
        raise UnshakenError(
            f"{count} public models; the full suite transfers from {PUBLIC_MODELS}: give --public MODEL for each, or "
            "take --suite mini, which transfers nothing"
        )


def suite(name: str, substitutions: Substitutions, public: Sequence[Victim]) -> Suite:
    """The attacks of a suite, in the order in which they are run."""
    if name not in SUITES:
        raise UnshakenError(f"unknown suite {name!r}; {nearest(name, SUITES)}")
    if name == "mini":
        genetic = Genetic(substitutions=substitutions, population=20, generations=10)
        exhaustive = Exhaustive(substitutions=substitutions, limit=1000)
        return Suite(first=(PWWS(substitutions=substitutions),), last=(genetic, exhaustive))
    require_public(name, len(public))
    if len({victim.fingerprint for victim in public}) < len(public):
        raise UnshakenError("one public model is given twice, and transfers the same texts again; give others")
    transfers = [Transfer(source=victim, attack=PWWS(substitutions=substitutions)) for victim in public]
    return Suite(
        first=(PWWS(substitutions=substitutions),),
        last=(
            Beam(substitutions=substitutions),
            Genetic(substitutions=substitutions, population=60, generations=40),
            HullAttack(substitutions=substitutions),
            *transfers,  # after every direct search: what they break then is a flag
            Exhaustive(substitutions=substitutions, limit=100_000),
        ),
    )
