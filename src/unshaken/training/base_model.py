"""The model that a training begins with: found, loaded with a head for the labels, frozen in part."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from unshaken.errors import UnshakenError

if TYPE_CHECKING:
    from unshaken.examples import Examples

MINILM = "minilm"


def resolve_model(name: str) -> str:
    from unshaken.embedded import minilm_path
    from unshaken.pretrained import locate

    return str(minilm_path()) if name == MINILM else locate(name)


def load_classifier(name: str, train: Examples) -> tuple[Any, Any]:
    """Model and tokenizer with a head for the labels of `train`."""
    from unshaken.matching import check_padding, check_tokenizer, check_vocabulary
    from unshaken.pretrained import CLASSIFIER, load

    source = resolve_model(name)
    labels = train.label_names or tuple(str(label) for label in range(train.num_labels))
    names: dict[str, Any] = (
        {}
        if train.is_regression
        else {"id2label": dict(enumerate(labels)), "label2id": {n: i for i, n in enumerate(labels)}}
    )
    tokenizer = load("AutoTokenizer", source)
    model = load(CLASSIFIER, source, new_head=True, num_labels=train.num_labels, **names)
    check_tokenizer(tokenizer, model, name)
    ensure_padding(tokenizer, model, name)
    check_padding(tokenizer, model, name)
    check_vocabulary(tokenizer, model, name)
    return model.float(), tokenizer


def ensure_padding(tokenizer: Any, model: Any, name: str) -> None:
    """Decoder-only models often have no padding token; the end-of-text token serves, as is usual for classifiers."""
    if tokenizer.pad_token is None:
        if tokenizer.eos_token is None:
            raise UnshakenError(f"the tokenizer of {name!r} has neither a padding nor an end-of-text token to pad with")
        tokenizer.pad_token = tokenizer.eos_token
    if model.config.pad_token_id is None:
        model.config.pad_token_id = tokenizer.pad_token_id


def freeze(model: Any, layers: int) -> None:
    """Keep the embeddings and the first layers as they are. On a CPU the table of words is what costs most to move."""
    from unshaken.connections.backbones import stacks_of

    first = next(iter(stacks_of(model).values()))
    if not 0 <= layers <= len(first):
        raise UnshakenError(f"frozen_layers is {layers}; the model has {len(first)}")
    for module in (model.get_input_embeddings(), *first[:layers]):
        for parameter in module.parameters():
            parameter.requires_grad = False
