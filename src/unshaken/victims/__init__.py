"""Classifiers under attack: texts in, log-probabilities out."""

from unshaken.victims.base import Texts, Victim

__all__ = ["Texts", "Victim"]
