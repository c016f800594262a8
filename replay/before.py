"""Files from before the log: checkpoints that it shows loaded or deleted, and that no line of it wrote.

A hit says that the first tokens of its prompt lay on the disk; a deletion says only that something took room. Both
become assumptions of the workload (`KnownFile`), as old as the log's first line.
"""

from __future__ import annotations

from collections.abc import Iterator

from replay.config import MIB, ServerConfig
from replay.evidence import Evidence, LogFile
from replay.rope import Rope, cut, length
from replay.weave import Woven
from replay.workload import KnownFile, Workload


def from_before(
    evidence: Evidence, woven: Woven, config: ServerConfig, workload: Workload
) -> tuple[KnownFile, ...]:
    """Assumed files, in the order in which the log shows them; one for each text."""
    return tuple(_found(evidence, woven, config, workload))


def _found(evidence: Evidence, woven: Woven, config: ServerConfig, workload: Workload) -> Iterator[KnownFile]:
    seen: set[Rope] = set()
    for number, file in enumerate(file for file in evidence.files if file.known_from_hit):
        key = cut(woven.ropes[file.string], file.tokens) if file.string >= 0 else None
        if key in seen or (key is not None and length(key) < file.tokens):
            continue
        if key is not None:
            seen.add(key)
        yield KnownFile(
            id=f"before{number + 1}",
            tokens=file.tokens,
            size_bytes=_size(file, config, workload),
            reason="continued" if config.step and file.tokens % config.step == 0 else "evict",
            hits=_hits(evidence, file),
            key=key,
        )


def _hits(evidence: Evidence, file: LogFile) -> int:
    """As a deletion prints it, less the loads that the log shows; one that was kept until it was loaded counts one,
    so that it outlives those that went before."""
    return 1 if file.hits is None else max(0, file.hits - evidence.loads_of(file))


def _size(file: LogFile, config: ServerConfig, workload: Workload) -> int:
    """As a deletion prints it, else by the size rule (R4.4)."""
    if file.size_mib is not None:
        return round(file.size_mib * MIB)
    return config.file_bytes(file.tokens) + round(file.tokens * workload.bytes_per_token)
