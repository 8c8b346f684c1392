"""Errors of rules name rule, table, column and commit, and show nothing of a value."""

from __future__ import annotations

import pickle
import traceback
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, Literal

import pyarrow as pa
import pytest

from penstock.changes.batch import ChangeBatch
from penstock.errors import ConfigError, DecodeError, PenstockError, RuleError
from penstock.rules.compiled import CompiledRules
from penstock.rules.model import RuleSettings
from penstock.rules.transforms import TRANSFORMS, transform_class
from penstock.rules.transforms.contract import Columns, Example, Row
from penstock.rules.where.filters import Filter
from penstock.settings.base import Settings
from penstock.testing.change_batches import changes, relation

MARKER = "s3cr3t-" + "f00d"
AWKWARD = [
    MARKER, f'{{"{MARKER}', f'"a"=>{MARKER}"', f"1e999999999{MARKER}", "9" * 400 + MARKER, f"2024-13-45 {MARKER}",
    f"{MARKER}@", "[" * 100_000 + MARKER, f"\\x{MARKER}",
]  # fmt: skip
USERS = relation("public", "users", id="int8", email="text", key=("id",))
ALWAYS_REFUSE = {"json", "hstore"}  # the others make something of any text


class Stumbles(Settings):
    """Raises at values that contain the marker, as libraries do: with the value in the message."""

    error: Callable[[str], BaseException]
    nulls: Literal["keep", "replace"] = "keep"

    def columns(self) -> set[str]:
        return set()

    def apply(self, values: pa.Array, row: Row) -> pa.Array:
        for value in values.to_pylist():
            if value is not None and MARKER in value:
                raise self.error(value)
        return values


def everything_said(error: BaseException) -> str:
    """The error and all that hangs on it, whether or not it would be shown."""
    return "\n".join(
        "".join(traceback.format_exception(each)) + repr(each.args) + repr(vars(each)) for each in _chain(error)
    )


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    if error is not None:
        yield error
        yield from _chain(error.__cause__)
        yield from _chain(error.__context__)


def compiled(**columns: Any) -> CompiledRules:
    return CompiledRules([RuleSettings.model_validate({"tables": ["public.*"], "columns": columns})])


def refusal(rules: CompiledRules, batch: ChangeBatch) -> PenstockError:
    with pytest.raises(PenstockError) as caught:
        rules.apply(batch)
    return caught.value


@pytest.mark.parametrize("value", AWKWARD, ids=lambda value: value[:20])
@pytest.mark.parametrize(
    ("name", "example"),
    [(name, example) for name in TRANSFORMS for example in transform_class(name).examples],
    ids=lambda part: str(dict(part.settings)) if isinstance(part, Example) else str(part),
)
def test_no_transform_shows_a_value_that_it_cannot_take(name: str, example: Example, value: str) -> None:
    others = [column for column in example.row if column != "c"]
    table = relation("public", "t", {"id": "int8", "c": "text", **dict.fromkeys(others, "text")}, key=("id",))
    batch = changes(table, [("insert", {"id": 1, "c": value, **dict.fromkeys(others, value)})])
    rules = compiled(c={"transform": name, **example.settings})
    if name in ALWAYS_REFUSE:
        error = refusal(rules, batch)
        assert isinstance(error, RuleError)
        assert MARKER not in everything_said(error)
        assert str(error).startswith("rules[0].columns.c: the transform of c met a value in public.t ")
    else:
        assert rules.apply(batch) is not None


def with_note(value: str) -> BaseException:
    error = ValueError("odd")
    error.add_note(value)
    return error


ERRORS: dict[str, Callable[[str], BaseException]] = {
    "arrow": pa.ArrowInvalid, "key": KeyError, "type": TypeError, "index": IndexError, "recursion": RecursionError,
    "ours": RuleError, "note": with_note, "assertion": AssertionError, "system": OSError,
    "unicode": lambda value: UnicodeDecodeError("utf-8", value.encode(), 0, 1, value),
}  # fmt: skip


