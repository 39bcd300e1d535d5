"""Training: the stock Hugging Face Trainer with a defence for its objective."""

from unshaken.training.arguments import RobustTrainingArguments
from unshaken.training.callbacks import DistanceToPretrained, KeepBest
from unshaken.training.collator import TextCollator
from unshaken.training.sampler import ClassBalancedSampler, SimilarLengthSampler
from unshaken.training.trainer import RobustTrainer

__all__ = [
    "ClassBalancedSampler",
    "DistanceToPretrained",
    "KeepBest",
    "RobustTrainer",
    "RobustTrainingArguments",
    "SimilarLengthSampler",
    "TextCollator",
]
