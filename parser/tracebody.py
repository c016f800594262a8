"""Bodies of a trace record: what a request asked for, token windows, and where a text was cut."""

from __future__ import annotations

import re
from typing import Any, Final

#: a text that somebody shortened says so; what follows the mark is not at its place
_CUT: Final = re.compile(
    rb"\[?(?:\.\.\.|\xe2\x80\xa6) ?\(?\d+ (?:more )?(?:characters|chars|bytes)"
    rb" (?:cut|omitted|truncated|elided)[^\]\n]{0,80}\]?"
    rb"|\[(?:truncated|cut|omitted)[^\]\n]{0,80}\]|<(?:truncated|cut|omitted)[^>\n]{0,80}>"
)
_ROW: Final = re.compile(
    rb" *(\d+) (==|!=|prompt-only|live-only) +live (-|\d+) (<none>|\".*\") \| prompt (-|\d+) (<none>|\".*\")",
    re.DOTALL,
)
_ROLE: Final = re.compile(rb'"role"\s*:\s*"(\w{1,20})"')
_IMAGE: Final = re.compile(rb'"type"\s*:\s*"(?:image|image_url|input_image)"')


def cut_at(text: bytes) -> int | None:
    """Where a body was cut (offset of the mark), None where it is whole."""
    found = _CUT.search(text)
    return found.start() if found else None


def window_row(raw: bytes) -> tuple[int, str, int | None, str, int | None, str] | None:
    """One row of the token window: index, mark, live id and text, prompt id and text (escapes kept)."""
    row = _ROW.fullmatch(raw)
    if row is None:
        return None
    live, prompt = (None if row[n] == b"-" else int(row[n]) for n in (3, 5))
    return int(row[1]), row[2].decode(), live, _quoted(row[4]), prompt, _quoted(row[6])


def _quoted(text: bytes) -> str:
    return "" if text == b"<none>" else text[1:-1].decode("utf-8", "replace")


def body_hints(body: bytes) -> dict[str, Any]:
    """What the request's JSON shows unparsed (it may be cut): `api`, `messages`, `roles`, `images`.

    `api` is "responses", "anthropic", "completion" or "openai" by its top-level keys; counts are None in a
    body that was cut, where they would be too small.
    """
    whole = cut_at(body) is None
    roles = [role.decode() for role in _ROLE.findall(body)]
    return {
        "api": _api(body),
        "messages": len(roles) if whole else None,
        "roles": "".join(role[0] for role in roles) if whole else None,
        "images": len(_IMAGE.findall(body)) if whole else None,
    }


def _api(body: bytes) -> str | None:
    if re.search(rb'"input"\s*:', body[:4096]) and b'"messages"' not in body[:4096]:
        return "responses"
    if re.search(rb'"(?:tool_use_id|input_schema|cache_control)"\s*:', body) or re.search(
        rb'"system"\s*:\s*["\[]', body[:4096]
    ):
        return "anthropic"
    if b'"messages"' in body:
        return "openai"
    return "completion" if b'"prompt"' in body[:4096] else None
