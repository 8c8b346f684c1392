"""Tables as a row of the schema log has them: pure values, parsed from its JSON.

Whatever survives a rename carries an ``id``: a column's is its number in the table, a constraint's and an index's its
oid. Texts are Postgres's own, with every name qualified.

Types that the user made, as a row of the schema log has them: pure values, parsed from its JSON.

An attribute's ``id`` is its number in the type, a check's and an enum label's its oid: they survive renames.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

Json: TypeAlias = Mapping[str, Any]


@dataclass(frozen=True)
class TableName:
    """Which table, and what it is called at the moment."""

    oid: int
    schema: str
    table: str

    @classmethod
    def from_json(cls, value: Json) -> TableName:
        return cls(value["oid"], value["schema"], value["table"])

    def __str__(self) -> str:
        return f"{self.schema}.{self.table}"


@dataclass(frozen=True)
class SequenceDefinition:
    """Of an identity column."""

    schema: str
    name: str
    type: str
    start: int
    increment: int
    min: int
    max: int
    cache: int
    cycle: bool

    @classmethod
    def from_json(cls, value: Json) -> SequenceDefinition:
        return cls(**{name: value[name] for name in cls.__dataclass_fields__})


@dataclass(frozen=True)
class BaseType:
    """Of a type that the user made: what is below its domains. The members are those of ``penstock.changes.batch.Column``."""

    base: str
    modifier: int = -1
    element: str | None = None

    @classmethod
    def from_json(cls, value: Json) -> BaseType:
        return cls(value["base"], value["modifier"], value["element"])


@dataclass(frozen=True)
class ColumnDefinition:
    """``default`` is the expression of a generated column, too. ``identity`` is a(lways) or d (by default), ``generated``
    s(tored) or v(irtual).

    ``missing`` is what rows have that were there before the column: the value of its default at that time, as text. Postgres
    forgets it when it writes the table anew, so it is no part of what the column is.
    """

    id: int
    name: str
    type: str
    type_oid: int
    modifier: int
    not_null: bool
    default: str | None = None
    identity: str | None = None
    generated: str | None = None
    collation: str | None = None  # where it is not the type's
    comment: str | None = None
    sequence: SequenceDefinition | None = None
    base: BaseType | None = field(default=None, compare=False)  # of a type that the user made; told by ``type_oid``
    missing: str | None = field(default=None, compare=False)

    @classmethod
    def from_json(cls, value: Json) -> ColumnDefinition:
        later = ("sequence", "base", "missing")
        sequence, base = value.get("sequence"), value.get("base")
        return cls(
            **{name: value[name] for name in cls.__dataclass_fields__ if name not in later},
            missing=value.get("missing"),
            sequence=SequenceDefinition.from_json(sequence) if sequence else None,
            base=BaseType.from_json(base) if base else None,
        )


@dataclass(frozen=True)
class Constraint:
    """``kind``: p(rimary key), u(nique), x (exclusion), c(heck), or n(ot null), which is listed only as long as it is not
    valid."""

    id: int
    name: str
    kind: str
    columns: tuple[str, ...]
    definition: str
    deferrable: bool = False
    deferred: bool = False
    validated: bool = True
    enforced: bool = True
    no_inherit: bool = False
    options: tuple[str, ...] = ()

    @classmethod
    def from_json(cls, value: Json) -> Constraint:
        return cls(**_with_tuples(cls, value))

    @property
    def flags(self) -> tuple[Any, ...]:
        """What can be altered. Anything else that reads otherwise does so because something was renamed."""
        return (self.deferrable, self.deferred, self.validated, self.enforced, self.no_inherit, self.options)


@dataclass(frozen=True)
class ForeignKey:
    id: int
    name: str
    columns: tuple[str, ...]
    referenced: TableName
    referenced_columns: tuple[str, ...]
    definition: str
    deferrable: bool = False
    deferred: bool = False
    validated: bool = True
    enforced: bool = True

    @classmethod
    def from_json(cls, value: Json) -> ForeignKey:
        return cls(**{**_with_tuples(cls, value), "referenced": TableName.from_json(value["referenced"])})

    @property
    def flags(self) -> tuple[Any, ...]:
        return (self.deferrable, self.deferred, self.validated, self.enforced)


@dataclass(frozen=True)
class IndexDefinition:
    """One that is no constraint's."""

    id: int
    name: str
    definition: str
    unique: bool = False
    options: tuple[str, ...] = ()

    @classmethod
    def from_json(cls, value: Json) -> IndexDefinition:
        return cls(**_with_tuples(cls, value))

    @property
    def flags(self) -> tuple[Any, ...]:
        return (self.unique, self.options)


