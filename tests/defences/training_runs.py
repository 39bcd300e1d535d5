"""Short training runs with the real trainer. As a script, what one process of a distributed run does."""

from __future__ import annotations

import json
import sys
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from accelerate import PartialState
from accelerate.utils import DistributedType
from safetensors.torch import save_file
from tiny import tiny_model
from tiny_texts import TEXTS, tokenizer
from torch import Tensor

from table import DefenceRow, defences
from unshaken.attacks import PWWS
from unshaken.connections import Connection, Implicit, Unrolled, connect
from unshaken.defences import Defence, FreeLB, InformativeTerm, Standard
from unshaken.defences.shards import whole
from unshaken.examples import Example, Examples
from unshaken.smoothing import Smoothing, smooth
from unshaken.solvers import Anderson
from unshaken.substitutions.dictionary import Dictionary
from unshaken.training import ClassBalancedSampler, RobustTrainer, RobustTrainingArguments

NOISELESS = [row for row in defences() if row.without_noise is not None]


@dataclass(frozen=True, kw_only=True)
class Case:
    """A training without chance, which two processes must carry out as one does."""

    name: str
    make: Callable[[], Any]
    connection: Connection | None = None
    smoothing: Smoothing | None = None
    dtype: torch.dtype = torch.float64
    settings: dict[str, Any] = field(default_factory=dict)
    tolerance: float = 1e-3  # of the way that training goes

    def weights(self, folder: Path, **arguments: Any) -> dict[str, Tensor]:
        change = {"connection": self.connection, "smoothing": self.smoothing}
        options = {"dropout": 0.0, "dtype": self.dtype, **change, **self.settings, **arguments}
        return weights_after(self.make(), folder, **options)


def informative_ascc() -> Any:
    (ascc,) = (row.without_noise() for row in NOISELESS if row.name == "ascc" and row.without_noise)
    return ascc + InformativeTerm()


CASES = [
    *(Case(name=row.name, make=row.without_noise) for row in NOISELESS if row.without_noise is not None),
    # A teacher, projections of its own and class-balanced batches, in which examples are compared with each other.
    Case(name="rift", make=informative_ascc, dtype=torch.float32),
    # Two words that few texts hold, so that a rank may meet none of them in a step.
    Case(
        name="smoothed",
        make=Standard,
        smoothing=Smoothing(substitutions=Dictionary(entries={"end": ["awful"], "with": ["great"]}), hops=2),
    ),
    Case(name="im-bert", make=Standard, connection=Connection.im_bert()),
    Case(name="implicit", make=Standard, connection=Connection(solver=Anderson(steps=4), gradient=Implicit())),
    Case(name="unrolled", make=lambda: FreeLB(init_magnitude=0), connection=Connection(gradient=Unrolled())),
    Case(
        name="accumulated",
        make=lambda: FreeLB(init_magnitude=0),
        settings={"per_device_train_batch_size": 2, "gradient_accumulation_steps": 2},
    ),
    Case(  # FSDP2 also keeps weights and exchanges gradients in bfloat16, whose steps are 0.8 percent
        name="bf16",
        make=lambda: FreeLB(init_magnitude=0),
        dtype=torch.float32,
        settings={"bf16": True},
        tolerance=2e-2,
    ),
]
# The short form: several backward passes, own parameters, weights read outside of a pass or swapped in it, solves.
SHORT = (
    "standard", "freelb", "rift", "swap", "ptwd", "mixout", "smoothed", "im-bert", "implicit", "accumulated", "bf16",
)  # fmt: skip


def texts(count: int = 24) -> Examples:
    rows = (
        Example(id=str(number), texts=(f"{TEXTS[number % 6]} {TEXTS[number // 6]}",), label=number % 3)
        for number in range(count)
    )
    return Examples(rows=tuple(rows), label_names=("bad", "mixed", "good"))


def trainer_for(
    defence: Any,
    folder: Path,
    *,
    dropout: float = 0.1,
    dtype: torch.dtype = torch.float32,
    connection: Connection | None = None,
    smoothing: Smoothing | None = None,
    rows: Examples | None = None,
    **arguments: Any,
) -> RobustTrainer:
    settings = {
        "per_device_train_batch_size": 8,
        "max_steps": 3,
        "learning_rate": 1e-2,
        "eval_strategy": "no",
        "save_strategy": "no",
        "load_best_model_at_end": False,
        "use_cpu": True,
        "disable_tqdm": True,
        "dataloader_pin_memory": False,
        "seed": 5,
        "optim": "sgd",  # Adam would hide a gradient of the wrong size
        **arguments,
    }
    made = RobustTrainingArguments(str(folder), **settings)
    if made.fsdp and made.device.type == "cpu":
        # accelerate offers FSDP for GPUs only, while torch has it for the CPU too.
        PartialState._shared_state["distributed_type"] = DistributedType.MULTI_GPU
    model, words = tiny_model(dropout=dropout, dtype=dtype), tokenizer()
    if smoothing is not None:
        model, words = smooth(model, words, smoothing)
    return RobustTrainer(
        model if connection is None else connect(model, connection),
        made,
        defence=defence,
        processing_class=words,
        train_dataset=texts() if rows is None else rows,
    )


def weights_after(defence: Any, folder: Path, *, resume: str | None = None, **arguments: Any) -> dict[str, Tensor]:
    trainer = trainer_for(defence, folder, **arguments)
    trainer.train(resume_from_checkpoint=resume)
    return {name: whole(value).clone() for name, value in trainer.model.state_dict().items()}


