"""Classifiers under attack: texts in, log-probabilities out."""

from unshaken.victims.averaged import Averaged
from unshaken.victims.base import Texts, Victim
from unshaken.victims.reading import Reading
from unshaken.victims.vote import Vote

__all__ = ["Averaged", "Reading", "Texts", "Victim", "Vote"]
