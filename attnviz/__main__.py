"""``python -m attnviz`` and the console script."""

from __future__ import annotations

import sys


def main() -> int:
    """Run the command line; the exit code."""
    try:
        from attnviz.cli.app import main as run
    except KeyboardInterrupt:
        # Ctrl-C while modules are still being imported is no reason for a traceback either.
        return 130
    return run()


if __name__ == "__main__":
    sys.exit(main())
