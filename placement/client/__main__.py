"""`python -m placement.client`: another way to run the `placement` command."""

import sys

from placement.client.cli import main

sys.exit(main())
