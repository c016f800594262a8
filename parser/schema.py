"""Columns of events: one frame a kind, its fields typed as the grammar says."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import polars as pl

from parser.frames import constant
from parser.grammar import Grammar

DTYPES: Final[dict[str, pl.DataType]] = {
    "INT": pl.Int64(),
    "FLOAT": pl.Float64(),
    "FLAGS": pl.List(pl.String),
    "LIST": pl.List(pl.String),
    "TRUE": pl.Boolean(),
}
#: Columns of every frame in front of the fields, but for `seq`.
PLACE: Final[dict[str, pl.DataType]] = {
    "line": pl.Int64(),
    "offset": pl.Int64(),
    "stamp": pl.String(),
    "_length": pl.Int64(),
    "_source": pl.Int32(),
    "_rule": pl.String(),
}


def schema(grammar: Grammar, kind: str) -> dict[str, pl.DataType]:
    """Columns of the frame of `kind`: place, fields in the order of the grammar, foreign fields, the message."""
    fields = {name: DTYPES.get(word, pl.String()) for name, word in grammar.fields(kind).items()}
    return {"seq": pl.Int64(), **PLACE, **fields, "extra": pl.String(), "_text": pl.String()}


def complete(columns: Iterable[pl.Series], grammar: Grammar, kind: str) -> pl.DataFrame:
    """A frame of these columns and the others of its schema, in that order."""
    given = {column.name: column for column in columns}
    rows = len(given["offset"])
    return pl.DataFrame(
        [
            given[name] if name in given else constant(name, None, dtype, rows)
            for name, dtype in schema(grammar, kind).items()
        ]
    )