@pytest.mark.parametrize("kind", ERRORS)
@pytest.mark.parametrize("at", [0, 1, 4, 6])
def test_whatever_a_transform_raises_is_told_by_its_place_and_commit_alone(kind: str, at: int) -> None:
    values = [MARKER if index in (at, 6) else "fine" for index in range(7)]
    rows = [("insert", {"id": index, "email": value}) for index, value in enumerate(values)]
    batch = changes(USERS, rows, lsn=[0x100 * (index + 1) for index in range(7)])
    error = refusal(compiled(email=Stumbles(error=ERRORS[kind])), batch)
    assert isinstance(error, RuleError)
    assert error.message.startswith(
        "rules[0].columns.email: the transform of email met a value in public.users that it cannot take "
        f"(commit 0/{at + 1}00)."
    )
    assert MARKER not in everything_said(error)
    assert pickle.loads(pickle.dumps(error)).message == error.message


def test_old_values_are_not_shown_either() -> None:
    table = relation("public", "users", id="int8", email="text", key=("id",), identity="f")
    batch = changes(table, [("delete", None, {"id": 1, "email": MARKER})])
    assert MARKER not in everything_said(refusal(compiled(email=Stumbles(error=KeyError)), batch))


@pytest.mark.parametrize("error", [ConfigError, MemoryError])
def test_what_says_nothing_of_values_goes_through(error: type[Exception]) -> None:
    batch = changes(USERS, [("insert", {"id": 1, "email": MARKER})])
    with pytest.raises(error, match="what to install"):
        compiled(email=Stumbles(error=lambda _: error("what to install"))).apply(batch)


@pytest.mark.parametrize(("types", "operand"), [("int4", 1), ("numeric", 1), ("date", "2024-01-01"), ("float8", 1)])
def test_a_filter_does_not_show_a_value_that_is_not_of_its_type(types: str, operand: Any) -> None:
    table = relation("public", "t", {"id": "int8", "c": types}, key=("id",))
    rule = RuleSettings.model_validate({"tables": ["t"], "where": {"column": "c", "gt": operand}})
    error = refusal(CompiledRules([rule]), changes(table, [("insert", {"id": 1, "c": MARKER})]))
    assert isinstance(error, DecodeError)
    assert MARKER not in "".join(traceback.format_exception(error))


def test_whatever_a_filter_raises_is_told_by_its_place_and_commit_alone() -> None:
    class Broken(Filter):
        def possible(self, columns: Any) -> Any:
            raise pa.ArrowInvalid(columns[1].text.to_pylist()[0])

    rule = RuleSettings.model_validate({"tables": ["users"], "where": {"column": "email", "eq": "x"}})
    (step,) = CompiledRules([rule]).steps(USERS)
    assert step.filter is not None
    broken = replace(step, filter=Broken(step.filter.node, step.filter.columns))
    with pytest.raises(RuleError) as caught:
        broken.apply(changes(USERS, [("insert", {"id": 1, "email": MARKER})], lsn=0x700))
    assert caught.value.message.startswith("rules[0].where: the filter met a value in public.users ")
    assert "(commit 0/700)" in caught.value.message
    assert MARKER not in everything_said(caught.value)


@pytest.mark.parametrize("kind", ["arrow", "key", "type", "recursion", "note", "unicode"])
def test_a_transform_by_itself_shows_nothing_either(kind: str) -> None:
    """As one that is applied within a document, or to what a new column holds already."""

    class Breaks(transform_class("null")):  # type: ignore[misc]
        def change(self, values: pa.Array, row: Row) -> pa.Array:
            raise ERRORS[kind](values[0].as_py())

    with pytest.raises(RuleError, match="met a value that it cannot change") as caught:
        Breaks().apply(pa.array([MARKER]), Columns())
    assert MARKER not in "".join(traceback.format_exception(caught.value))
