"""Columns of events: one frame a kind, its fields typed as the grammar says."""

from __future__ import annotations

from typing import Final

import polars as pl

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


def complete(frame: pl.DataFrame, grammar: Grammar, kind: str) -> pl.DataFrame:
    """The frame with all columns of its schema, in that order."""
    return frame.select(
        pl.col(name) if name in frame.columns else pl.lit(None, dtype).alias(name)
        for name, dtype in schema(grammar, kind).items()
    )
