"""`unshaken play`: type a sentence in the browser and watch an attack change it."""

from __future__ import annotations

from typing import Annotated

import typer

from unshaken.cli import options
from unshaken.errors import UnshakenError


def play(
    models: Annotated[
        list[str], typer.Argument(help="One model or more to compare: folders, hub names, .onnx files or addresses.")
    ],
    port: Annotated[int, typer.Option(min=0, max=65535, help="0 takes a free one.")] = 0,
    browser: Annotated[bool, typer.Option(help="Open the page.")] = True,
    device: options.Device = None,
    dtype: options.Dtype = None,
) -> None:
    """Watch an attack change your sentence, in the browser.

    Opens a local page: type a sentence, choose an attack, watch the words change. Nothing leaves this machine.
    """
    options.require_models(*models, others=True)
    if twice := [name for number, name in enumerate(models) if name in models[:number]]:
        raise UnshakenError(f"{twice[0]} is named twice; name it once, or another model to compare it with")
    for name in models:
        options.require_loaded_here(name, device=device, dtype=dtype)
    _require_port(port)
    import contextlib
    import webbrowser

    from unshaken.console import Console
    from unshaken.play import Playground
    from unshaken.victims.base import Victim

    console = Console()
    given = {key: value for key, value in (("device", device), ("dtype", dtype)) if value}
    with Playground({name: Victim.of(name, **given) for name in models}, port=port) as ground:
        console.print(f"{ground.url}\nCtrl-C ends it.", markup=False, soft_wrap=True)
        if browser:
            webbrowser.open(ground.url)
        with contextlib.suppress(KeyboardInterrupt):  # which ends it, as the line says
            ground.serve()


def _require_port(port: int) -> None:
    """Before models are loaded; 0 is always free."""
    import socket

    try:
        socket.create_server(("127.0.0.1", port)).close()
    except OSError as error:
        raise UnshakenError(
            f"port {port} cannot be used ({error.strerror}); name another with --port, or leave it out for a free one"
        ) from error
