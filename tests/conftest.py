"""One profile of hypothesis for all tests: no clock in any test, and the same examples in every CI run."""

import os

from hypothesis import HealthCheck, settings

settings.register_profile(
    "ds4scope",
    deadline=None,
    derandomize=bool(os.environ.get("CI")),
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    print_blob=True,
)
settings.load_profile("ds4scope")
