"""What stands in front of a log line: colour, quotes, syslog, journald, containers, `ts`, grep, tags; then
the server's stamp and name (log-formats 1 and 11). One regular expression for both lanes: Python applies it
to a line, Polars to a column.

A stamp is only what the server printed: a wrapper's own time may be of another zone, so it is dropped.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import polars as pl

#: The head of nearly every line of an unwrapped log, its length, and the length of the stamp in it.
PLAIN: Final = r"[0-9]{4} [0-9]{2}:[0-9]{2}:[0-9]{2} ds4-server: "
PLAIN_LENGTH: Final = 26
STAMP_LENGTH: Final = 13

COLOUR: Final = r"\x1b\[[0-9;?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)|\x1b[()][A-Z0-9]"

_CLOCK: Final = r"[0-9]{1,2}:[0-9]{2}:[0-9]{2}"
_FULL: Final = rf"[0-9]{{3,4}} {_CLOCK}"  # a careless selection loses the first digit
_HOST: Final = (  # host and program behind a time: BSD and journald, or RFC 5424
    r"(?: +[^ :]+ [^ :\[\]]+(?:\[[0-9]+\])?:| [^ :]+ [^ :]+ (?:[0-9]+|-) [^ ]+ (?:-|\[[^\]]*\]))?"
)
# No element begins or ends with a blank, no two runs of blanks meet and the number of elements is bounded,
# so no line can make Python's engine try very many ways.
_ELEMENTS: Final = "|".join(
    (
        r"<[0-9]{1,3}>1?",  # syslog priority, version
        rf"[A-Z][a-z]{{2}} +[0-9]{{1,2}} (?:[0-9]{{4}} )?{_CLOCK}(?:\.[0-9]+)?{_HOST}",  # BSD, journald, ts
        r"\[?[0-9]{4}-[0-9]{2}-[0-9]{2}[T ][0-9]{2}:[0-9]{2}:[0-9]{2}(?:[.,][0-9]+)?"
        rf"(?:Z|[+-][0-9]{{2}}:?[0-9]{{2}})?\]?(?: std(?:out|err) [FP])?{_HOST}",  # ISO, docker -t, CRI
        r"[0-9]{9,10}\.[0-9]+",  # ts %.s
        r"\[[^\[\]]{1,80}\]:?",  # [tag], [seconds since boot]
        r"[^ :\[\]|]+ [^ :\[\]]+\[[0-9]+\]:",  # host program[pid]:
        r"[0-9]+\|[A-Za-z0-9_.@-]+ *\|",  # pm2
        r"[A-Za-z0-9][A-Za-z0-9_.-]{0,80} *\|",  # docker compose
    )
)
_QUOTES: Final = r"(?:>[> \t]*)?"
_WRAPPERS: Final = rf"{_QUOTES}(?:(?:{_ELEMENTS})(?:[ \t]+{_QUOTES}|$)){{0,6}}"
_GREP: Final = r"(?:[^ :]{1,200}[:-])?[0-9]{1,9}[:-]|[^ :]{1,200}\.[A-Za-z]{1,5}(?:\.[0-9]{1,3})?[:-]"
_PROGRAM: Final = r"(ds4-server|ds4-agent)(?:\[[0-9]+\])?:[ \t]+"

#: Groups: stamp and program of a fully stamped line; of a line with a clock only; program alone; none of them.
#: The last group says nothing: without it Rust's engine takes the wrappers, in which all ways begin, out of the
#: brackets, and then a wrapper that could be a stamp is never tried as one.
HEAD: Final = (
    rf"^(?:{_WRAPPERS}(?:{_CLOCK} )?(?:{_GREP})?\[?({_FULL})\]?[ \t]+(?:{_PROGRAM})?"
    rf"|{_WRAPPERS}(?:{_GREP})?\[?({_CLOCK})\]?[ \t]+(?:{_PROGRAM})?"
    rf"|{_WRAPPERS}(?:{_GREP})?{_PROGRAM}"
    rf"|({_WRAPPERS}))"
)
#: What may stand in front of a plain head
FRONT: Final = rf"^{_WRAPPERS}(?:{_CLOCK} )?(?:{_GREP})?$"
#: Another program's name, which may stand before the lines of the disk store (log-formats 1)
OTHER_PROGRAM: Final = r"^([A-Za-z][A-Za-z0-9_.-]{0,40}): (?:kv cache |KV disk cache )"
#: Where another line of the server begins inside a line (three stdio calls without a lock)
GLUED: Final = r"[0-9]{4} [0-9]{2}:[0-9]{2}:[0-9]{2} (?:ds4-server: |slot [0-9]+: |ds4: |$)"
#: Marks that stand for left-out lines, and fences: nothing, not even foreign
MARK: Final = r"^(?:\.{3,}|…+|[(\[](?:\.{3}|…|snip)[)\]]|[`~]{3,}[A-Za-z0-9_-]*|-{3,}|={3,})$"

_colour, _head = re.compile(COLOUR), re.compile(HEAD)


def uncoloured(text: str) -> str:
    """The line without colour codes, NUL and the blanks around it."""
    plain = _colour.sub("", text) if "\x1b" in text else text
    return plain.replace("\0", "").strip(" \t\r")


def unwrap(text: str) -> tuple[str | None, str | None, str]:
    """(stamp, program, message) of one uncoloured line."""
    found = _head.match(text)
    assert found is not None  # the last alternative may be empty
    full, program, clock, clock_program, bare_program, _ = found.groups()
    return full or clock, program or clock_program or bare_program, text[found.end() :]


def unwrap_column(lines: pl.Series) -> pl.DataFrame:
    """The same for a column of uncoloured lines: `stamp`, `program`, `text`."""
    import polars as pl

    at = lines.str.find(PLAIN).cast(pl.Int64).fill_null(-1)
    raw = lines.to_frame("raw").with_columns(at=at)
    front = pl.col("raw").str.head("at")
    wrapped = (front.str.len_bytes() == pl.col("at")) & front.str.contains(FRONT)
    raw = raw.with_columns(plain=(pl.col("at") == 0) | ((pl.col("at") > 0) & wrapped)).with_row_index("row")
    simple, others = raw.filter("plain"), raw.filter(~pl.col("plain"))
    both = [
        _cut(simple).with_columns(row=simple["row"]),
        _general(others["raw"]).with_columns(row=others["row"]),
    ]
    return pl.concat(both).sort("row").drop("row")


def unwrap_plain(lines: pl.Series) -> pl.DataFrame | None:
    """The same where every line has a plain head and a word behind it, as in most blocks; else None."""
    import polars as pl

    if not lines.str.contains(f"^{PLAIN}[A-Za-z0-9]").all():
        return None
    return lines.to_frame("raw").select_seq(
        stamp=pl.col("raw").str.slice(0, STAMP_LENGTH),
        program=pl.lit("ds4-server"),
        text=pl.col("raw").str.slice(PLAIN_LENGTH),
    )


def _cut(rows: pl.DataFrame) -> pl.DataFrame:
    """Lines with a plain head at character `at`."""
    import polars as pl

    cut = rows.select(
        stamp=pl.col("raw").str.slice("at", STAMP_LENGTH),
        program=pl.lit("ds4-server"),
        text=pl.col("raw").str.slice(pl.col("at") + PLAIN_LENGTH),
    )
    if not cut["text"].str.starts_with(" ").any() and not cut["text"].str.starts_with("\t").any():
        return cut
    return cut.with_columns(pl.col("text").str.strip_chars_start(" \t"))


def _general(lines: pl.Series) -> pl.DataFrame:
    import polars as pl

    groups = lines.str.extract_groups(f"^({HEAD[1:]})").struct.unnest()
    return groups.with_columns(line=lines).select(
        stamp=pl.coalesce("2", "4"),
        program=pl.coalesce("3", "5", "6"),
        text=pl.col("line").str.strip_prefix(pl.col("1")),
    )
