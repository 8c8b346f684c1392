"""What the property tests of events share."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st

# The same examples in every run, and no deadline: how long one takes depends on what else the machine does.
steady = settings(derandomize=True, deadline=None)

ANY_TEXT = st.text(st.characters(exclude_categories=["Cs"]))  # includes every control character
POSTGRES_TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"))
