"""`python -m agenttop`: the same program as the console script."""

import sys

from agenttop.cli import main

if __name__ == "__main__":
    sys.exit(main())
