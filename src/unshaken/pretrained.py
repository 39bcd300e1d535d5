"""Models and tokenizers from folders and the hub: the one door through which weights come in, and code does not."""

from __future__ import annotations

import contextlib
import difflib
import functools
import hashlib
import json
import math
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

from unshaken.display import note
from unshaken.errors import UnshakenError

# What transformers computes itself. Any other name is taken for a repository from which it would fetch code to run.
ATTENTION = ("eager", "sdpa", "flash_attention_2", "flash_attention_3", "flex_attention")
EXPERTS = ("eager", "batched_mm", "grouped_mm")
MOST_CLASSES = 1_000_000
MOST_LAYERS = 1_000
SHORTEST = 8  # tokens: a model that reads fewer has hardly a word between its special tokens
CLASSIFIER = "AutoModelForSequenceClassification"
_DECODER = ("is_decoder", "add_cross_attention")
_LAYERS = ("num_hidden_layers", "num_layers", "n_layer", "n_layers", "encoder_layers", "decoder_layers")
DTYPES = {  # on the command line -> in torch
    "float32": "float32",
    "float64": "float64",
    "bfloat16": "bfloat16",
    "bf16": "bfloat16",
    "float16": "float16",
    "fp16": "float16",
}
CONFIG = "config.json"
TOKENIZER = "tokenizer_config.json"
HUB_SECONDS = 10.0  # for the one question whether it has a model


def load(
    kind: str, name: str | Path, *, new_head: bool = False, trust_remote_code: bool = False, **options: Any
) -> Any:
    """`from_pretrained` of a transformers Auto class.

    transformers reads weights in pickle form by torch's restricted reader, which makes tensors and runs nothing.

    Args:
        kind: Name of the Auto class, such as "AutoTokenizer".
        name: Folder or hub name.
        new_head: The classifier on top may be new, for it will be trained; `model.new_weights` names what is. Otherwise
            a model that lacks weights is refused: random ones in their place would be measured as if they were it.
        trust_remote_code: Run the Python files that a model brings with it. Read them first.
        options: Of `from_pretrained`.

    Raises:
        UnshakenError: Whatever is wrong with the folder, in one line.
    """
    import transformers

    alone = kind == "AutoTokenizer" and (Path(name).expanduser() / TOKENIZER).is_file()  # beside an .onnx file, say
    name = str(Path(name).expanduser()) if alone else locate(name)
    auto = getattr(transformers, kind)
    with explained(name, kind, trust_remote_code), _no_load_report():
        _check_config(kind, name)
        if kind in ("AutoTokenizer", "AutoConfig"):
            found = auto.from_pretrained(name, trust_remote_code=trust_remote_code, **options)
            if kind == "AutoTokenizer":
                _check_tokenizer(found, name)
            return found
        model, report = auto.from_pretrained(
            name,
            trust_remote_code=trust_remote_code,
            output_loading_info=True,
            ignore_mismatched_sizes=new_head,
            **options,
        )
        model.new_weights = _new_weights(kind, name, model, report, new_head)
        return model


def fingerprint(model: Any, tokenizer: Any, without: Collection[str] = ()) -> Any:
    """SHA-256 (still open to more) of weights, configuration and tokenizer, `without` the weights of these names."""
    digest = weights_digest(model, without)
    config = model.config.to_dict()
    for volatile in ("_name_or_path", "transformers_version"):
        config.pop(volatile, None)
    digest.update(json.dumps(config, sort_keys=True, default=str).encode())
    add_tokenizer(digest, tokenizer)
    return digest


def add_tokenizer(digest: Any, tokenizer: Any) -> None:
    """Make a hash depend on what a tokenizer makes of texts."""
    if getattr(tokenizer, "is_fast", False):
        rules = json.loads(tokenizer.backend_tokenizer.to_str())
        for last_call in ("truncation", "padding"):  # what it was asked for last, and no part of what it is
            rules.pop(last_call, None)
        digest.update(json.dumps(rules, sort_keys=True).encode())
    else:  # it does not write its rules out
        words = {"kind": type(tokenizer).__name__, "words": tokenizer.get_vocab()}
        digest.update(json.dumps(words, sort_keys=True, default=str).encode())
    side = getattr(tokenizer, "truncation_side", "right")
    if side != "right":  # which end of a long text is read, which the rules do not say
        digest.update(side.encode())


