"""disk-cache-unusable: a directory is configured, but the server says that it stays unused (4.6)."""

from __future__ import annotations

from collections.abc import Iterator

from triage.evidence import event_sign
from triage.figures import compact
from triage.mechanism import Mechanism, Replay, Sign
from triage.view import View


def detect(view: View) -> Iterator[Sign]:
    """The model has no checkpoints, or the directory was not created; no stored or hit line exists."""
    said = view.of("startup", "no_checkpoints", "kv_disk_failed")
    if not said or view.of("kv_stored") or view.of("kv_hit"):
        return
    why = (
        "the model has no checkpoints"
        if said[0].rule == "no_checkpoints"
        else "its directory could not be created"
    )
    yield event_sign(
        f"the disk cache stays unused: {why}",
        said + view.of("startup", "kv_disk"),
        compact({"budget_mib": view.config(None, "kv_disk_space_mb"), "error_text": said[0].get("error")}),
        tokens=0,
    )


MECHANISM = Mechanism(
    id="disk-cache-unusable",
    title="The disk cache stays unused",
    family="budget",
    grades=("log",),
    severity="medium",
    evidence="a directory is configured, but the server says that it stays unused (model without checkpoints, directory not created)",
    not_if="any stored or hit line exists",
    user="another model or build; rights of the directory",
    server="support for the model",
    detect=detect,
    replay=Replay("live slots only", {"no_kv_disk": "true"}),
)
