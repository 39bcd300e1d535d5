"""`RobustTrainer`: the stock Trainer with a defence for its objective.

Only what a defence needs is overridden: the loss, the optimizer's parameters, the order of rows and what is logged.
Checkpoints are `SafeTrainer`'s; DDP, FSDP, mixed precision, the loop and callbacks are the stock Trainer's.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.utils.data import SequentialSampler

from unshaken.attacks import Attack, find_attack
from unshaken.attention import attention_for_any_shape
from unshaken.connections import Captured, connection_of, solve_records
from unshaken.defences import Defence, Standard, release
from unshaken.defences import parse as parse_defence
from unshaken.defences.step import Step
from unshaken.errors import UnshakenError
from unshaken.examples import Examples
from unshaken.matching import check_vocabulary, table_rows
from unshaken.packing import Packed
from unshaken.readers import FILE_NAME as READER_FILE
from unshaken.readers import Readers
from unshaken.smoothing import settled_on_save
from unshaken.training.arguments import RobustTrainingArguments
from unshaken.training.callbacks import DefenceCallback
from unshaken.training.collator import TextCollator, check_kind
from unshaken.training.nested_state import load_tensors
from unshaken.training.nonfinite import FiniteGuard, SolveWatch
from unshaken.training.record import leave_record
from unshaken.training.safe_trainer import SafeTrainer
from unshaken.training.sampler import ClassBalancedSampler, SimilarLengthSampler
from unshaken.training.selection import SELECTION_EXAMPLES, UNDER_ATTACK, accuracy, accuracy_under_attack, check_metric
from unshaken.training.sharding import replicated, shard_layers
from unshaken.training.splits import check_arguments, name_classes, read_evaluation, read_splits

DEFENCE_FILE = "defence.safetensors"


class RobustTrainer(SafeTrainer):
    """`transformers.Trainer` that trains with a defence.

    Args:
        model: A Hugging Face classifier, connected or not.
        args: `RobustTrainingArguments`.
        defence: What turns a batch into a loss, or its name ("swap", "ascc+ptwd"); plain fine-tuning if None.
        processing_class: The tokenizer; needed where the data sets are `Examples`.
        train_dataset: `Examples`, a table of texts and labels (pandas, `datasets`, a list of dicts), or any data set
            that the stock Trainer takes.
        eval_dataset: Likewise.
        selection_attack: Run on the validation examples at each evaluation; its result is logged as
            `eval_accuracy_under_attack`, by which `metric_for_best_model` can select. Test data never selects.
        selection_examples: How many validation examples it attacks, by stable ids.
        reader: What reads texts before the tokenizer; it is saved with the model.

    Example:
        >>> trainer = RobustTrainer(model, RobustTrainingArguments("out"), defence=RIFT(), processing_class=tokenizer,
        ...                         train_dataset=data.train, eval_dataset=data.validation)
        >>> trainer.train()
    """

    def __init__(
        self,
        model: Any,
        args: RobustTrainingArguments,
        *,
        defence: Defence | str | None = None,
        processing_class: Any = None,
        train_dataset: Any = None,
        eval_dataset: Any = None,
        data_collator: Callable[[Any], dict[str, Any]] | None = None,
        compute_metrics: Callable[[Any], dict[str, float]] | None = None,
        selection_attack: Attack | str | None = None,
        selection_examples: int = SELECTION_EXAMPLES,
        reader: Readers | None = None,
        **kwargs: Any,
    ) -> None:
        defence = parse_defence(defence) if isinstance(defence, str) else defence
        selection_attack = None if selection_attack is None else find_attack(selection_attack)
        train_dataset, eval_dataset = read_splits(train_dataset, eval_dataset, model.config, processing_class, reader)
        check_arguments(args, train_dataset, eval_dataset, kwargs.get("compute_loss_func"))
        check_vocabulary(processing_class, model)
        if selection_attack is not None and not isinstance(eval_dataset, Examples):
            raise UnshakenError("selection_attack needs validation texts: pass an Examples split as eval_dataset")
        num_labels = int(model.config.num_labels)
        self.reader = reader
        evaluated = eval_dataset.values() if isinstance(eval_dataset, dict) else [eval_dataset]
        if data_collator is None and any(isinstance(split, Examples) for split in (train_dataset, *evaluated)):
            data_collator = TextCollator(processing_class, args.max_length, table_rows(model))
        super().__init__(
            model=model,
            args=args,
            data_collator=data_collator,
            train_dataset=train_dataset,
            eval_dataset=eval_dataset,
            processing_class=processing_class,
            compute_metrics=compute_metrics or (accuracy if num_labels > 1 else None),
            **kwargs,
        )
        if self.is_deepspeed_enabled:
            raise UnshakenError("DeepSpeed runs backward itself, once per step, and defences need it often: use FSDP2")
        if self.is_fsdp_enabled:
            shard_layers(self.accelerator.state.fsdp_plugin, self.model)
        # We weigh micro-batches ourselves, so the stock Trainer divides by their number and does no more. Left on,
        # it would sum the losses of classifiers whose forward takes **kwargs (2 x 4 rows: 4 times the loss of 8 x 1).
        self.model_accepts_loss_kwargs = False
        self.defence = defence if defence is not None else Standard()
        release(self.model)  # from the weights an earlier defence may have put in
        self.defence.setup(self.model, num_labels=num_labels, tokenizer=processing_class)
        if isinstance(train_dataset, Examples) and train_dataset.label_names:
            self.defence.check_labels(train_dataset.label_names)
        name_classes(model.config, train_dataset)  # after the check of a teacher, whose names may be others
        self.defence.to(self.args.device)
        self.selection_attack, self.selection_examples = selection_attack, selection_examples
        self._parts: dict[str, list[Tensor]] = defaultdict(list)
        self._rows_in_step = 0
        self._guard, self._solves = FiniteGuard(self), SolveWatch()
        self._is_connected = connection_of(model) is not None
        self._graphs: Captured | None = None
        self._rows = Packed(model)
        self.add_callback(DefenceCallback(self))

    def train(self, *args: Any, **kwargs: Any) -> Any:
        check_metric(self)  # only now: callbacks may have been added
        return super().train(*args, **kwargs)

    # ------------------------------------------------------------------------------------------------ the objective

    def get_batch_samples(self, epoch_iterator: Iterator[Any], num_batches: int, device: torch.device) -> Any:
        batches, items = super().get_batch_samples(epoch_iterator, num_batches, device)
        self._rows_in_step = sum(len(batch["labels"]) for batch in batches)
        return batches, items

    def compute_loss(
        self,
        model: nn.Module,
        inputs: dict[str, Any],
        return_outputs: bool = False,
        num_items_in_batch: Tensor | int | None = None,
    ) -> Any:
        inputs = dict(inputs)
        examples, labels = inputs.pop("examples", None), inputs.pop("labels")
        check_kind(labels, self.model.config)
        step = Step(
            model=model,
            inputs=inputs,
            labels=labels,
            examples=examples,
            tokenizer=self.processing_class,
            max_length=self.args.max_length,
            reader=self.reader,
            progress=self.state.global_step / max(1, self.state.max_steps),
            local=lambda: self.accelerator.no_sync(model),
        )
        # `backward` knows another step: one that knew itself would keep its passes until memory is collected.
        step = dataclasses.replace(step, backward=functools.partial(self._inner_backward, step=step))
        if return_outputs or not model.training:  # evaluation measures the task, not the defence's surrogate
            outputs = step.forward()
            loss = step.task_loss(outputs.logits)
            return (loss, outputs) if return_outputs else loss
        with self.accelerator.autocast():  # teachers and critics of a defence are not inside the wrapped model
            parts = self.defence.loss(step)
        loss = torch.stack([part.float() for part in parts.values()]).sum()
        if not torch.isfinite(loss):
            loss = self._guard.lost_loss(parts, loss, step)
        for name, part in parts.items():
            self._parts[f"loss_{name}"].append(part.detach())
        return loss * self._weight(labels)

    def _weight(self, labels: Tensor) -> float:
        """1 where all micro-batches of a step are equally large; otherwise each counts by its rows."""
        micro_batches: int = self.current_gradient_accumulation_steps
        return len(labels) * micro_batches / self._rows_in_step

    def _inner_backward(self, loss: Tensor, step: Step) -> None:
        """Backward of a pass that is not the last one of its step."""
        if not torch.isfinite(loss):
            loss = self._guard.lost_loss({"inner pass": loss}, loss, step)
        self.accelerator.backward(loss * self._weight(step.labels) / self.current_gradient_accumulation_steps)

    def training_step(self, model: nn.Module, inputs: dict[str, Any], num_items_in_batch: Any = None) -> Tensor:
        with attention_for_any_shape(self.args.device), self._packed(), self._captured():
            loss: Tensor = super().training_step(model, inputs, num_items_in_batch)
        if self._is_connected:
            self._solves.look(self.model, self.state.global_step + 1)
        if self.accelerator.sync_gradients:
            if self.accelerator.num_processes > 1:
                # What is not inside DDP's or FSDP's wrapper: exchange its gradients as they do.
                outside = replicated(self.model) if self.is_fsdp_enabled else ()
                for parameter in (*self.defence.parameters(), *outside):
                    if parameter.grad is not None:
                        parameter.grad = self.accelerator.reduce(parameter.grad, reduction="mean")
            self._guard.check_gradients([*self.model.named_parameters(), *self.defence.named_parameters("defence")])
        return loss

    def _packed(self) -> contextlib.AbstractContextManager[Any]:
        """While open, the encoder computes next to no padding, where its layers can do without."""
        arguments = self.args  # a graph of a step, or a compiled one, holds one shape; several GPUs get copies
        unfit = arguments.cuda_graphs or arguments.torch_compile or arguments.n_gpu > 1
        return contextlib.nullcontext() if unfit else self._rows.standing_in()

    def prediction_step(self, *args: Any, **kwargs: Any) -> Any:
        with self._packed():  # not around `evaluate`, whose callbacks may copy the model
            return super().prediction_step(*args, **kwargs)

    def _captured(self) -> contextlib.AbstractContextManager[Any]:
        """While open, the model replays CUDA graphs where that was asked for."""
        if not self.args.cuda_graphs or self.args.n_gpu > 1:  # several GPUs of one process get copies of the model
            return contextlib.nullcontext()
        if self._graphs is None:
            self._graphs = Captured(self.model)
        return self._graphs.standing_in()

    # --------------------------------------------------------------------------------------- sampling and selection

    def _get_train_sampler(self, train_dataset: Any = None) -> Any:
        """Class-balanced batches where asked for, or where a part of the defence compares examples of one class."""
        dataset = self.train_dataset if train_dataset is None else train_dataset
        if not isinstance(dataset, Examples):
            if self.args.balance_classes:
                raise UnshakenError("balance_classes balances texts: train on Examples or a table, not on tokens")
            return super()._get_train_sampler(*(() if train_dataset is None else (train_dataset,)))
        arguments, balanced = self.args, None
        seed = arguments.seed if arguments.data_seed is None else arguments.data_seed
        if arguments.balance_classes or self._some_part("balanced_batches"):
            balanced = ClassBalancedSampler(dataset.labels, seed=seed)
        if arguments.train_sampling_strategy == "group_by_length":
            if self._some_part("compares_rows"):
                raise UnshakenError(
                    "this defence compares the texts of a batch with each other; grouped by length they would be alike "
                    "in length, and it would learn from that. Leave out --group-by-length "
                    "(train_sampling_strategy='group_by_length')"
                )
            rows = arguments.train_batch_size * arguments.gradient_accumulation_steps * arguments.world_size
            lengths = [sum(len(text) for text in row.texts) for row in dataset]
            return SimilarLengthSampler(lengths, rows, order=balanced, seed=seed)
        return super()._get_train_sampler(dataset) if balanced is None else balanced

    def _some_part(self, trait: str) -> bool:
        return any(getattr(part, trait, False) for part in self.defence.modules())

    def _get_eval_sampler(self, eval_dataset: Any) -> Any:
        if isinstance(eval_dataset, Examples):  # in their order, however training orders its rows
            return SequentialSampler(eval_dataset) if self.args.world_size == 1 else None
        return super()._get_eval_sampler(eval_dataset)

    def evaluate(
        self, eval_dataset: Any = None, ignore_keys: list[str] | None = None, metric_key_prefix: str = "eval"
    ) -> dict[str, float]:
        """The task's loss and accuracy, as the model reads the texts; of several sets by name, each."""
        if not isinstance(eval_dataset, str | dict | None):  # a dict comes back set by set
            eval_dataset = self._read(eval_dataset)
        metrics: dict[str, float] = super().evaluate(eval_dataset, ignore_keys, metric_key_prefix)
        if self.selection_attack is not None and eval_dataset is None:
            extra = {f"{metric_key_prefix}_{UNDER_ATTACK}": accuracy_under_attack(self, self.selection_attack)}
            self.log(dict(extra))
            metrics |= extra
        return metrics

    def predict(self, test_dataset: Any, *args: Any, **kwargs: Any) -> Any:
        return super().predict(self._read(test_dataset), *args, **kwargs)

    def _read(self, split: Any) -> Any:
        return read_evaluation(split, self.train_dataset, self.model.config, self.processing_class, self.reader)

    # ------------------------------------------------------------------------------------------ optimizer and files

    def create_scheduler(self, *args: Any, **kwargs: Any) -> Any:
        """Called when the optimizer is ready, with shards for weights if there are any: the defence's own join."""
        if self.is_fsdp_enabled:
            # The model is the root, though a defence may use its embeddings before it runs the model.
            self.model._get_fsdp_state()._lazy_init()
        own = [parameter for parameter in self.defence.parameters() if parameter.requires_grad]
        known = {id(parameter) for group in self.optimizer.param_groups for parameter in group["params"]}
        if own and id(own[0]) not in known:
            self.optimizer.add_param_group({"params": own, "weight_decay": self.args.weight_decay})
        return super().create_scheduler(*args, **kwargs)

    def save_model(self, output_dir: str | None = None, _internal_call: bool = False) -> None:
        """Write an ordinary model and how it was trained; checkpoints, which the Trainer writes itself, hold more."""
        if isinstance(self.data_collator, TextCollator):
            self.data_collator.ask_as_training_does()
        with contextlib.nullcontext() if _internal_call else settled_on_save(self.model):
            super().save_model(output_dir, _internal_call)
        folder = Path(output_dir or self.args.output_dir or ".")
        if self.reader is not None and self.args.should_save:
            self.reader.save(folder)
        if self.args.should_save and not _internal_call:
            if self.reader is None:  # what an earlier model left there would be read with this one
                (folder / READER_FILE).unlink(missing_ok=True)
            leave_record(self, str(folder))

    def push_to_hub(self, *args: Any, **kwargs: Any) -> Any:
        """Push what `save_model` writes: the stock Trainer pushes what it puts into checkpoints."""
        if self.args.should_save:
            leave_record(self, self.args.output_dir)
        with settled_on_save(self.model):
            return super().push_to_hub(*args, **kwargs)

    def save_run_state(self, folder: Path) -> None:
        super().save_run_state(folder)
        state = {key: value.contiguous() for key, value in self.defence.state_dict().items()}
        if state and self.args.should_save:
            save_file(state, folder / DEFENCE_FILE)

    def process_state(self) -> dict[str, Any]:
        return {**super().process_state(), "parts": dict(self._parts)}

    def restore_process_state(self, state: dict[str, Any]) -> None:
        super().restore_process_state(state)
        for name, values in state["parts"].items():
            self._parts[name] = [value.to(self.args.device) for value in values]

    def _load_optimizer_and_scheduler(self, checkpoint: str | None) -> None:
        super()._load_optimizer_and_scheduler(checkpoint)
        if checkpoint is None or not self.defence.state_dict():
            return
        path = Path(checkpoint) / DEFENCE_FILE
        if not path.is_file():
            raise UnshakenError(f"{path} is missing: the checkpoint was written by another defence")
        self.defence.load_state_dict(load_tensors(path))

    # -------------------------------------------------------------------------------------------------------- logs

    def log(self, logs: dict[str, float], *args: Any, **kwargs: Any) -> None:
        """Adds each loss part and, for connected models, each layer's residual and evaluations to the training log."""
        if "loss" in logs:
            for name, values in self._parts.items():
                logs[name] = torch.stack(values).float().mean().item()
            self._parts.clear()
            for layer, record in solve_records(self.model).items():
                logs[f"residual_layer_{layer}"] = record.worst_residual
                logs[f"evaluations_layer_{layer}"] = float(record.evaluations)
            for layer, count in self._solves.counts().items():
                logs[f"diverged_layer_{layer}"] = float(count)
            for layer, first in self._solves.news().items():
                self._guard.warn(f"the implicit solve of layer {layer} diverged; from now on the log counts", first)
        super().log(logs, *args, **kwargs)
