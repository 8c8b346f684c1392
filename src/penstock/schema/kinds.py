"""Every kind of change that a command can make to a table; those of types are in ``type_kinds.py``.

``table`` is what the table is called when the change is due: changes are meant to be applied one after the other.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from penstock.schema.definitions import (
    ColumnDefinition,
    Constraint,
    Definition,
    ForeignKey,
    IndexDefinition,
    PartitionOf,
    ReplicaIdentity,
    SequenceDefinition,
    Settings,
    TableName,
)
from penstock.schema.type_kinds import AddAttribute as AddAttribute
from penstock.schema.type_kinds import AddDomainCheck as AddDomainCheck
from penstock.schema.type_kinds import AddEnumValue as AddEnumValue
from penstock.schema.type_kinds import CreateType as CreateType
from penstock.schema.type_kinds import DropAttribute as DropAttribute
from penstock.schema.type_kinds import DropDomainCheck as DropDomainCheck
from penstock.schema.type_kinds import DropType as DropType
from penstock.schema.type_kinds import MoveType as MoveType
from penstock.schema.type_kinds import RenameAttribute as RenameAttribute
from penstock.schema.type_kinds import RenameDomainCheck as RenameDomainCheck
from penstock.schema.type_kinds import RenameEnumValue as RenameEnumValue
from penstock.schema.type_kinds import RenameType as RenameType
from penstock.schema.type_kinds import RetypeAttribute as RetypeAttribute
from penstock.schema.type_kinds import RewordType as RewordType
from penstock.schema.type_kinds import SetDomainDefault as SetDomainDefault
from penstock.schema.type_kinds import SetDomainNotNull as SetDomainNotNull
from penstock.schema.type_kinds import SetTypeComment as SetTypeComment
from penstock.schema.type_kinds import TypeChange as TypeChange
from penstock.schema.type_kinds import ValidateDomainCheck as ValidateDomainCheck

Part: TypeAlias = Constraint | ForeignKey | IndexDefinition
PartKind: TypeAlias = Literal["primary_key", "unique", "check", "foreign_key", "index"]


@dataclass(frozen=True)
class TableChange:
    table: TableName


@dataclass(frozen=True)
class CreateTable(TableChange):
    """Its foreign keys come as changes of their own, when all tables are there."""

    definition: Definition


@dataclass(frozen=True)
class DropTable(TableChange):
    definition: Definition


@dataclass(frozen=True)
class RenameTable(TableChange):
    after: str


@dataclass(frozen=True)
class MoveTable(TableChange):
    """To another schema; or the schema has another name now."""

    after: str


@dataclass(frozen=True)
class AddColumn(TableChange):
    column: ColumnDefinition


@dataclass(frozen=True)
class DropColumn(TableChange):
    column: ColumnDefinition


@dataclass(frozen=True)
class RenameColumn(TableChange):
    """Where columns swap their names, one goes by way of a temporary name."""

    id: int
    before: str
    after: str


@dataclass(frozen=True)
class RetypeColumn(TableChange):
    """Type, modifier or collation. ``same_type``: it is the type that has another name now."""

    before: ColumnDefinition
    after: ColumnDefinition

    @property
    def same_type(self) -> bool:
        one, other = self.before, self.after
        return (one.type_oid, one.modifier, one.collation) == (other.type_oid, other.modifier, other.collation)


@dataclass(frozen=True)
class _ColumnChange(TableChange):
    id: int
    column: str


@dataclass(frozen=True)
class SetNotNull(_ColumnChange):
    pass


@dataclass(frozen=True)
class DropNotNull(_ColumnChange):
    pass


@dataclass(frozen=True)
class SetDefault(_ColumnChange):
    expression: str


@dataclass(frozen=True)
class DropDefault(_ColumnChange):
    pass


@dataclass(frozen=True)
class ChangeIdentity(_ColumnChange):
    """GENERATED … AS IDENTITY came, went, or has other parameters. ``identity``: a(lways), d (by default), none."""

    identity: str | None
    sequence: SequenceDefinition | None


@dataclass(frozen=True)
class ChangeGenerated(_ColumnChange):
    """``generated``: s(tored), v(irtual), or none: an ordinary column from now on, with this default."""

    generated: str | None
    expression: str | None


@dataclass(frozen=True)
class ReplacePrimaryKey(TableChange):
    """Either may be None: the table had or has no key."""

    before: Constraint | None
    after: Constraint | None


@dataclass(frozen=True)
class AddUnique(TableChange):
    """Or an exclusion constraint."""

    constraint: Constraint


@dataclass(frozen=True)
class DropUnique(TableChange):
    constraint: Constraint


@dataclass(frozen=True)
class AddCheck(TableChange):
    constraint: Constraint


@dataclass(frozen=True)
class DropCheck(TableChange):
    constraint: Constraint


@dataclass(frozen=True)
class AddForeignKey(TableChange):
    foreign_key: ForeignKey


@dataclass(frozen=True)
class DropForeignKey(TableChange):
    foreign_key: ForeignKey


@dataclass(frozen=True)
class CreateIndex(TableChange):
    index: IndexDefinition


@dataclass(frozen=True)
class DropIndex(TableChange):
    index: IndexDefinition


@dataclass(frozen=True)
class RenamePart(TableChange):
    """A constraint or an index has another name. Swapped names go by way of a temporary one."""

    part: PartKind
    id: int
    before: str
    after: str


@dataclass(frozen=True)
class AlterPart(TableChange):
    """A constraint or an index was altered: validated, made deferrable, its storage options."""

    part: PartKind
    before: Part
    after: Part


@dataclass(frozen=True)
class RewordPart(TableChange):
    """The same in other words, since something that it names was renamed. Whoever followed the rename has nothing to do."""

    part: PartKind
    before: Part
    after: Part


@dataclass(frozen=True)
class ChangeReplicaIdentity(TableChange):
    before: ReplicaIdentity
    after: ReplicaIdentity


@dataclass(frozen=True)
class AttachPartition(TableChange):
    partition_of: PartitionOf


@dataclass(frozen=True)
class DetachPartition(TableChange):
    partition_of: PartitionOf


@dataclass(frozen=True)
class RewordPartition(TableChange):
    """The table that it is a partition of has another name."""

    before: PartitionOf
    after: PartitionOf


@dataclass(frozen=True)
class SetComment(TableChange):
    """Of the table or, with an id, of a column. None: it has none any more."""

    id: int | None
    column: str | None
    comment: str | None


@dataclass(frozen=True)
class SetPersistence(TableChange):
    """p(ermanent) or u(nlogged), whose changes no one can follow."""

    after: str


@dataclass(frozen=True)
class ChangeSettings(TableChange):
    before: Settings
    after: Settings


@dataclass(frozen=True)
class RewriteTable(TableChange):
    """Postgres wrote every row anew, which is in no stream: values may be others now.

    ``reasons``: default (a new column with a default that is computed for each row), type, persistence, access method.
    """

    reasons: tuple[str, ...]


@dataclass(frozen=True)
class OtherCommand:
    """A command that changed no table and no type; or, with an ``error``, one of which we do not know what it did."""

    tag: str
    statement: str | None
    objects: tuple[dict[str, Any], ...] = ()
    error: str | None = None
    search_path: str | None = None


SchemaChange: TypeAlias = TableChange | TypeChange | OtherCommand
