"""Types that the user made: from how one was to how it is, and what it is after a change.

New names of several things that are there at the same time, one after the other.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import count
from typing import Any, TypeVar

from penstock.schema import type_kinds as kinds
from penstock.schema.definitions import (
    Attribute,
    CompositeDefinition,
    DomainCheck,
    DomainDefinition,
    EnumDefinition,
    EnumLabel,
    TypeDefinition,
)
from penstock.schema.type_kinds import TypeChange

K = TypeVar("K")


def renames(names: Mapping[K, str], wanted: Mapping[K, str]) -> Iterator[tuple[K, str, str]]:
    """By id: renames one after the other, such that no two have one name at any time. A circle is opened by a temporary
    name."""
    names = dict(names)
    waiting = {one: new for one, new in wanted.items() if one in names and names[one] != new}
    while waiting:
        held = {names[one]: one for one in waiting}
        free = [one for one, new in waiting.items() if new not in held]
        if free:
            one, new = free[0], waiting.pop(free[0])
        else:
            one = held[next(iter(waiting.values()))]
            new = _temporary({*names.values(), *wanted.values()})
        yield one, names[one], new
        names[one] = new


def _temporary(taken: set[str]) -> str:
    return next(name for number in count(1) if (name := f"penstock_renamed_{number}") not in taken)


def type_changes(before: TypeDefinition | None, after: TypeDefinition | None) -> list[TypeChange]:
    """In an order in which they can be applied."""
    if before is None:
        return [kinds.CreateType(after)] if after is not None else []
    if after is None:
        return [kinds.DropType(before)]
    if type(before) is not type(after) or _is_another(before, after):
        return [kinds.DropType(before), kinds.CreateType(after)]
    found: list[TypeChange] = []
    now = before
    for change in _differences(before, after):
        found.append(replace(change, type=now))  # type: ignore[arg-type]  # of the class that the change is about
        now = altered_type(now, change)
    if now != after:
        found.append(kinds.RewordType(now, after))
    return found


def _is_another(before: TypeDefinition, after: TypeDefinition) -> bool:
    """What no command makes of a type: it takes no label away and moves none, and gives a domain no other base."""
    if isinstance(before, EnumDefinition) and isinstance(after, EnumDefinition):
        kept = [label.id for label in before.labels]
        return [label.id for label in after.labels if label.id in kept] != kept
    if isinstance(before, DomainDefinition) and isinstance(after, DomainDefinition):
        return before.base_oid != after.base_oid
    return False


def _differences(before: TypeDefinition, after: TypeDefinition) -> Iterator[TypeChange]:
    """``type`` is filled in afterwards."""
    if before.schema != after.schema:
        yield kinds.MoveType(before, after.schema)
    if before.name != after.name:
        yield kinds.RenameType(before, after.name)
    if isinstance(before, EnumDefinition) and isinstance(after, EnumDefinition):
        yield from _of_enum(before, after)
    elif isinstance(before, CompositeDefinition) and isinstance(after, CompositeDefinition):
        yield from _of_composite(before, after)
    elif isinstance(before, DomainDefinition) and isinstance(after, DomainDefinition):
        yield from _of_domain(before, after)
    if before.comment != after.comment:
        yield kinds.SetTypeComment(before, after.comment)


def _of_enum(before: EnumDefinition, after: EnumDefinition) -> Iterator[TypeChange]:
    names, wanted = ({label.id: label.label for label in one.labels} for one in (before, after))
    for number, old, new in renames(names, wanted):
        yield kinds.RenameEnumValue(before, number, old, new)
    follower: str | None = None
    for label in reversed(after.labels):
        if label.id not in names:
            yield kinds.AddEnumValue(before, label, follower)
        follower = label.label


def _of_composite(before: CompositeDefinition, after: CompositeDefinition) -> Iterator[TypeChange]:
    old, new = ({one.id: one for one in each.attributes} for each in (before, after))
    for one in before.attributes:
        if one.id not in new:
            yield kinds.DropAttribute(before, one)
    names, wanted = ({number: one.name for number, one in some.items()} for some in (old, new))
    for number, former, name in renames({n: name for n, name in names.items() if n in new}, wanted):
        yield kinds.RenameAttribute(before, number, former, name)
    for one in after.attributes:
        if one.id not in old:
            yield kinds.AddAttribute(before, one)
        elif old[one.id].kind != one.kind:
            yield kinds.RetypeAttribute(before, replace(old[one.id], name=one.name), one)


def _of_domain(before: DomainDefinition, after: DomainDefinition) -> Iterator[TypeChange]:
    old, new = ({check.id: check for check in each.checks} for each in (before, after))
    for check in before.checks:
        if check.id not in new:
            yield kinds.DropDomainCheck(before, check)
    names, wanted = ({number: check.name for number, check in some.items()} for some in (old, new))
    for number, former, name in renames({n: name for n, name in names.items() if n in new}, wanted):
        yield kinds.RenameDomainCheck(before, number, former, name)
    if before.default != after.default:
        yield kinds.SetDomainDefault(before, after.default)
    if before.not_null != after.not_null:
        yield kinds.SetDomainNotNull(before, after.not_null)
    for check in after.checks:
        if check.id not in old:
            yield kinds.AddDomainCheck(before, check)
        elif check.validated and not old[check.id].validated:
            yield kinds.ValidateDomainCheck(before, check)


def altered_type(definition: TypeDefinition, change: TypeChange) -> TypeDefinition:
    match change:
        case kinds.RenameType(after=name):
            return replace(definition, name=name)
        case kinds.MoveType(after=schema):
            return replace(definition, schema=schema)
        case kinds.SetTypeComment(comment=comment):
            return replace(definition, comment=comment)
        case kinds.RewordType(after=after):
            return after
    match definition:
        case EnumDefinition():
            return _altered_enum(definition, change)
        case CompositeDefinition():
            return _altered_composite(definition, change)
        case DomainDefinition():
            return _altered_domain(definition, change)
    return definition


def _altered_enum(definition: EnumDefinition, change: TypeChange) -> EnumDefinition:
    match change:
        case kinds.RenameEnumValue(id=number, after=name):
            labels = (EnumLabel(number, name) if label.id == number else label for label in definition.labels)
            return replace(definition, labels=tuple(labels))
        case kinds.AddEnumValue(label=label, before=before):
            names = [known.label for known in definition.labels]
            at = len(names) if before is None else names.index(before)
            return replace(definition, labels=(*definition.labels[:at], label, *definition.labels[at:]))
    return definition


def _altered_composite(definition: CompositeDefinition, change: TypeChange) -> CompositeDefinition:
    attributes: tuple[Attribute, ...] = definition.attributes
    match change:
        case kinds.AddAttribute(attribute=new):
            attributes = tuple(sorted((*attributes, new), key=lambda one: one.id))
        case kinds.DropAttribute(attribute=gone):
            attributes = tuple(one for one in attributes if one.id != gone.id)
        case kinds.RenameAttribute(id=number, after=name):
            attributes = _with(attributes, number, name=name)
        case kinds.RetypeAttribute(after=new):
            attributes = tuple(new if one.id == new.id else one for one in attributes)
    return replace(definition, attributes=attributes)


def _altered_domain(definition: DomainDefinition, change: TypeChange) -> DomainDefinition:
    checks: tuple[DomainCheck, ...] = definition.checks
    match change:
        case kinds.SetDomainDefault(expression=default):
            return replace(definition, default=default)
        case kinds.SetDomainNotNull(not_null=not_null):
            return replace(definition, not_null=not_null)
        case kinds.AddDomainCheck(check=new):
            checks = (*checks, new)
        case kinds.DropDomainCheck(check=gone):
            checks = tuple(one for one in checks if one.id != gone.id)
        case kinds.RenameDomainCheck(id=number, after=name):
            checks = _with(checks, number, name=name)
        case kinds.ValidateDomainCheck(check=new):
            checks = tuple(new if one.id == new.id else one for one in checks)
    return replace(definition, checks=tuple(sorted(checks, key=lambda one: one.name)))


def _with(parts: tuple[Any, ...], number: int, **members: Any) -> tuple[Any, ...]:
    return tuple(replace(one, **members) if one.id == number else one for one in parts)
