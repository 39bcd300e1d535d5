"""A tokenizer whose numbers go beyond the model's table is refused at once, not by torch at a text that has one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from transformers import BertConfig, BertForMaskedLM
from typer.testing import CliRunner
from victims import TEXTS, make_tokenizer, tiny_bert

from unshaken import Examples, RobustTrainer, RobustTrainingArguments, Victim
from unshaken.cli import app
from unshaken.errors import UnshakenError
from unshaken.substitutions import MaskedLM

BOTH = r"has 43 tokens, with numbers from 0 to 42 \('filmic'\), and the model's embedding table 42 rows: .*resize_token"


@pytest.fixture
def parts(tmp_path: Path) -> tuple[Any, Any]:
    """A model of 42 tokens, and its tokenizer with another one."""
    tokenizer = make_tokenizer(tmp_path)
    model = tiny_bert(tokenizer).float()
    tokenizer.add_tokens(["filmic"])
    return model, tokenizer


def trainer(model: Any, tokenizer: Any, out: Path, texts: Any = TEXTS) -> RobustTrainer:
    arguments: dict[str, Any] = {"max_steps": 1, "eval_strategy": "no", "save_strategy": "no", "report_to": "none"}
    return RobustTrainer(
        model,
        RobustTrainingArguments(str(out), use_cpu=True, disable_tqdm=True, **arguments),
        processing_class=tokenizer,
        train_dataset=Examples.from_lists(list(texts), [number % 2 for number in range(len(texts))]),
    )


def test_both_sizes_are_told_where_a_model_meets_its_tokenizer(parts: Any, tmp_path: Path) -> None:
    model, tokenizer = parts
    with pytest.raises(UnshakenError, match=BOTH):
        Victim.from_model(model, tokenizer)
    with pytest.raises(UnshakenError, match=BOTH):
        trainer(model, tokenizer, tmp_path / "run")
    for part in parts:
        part.save_pretrained(tmp_path / "model")
    with pytest.raises(UnshakenError, match=BOTH):
        Victim.from_pretrained(tmp_path / "model")
    model.resize_token_embeddings(len(tokenizer))
    assert Victim.from_model(model, tokenizer).log_probabilities([("a filmic film",)]).shape == (1, 2)


@pytest.mark.parametrize("command", ["attack", "evaluate", "train", "doctor"])
def test_commands_tell_it_before_their_work(parts: Any, tmp_path: Path, command: str) -> None:
    for part in parts:
        part.save_pretrained(tmp_path / "model")
    rows = tmp_path / "rows.csv"
    rows.write_text("text,label\n" + "".join(f'"{text} {n}",{n % 2}\n' for n in range(4) for text in TEXTS[::3]))
    out, model = ["--out", str(tmp_path / "out")], str(tmp_path / "model")
    how = {
        "attack": [model, str(rows), *out, "--device", "cpu"],
        "evaluate": [model, str(rows), *out, "--device", "cpu"],
        "train": [str(rows), "--model", model, *out, "--device", "cpu"],
        "doctor": [model],
    }
    done = CliRunner().invoke(app, [command, *how[command]])
    assert isinstance(done.exception, UnshakenError), done.output
    assert "43 tokens" in str(done.exception)
    assert "42 rows" in str(done.exception)


def test_a_model_that_proposes_words_is_told_of_too(parts: Any, tmp_path: Path) -> None:
    _, tokenizer = parts
    shape = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 24}
    BertForMaskedLM(BertConfig(vocab_size=42, **shape)).save_pretrained(tmp_path / "words")
    tokenizer.save_pretrained(tmp_path / "words")
    with pytest.raises(UnshakenError, match=BOTH):
        MaskedLM(model=tmp_path / "words").candidates("a good film", 1)


def test_a_special_token_that_no_text_has_may_lie_beyond(tmp_path: Path) -> None:
    """Published models have one, for images; only a text that spells it out is refused."""
    tokenizer = make_tokenizer(tmp_path)
    model = tiny_bert(tokenizer).float()
    tokenizer.add_special_tokens({"additional_special_tokens": ["<image>"]})
    victim = Victim.from_model(model, tokenizer)
    assert victim.log_probabilities([("a good film",)]).shape == (1, 2)
    told = "a text holds '<image>', which is token 42, and the model's embedding table has 42 rows"
    with pytest.raises(UnshakenError, match=told):
        victim.log_probabilities([("a good film",), ("an <image> of it",)])
    trainer(model, tokenizer, tmp_path / "run").train()
    with pytest.raises(UnshakenError, match=told):
        trainer(model, tokenizer, tmp_path / "run", ("an <image>", "a film")).train()


def test_a_padding_token_without_a_row_is_refused_before_training(tmp_path: Path) -> None:
    tokenizer = make_tokenizer(tmp_path)
    model = tiny_bert(tokenizer).float()
    tokenizer.add_special_tokens({"pad_token": "<pad>"})
    with pytest.raises(UnshakenError, match=r"to 42 \('<pad>'\), and the model's embedding table 42 rows"):
        trainer(model, tokenizer, tmp_path / "run")