def weights_digest(model: Any, without: Collection[str] = ()) -> Any:
    """The same of the weights alone."""
    import torch

    digest = hashlib.sha256()
    for key, value in sorted(model.state_dict().items()):
        if key not in without:
            digest.update(key.encode())
            digest.update(value.detach().cpu().contiguous().flatten().view(torch.uint8).numpy())
    return digest


@contextlib.contextmanager
def explained(name: str | Path, kind: str, trust_remote_code: bool = False) -> Iterator[None]:
    """A folder anyone wrote is read by three libraries that each raise their own kinds of errors: one line of them."""
    try:
        yield
    except UnshakenError:
        raise
    except Exception as error:
        if "trust_remote_code" in str(error) and not trust_remote_code:
            raise UnshakenError(
                f"{name} brings Python code of its own, which is not run unasked; read it, then allow it with "
                "--trust-remote-code (trust_remote_code=True), or take a model that transformers knows"
            ) from error
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        if "ignore_mismatched_sizes" in reason:
            reason = "its weights have other sizes than its config.json says"
        what = "the tokenizer of" if kind == "AutoTokenizer" else "the model"
        raise UnshakenError(f"cannot load {what} {str(name)!r} ({kind}): {reason}") from error


@contextlib.contextmanager
def _no_load_report() -> Iterator[None]:
    """What transformers says while it loads quotes names from the file; what matters of it is said by us."""
    import transformers

    verbosity = transformers.logging.get_verbosity()
    transformers.logging.set_verbosity_error()
    try:
        with no_bars():
            yield
    finally:
        transformers.logging.set_verbosity(verbosity)


@contextlib.contextmanager
def no_bars() -> Iterator[None]:
    """No bar for each file of weights that transformers reads or writes."""
    import transformers

    shown = transformers.logging.is_progress_bar_enabled()
    transformers.logging.disable_progress_bar()
    try:
        yield
    finally:
        if shown:
            transformers.logging.enable_progress_bar()


def _check_config(kind: str, name: str | Path) -> None:
    """Look at config.json before a class does: some values cost memory or fetch code by being read."""
    from transformers import PreTrainedConfig

    try:
        config, _ = PreTrainedConfig.get_config_dict(name)
    except Exception:  # none there, or none that can be read: the Auto class says it better
        return
    for key, value in _entries(config):
        if key.endswith("attn_implementation"):
            _require_own(name, key, value, ATTENTION)
        elif key.endswith("experts_implementation"):
            _require_own(name, key, value, EXPERTS)
        elif key == "num_labels":
            _require_at_most(name, key, value, MOST_CLASSES)
        elif key in _LAYERS:
            _require_at_most(name, key, value, MOST_LAYERS)
        elif kind == CLASSIFIER and key in _DECODER and value and not config.get("is_encoder_decoder"):
            raise UnshakenError(
                f"the config.json of {name} has {key}={value!r}: an encoder would read as a decoder does, which "
                "its weights were not trained for; remove that entry"
            )


def _entries(config: Any, depth: int = 4) -> Iterator[tuple[str, Any]]:
    """Keys and values of a configuration and of those inside it."""
    for key, value in config.items() if isinstance(config, Mapping) else ():
        yield str(key), value
        if depth:
            yield from _entries(value, depth - 1)


def _require_own(name: str | Path, key: str, value: Any, known: tuple[str, ...]) -> None:
    for item in value.values() if isinstance(value, Mapping) else (value,):
        if item is not None and item not in known:
            raise UnshakenError(
                f"the config.json of {name} has {key}={item!r}, which could fetch code to run; allowed: "
                + ", ".join(known)
            )


def _require_at_most(name: str | Path, key: str, value: Any, most: int) -> None:
    if isinstance(value, int | float) and not value <= most:  # NaN compares false
        raise UnshakenError(f"the config.json of {name} has {key}={value:.6g}; at most {most:,} are taken")


def _check_tokenizer(tokenizer: Any, name: str | Path) -> None:
    longest = tokenizer.model_max_length
    is_number = isinstance(longest, int | float) and not isinstance(longest, bool) and not math.isnan(longest)
    if not is_number or longest < SHORTEST:
        raise UnshakenError(
            f"the tokenizer of {name} has model_max_length={longest!r}; it must be {SHORTEST} tokens or more"
        )


