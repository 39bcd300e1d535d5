r"""What an attack costs by length, candidates and population, fitted to measurements, and what a million texts take.

    python benchmarks/attack_cost.py --out experiments/benchmarks/cpu/attack_cost.json
    python benchmarks/attack_cost.py --device cuda --bf16 --model FOLDER \
        --out experiments/benchmarks/gpu/attack_cost.json

The victim is an encoder that holds on every text, so each search runs to its end and its queries are known beforehand:
the costs are upper bounds, since a search that succeeds stops. Texts are words drawn from the tokenizer's vocabulary,
of which every second one has `candidates` substitutes. Seconds are a sum over what was asked,

    seconds = examples * a + queries * b + distinct texts * tokens * c,

with a, b, c >= 0 by least squares on relative errors; each setting is also predicted from all the others alone.
"""

from __future__ import annotations

import itertools
import random
from collections import Counter
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from harness import parser, prepare, save, seconds
from scipy.optimize import nnls
from transformers import AutoModelForSequenceClassification, AutoTokenizer

from unshaken.attacks import PWWS, Attack, Genetic, Victim
from unshaken.examples import Example, Examples
from unshaken.processes import Shard
from unshaken.substitutions.dictionary import Dictionary
from unshaken.victims.hugging_face import ModelVictim

LENGTHS = {"cpu": (12, 24, 48), "cuda": (16, 64, 192)}  # in words
CANDIDATES = (4, 16)
POPULATIONS = ((10, 4), (30, 4))  # with generations
TEXTS, GPUS = 1_000_000, 64
# Sentences and reviews, as SST-2 and IMDB have them, under the attacks' own defaults.
ESTIMATES = (
    ("PWWS, sentences", {"length": 20, "candidates": 8}),
    ("PWWS, reviews", {"length": 230, "candidates": 8}),
    ("Genetic, sentences", {"length": 20, "candidates": 8, "population": 60, "generations": 40}),
    ("Genetic, reviews", {"length": 230, "candidates": 8, "population": 60, "generations": 40}),
)


@dataclass(frozen=True, kw_only=True)
class Setting:
    length: int
    candidates: int
    population: int = 0  # 0 is PWWS
    generations: int = 0

    @property
    def changeable(self) -> int:
        return self.length // 2

    @property
    def queries(self) -> int:
        """Of an example that holds."""
        if not self.population:
            return 1 + self.changeable * (self.candidates + 2)
        return 1 + (self.population + self.generations * (self.population - 1)) * (self.candidates + 1)

    def attack(self, words: Dictionary) -> Attack:
        if not self.population:
            return PWWS(substitutions=words)
        return Genetic(substitutions=words, population=self.population, generations=self.generations)


def stubborn_victim(arguments: Any) -> ModelVictim:
    """An encoder whose scores move with the words and whose answer never does."""
    tokenizer = AutoTokenizer.from_pretrained(arguments.model)
    dtype = torch.bfloat16 if arguments.bf16 else torch.float32
    model = AutoModelForSequenceClassification.from_pretrained(arguments.model, num_labels=2, dtype=torch.float32)
    with torch.no_grad():
        model.classifier.bias.copy_(torch.tensor([8.0, -8.0]))
    model.to(dtype).classifier.float()  # a score of about 8 hardly moves in bf16, and Genetic repeats itself
    model.classifier.register_forward_pre_hook(lambda _, given: (given[0].float(),))
    return Victim.from_model(model.to(arguments.device), tokenizer, name="stubborn")


def vocabulary(victim: ModelVictim) -> tuple[list[str], list[str]]:
    """Whole words that can be swapped, and others."""
    words = sorted(
        word for word in victim.tokenizer.get_vocab() if word.isascii() and word.isalpha() and word.islower()
    )
    words = [word for word in words if 4 <= len(word) <= 8]
    random.Random(0).shuffle(words)
    return words[:2_000], words[2_000:4_000]


def texts_and_words(setting: Setting, victim: ModelVictim, count: int, seed: int) -> tuple[Examples, Dictionary]:
    swapped, fixed = vocabulary(victim)
    stream = random.Random(seed)
    entries = {word: stream.sample(fixed, setting.candidates) for word in swapped}
    rows = []
    for number in range(count):
        pairs = zip(
            stream.choices(swapped, k=setting.changeable), stream.choices(fixed, k=setting.changeable), strict=True
        )
        rows.append(Example(id=str(number), texts=(" ".join(itertools.chain.from_iterable(pairs)),), label=0))
    return Examples(rows=tuple(rows)), Dictionary(entries=entries)


def run(setting: Setting, victim: ModelVictim, device: str, count: int, seed: int) -> tuple[float, Examples, list[Any]]:
    examples, words = texts_and_words(setting, victim, count, seed)
    attack, found = setting.attack(words), list[Any]()
    return seconds(lambda: found.extend(attack(victim, examples)), device), examples, found


