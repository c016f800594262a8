"""The server model takes the decisions of a naive one, over random workloads and configurations."""

from hypothesis import HealthCheck, given, settings
from oracle import Oracle
from worlds import COSTS, configs, workloads

from replay.decisions import EvictedFile, Restored, Skipped, Stored
from replay.server import Server


def trail_of(log):
    """The model's disk decisions in the oracle's words."""
    for row in log:
        if isinstance(row, Stored):
            yield (
                ("silent", int(row.file[1:]))
                if row.silent
                else ("store", row.reason, row.tokens, int(row.file[1:]))
            )
        elif isinstance(row, Skipped) and row.why == "budget":
            yield ("skip", row.reason, row.tokens)
        elif isinstance(row, EvictedFile):
            yield ("evict", int(row.file[1:]))
        elif isinstance(row, Restored):
            yield ("load", row.request, int(row.file[1:]))


def decisions(jobs, view):
    return {number: view(job) for number, job in jobs}


def of_model(job):
    ran = job.effective is not None
    return {
        "slot": job.slot, "scores": job.scores, "source": job.source, "cached": job.cached, "prompt": job.effective_size if ran else 0,
        "prefilled": job.prefilled, "generated": job.generated, "live": job.live_before, "common": job.common,
        "evicted": job.evicted_live, "loaded": job.loaded, "stores": [(s.tokens, s.reason) for s in job.stores],
        "files": job.evicted_files, "start": job.start_s, "end": job.end_s, "finish": job.finish,
    }  # fmt: skip


def of_oracle(job):
    return {
        "slot": job.slot, "scores": job.scores, "source": job.source, "cached": job.cached, "prompt": len(job.eff or ()),
        "prefilled": job.pre, "generated": job.gen, "live": job.live, "common": job.common,
        "evicted": job.evicted, "loaded": job.loaded, "stores": job.stores,
        "files": job.evf, "start": job.t0, "end": job.end, "finish": job.finish,
    }  # fmt: skip


@settings(max_examples=200, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(workloads(), configs())
def test_same_decisions_as_the_naive_server(workload, config):
    oracle = Oracle(workload, config, COSTS).run()
    log = []
    model = Server(workload, [config], COSTS, log)
    model.run()
    mine = decisions(((job.asked.request, job) for job in model.jobs), of_model)
    theirs = decisions(oracle.jobs.items(), of_oracle)
    assert mine == theirs
    assert list(trail_of(log)) == oracle.trail
    assert model.tier.evictions == oracle.evictions
