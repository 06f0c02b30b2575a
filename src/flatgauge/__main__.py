"""`python -m flatgauge`, which is what `torchrun -m flatgauge` runs."""

import sys

from flatgauge.cli import main

sys.exit(main())
