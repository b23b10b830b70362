"""`python -m placement.operations`: the same as the `placement` command."""

import sys

from placement.operations.cli import main

sys.exit(main())
