"""Golden screens: `golden(name, text)` compares with golden/<name>.txt.

pytest tests/tui --update-golden      writes them anew; look at the difference before committing it
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

GOLDEN = Path(__file__).parent / "golden"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="write the golden screens anew")


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Callable[[str, str], None]:
    # Known only when pytest is started on this directory: elsewhere the answer is no.
    update = request.config.getoption("--update-golden", default=False)

    def check(name: str, text: str) -> None:
        file = GOLDEN / f"{name}.txt"
        if update:
            GOLDEN.mkdir(exist_ok=True)
            file.write_text(text, encoding="utf-8")
        assert file.exists(), f"{file} is missing: run pytest tests/tui --update-golden"
        assert text == file.read_text(encoding="utf-8")

    return check


@pytest.fixture(autouse=True)
def plain_textual(monkeypatch: pytest.MonkeyPatch) -> None:
    """No animation, so that what a key does is there at once."""
    monkeypatch.setenv("TEXTUAL_ANIMATIONS", "none")