def _new_weights(kind: str, name: str | Path, model: Any, report: Mapping[str, Any], new_head: bool) -> frozenset[str]:
    """The weights that the files do not give, all of them in a head that may be new."""
    resized = {item if isinstance(item, str) else item[0] for item in report.get("mismatched_keys", ())}
    missing = set(report.get("missing_keys", ()))
    body = f"{model.base_model_prefix}."

    def may_be_new(key: str) -> bool:
        if kind == "AutoModel":
            return "pooler" in key  # which nobody reads
        return new_head and (not key.startswith(body) or "pooler" in key)

    lost = sorted(key for key in missing | resized if not may_be_new(key))
    if lost:
        cure = "train it first (unshaken train --model)" if kind == CLASSIFIER else "take a whole model"
        raise UnshakenError(
            f"{name} lacks {len(lost)} of the weights that its config.json asks for, such as {lost[0]!r}; it would "
            f"answer at random: {cure}, or mend the file"
        )
    if resized:
        note(f"{name} was trained for other classes; its head is replaced by a new one")
    unread = sorted(report.get("unexpected_keys", ()))
    if unread and kind == CLASSIFIER and not new_head:
        note(f"{name}: {len(unread)} weights of its file are not used, such as {unread[0]!r}")
    return frozenset(missing | resized)


def locate(name: str | Path) -> str:
    """The folder of a model, also where its run's folder is given; what is no path is a hub name and stays as it is.

    Raises:
        UnshakenError: Where the name can only be a path and no model is there, with the nearest one that is.
    """
    if str(name).startswith(("http://", "https://")) or str(name).endswith(".onnx"):
        raise UnshakenError(
            f"{name} is no folder and no hub name; `unshaken scan` and `unshaken play` take it, and so does Victim.of"
        )
    path = Path(name).expanduser()
    if (path / CONFIG).is_file():
        return str(path)
    if (path / "model" / CONFIG).is_file():
        return str(path / "model")
    if path.is_dir():
        what = f"no model there (a folder with {CONFIG} is expected)"
        raise UnshakenError(f"cannot load the model {str(name)!r}: {what}{_nearest_model(path)}")
    parts = path.parts
    if path.exists() or path.is_absolute() or str(name).startswith(".") or len(parts) > 2 or Path(parts[0]).is_dir():
        raise UnshakenError(f"cannot load the model {str(name)!r}: no such folder{_nearest_model(path)}")
    missing = _not_on_hub(str(name))
    if missing:
        raise UnshakenError(f"cannot load the model {str(name)!r}: no such folder, and {missing}{_nearest_model(path)}")
    return str(name)


@functools.cache
def _not_on_hub(name: str) -> str:
    """Why a hub name leads nowhere, from one question; transformers would ask for a minute. Empty where it may lead."""
    from huggingface_hub import constants, get_session, hf_hub_url, try_to_load_from_cache

    try:
        if isinstance(try_to_load_from_cache(name, CONFIG), str):
            return ""
        if constants.HF_HUB_OFFLINE:
            return "the hub's cache does not hold it (HF_HUB_OFFLINE is set)"
        answer = get_session().head(hf_hub_url(name, CONFIG), timeout=HUB_SECONDS, follow_redirects=True)
    except ValueError:
        return "it is no hub name"
    except Exception:  # of whichever library asks: no network, no such host, no answer in time
        return "the hub cannot be reached and its cache does not hold it"
    # Others than 404 (a model that wants a login, a hub that is busy) are for transformers to explain.
    return "the hub has no model of that name" if answer.status_code == 404 else ""


@contextlib.contextmanager
def asked_once(library: Any) -> Iterator[None]:
    """While it is open, the library looks in its cache alone if the hub does not answer; it would ask for a while."""
    from huggingface_hub import constants, get_session

    was_offline = constants.HF_HUB_OFFLINE, library.config.HF_HUB_OFFLINE
    if not any(was_offline):
        try:
            get_session().head(constants.ENDPOINT, timeout=HUB_SECONDS)
        except Exception:  # no network, no such host, no answer in time
            constants.HF_HUB_OFFLINE = library.config.HF_HUB_OFFLINE = True
    try:
        yield
    finally:
        constants.HF_HUB_OFFLINE, library.config.HF_HUB_OFFLINE = was_offline


def _nearest_model(path: Path) -> str:
    """`; did you mean ...?` with the model folder of the closest name around a path that holds none."""
    above = next((folder for folder in (path, *path.parents) if folder.is_dir()), Path())
    inside = [found.parent for depth in ("", "*/", "*/*/") for found in above.glob(f"{depth}{CONFIG}")]
    names = sorted(str(folder) for folder in inside)
    found = difflib.get_close_matches(str(path), names, n=1, cutoff=0.5) or names[:1]
    return f"; did you mean {found[0]}?" if found else ""