def measure(setting: Setting, victim: ModelVictim, device: str, target: float) -> dict[str, Any]:
    """Attack as many examples as take about `target` seconds."""
    few = 2 if device == "cpu" else 16
    pilot, _, _ = run(setting, victim, device, count=few, seed=1)
    cost, examples, found = run(setting, victim, device, count=int(np.clip(few * target / pilot, few, 2_048)), seed=2)
    assert all(row.outcome == "failure" for row in found), "the victim must hold"
    tokens = np.mean([len(ids) for ids in victim.tokenizer([row.texts[0] for row in examples])["input_ids"]])
    queries = float(np.mean([row.queries for row in found]))
    assert queries == setting.queries, f"{queries} queries, not {setting.queries}"
    return {
        "attack": "genetic" if setting.population else "pwws",
        **vars(setting),
        "examples": len(examples),
        "tokens": float(tokens),
        "queries": queries,
        "rows": float(np.mean([row.rows for row in found])),
        "seconds_per_example": cost / len(examples),
    }


def features(row: dict[str, Any]) -> list[float]:
    return [1.0, row["queries"], row["rows"] * row["tokens"]]


def fitted(rows: list[dict[str, Any]]) -> np.ndarray:
    """The coefficients with the least sum of squared relative errors."""
    costs = np.array([row["seconds_per_example"] for row in rows])
    solution, _ = nnls(np.array([features(row) for row in rows]) / costs[:, None], np.ones(len(rows)))
    return np.asarray(solution)


def errors(rows: list[dict[str, Any]]) -> list[float]:
    """Relative error of each setting, predicted from a fit to the others."""
    found = []
    for index, row in enumerate(rows):
        coefficients = fitted(rows[:index] + rows[index + 1 :])
        found.append(float(np.dot(features(row), coefficients) / row["seconds_per_example"] - 1))
    return found


def estimates(rows: list[dict[str, Any]], coefficients: np.ndarray) -> list[dict[str, Any]]:
    """Examples a second on one device, and hours for all texts on many. No search succeeds early: an upper bound."""
    shares = Counter(Shard.number(str(number), GPUS) for number in range(TEXTS))
    largest = max(shares.values())
    tokens_per_word = np.mean([row["tokens"] / row["length"] for row in rows])
    found = []
    for name, values in ESTIMATES:
        setting = Setting(**values)
        kind = "genetic" if setting.population else "pwws"
        distinct = max(row["rows"] / row["queries"] for row in rows if row["attack"] == kind)
        work = {
            "queries": setting.queries,
            "rows": setting.queries * distinct,
            "tokens": min(setting.length * tokens_per_word, 256),
        }
        cost = float(np.dot(features(work), coefficients))
        found.append(
            {
                "name": name,
                **values,
                "queries": setting.queries,
                "examples_per_second": 1 / cost,
                "texts": TEXTS,
                "devices": GPUS,
                "largest_share": largest,
                "hours": largest * cost / 3600,
            }
        )
    return found


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--seconds-each", type=float, default=2.0, help="for each of the 12 settings")
    arguments = options.parse_args()
    prepare(arguments)
    victim, lengths = stubborn_victim(arguments), LENGTHS[arguments.device]
    settings = [Setting(length=length, candidates=count) for length in lengths for count in CANDIDATES]
    settings += [
        Setting(length=length, candidates=CANDIDATES[0], population=population, generations=generations)
        for length in lengths
        for population, generations in POPULATIONS
    ]
    measure(settings[0], victim, arguments.device, 0.1)  # warm-up: kernels and caches
    rows = []
    for setting in settings:
        rows.append(measure(setting, victim, arguments.device, arguments.seconds_each))
        print(
            {key: round(value, 4) if isinstance(value, float) else value for key, value in rows[-1].items()}, flush=True
        )
    coefficients, missed = fitted(rows), errors(rows)
    for row, error in zip(rows, missed, strict=True):
        row["left_out_error"] = error
    fit = {
        "seconds_per_example": float(coefficients[0]),
        "seconds_per_query": float(coefficients[1]),
        "seconds_per_token": float(coefficients[2]),
        "median_error": float(np.median(np.abs(missed))),
        "largest_error": float(np.max(np.abs(missed))),
    }
    found = estimates(rows, coefficients)
    print(fit)
    for row in found:
        print(
            f"{row['name']}: {row['examples_per_second']:.2f} examples/s; {TEXTS:,} on {GPUS}: {row['hours']:.2f} hours"
        )
    save(arguments, rows, fit=fit, estimates=found)


if __name__ == "__main__":
    main()
