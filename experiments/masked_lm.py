"""A masked language model out of an encoder that is at hand, for the guesses that `ours-unknown` attacks with.

    python experiments/masked_lm.py --model GTE_SMALL --texts imdb/train.jsonl imdb/test.jsonl --out DATA/masked-lm

Sentence encoders come without the head that guesses words. This trains the encoder and a new head on the texts (the
column `text` of files that `load_examples` reads): 15% of the tokens are to be guessed, as BERT was trained. The loss
on texts held out is written beside the model, so that a reader can tell how good its guesses are: exp(loss) of 10 is as
if it had ten words to choose from.
"""

from __future__ import annotations

import argparse
import re
import sys
import time
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForMaskedLM, DataCollatorForLanguageModeling, get_scheduler, set_seed

from unshaken.errors import UnshakenError
from unshaken.files import write_json
from unshaken.pretrained import load
from unshaken.tasks import load_examples


def stretches(files: list[Path], tokenizer: Any, length: int) -> torch.Tensor:
    """All texts one behind the other, cut into stretches of one length. (n, length)"""
    rows = [row for file in files for row in load_examples(file, text_columns=["text"], texts_only=True)]
    texts = list(dict.fromkeys(re.sub(r"<br\s*/?>", " ", row.texts[0]) for row in rows))  # some stand in both splits
    inside = length - 2
    ids = [
        token
        for start in range(0, len(texts), 1000)
        for row in tokenizer(texts[start : start + 1000], add_special_tokens=False, verbose=False)["input_ids"]
        for token in (*row, tokenizer.sep_token_id)
    ]
    body = torch.tensor(ids[: len(ids) // inside * inside], dtype=torch.long).view(len(ids) // inside, inside)
    ends = [torch.full((len(body), 1), token) for token in (tokenizer.cls_token_id, tokenizer.sep_token_id)]
    return torch.cat([ends[0], body, ends[1]], 1)


def loss_of(model: Any, batch: dict[str, torch.Tensor], device: torch.device) -> torch.Tensor:
    """Cross-entropy at the places to guess; the head, a product with the whole vocabulary, looks at no others."""
    labels = batch["labels"].to(device)
    guessed = labels != -100
    with torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda"):
        hidden = model.base_model(batch["input_ids"].to(device)).last_hidden_state[guessed]
        logits = model.get_output_embeddings()(model.cls.predictions.transform(hidden))
    return torch.nn.functional.cross_entropy(logits.float(), labels[guessed])


def main() -> None:
    words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words.add_argument("--model", type=Path, required=True, help="a folder of a BERT encoder")
    words.add_argument("--texts", type=Path, nargs="+", required=True)
    words.add_argument("--out", type=Path, required=True)
    words.add_argument("--epochs", type=int, default=6)
    words.add_argument("--batch-size", type=int, default=256)
    words.add_argument("--length", type=int, default=128)
    words.add_argument("--learning-rate", type=float, default=3e-4)
    words.add_argument("--most", type=int, help="stretches of text; all if not given")
    words.add_argument("--held-out", type=int, default=512, help="stretches of text that are not trained on")
    given = words.parse_args()
    set_seed(0)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    kind = load("AutoConfig", given.model).model_type
    if kind != "bert":
        raise UnshakenError(f"{given.model} is a model of the kind {kind}; the head that is trained here is BERT's")
    tokenizer = load("AutoTokenizer", given.model)
    # Not by `load`, which refuses a model whose head has no weights yet.
    model = AutoModelForMaskedLM.from_pretrained(given.model, dtype=torch.float32).to(device)
    collate = DataCollatorForLanguageModeling(tokenizer, mlm_probability=0.15)
    rows = stretches(given.texts, tokenizer, given.length)
    rows = rows[torch.randperm(len(rows))][: given.most]
    if len(rows) < given.held_out + given.batch_size:
        raise UnshakenError(
            f"the texts give {len(rows)} stretches of {given.length} tokens; {given.held_out} are held out, and one "
            f"batch to train on has {given.batch_size}"
        )
    held_out, rows = collate(list(rows[: given.held_out])), rows[given.held_out :]
    steps = len(rows) // given.batch_size * given.epochs
    optimizer = torch.optim.AdamW(model.parameters(), given.learning_rate, weight_decay=0.01)
    schedule = get_scheduler("linear", optimizer, num_warmup_steps=steps // 20, num_training_steps=steps)
    started, done = time.perf_counter(), 0
    for _ in range(given.epochs):
        model.train()
        for part in torch.randperm(len(rows)).split(given.batch_size):
            if len(part) < given.batch_size:
                break
            loss = loss_of(model, collate(list(rows[part])), device)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()
            optimizer.zero_grad()
            done += 1
            if done % max(1, steps // 20) == 0:
                seconds = time.perf_counter() - started
                print(f"step {done} of {steps}, loss {loss.item():.3f}, {seconds:.0f} s", flush=True)
        model.eval()
        with torch.no_grad():
            held = loss_of(model, held_out, device).item()
        print(f"held out: {held:.3f}", flush=True)
    model.save_pretrained(given.out)
    tokenizer.save_pretrained(given.out)
    record = {
        "texts": [file.name for file in given.texts],
        "stretches": len(rows),
        "steps": done,
        "held_out_loss": held,
    }
    write_json(given.out / "trained.json", record)


if __name__ == "__main__":
    try:
        main()
    except UnshakenError as error:
        sys.exit(f"error: {error}")
