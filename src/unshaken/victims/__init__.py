"""Classifiers under attack: texts in, log-probabilities out."""

from unshaken.victims.averaged import Averaged
from unshaken.victims.base import Texts, Victim

__all__ = ["Averaged", "Texts", "Victim"]
