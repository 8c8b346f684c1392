"""The reference part of docs/transforms.md, from the registry. ``python -m tests.docs.transforms_table`` writes it anew."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from enum import Enum
from pathlib import Path
from typing import Any

from pydantic import SecretStr
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from penstock.rules.transforms import TRANSFORMS, parse_transform, transform_class
from penstock.rules.transforms.contract import Example, Transform
from penstock.rules.transforms.documents import HstoreEdit, JsonEdit
from penstock.rules.transforms.generator import Generator
from penstock.settings.base import Settings

PAGE = Path(__file__).resolve().parents[2] / "docs" / "transforms.md"
_PART = re.compile(r"(?<=<!-- transforms -->\n).*?(?=<!-- end of transforms -->)", re.DOTALL)
_COMMON = set(Transform.model_fields) | set(Generator.model_fields)
_EDITS: dict[str, type[Settings]] = {"json": JsonEdit, "hstore": HstoreEdit}


class Kept(Enum):
    ALWAYS = "yes"
    NEVER = "no"
    DEPENDS = "with some settings"


def reference() -> str:
    """All that the page says about each transform."""
    return "\n".join([*_overview(), *(line for name in TRANSFORMS for line in _section(name))]) + "\n"


def shown() -> str:
    match = _PART.search(PAGE.read_text("utf-8"))
    assert match is not None
    return match[0]


def _overview() -> Iterator[str]:
    yield "| transform | what it does | for columns of | distinct values stay distinct |"
    yield "|---|---|---|---|"
    for name in TRANSFORMS:
        found = transform_class(name)
        yield f"| [`{name}`](#{name}) | {found.summary} | {_cell(found.fits)} | {_kept(found).value} |"
    yield ""


def _kept(found: type[Transform]) -> Kept:
    """As the examples have it."""
    answers = {_made(found.name, example).keeps_uniqueness for example in found.examples}
    return Kept.DEPENDS if len(answers) == 2 else Kept.ALWAYS if True in answers else Kept.NEVER


def _made(name: str, example: Example) -> Transform:
    return parse_transform({"transform": name, **example.settings})


def _section(name: str) -> Iterator[str]:
    found = transform_class(name)
    yield f"### {name}"
    yield ""
    yield found.summary
    yield ""
    own = {key: field for key, field in found.model_fields.items() if key not in _own_exceptions(found)}
    if own:
        yield from _parameters(own)
    if name in _EDITS:
        yield "Each of `operations`:"
        yield ""
        yield from _parameters(_EDITS[name].model_fields)
    if found.dynamic_parameters:
        yield f"From another column, by `dynamic`: {', '.join(f'`{name}`' for name in found.dynamic_parameters)}."
        yield ""
    if issubclass(found, Generator):
        yield "And `generator` and `salt`, [as all of these](#made-up-values)."
        yield ""
    yield from _examples(found)


def _own_exceptions(found: type[Transform]) -> set[str]:
    return _COMMON if issubclass(found, Generator) else set(Transform.model_fields)


def _parameters(fields: Mapping[str, FieldInfo]) -> Iterator[str]:
    yield "| parameter | default | |"
    yield "|---|---|---|"
    for name, field in fields.items():
        yield f"| `{name}` | {_default(field)} | {_cell(field.description or '')} |"
    yield ""


def _default(field: FieldInfo) -> str:
    if field.is_required():
        return "required"
    value = field.get_default(call_default_factory=True, validated_data={})
    if isinstance(value, SecretStr):
        value = value.get_secret_value()
    return "" if value in (None, "", (), PydanticUndefined) else f"`{_yaml(value)}`"


def _examples(found: type[Transform]) -> Iterator[str]:
    others = any(example.row for example in found.examples)
    yield f"| settings | value | {'other columns | ' if others else ''}becomes |"
    yield "|---|---|---|" + ("---|" if others else "")
    for example in found.examples:
        settings = _yaml({"transform": found.name, **example.settings})
        row = f"{_value(_yaml(dict(example.row))) if example.row else ''} | " if others else ""
        yield f"| {_value(settings)} | {_value(example.value)} | {row}{_value(example.result)} |"
    yield ""


def _yaml(value: Any) -> str:
    """On one line, in YAML's flow style, which reads like JSON with fewer quotes."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_yaml(key)}: {_yaml(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(_yaml, value)) + "]"
    if isinstance(value, str) and re.fullmatch(r"[A-Za-z_][\w ./@-]*", value) and value not in ("yes", "no", "true"):
        return value
    return json.dumps(value, ensure_ascii=False)


def _value(text: str | None) -> str:
    return "NULL" if text is None else f"`{_cell(text)}`"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def write() -> None:
    text = PAGE.read_text("utf-8")
    PAGE.write_text(_PART.sub(lambda _: reference(), text), "utf-8")


if __name__ == "__main__":
    write()
