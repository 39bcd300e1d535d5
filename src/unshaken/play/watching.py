"""An attack on one text, told step by step while it runs."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from difflib import SequenceMatcher
from typing import Any

import numpy as np

from unshaken.attacks import Attack, find_attack
from unshaken.errors import NoEffectError, UnshakenError
from unshaken.examples import Examples
from unshaken.substitutions.words import Words, segment
from unshaken.victims.base import Texts, Victim
from unshaken.victims.wrapper import Wrapper

Tell = Callable[[dict[str, Any]], None]
_ANSWERING = threading.Lock()  # a model answers one thread at a time; two panels, or two tabs, may ask the same one


class StoppedError(Exception):
    """Whoever watched has gone, or has seen enough."""


class Watched(Wrapper):
    """A victim that tells of every candidate that is closer to a wrong answer than all before it."""

    def __init__(self, victim: Victim, text: str, label: int, tell: Tell) -> None:
        super().__init__(victim)
        self.text, self.label, self.tell = text, label, tell
        self.asked, self.lowest = 0, np.inf

    @property
    def fingerprint(self) -> str:
        return self.victim.fingerprint

    def _predict(self, texts: Sequence[Texts]) -> np.ndarray:
        answers = _answers(self.victim, texts)
        self.asked += len(texts)
        own = answers[:, self.label]
        best = int(own.argmin())
        # A word blotted out is a question of the search, not a text that anybody would send.
        if own[best] < self.lowest and self.unknown not in texts[best][0]:
            self.lowest = float(own[best])
            self.tell(step("step", self, texts[best][0], np.exp(answers[best])))
        return answers

    def ask_again(self, texts: Sequence[Texts], number: int) -> np.ndarray:
        with _ANSWERING:
            return self.victim.ask_again(texts, number)

    def answer_alone(self, texts: Texts) -> np.ndarray:
        with _ANSWERING:
            return self.victim.answer_alone(texts)


def _answers(victim: Victim, texts: Sequence[Texts]) -> np.ndarray:
    with _ANSWERING:
        return victim.log_probabilities(texts)


def step(kind: str, victim: Watched, text: str, probabilities: np.ndarray) -> dict[str, Any]:
    reader = victim.reader
    return {
        "kind": kind,
        "text": text,
        "parts": parts(victim.text, text),
        "probabilities": [round(float(value), 4) for value in probabilities],
        "answer": int(probabilities.argmax()),
        "asked": victim.asked,
        "read": None if reader is None or (read := reader(text)) == text else read,
    }


def parts(before: str, after: str) -> list[dict[str, Any]]:
    """The new text in pieces, each with the words that stood there before where it is another, or is nothing now."""
    old, new = segment(before), segment(after)
    pieces: list[dict[str, Any]] = []
    end = 0
    for tag, a, b, c, d in SequenceMatcher(None, old.surfaces, new.surfaces, autojunk=False).get_opcodes():
        if tag == "equal":
            continue
        singly = [(a + k, a + k + 1, c + k, c + k + 1) for k in range(d - c)] if b - a == d - c else [(a, b, c, d)]
        for first, last, begin, finish in singly:
            start, stop = _span(new, begin, finish)
            was = slice(*_span(old, first, last))
            pieces += [{"text": after[end:start]}, {"text": after[start:stop], "was": before[was]}]
            end = stop
    return [part for part in [*pieces, {"text": after[end:]}] if part["text"] or "was" in part]


def _span(words: Words, first: int, last: int) -> tuple[int, int]:
    """Where some words stand in their text; of none of them, the place before the next word or behind the last."""
    if first < last:
        return words.spans[first][0], words.spans[last - 1][1]
    place = words.spans[first][0] if first < len(words) else words.spans[-1][1] if words else 0
    return place, place


def watch(victim: Victim, text: str, attack: Attack | str, tell: Tell) -> None:
    """Attack a text, whose right answer is the victim's own, and tell of the start, each better step and the end."""
    first = np.exp(_answers(victim, [(text,)])[0])
    label = int(first.argmax())
    watched = Watched(victim, text, label, tell)
    tell({**step("start", watched, text, first), "labels": list(victim.label_names), "label": label})
    example = Examples.from_lists([text], [label])
    try:
        (result,) = find_attack(attack)(watched, example)
    except NoEffectError as error:  # whose cures are options that the page does not have
        raise UnshakenError("this attack knows no other word for any of these; write more, or take another") from error
    if result.outcome == "error":  # the engine keeps what went wrong with one example; whoever watches wants to know
        raise UnshakenError(f"the attack ended early: {result.error}")
    last = result.adversarial[0] if result.adversarial else text
    answer = np.exp(_answers(victim, [(last,)])[0])
    tell({**step("end", watched, last, answer), "flipped": result.outcome == "success"})
