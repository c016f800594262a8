"""Helpers of these tests lie beside them."""

import sys
from pathlib import Path

from hypothesis import settings

sys.path.insert(0, str(Path(__file__).parent))

settings.register_profile("no-clock", deadline=None)  # a loaded machine is no error
settings.load_profile("no-clock")
