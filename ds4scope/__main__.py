"""`python -m ds4scope`."""

import sys

from ds4scope.cli import main

sys.exit(main())
