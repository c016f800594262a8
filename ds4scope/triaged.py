"""Triage of a replay: the log that the replayed server would have printed, read and judged like any other."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from parser.reading import Reading
    from replay.study import Study


def mechanisms_of(reading: Reading) -> frozenset[str]:
    """Ids of the mechanisms that a triage finds."""
    from triage.triage import triage

    return frozenset(finding.mechanism for finding in triage(reading).findings)


def reading_of(study: Study, options: Mapping[str, Any]) -> Reading:
    """A replay of the study as a reading."""
    from parser.reading import read
    from replay.emit import emit
    from replay.server import replay

    log: list[Any] = []
    configs = study.configs(**options)
    replay(study.workload, configs, study.costs, log)
    with tempfile.TemporaryDirectory(prefix="ds4scope-") as place:
        path = Path(place) / "server.log"
        path.write_bytes(emit(study.workload, configs, log))
        return read([str(path)])
