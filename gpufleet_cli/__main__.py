"""`python -m gpufleet_cli`."""

import sys

from gpufleet_cli.entry import main

sys.exit(main())
