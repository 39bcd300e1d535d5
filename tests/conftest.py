"""What every test may ask for: a tiny model, a command line to call and a browser."""

import csv
import functools
import gc
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

settings.register_profile("without-clock", deadline=None)  # no test asserts a time
settings.load_profile("without-clock")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What starts, kills and waits for processes is `full`, so that `make test` leaves it out."""
    for item in items:
        if item.path.parent.name in ("kills", "distributed") or item.get_closest_marker("dist"):
            item.add_marker("full")


def pytest_collection_finish() -> None:
    """Modules and tests stay to the end: each training asks for a full collection, which no longer walks them."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session", autouse=True)
def command_line() -> Iterator[None]:
    """Typer builds every command anew at each call, which takes longer than most calls; here they are built once."""
    import typer.main
    import typer.testing

    with pytest.MonkeyPatch.context() as patch:
        once = functools.cache(typer.main.get_command)
        patch.setattr(typer.main, "get_command", once)
        patch.setattr(typer.testing, "_get_command", once)
        yield


@pytest.fixture(scope="session")
def make_tiny(tmp_path_factory) -> Callable[..., str]:
    """Saves a random two-layer BERT with MiniLM's tokenizer; options go into its configuration."""
    from bert import random_bert
    from transformers import AutoTokenizer

    from unshaken.embedded import minilm_path

    def make(**options: Any) -> str:
        folder = tmp_path_factory.mktemp("tiny")
        AutoTokenizer.from_pretrained(minilm_path()).save_pretrained(folder)
        random_bert(**options).save_pretrained(folder)
        return str(folder)

    return make


@pytest.fixture(scope="session")
def tiny(make_tiny) -> str:
    return make_tiny()


@pytest.fixture
def unshaken(monkeypatch, capsys) -> Callable[..., tuple[int, str, str]]:
    """Calls a command as a user does: exit code, output, errors."""
    from unshaken.cli import main

    def call(*arguments: object) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["unshaken", *map(str, arguments)])
        try:
            main()
            code = 0
        except SystemExit as stop:
            code = int(stop.code or 0)
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return call


@pytest.fixture
def refused(unshaken) -> Callable[..., str]:
    """Calls a command that must fail, and gives its one line."""

    def call(*arguments: object) -> str:
        code, _, err = unshaken(*arguments)
        assert code == 2, err
        assert "Traceback" not in err
        lines = [line for line in err.splitlines() if line.startswith("error: ")]
        assert len(lines) == 1, err
        return lines[0]

    return call


@pytest.fixture
def write_rows() -> Callable[..., Path]:
    """Writes a CSV file from rows, the first of which names the columns."""

    def write(path: Path, *rows: tuple[str, ...]) -> Path:
        with path.open("w", newline="", encoding="utf-8") as stream:
            csv.writer(stream).writerows(rows)
        return path

    return write


@pytest.fixture(scope="module")  # its event loop is gone before other modules run
def browser() -> Iterator[Any]:
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if chromium is None:
        pytest.skip("no Chromium is installed")
    with playwright.sync_playwright() as driver:
        found = driver.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        yield found
        found.close()


@pytest.fixture
def opened(browser: Any, tmp_path: Path) -> Iterator[Any]:
    """Opens a report in a page without network; afterwards nothing may have gone wrong or asked for the network."""
    contexts, complaints, asked, paths = [], [], [], set()

    def open_report(report: Any, *, width: int = 1280, scheme: str = "light") -> Any:
        path = report.save(tmp_path / "report.html")
        paths.add(path.as_uri())
        context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme, offline=True)
        contexts.append(context)
        tab = context.new_page()
        tab.on("pageerror", lambda error: complaints.append(str(error)))
        tab.on("console", lambda message: complaints.append(message.text))
        tab.on("request", lambda request: asked.append(request.url))
        tab.goto(path.as_uri())
        tab.wait_for_selector("#list > li")
        return tab

    yield open_report
    for context in contexts:
        context.close()
    assert complaints == []
    assert [url for url in asked if url not in paths and not url.startswith("blob:")] == []  # blob: made in the page
