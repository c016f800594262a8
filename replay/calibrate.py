"""Think times under which a replay sends each request when the log's clients did.

Where several clients share a server, whose request finds which slot hangs on fractions of a second. A model
whose requests take a little longer or shorter than the server's would drift away from the log, turn after
turn. So the think times take that difference in: each is the time from the model's own answer to the moment
when the request came. Nothing else of the log is in it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from replay.config import ServerConfig
from replay.decisions import Answered, Decision
from replay.seams import Costs
from replay.server import replay
from replay.workload import Asked, Workload

_ROUNDS = 4
#: stamps are whole seconds: by no more, nor by more than this share of its pause, may an arrival move so that the
#: order of the log's lines is kept
_STAMP_S, _PAUSE_SHARE = 1.0, 0.1
#: at least so far apart stay two arrivals of which one was moved
_APART = 1e-5


@dataclass(frozen=True, slots=True)
class Order:
    """By request number, of those shortly before it: which had ended when it came, and which still ran, by the order
    of the log's lines."""

    over: Mapping[int, Sequence[int]]
    beside: Mapping[int, Sequence[int]]


def calibrated(
    workload: Workload, configs: Sequence[ServerConfig], costs: Costs, came: Mapping[int, float], order: Order
) -> Workload:
    """The workload with think times so that request `k` comes at `came[k]` (seconds, by number); where the model
    answers what it waited for later than that, it comes at once, and where it ends others a little sooner or later
    than `order` allows, just before or after that."""
    came = dict(came)
    admit = {asked.request: costs.admit_s(asked.prompt_tokens) for asked in workload.requests}
    answered: dict[int, float] = {}
    for _ in range(_ROUNDS):
        answered = _answered(workload, configs, costs, came)
        waits = {asked.request: answered.get(asked.after or 0, 0.0) for asked in workload.requests}
        kept = {
            number: _in_order(number, at + admit[number], waits, answered, order) - admit[number]
            for number, at in came.items()
        }
        later = _later(waits, kept, admit)
        if later == came:
            break
        came = later
    return replace(workload, requests=tuple(_retimed(asked, answered, came) for asked in workload.requests))


def _in_order(
    number: int, at: float, waits: Mapping[int, float], answered: Mapping[int, float], order: Order
) -> float:
    """When it comes to the queue, moved a little where the ends of others would be on its other side."""
    room = min(_STAMP_S, _PAUSE_SHARE * (at - waits.get(number, 0.0)))
    ends = [answered.get(other, 0.0) for other in order.over.get(number, ())]
    after = max((end + _APART for end in ends if at <= end < at + room), default=at)
    ends = [answered.get(other, at + 1.0) for other in order.beside.get(number, ())]
    before = min((end - 2 * _APART for end in ends if at - room < end <= at), default=at)
    return after if before == at else before if after == at else at


def _later(
    waits: Mapping[int, float], came: Mapping[int, float], admit: Mapping[int, float]
) -> dict[int, float]:
    """Arrivals no earlier than the answers they wait for, in the order in which they come to the queue."""
    queued = {number: at + admit.get(number, 0.0) for number, at in came.items()}
    found: dict[int, float] = {}
    last, latest = float("-inf"), float("-inf")
    for number, at in sorted(queued.items(), key=lambda item: (item[1], item[0])):
        apart = min(at - last, _APART) if found else 0.0
        last, latest = at, max(at, waits.get(number, 0.0) + admit.get(number, 0.0), latest + apart)
        found[number] = latest - admit.get(number, 0.0)
    return found


def _answered(
    workload: Workload, configs: Sequence[ServerConfig], costs: Costs, came: Mapping[int, float]
) -> dict[int, float]:
    """When each answer ends if the requests come at fixed times."""
    fixed = tuple(
        replace(asked, after=None, think_s=0.0, arrival_s=came[asked.request])
        if asked.request in came
        else asked
        for asked in workload.requests
    )
    log: list[Decision] = []
    replay(replace(workload, requests=fixed), configs, costs, log)
    return {row.request: row.at_s for row in log if isinstance(row, Answered)}


def _retimed(asked: Asked, answered: Mapping[int, float], came: Mapping[int, float]) -> Asked:
    at = came.get(asked.request)
    if at is None:
        return asked
    if asked.after is None:
        return replace(asked, arrival_s=round(at, 6))
    then = answered.get(asked.after)
    return asked if then is None else replace(asked, think_s=round(max(0.0, at - then), 6))
