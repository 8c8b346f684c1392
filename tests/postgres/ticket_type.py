"""A type like those that extensions bring, on a server without any: its operators are in a schema of their own."""

from __future__ import annotations

_OPERATORS = {"<": "int4lt", "<=": "int4le", "=": "int4eq", ">=": "int4ge", ">": "int4gt"}


def _function(name: str, arguments: str, returns: str, like: str) -> str:
    return f"create function {name}({arguments}) returns {returns} language internal immutable strict as '{like}';"


_BOTH = "public.ticket, public.ticket"

TICKET = "\n".join(
    [
        "set local client_min_messages = error; create type public.ticket;",
        _function("public.ticket_in", "cstring", "public.ticket", "int4in"),
        _function("public.ticket_out", "public.ticket", "cstring", "int4out"),
        "create type public.ticket (input = public.ticket_in, output = public.ticket_out, like = pg_catalog.int4);",
        _function("public.ticket_order", _BOTH, "int", "btint4cmp"),
        *(
            _function(f"public.ticket_{like}", _BOTH, "bool", like)
            + f"create operator public.{sign} (procedure = public.ticket_{like}, leftarg = public.ticket, "
            "rightarg = public.ticket);"
            for sign, like in _OPERATORS.items()
        ),
        "create operator class public.ticket_ops default for type public.ticket using btree as",
        ", ".join(f"operator {number} public.{sign}" for number, sign in enumerate(_OPERATORS, 1)),
        f", function 1 public.ticket_order({_BOTH});",
    ]
)
