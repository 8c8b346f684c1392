"""Settings of every transform in its varieties, with values that it may meet, for tests that hold for all of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st

# The same examples in every run, and no deadline: how long one takes depends on what else the machine does.
steady = settings(max_examples=60, derandomize=True, deadline=None)

KEY = bytes(range(32)).hex()
RANGE = {"min": "1950-01-01", "max": "2005-12-31"}

texts = st.text(max_size=30) | st.text(st.sampled_from("ab@. -+1漢é"), max_size=30)
integers = st.integers().map(str)
decimals = st.decimals(allow_nan=False, allow_infinity=False, places=3).map(lambda number: f"{number:f}")
numbers = integers | decimals | st.sampled_from(["NaN", "Infinity", "-Infinity", "1e+20", "-2.5e-07", "0", "-0.00"])
days = st.dates().map(str)
moments = st.datetimes().map(
    lambda moment: moment.isoformat(" ").rstrip("0").rstrip(".") if moment.microsecond else str(moment)
)
zoned = moments.map(lambda moment: f"{moment}+00")
dates = days | st.sampled_from(["infinity", "-infinity", "0044-03-15 BC", "12024-01-01"])
timestamps = moments | zoned | st.sampled_from(["infinity", "0044-03-15 12:00:00 BC"])
documents = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
    max_leaves=8,
)


@dataclass(frozen=True)
class Variety:
    name: str
    settings: Mapping[str, Any]
    values: st.SearchStrategy[str]

    def __str__(self) -> str:
        return f"{self.name} {dict(self.settings)}" if self.settings else self.name


def _each(name: str, values: st.SearchStrategy[str], *settings: Mapping[str, Any]) -> list[Variety]:
    return [Variety(name, one, values) for one in settings]


_KINDS = ("default", "ends", "password", "name", "address", "email", "phone", "id", "credit_card", "url")
_SALTED = {"salt": "pepper"}

VARIETIES = [
    *_each("regex", texts, {"pattern": "[0-9]", "replace": "#"}),
    *_each("mask", texts, *({"kind": kind} for kind in _KINDS), {"kind": "custom", "mask_begin": 1, "mask_end": "50%"}),
    *_each(
        "hash",
        texts,
        {},
        {"algorithm": "blake2", "salt": "x" * 100},
        {"algorithm": "xxhash", "length": 16},
        {"length": 8},
    ),
    *_each("encrypt", texts, {"key_hex": KEY}, {"key_hex": KEY, "encoding": "hex", "associated_data": "é"}),
    *_each("literal", texts, {"value": "x"}),
    *_each("null", texts, {}),
    *_each("template", texts, {"template": "<{value|upper}{value|last:3}>"}),
    *_each("truncate", texts, {"length": 3}),
    *_each("truncate", numbers, {"digits": 1}, {"digits": -2}),
    *_each("truncate", dates, {"unit": "month"}),
    *_each("truncate", timestamps, {"unit": "minute"}),
    *_each("round", numbers, {"digits": 0}, {"digits": 2}, {"digits": -30}),
    *_each("round", timestamps, {"unit": "hour"}),
    *_each("bucket", numbers, {"size": 10}, {"size": "0.25"}, {"size": 10**18}),
    *_each("bucket", dates, {"unit": "quarter"}),
    *_each("bucket", timestamps, {"unit": "minute", "multiple": 15}),
    *_each("noise", numbers, {"amount": 5}, {"ratio": 0.1}, {"ratio": 2}, {"amount": 10**20, "min": -5, "max": 5}),
    *_each("noise", dates, {"interval": "30d"}),
    *_each("noise", timestamps, {"interval": "1h"}),
    *_each("shift_dates", dates, {"days": -400}, {"max_days": 30}),
    *_each("shift_dates", timestamps, {"days": 1}),
    *_each(
        "string",
        texts,
        _SALTED,
        {"preserve_length": True},
        {"min_length": 16, "max_length": 16, "symbols": "αβγδεζηθικλμνξοπ"},
    ),
    *_each("integer", texts, _SALTED, {"min": -(1 << 63), "max": (1 << 63) - 1}, {"min": 7, "max": 7}),
    *_each("float", texts, _SALTED, {"min": -0.5, "max": 0.5, "precision": 10}),
    *_each("boolean", texts, _SALTED),
    *_each("uuid", texts, _SALTED),
    *_each("date", texts, RANGE),
    *_each("timestamp", texts, RANGE, {**RANGE, "unit": "microsecond", "zone": True}),
    *_each("unix_timestamp", texts, RANGE),
    *_each("choice", texts, {"choices": ["a", None, "b"]}, {"choices": [1, 2, 3], "weights": [0, 1, 0.5]}),
    *_each("first_name", texts, _SALTED, {"preserve_length": True}, {"max_length": 4, "gender": "male"}),
    *_each("last_name", texts, _SALTED, {"preserve_length": True, "locale": "de_DE"}, {"max_length": 1}),
    *_each("full_name", texts, _SALTED, {"preserve_length": True}, {"max_length": 10}, {"max_length": 3}),
    *_each(
        "email",
        texts,
        _SALTED,
        {"unique": True},
        {"preserve_domain": True, "preserve_length": True},
        {"max_length": 12},
    ),
    *_each("phone", texts, _SALTED, {"preserve_format": True}, {"prefix": "+49", "min_length": 8, "max_length": 14}),
    *_each("address", texts, _SALTED, {"part": "city", "max_length": 8}),
    *_each("company", texts, _SALTED),
]
