"""`Playground`: the page and its events, on this machine alone, for whoever has the token."""

from __future__ import annotations

import contextlib
import json
import secrets
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

from unshaken.attacks import ATTACKS
from unshaken.errors import UnshakenError
from unshaken.names import lookup, nearest
from unshaken.pages import render
from unshaken.play.watching import StoppedError, watch
from unshaken.victims.base import Victim

LONGEST = 2_000  # characters of a text
OFFERED = ("pwws", "greedy", "textfooler", "genetic", "random")


class Playground:
    """A server on localhost. Every request needs the token, and no page of another site can send one.

    Args:
        victims: The models by name; two are shown side by side.
        port: 0 for a free one.

    Example:
        >>> with Playground({"plain": victim}) as ground:
        ...     print(ground.url)
        ...     ground.serve()
    """

    def __init__(self, victims: Mapping[str, Victim], *, port: int = 0) -> None:
        if not victims:
            raise UnshakenError("no model to play with")
        self.victims = dict(victims)
        self.token = secrets.token_urlsafe(16)
        handler = type("Handler", (_Handler,), {"ground": self})
        self.server = ThreadingHTTPServer(("127.0.0.1", port), handler)
        self.server.daemon_threads = True

    @property
    def port(self) -> int:
        return int(self.server.server_port)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/?token={self.token}"

    def serve(self) -> None:
        """Answer until the process is stopped."""
        self.server.serve_forever(poll_interval=0.1)

    def __enter__(self) -> Playground:
        return self

    def __exit__(self, *_: object) -> None:
        self.server.server_close()

    def page(self, nonce: str) -> str:
        known = {"models": list(self.victims), "attacks": [name for name in OFFERED if name in ATTACKS]}
        return render("play/page.html", title="unshaken play", script="play/page.js", nonce=nonce, known=known)


class _Handler(BaseHTTPRequestHandler):
    ground: Playground

    def do_GET(self) -> None:
        address = urlsplit(self.path)
        query = {key: values[0] for key, values in parse_qs(address.query).items()}
        hosts = (f"127.0.0.1:{self.ground.port}", f"localhost:{self.ground.port}")
        if self.headers.get("Host") not in hosts or not secrets.compare_digest(
            query.get("token", "").encode(), self.ground.token.encode()
        ):
            self.send_error(403, "the address printed by unshaken play has the token")
        elif address.path == "/":
            self._page()
        elif address.path == "/attack":
            self._attack(query)
        else:
            self.send_error(404)

    def _page(self) -> None:
        nonce = secrets.token_urlsafe(12)
        body = self.ground.page(nonce).encode()
        policy = f"default-src 'none'; connect-src 'self'; style-src 'nonce-{nonce}'; script-src 'nonce-{nonce}'"
        self.send_response(200)
        self.send_header("Content-Type", "text/html; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Content-Security-Policy", policy)
        self.send_header("Referrer-Policy", "no-referrer")  # the token is in the address
        self.end_headers()
        self.wfile.write(body)

    def _attack(self, query: dict[str, str]) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Cache-Control", "no-store")
        self.end_headers()
        try:
            name = query.get("model", "")
            if name not in self.ground.victims:
                raise UnshakenError(f"unknown model {name!r}; {nearest(name, self.ground.victims)}")
            lookup("attack", query.get("attack", ""), {name: name for name in OFFERED})
            text = query.get("text", "").strip()
            if not text or len(text) > LONGEST:
                raise UnshakenError(f"write a text of 1 to {LONGEST:,} characters")
            watch(self.ground.victims[name], text, query["attack"], self._tell)
        except (StoppedError, ConnectionError):
            return  # the page was closed, or its stop button pressed
        except Exception as error:  # a model may raise anything, and whoever watches wants to know
            with contextlib.suppress(StoppedError):  # nobody is left to be told
                self._tell({"kind": "error", "message": str(error)})

    def _tell(self, event: dict[str, Any]) -> None:
        try:
            self.wfile.write(f"data: {json.dumps(event)}\n\n".encode())
            self.wfile.flush()
        except OSError as error:
            raise StoppedError from error

    def log_message(self, *_: Any) -> None:
        """Texts are nobody's business: no log of them."""
