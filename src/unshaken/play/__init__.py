"""A local page on which to type a sentence and watch an attack change it, word by word."""

from unshaken.play.server import Playground
from unshaken.play.watching import StoppedError, Watched, watch

__all__ = ["Playground", "StoppedError", "Watched", "watch"]
