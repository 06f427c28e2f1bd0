"""``python -m manyhot.cli``."""

import sys

from manyhot.cli.main import main

sys.exit(main())