@dataclass(frozen=True)
class ReplicaIdentity:
    """``kind`` is d(efault), n(othing), f(ull) or i(ndex)."""

    kind: str
    index: str | None = None


@dataclass(frozen=True)
class PartitionOf:
    oid: int
    schema: str
    table: str
    bound: str

    @classmethod
    def from_json(cls, value: Json) -> PartitionOf:
        return cls(value["oid"], value["schema"], value["table"], value["bound"])


@dataclass(frozen=True)
class Settings:
    options: tuple[str, ...] = ()  # fillfactor=70
    access_method: str | None = None
    partition_key: str | None = None  # RANGE (day)
    inherits: tuple[TableName, ...] = ()

    @classmethod
    def from_json(cls, value: Json) -> Settings:
        inherits = tuple(TableName.from_json(parent) for parent in value["inherits"])
        return cls(tuple(value["options"]), value["access_method"], value["partition_key"], inherits)


@dataclass(frozen=True)
class Definition:
    """A table. ``kind`` is r(elation) or p(artitioned), ``persistence`` p(ermanent) or u(nlogged).

    Columns are in the order of their ids, all other parts in that of their names.
    """

    oid: int
    schema: str
    table: str
    kind: str
    persistence: str
    columns: tuple[ColumnDefinition, ...]
    primary_key: Constraint | None = None
    uniques: tuple[Constraint, ...] = ()  # exclusion constraints, too
    checks: tuple[Constraint, ...] = ()
    foreign_keys: tuple[ForeignKey, ...] = ()
    indexes: tuple[IndexDefinition, ...] = ()
    replica_identity: ReplicaIdentity = ReplicaIdentity("d")
    partition_of: PartitionOf | None = None
    settings: Settings = Settings()
    comment: str | None = None

    @classmethod
    def from_json(cls, value: Json) -> Definition:
        key, parent, identity = value["primary_key"], value["partition_of"], value["replica_identity"]
        return cls(
            value["oid"],
            value["schema"],
            value["table"],
            value["kind"],
            value["persistence"],
            columns=tuple(ColumnDefinition.from_json(column) for column in value["columns"]),
            primary_key=Constraint.from_json(key) if key else None,
            uniques=tuple(Constraint.from_json(part) for part in value["uniques"]),
            checks=tuple(Constraint.from_json(part) for part in value["checks"]),
            foreign_keys=tuple(ForeignKey.from_json(part) for part in value["foreign_keys"]),
            indexes=tuple(IndexDefinition.from_json(part) for part in value["indexes"]),
            replica_identity=ReplicaIdentity(identity["kind"], identity["index"]),
            partition_of=PartitionOf.from_json(parent) if parent else None,
            settings=Settings.from_json(value["settings"]),
            comment=value["comment"],
        )

    @property
    def name(self) -> TableName:
        return TableName(self.oid, self.schema, self.table)

    def column(self, number: int) -> ColumnDefinition:
        """The one with this id."""
        return next(column for column in self.columns if column.id == number)


def _with_tuples(cls: Any, value: Json) -> dict[str, Any]:
    """The fields of the class, lists made tuples."""
    found = {name: value[name] for name in cls.__dataclass_fields__}
    return {name: tuple(item) if isinstance(item, Sequence) and not isinstance(item, str) else item
            for name, item in found.items()}  # fmt: skip


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
