"""Every kind of change that a command can make to a type that the user made.

``type`` is the type as it was right before: changes are meant to be applied one after the other.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from penstock.schema.definitions import (
    Attribute,
    CompositeDefinition,
    DomainCheck,
    DomainDefinition,
    EnumDefinition,
    EnumLabel,
    TypeDefinition,
)


@dataclass(frozen=True)
class CreateType:
    type: TypeDefinition


@dataclass(frozen=True)
class DropType:
    type: TypeDefinition


@dataclass(frozen=True)
class RenameType:
    type: TypeDefinition
    after: str


@dataclass(frozen=True)
class MoveType:
    """To another schema; or the schema has another name now."""

    type: TypeDefinition
    after: str


@dataclass(frozen=True)
class SetTypeComment:
    type: TypeDefinition
    comment: str | None


@dataclass(frozen=True)
class RewordType:
    """It is as it was. What it names (the type of an attribute, a function in a check) has another name now."""

    type: TypeDefinition
    after: TypeDefinition


@dataclass(frozen=True)
class AddEnumValue:
    """``before``: the label that it stands before; None at the end."""

    type: EnumDefinition
    label: EnumLabel
    before: str | None


@dataclass(frozen=True)
class RenameEnumValue:
    type: EnumDefinition
    id: int
    before: str
    after: str


@dataclass(frozen=True)
class AddAttribute:
    """At the end; it is NULL in values that there are."""

    type: CompositeDefinition
    attribute: Attribute


@dataclass(frozen=True)
class DropAttribute:
    type: CompositeDefinition
    attribute: Attribute


@dataclass(frozen=True)
class RenameAttribute:
    type: CompositeDefinition
    id: int
    before: str
    after: str


@dataclass(frozen=True)
class RetypeAttribute:
    """Postgres allows it only while no table has a column with the type."""

    type: CompositeDefinition
    before: Attribute
    after: Attribute


@dataclass(frozen=True)
class AddDomainCheck:
    type: DomainDefinition
    check: DomainCheck


@dataclass(frozen=True)
class DropDomainCheck:
    type: DomainDefinition
    check: DomainCheck


@dataclass(frozen=True)
class RenameDomainCheck:
    type: DomainDefinition
    id: int
    before: str
    after: str


@dataclass(frozen=True)
class ValidateDomainCheck:
    type: DomainDefinition
    check: DomainCheck  # as it is now


@dataclass(frozen=True)
class SetDomainDefault:
    type: DomainDefinition
    expression: str | None


@dataclass(frozen=True)
class SetDomainNotNull:
    type: DomainDefinition
    not_null: bool


TypeChange: TypeAlias = (
    CreateType | DropType | RenameType | MoveType | SetTypeComment | RewordType | AddEnumValue | RenameEnumValue | AddAttribute
    | DropAttribute | RenameAttribute | RetypeAttribute | AddDomainCheck | DropDomainCheck | RenameDomainCheck
    | ValidateDomainCheck | SetDomainDefault | SetDomainNotNull
)  # fmt: skip

# After which values that there are have another text.
OF_VALUES = (RenameEnumValue, AddAttribute, DropAttribute, RetypeAttribute)
