"""``python -m conductor_core``: see ``conductor_core.cli``."""

import sys

from conductor_core.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
