"""Text that no database may refuse or change."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from orchestrator.store.schema import escape_text, unescape_text


@given(st.text(alphabet=st.characters(exclude_categories=()) | st.sampled_from("\\u0\x00\ud800")))
def test_any_text_is_escaped_and_comes_back(text: str) -> None:
    escaped = escape_text(text)

    escaped.encode()
    assert "\x00" not in escaped
    assert unescape_text(escaped) == text
