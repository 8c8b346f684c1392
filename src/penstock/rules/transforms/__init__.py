"""The transforms by the word that a rule uses. Adding one adds one line here.

Loaded on first use, so that a config without rules loads none of them.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from penstock.settings.mistakes import mistake, nearest, quoted

if TYPE_CHECKING:
    from penstock.rules.transforms.contract import Transform

TRANSFORMS = {
    "regex": "text:Regex",
    "mask": "mask:Mask",
    "hash": "hashing:Hash",
    "encrypt": "encrypt:Encrypt",
    "literal": "text:LiteralText",
    "null": "text:Null",
    "template": "template:Template",
    "truncate": "coarse:Truncate",
    "round": "coarse:Round",
    "bucket": "coarse:Bucket",
    "noise": "noise:Noise",
    "shift_dates": "noise:ShiftDates",
    "json": "documents:Json",
    "hstore": "documents:Hstore",
    "string": "text:String",
    "integer": "drawn_numbers:Integer",
    "float": "drawn_numbers:Float",
    "boolean": "drawn_numbers:Boolean",
    "uuid": "text:Uuid",
    "date": "drawn_moments:Date",
    "timestamp": "drawn_moments:Timestamp",
    "unix_timestamp": "drawn_moments:UnixTimestamp",
    "choice": "text:Choice",
    "first_name": "names:FirstName",
    "last_name": "names:LastName",
    "full_name": "names:FullName",
    "email": "email:Email",
    "phone": "phone:Phone",
    "address": "places:Address",
    "company": "places:Company",
}


def transform_class(name: object) -> type[Transform]:
    """The class of the transform of that name. Raises a pydantic error, which carries no data but the name."""
    target = TRANSFORMS.get(name) if isinstance(name, str) else None
    if target is None:
        raise mistake(f"unknown transform{quoted(name)}; {nearest(name, tuple(TRANSFORMS))}")
    module, _, found = target.partition(":")
    known: type[Transform] = getattr(importlib.import_module(f"{__name__}.{module}"), found)
    return known


def parse_transform(data: Mapping[str, Any]) -> Transform:
    """From a rule's ``{transform: name, parameter: …}``. What pydantic raises has paths within this mapping."""
    parameters = dict(data)
    name = parameters.pop("transform", "")
    # Without quotes, the name of the transform `null` is YAML's null.
    return transform_class("null" if name is None else name).model_validate(parameters)
