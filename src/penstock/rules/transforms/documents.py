"""What edits of json and hstore documents have in common."""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from typing import Annotated, Any, Generic, Literal, Self, TypeVar

import pyarrow as pa
from pydantic import BeforeValidator, Field, SerializeAsAny, ValidationError, field_validator, model_validator

from penstock.config.mistakes import mistake, show_path
from penstock.config.settings import Settings
from penstock.rules.transforms import parse_transform
from penstock.rules.transforms.contract import Row, Transform, per_distinct


class Missing:
    """There is nothing at that place."""


MISSING = Missing()


def _inner(value: Any) -> Any:
    if isinstance(value, Transform):
        return value
    if not isinstance(value, Mapping):
        raise mistake("expected a transform; write it like {transform: mask, kind: email}")
    try:
        return parse_transform(value)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = show_path(first["loc"])
        raise mistake(f"{place}: {first['msg']}" if place else first["msg"]) from None


class Edit(Settings):
    operation: Literal["set", "delete"] = Field(description="What to do.")
    value: Any = Field(default=None, description="What to set.")
    transform: Annotated[SerializeAsAny[Transform], BeforeValidator(_inner)] | None = Field(
        default=None, description="Sets what this transform makes of what is there: `{transform: mask, kind: email}`."
    )
    missing: Literal["create", "skip"] = Field(
        default="create",
        description="What to do where nothing is there: `create` it (not with a transform), or `skip`.",
    )

    @model_validator(mode="after")
    def _with_something_to_set(self) -> Self:
        given = [name for name in ("value", "transform") if name in self.model_fields_set]
        if self.operation == "delete" and given:
            raise mistake(f"delete takes no {given[0]}; remove it")
        if self.operation == "set" and len(given) != 1:
            raise mistake("set needs a value or a transform; give one of them")
        return self


E = TypeVar("E", bound=Edit)


class Documents(Transform, Generic[E]):
    """Loops in Python: over the distinct documents, or over all of them where a transform works on what they hold."""

    operations: tuple[E, ...] = Field(description="Edits, one after the other; see below.")

    @field_validator("operations")
    @classmethod
    def _at_least_one(cls, operations: tuple[E, ...]) -> tuple[E, ...]:
        if not operations:
            raise mistake("there is nothing to do; write at least one operation")
        return operations

    @property
    def deterministic(self) -> bool:
        return all(edit.transform is None or edit.transform.deterministic for edit in self.operations)

    def columns(self) -> set[str]:
        inner = [edit.transform.columns() for edit in self.operations if edit.transform is not None]
        return super().columns().union(*inner)

    def prepare(self) -> None:
        for edit in self.operations:
            if edit.transform is not None:
                edit.transform.prepare()

    def change(self, values: pa.StringArray, row: Row) -> pa.StringArray:
        if all(edit.transform is None for edit in self.operations):
            return per_distinct(values, lambda text: None if text is None else self._edited(text))
        documents = [None if text is None else self.read(text) for text in values.to_pylist()]
        for edit in self.operations:
            if edit.transform is None:
                documents = [None if document is None else self._done(document, edit) for document in documents]
            else:
                documents = self._transformed(documents, edit, edit.transform, row)
        return pa.array([None if document is None else self.write(document) for document in documents], pa.string())

    def _edited(self, text: str) -> str:
        document = self.read(text)
        for edit in self.operations:
            document = self._done(document, edit)
        return self.write(document)

    def _done(self, document: Any, edit: E) -> Any:
        if edit.operation == "delete":
            return self.without(document, edit)
        skipped = edit.missing == "skip" and self.get(document, edit) is MISSING
        return document if skipped else self.put(document, edit, deepcopy(edit.value))

    def _transformed(self, documents: list[Any], edit: E, transform: Transform, row: Row) -> list[Any]:
        there = [MISSING if document is None else self.get(document, edit) for document in documents]
        texts = pa.array([None if value is MISSING else self.as_text(value) for value in there], pa.string())
        changed = transform.apply(texts, row).to_pylist()
        return [
            document if was is MISSING else self.put(document, edit, self.from_text(text, was))
            for document, was, text in zip(documents, there, changed, strict=True)
        ]

    def read(self, text: str) -> Any:
        raise NotImplementedError

    def write(self, document: Any) -> str:
        raise NotImplementedError

    def get(self, document: Any, edit: E) -> Any:
        """What is there, or MISSING."""
        raise NotImplementedError

    def put(self, document: Any, edit: E, value: Any) -> Any:
        raise NotImplementedError

    def without(self, document: Any, edit: E) -> Any:
        raise NotImplementedError

    def as_text(self, value: Any) -> str | None:
        raise NotImplementedError

    def from_text(self, text: str | None, was: Any) -> Any:
        raise NotImplementedError
