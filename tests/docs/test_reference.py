"""The API pages have every public name, and the citation names the version."""

from __future__ import annotations

import fedcmoo
from tests.docs.pages import PAGES, ROOT


def test_every_public_name_is_in_the_reference() -> None:
    documented = {line for page, text in PAGES.items() if page.startswith("docs/api/") for line in text.splitlines()}
    assert [name for name in fedcmoo.__all__ if f"::: fedcmoo.{name}" not in documented] == []


def test_the_citation_names_this_version() -> None:
    assert f"version: {fedcmoo.__version__}\n" in (ROOT / "CITATION.cff").read_text()
    assert f"version = {{{fedcmoo.__version__}}}" in PAGES["docs/citation.md"]
