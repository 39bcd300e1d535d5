"""What selects the weights that are kept: the numbers that an evaluation gives, accuracy under attack among them."""

from __future__ import annotations

import math
from typing import Any

import torch

from unshaken.attacks import Attack, Victim
from unshaken.errors import UnshakenError
from unshaken.names import nearest
from unshaken.processes import Shard

SELECTION_EXAMPLES = 500  # a tenth of them would choose by luck: its standard error is 7 points
UNDER_ATTACK = "accuracy_under_attack"
# What the stock Trainer gives as well: nobody selects by it but who knows why.
OF_THE_MACHINE = ("runtime", "samples_per_second", "steps_per_second", "model_preparation_time", "mem_")
KNOWN = ("transformers.", "unshaken.")  # whose callbacks and trainers add no other number to an evaluation


def accuracy(prediction: Any) -> dict[str, float]:
    logits = prediction.predictions[0] if isinstance(prediction.predictions, tuple) else prediction.predictions
    return {"accuracy": float((logits.argmax(-1) == prediction.label_ids).mean())}


def accuracy_under_attack(trainer: Any, attack: Attack) -> float:
    """Of a `RobustTrainer`. Processes share the examples, and all get the same answer: they must agree on the best."""
    arguments = trainer.args
    chosen = trainer.eval_dataset.sample(trainer.selection_examples, seed=arguments.seed)
    if not trainer.is_fsdp_enabled:  # where every pass needs all of them
        shard = Shard(rank=arguments.process_index, count=arguments.world_size)
        chosen = chosen.with_rows([row for row in chosen if shard.owns(row.id)])
    options: dict[str, Any] = {"max_length": arguments.max_length, "reader": trainer.reader}
    victim = Victim.from_model(trainer.model, trainer.processing_class, **options)
    counts = torch.zeros(2, device=arguments.device)
    if len(chosen):
        results = attack(victim, chosen)
        counts += torch.tensor([results.tally("failure"), results.answered], device=arguments.device)
    withstood, answered = trainer.accelerator.reduce(counts, reduction="sum").tolist()
    return withstood / answered if answered else math.nan


def check_metric(trainer: Any) -> None:
    """Refuse to select by what no evaluation of a `RobustTrainer` gives; the stock Trainer tells of it after the first.

    Nothing is said where metrics, a callback or a trainer of the user's own may give any number.
    """
    arguments, wanted = trainer.args, trainer.args.metric_for_best_model
    if wanted is None or arguments.eval_strategy == "no" or trainer.compute_metrics not in (None, accuracy):
        return
    nobodys = all(_is_known(one, "on_evaluate", "on_log") for one in trainer.callback_handler.callbacks)
    if not nobodys or not _is_known(trainer, "evaluate", "evaluation_loop", "log"):
        return
    given = ["loss"]
    if trainer.compute_metrics is accuracy and not arguments.prediction_loss_only:
        given.append("accuracy")
    if trainer.selection_attack is not None:
        given.append(UNDER_ATTACK)
    several = isinstance(trainer.eval_dataset, dict)
    of_sets = [f"{name}_" for name in trainer.eval_dataset] if several else [""]
    start, name = ("eval_", wanted[5:]) if wanted.startswith("eval_") else ("", wanted)
    beside = tuple(f"{of}{one}" for of in of_sets for one in OF_THE_MACHINE)
    if name in {f"{of}{one}" for of in of_sets for one in given} or name.startswith(beside):
        return
    cure = nearest(wanted, [f"{start}{of}{one}" for of in of_sets for one in given])
    if name == UNDER_ATTACK:
        cure = "pass the attack that it is about: RobustTrainer(selection_attack='pwws')"
    raise UnshakenError(f"metric_for_best_model is {wanted!r}, which no evaluation gives; {cure}")


def _is_known(thing: Any, *methods: str) -> bool:
    """Whether these methods, which see what an evaluation gives and may add to it, are nobody's own."""
    return all(getattr(type(thing), method).__module__.startswith(KNOWN) for method in methods)
