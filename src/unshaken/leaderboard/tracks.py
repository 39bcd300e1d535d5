"""`Track`: which models are compared with each other, and which attacks each of them has to stand."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from unshaken.attacks import PWWS, Attack, Beam, Exhaustive, Genetic, HullAttack, Transfer
from unshaken.errors import UnshakenError
from unshaken.evaluation.training_record import TrainingRecord
from unshaken.names import nearest
from unshaken.substitutions import Substitutions
from unshaken.victims.base import Victim

THREATS = {
    "known": "words of a dictionary that training may have used",
    "unseen": "words of a dictionary that training has not used",
    "typos": "typing errors",
    "all": "several sources at once, which is what a real adversary does",
}
SUITES = {
    "full": "PWWS, Genetic 60 x 40, beam, exhaustive if the space has at most 1e5 texts, hull, and transfers",
    "mini": "PWWS, Genetic 20 x 10 and exhaustive up to 1,000 texts, for a CPU",
}
PUBLIC_MODELS = 3  # whose adversarial texts the full suite transfers


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
        parts = text.split("/", 2)  # a task may be a file in a folder
        if len(parts) != 3 or not all(parts):
            raise UnshakenError(f"track {text!r}; it must be ENCODER/THREAT/TASK, such as minilm/known/sst2")
        return cls(encoder=parts[0], threat=parts[1], task=parts[2])

    def __str__(self) -> str:
        return f"{self.encoder}/{self.threat}/{self.task}"

    def require_fit(self, record: TrainingRecord | None, substitutions: Substitutions) -> TrainingRecord:
        """The training record, if the model may stand in this track: a claim of "unseen" is checked, not believed."""
        if record is None:
            raise UnshakenError(
                "the model has no record of its training, so nobody can tell what it has seen; train with unshaken"
            )
        sources = [substitutions, *getattr(substitutions, "sources", ())]
        used = [one.name for one in sources if one.fingerprint in record.fingerprints]
        if self.threat == "unseen" and used:
            raise UnshakenError(f"training used {used[0]} itself; it stands in the track 'known' only")
        wanted = {"typos": "typos", "all": "all"}.get(self.threat, substitutions.name)
        if substitutions.name != wanted:
            asked = {"all": "several sources, such as --substitutions wordnet,typos"}
            needs = asked.get(self.threat, f"--substitutions {wanted}")
            raise UnshakenError(f"the threat {self.threat!r} needs {needs}, not {substitutions.name}")
        return record


def suite(name: str, substitutions: Substitutions, public: Sequence[Victim]) -> list[Attack]:
    """The attacks of a suite, in the order in which they are run."""
    if name not in SUITES:
        raise UnshakenError(f"unknown suite {name!r}; {nearest(name, SUITES)}")
    if name == "mini":
        genetic = Genetic(substitutions=substitutions, population=20, generations=10)
        return [PWWS(substitutions=substitutions), genetic, Exhaustive(substitutions=substitutions, limit=1000)]
    if len(public) < PUBLIC_MODELS:
        raise UnshakenError(
            f"{len(public)} public models; the full suite transfers from {PUBLIC_MODELS}: give --public MODEL for each"
        )
    transfers = [Transfer(source=victim, attack=PWWS(substitutions=substitutions)) for victim in public]
    return [
        PWWS(substitutions=substitutions),
        Genetic(substitutions=substitutions, population=60, generations=40),
        Beam(substitutions=substitutions),
        Exhaustive(substitutions=substitutions, limit=100_000),
        HullAttack(substitutions=substitutions),
        *transfers,
    ]
