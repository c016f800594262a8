"""The one exception base: a stable code, the place in the input, and what to do about it."""

from __future__ import annotations


class Ds4scopeError(Exception):
    """An error that a user can act on; never shown with a traceback.

    `code` is stable ("E-INPUT-EMPTY"), `exit_code` is the process status of `docs/outputs`
    (2 wrong usage, 3 input unreadable or nothing in it, 4 fidelity too low, 1 expectation not met).
    """

    exit_code = 3

    def __init__(
        self,
        code: str,
        message: str,
        *,
        path: str | None = None,
        line: int | None = None,
        offset: int | None = None,
        hint: str | None = None,
    ) -> None:
        super().__init__(message)
        self.code, self.message = code, message
        self.path, self.line, self.offset, self.hint = path, line, offset, hint

    def __str__(self) -> str:
        place = ":".join(str(part) for part in (self.path, self.line) if part is not None)
        text = f"{place}: {self.message}" if place else self.message
        return f"{text} [{self.code}]" + (f"\n  what to do: {self.hint}" if self.hint else "")


class UsageError(Ds4scopeError):
    """Wrong options or a value that cannot be used (exit status 2)."""

    exit_code = 2


class InputError(Ds4scopeError):
    """Input that cannot be read, or that holds nothing ds4-server prints (exit status 3)."""


class ExpectationError(Ds4scopeError):
    """A stated expectation does not hold (exit status 1)."""

    exit_code = 1


class FidelityError(Ds4scopeError):
    """A replay below the demanded fidelity (exit status 4)."""

    exit_code = 4
