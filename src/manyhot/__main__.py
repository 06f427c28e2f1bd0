"""``python -m manyhot``: the command line."""

import sys

from manyhot.cli.main import main

sys.exit(main())