def weights_without_noise(row: DefenceRow, folder: Path, **arguments: Any) -> dict[str, Tensor]:
    assert row.without_noise is not None
    return Case(name=row.name, make=row.without_noise).weights(folder, **arguments)


# ------------------------------------------------------------------------------------- one process of a distributed run


class Recorder(Defence):
    """Plain training that notes which examples it saw."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[str] = []

    def loss(self, step: Any) -> dict[str, Tensor]:
        self.seen += [example.id for example in step.examples]
        return {"task": step.task_loss(step.forward().logits)}


class BalancedRecorder(Recorder):
    balanced_batches = True


def check_what_ranks_see(folder: Path) -> None:
    """Together the ranks see an epoch, without overlap but for the padding of its last batch; the next one differs."""
    rows = texts(22)
    for kind in (Recorder, BalancedRecorder):
        trainer = trainer_for(
            kind(), folder, rows=rows, per_device_train_batch_size=4, max_steps=-1, num_train_epochs=2
        )
        trainer.train()
        ranks: list[Any] = [None] * torch.distributed.get_world_size()
        torch.distributed.all_gather_object(ranks, trainer.defence.seen)
        epochs = []
        for epoch in range(2):  # 22 rows in steps of 2 x 4 make 24: two rows come twice
            seen = [share[12 * epoch : 12 * (epoch + 1)] for share in ranks]
            batches = [share[first : first + 4] for first in (0, 4, 8) for share in seen]
            epochs.append([row for batch in batches for row in batch])
        expected: list[list[str]] = []
        for epoch in range(2):
            sampler = ClassBalancedSampler(rows.labels, seed=trainer.args.seed)
            sampler.set_epoch(epoch)
            expected.append([rows[index].id for index in sampler])
        if kind is BalancedRecorder:
            assert [epoch[:22] for epoch in epochs] == expected
        else:
            assert all(sorted(epoch[:22]) == sorted(row.id for row in rows) for epoch in epochs)
        assert all(epoch[22:] == epoch[:2] for epoch in epochs)
        assert epochs[0] != epochs[1]


def accuracy_under_attack(folder: Path) -> float:
    """What selects a checkpoint: processes share the examples and get one answer."""
    words = Dictionary(entries={"good": ["awful"], "bad": ["great"], "film": ["end"]})
    trainer = RobustTrainer(
        tiny_model(dropout=0.0, dtype=torch.float64),
        RobustTrainingArguments(str(folder), use_cpu=True, disable_tqdm=True, dataloader_pin_memory=False),
        processing_class=tokenizer(),
        train_dataset=texts(),
        eval_dataset=texts(),
        selection_attack=PWWS(substitutions=words),
        selection_examples=20,
    )
    return float(trainer.evaluate()["eval_accuracy_under_attack"])


def check_ranks_agree(row: DefenceRow, folder: Path) -> None:
    """Parameters of a defence live outside the wrapped model: ranks must still agree on them."""
    trainer = trainer_for(row.make(), folder, per_device_train_batch_size=4)
    trainer.train()
    own = [parameter.detach().flatten() for parameter in trainer.defence.parameters() if parameter.requires_grad]
    mine = torch.cat([*own, *(parameter.detach().flatten() for parameter in trainer.model.parameters())])
    ranks = [torch.empty_like(mine) for _ in range(torch.distributed.get_world_size())]
    torch.distributed.all_gather(ranks, mine)
    assert own, row.name
    assert torch.equal(*ranks), row.name


def check_resume(defence: Callable[[], Any], folder: Path, **arguments: Any) -> None:
    """A fresh model and defence go on where a checkpoint ends, with the dropout each rank would have drawn."""
    settings = {"save_strategy": "steps", "save_steps": 2, "max_steps": 4, "optim": "adamw_torch", **arguments}
    unbroken = weights_after(defence(), folder, per_device_train_batch_size=4, **settings)
    resumed = weights_after(
        defence(), folder, per_device_train_batch_size=4, resume=str(folder / "checkpoint-2"), **settings
    )
    torch.testing.assert_close(resumed, unbroken, rtol=0, atol=0)


def main(target: Path, everything: bool) -> None:
    warnings.simplefilter("ignore")
    named = {row.name: row for row in defences()}
    check_what_ranks_see(target / "run")
    for name in ("infobert", "swap-informative"):
        check_ranks_agree(named[name], target / "run")
    answers: list[Any] = [None] * torch.distributed.get_world_size()
    torch.distributed.all_gather_object(answers, accuracy_under_attack(target / "run"))
    (target / "answers.json").write_text(json.dumps(answers))
    for mode, options in (("ddp", {}), ("fsdp2", {"fsdp": True, "fsdp_config": {"version": 2}})):
        for case in CASES:
            if everything or case.name in SHORT:
                size = {} if "per_device_train_batch_size" in case.settings else {"per_device_train_batch_size": 4}
                found = case.weights(target / "run", **size, **options)
                if torch.distributed.get_rank() == 0:
                    save_file(found, target / f"{mode}-{case.name}.safetensors")
        check_resume(named["swap-informative"].make, target / mode, **options)


if __name__ == "__main__":
    main(Path(sys.argv[1]), everything="everything" in sys.argv)
    torch.distributed.destroy_process_group()
