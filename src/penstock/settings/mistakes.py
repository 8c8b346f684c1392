"""How a mistake in the config is worded: what is wrong; what to do. One line each, and never the value itself.

A value may be a password, whatever key it stands at: people misplace things. So only keys and words that cannot be one
are repeated.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Sequence

from pydantic_core import ErrorDetails, InitErrorDetails, PydanticCustomError

Location = tuple[str | int, ...]

OURS = "mistake"
FOREIGN = "foreign"  # the words of a sink's author or of a library: to be redacted before they are shown
_NAME = re.compile(r"[\w.:-]{1,60}")


def mistake(text: str) -> PydanticCustomError:
    """What a validator raises: ``what is wrong; what to do``."""
    return PydanticCustomError(OURS, "{text}", {"text": text})


def quoted(text: object) -> str:
    """The text in quotes after a space, or nothing if it might be more than a name (a URL, say)."""
    return f' "{text}"' if isinstance(text, str) and _is_name(text) else ""


def nearest(text: object, known: Sequence[str]) -> str:
    """The remedy for a word that is not known."""
    near = difflib.get_close_matches(str(text), known, n=1)
    return f'did you mean "{near[0]}"?' if near else f"known: {', '.join(known)}"


def show_path(path: Location) -> str:
    """``source.tables.include[0]``; a step that might be more than a name is left out."""
    steps = (
        f"[{step}]" if isinstance(step, int) else f".{step}" for step in path if isinstance(step, int) or _is_name(step)
    )
    return "".join(steps).removeprefix(".")


def in_plain_words(detail: ErrorDetails, keys: Sequence[str]) -> InitErrorDetails:
    """One of pydantic's errors in a section with these keys, reworded, and without the input."""
    kind, path = detail["type"], detail["loc"]
    if kind == OURS:
        problem = mistake(detail["msg"])
    elif kind == "extra_forbidden" and len(path) == 1:
        problem = mistake(f"unknown key{quoted(path[0])}; {nearest(path[0], keys)}")
    elif kind in _WORDS:
        problem = mistake(_WORDS[kind].format(**detail.get("ctx", {})))
    else:
        problem = PydanticCustomError(FOREIGN, "{text}", {"text": _one_line(detail)})
    return InitErrorDetails(type=problem, loc=path, input=None)


def _is_name(text: str) -> bool:
    return _NAME.fullmatch(text) is not None and "://" not in text


def _one_line(detail: ErrorDetails) -> str:
    cause = detail.get("ctx", {}).get("error", detail["msg"])
    return " ".join(str(cause).split())


_TEXT = "expected text; write it in quotes"
_WHOLE_NUMBER = "expected a whole number; write it like 4"
_NUMBER = "expected a number; write it like 0.5"
_YES_OR_NO = "expected true or false; write one of them"
_MAPPING = "expected a mapping; write it as key: value"
_LIST = "expected a list; write it like [a, b]"

# https://docs.pydantic.dev/latest/errors/validation_errors/
_WORDS = {
    "missing": "is missing; add it",
    "extra_forbidden": "unknown key; remove it",
    "invalid_key": "expected text as the key; write it in quotes",
    "literal_error": "unknown word; use {expected}",
    "string_type": _TEXT,
    "string_too_short": "is too short; write at least {min_length} characters",
    "path_type": _TEXT,
    "int_type": _WHOLE_NUMBER,
    "int_parsing": _WHOLE_NUMBER,
    "int_from_float": _WHOLE_NUMBER,
    "float_type": _NUMBER,
    "float_parsing": _NUMBER,
    "bool_type": _YES_OR_NO,
    "bool_parsing": _YES_OR_NO,
    "model_type": _MAPPING,
    "model_attributes_type": _MAPPING,
    "dict_type": _MAPPING,
    "list_type": _LIST,
    "tuple_type": _LIST,
    "greater_than": "is too small; use more than {gt}",
    "greater_than_equal": "is too small; use {ge} or more",
    "less_than": "is too large; use less than {lt}",
    "less_than_equal": "is too large; use {le} or less",
}
