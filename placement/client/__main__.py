"""`python -m placement.client`: the same as the `placement` command."""

import sys

from placement.client.cli import main

sys.exit(main())
