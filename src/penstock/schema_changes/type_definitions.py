"""Types that the user made, as a row of the schema log has them: pure values, parsed from its JSON.

An attribute's ``id`` is its number in the type, a check's and an enum label's its oid: they survive renames.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

Json: TypeAlias = Mapping[str, Any]


@dataclass(frozen=True)
class _Named:
    oid: int
    schema: str
    name: str

    def __str__(self) -> str:
        return f"{self.schema}.{self.name}"


@dataclass(frozen=True)
class EnumLabel:
    id: int
    label: str


@dataclass(frozen=True)
class EnumDefinition(_Named):
    labels: tuple[EnumLabel, ...]
    comment: str | None = None


@dataclass(frozen=True)
class Attribute:
    """``type`` names the type with its modifier; ``type_oid`` and ``modifier`` tell whether it is another one."""

    id: int
    name: str
    type: str
    type_oid: int
    modifier: int = -1
    collation: str | None = None  # where it is not the type's

    @property
    def kind(self) -> tuple[int, int, str | None]:
        return self.type_oid, self.modifier, self.collation


@dataclass(frozen=True)
class CompositeDefinition(_Named):
    attributes: tuple[Attribute, ...]
    comment: str | None = None


@dataclass(frozen=True)
class DomainCheck:
    """``definition``: ``CHECK ((VALUE > 0))``, with ``NOT VALID`` if it is not validated."""

    id: int
    name: str
    definition: str
    validated: bool = True


@dataclass(frozen=True)
class DomainDefinition(_Named):
    base: str  # with its modifier: numeric(10,2)
    base_oid: int
    collation: str | None = None  # where it is not the base type's
    default: str | None = None
    not_null: bool = False
    checks: tuple[DomainCheck, ...] = ()  # by name
    comment: str | None = None


@dataclass(frozen=True)
class RangeDefinition(_Named):
    """Of a range or its multirange, which can only get another name."""

    kind: Literal["range", "multirange"]
    comment: str | None = None


TypeDefinition: TypeAlias = EnumDefinition | CompositeDefinition | DomainDefinition | RangeDefinition


def type_from_json(value: Json) -> TypeDefinition:
    name, comment = (value["oid"], value["schema"], value["name"]), value["comment"]
    match value["kind"]:
        case "enum":
            return EnumDefinition(*name, tuple(EnumLabel(**label) for label in value["labels"]), comment)
        case "composite":
            return CompositeDefinition(*name, tuple(Attribute(**one) for one in value["attributes"]), comment)
        case "domain":
            checks = tuple(DomainCheck(**one) for one in value["checks"])
            plain = (value["base"], value["base_oid"], value["collation"], value["default"], value["not_null"])
            return DomainDefinition(*name, *plain, checks, comment)
    return RangeDefinition(*name, value["kind"], comment)
