"""Models and tokenizers from folders and the hub: the one door through which weights come in, and code does not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from unshaken.errors import UnshakenError


def load(kind: str, name: str | Path, *, trust_remote_code: bool = False, **options: Any) -> Any:
    """`from_pretrained` of a transformers Auto class.

    transformers reads weights in pickle form by torch's restricted reader, which makes tensors and runs nothing.

    Args:
        kind: Name of the Auto class, such as "AutoTokenizer".
        name: Folder or hub name.
        trust_remote_code: Run the Python files that a model brings with it. Read them first.
        options: Of `from_pretrained`.

    Raises:
        UnshakenError: Whatever is wrong with the folder, in one line.
    """
    import transformers

    auto = getattr(transformers, kind)
    try:
        return auto.from_pretrained(name, trust_remote_code=trust_remote_code, **options)
    except UnshakenError:
        raise
    except Exception as error:  # a folder anyone wrote, read by three libraries that each raise their own kinds
        if "trust_remote_code" in str(error) and not trust_remote_code:
            raise UnshakenError(
                f"{name} brings Python code of its own, which is not run unasked; read it, then allow it with "
                "--trust-remote-code (trust_remote_code=True), or take a model that transformers knows"
            ) from error
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        what = "the tokenizer of" if kind == "AutoTokenizer" else "the model"
        raise UnshakenError(f"cannot load {what} {str(name)!r} ({kind}): {reason}") from error
