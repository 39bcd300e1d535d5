"""Tests that start, kill and wait for processes: `full`, so that `make test` leaves them out."""

from pathlib import Path

import pytest


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.parent == Path(__file__).parent:
            item.add_marker("full")
