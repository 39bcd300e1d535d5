"""Short training runs with the real trainer. As a script, what one process of a distributed run does."""

from __future__ import annotations

import sys
import warnings
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))  # for table.py, when run as a script

import torch
from safetensors.torch import save_file
from tiny import tiny_model
from tiny_texts import TEXTS, tokenizer
from torch import Tensor

from table import DefenceRow, defences
from unshaken.examples import Example, Examples
from unshaken.training import RobustTrainer, RobustTrainingArguments

NOISELESS = [row for row in defences() if row.without_noise is not None]


def texts(count: int = 24) -> Examples:
    rows = (
        Example(id=str(number), texts=(f"{TEXTS[number % 6]} {TEXTS[number // 6]}",), label=number % 3)
        for number in range(count)
    )
    return Examples(rows=tuple(rows), label_names=("bad", "mixed", "good"))


def trainer_for(
    defence: Any, folder: Path, *, dropout: float = 0.1, dtype: torch.dtype = torch.float32, **arguments: Any
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
    return RobustTrainer(
        tiny_model(dropout=dropout, dtype=dtype),
        RobustTrainingArguments(str(folder), **settings),
        defence=defence,
        processing_class=tokenizer(),
        train_dataset=texts(),
    )


def weights_after(defence: Any, folder: Path, **arguments: Any) -> dict[str, Tensor]:
    trainer = trainer_for(defence, folder, **arguments)
    trainer.train()
    return {name: value.clone() for name, value in trainer.model.state_dict().items()}


def weights_without_noise(row: DefenceRow, folder: Path, **arguments: Any) -> dict[str, Tensor]:
    assert row.without_noise is not None
    return weights_after(row.without_noise(), folder, dropout=0.0, dtype=torch.float64, **arguments)


if __name__ == "__main__":
    target = Path(sys.argv[1])
    warnings.simplefilter("ignore")
    for row in NOISELESS:
        found = weights_without_noise(row, target / "run", per_device_train_batch_size=4)
        if torch.distributed.get_rank() == 0:
            save_file(found, target / f"{row.name}.safetensors")
    # Parameters of a defence live outside the wrapped model: ranks must still agree on them.
    for row in (row for row in defences() if row.name in ("infobert", "swap-informative")):
        trainer = trainer_for(row.make(), target / "run", per_device_train_batch_size=4)
        trainer.train()
        own = [parameter.detach().flatten() for parameter in trainer.defence.parameters() if parameter.requires_grad]
        mine = torch.cat([*own, *(parameter.detach().flatten() for parameter in trainer.model.parameters())])
        ranks = [torch.empty_like(mine) for _ in range(torch.distributed.get_world_size())]
        torch.distributed.all_gather(ranks, mine)
        assert own, row.name
        assert torch.equal(*ranks), row.name
    torch.distributed.destroy_process_group()
