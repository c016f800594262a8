"""Work beside the screen: in a thread that never keeps the program from ending."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Callable
from contextlib import suppress


async def aside(work: Callable[[], None]) -> None:
    """Run `work` in a daemon thread and wait for it; raises what it raises.

    Textual's own thread workers are joined when the program ends, so that a long replay would hold up the way
    out. Cancelling the waiting task only stops waiting: `work` asks its worker whether it is still wanted.
    """
    loop = asyncio.get_running_loop()
    done: asyncio.Future[None] = loop.create_future()

    def settle(error: BaseException | None) -> None:
        if done.done():
            return
        if error is None:
            done.set_result(None)
        else:
            done.set_exception(error)

    def run() -> None:
        error: BaseException | None = None
        try:
            work()
        except BaseException as raised:
            error = raised
        with suppress(RuntimeError):  # the loop is gone: nobody waits any more
            loop.call_soon_threadsafe(settle, error)

    context = contextvars.copy_context()
    threading.Thread(target=context.run, args=(run,), daemon=True).start()
    await done
