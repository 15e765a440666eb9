"""``python -m attnviz`` and the console script: a process that runs attnviz and nothing else."""

from __future__ import annotations

from typing import NoReturn

from attnviz.cli.ending import INTERRUPTED, leave, watch_interrupts


def main() -> NoReturn:
    """Run the command line and end the process with its exit code."""
    try:
        # Ctrl-C while modules are being imported gives no traceback either.
        from attnviz.domain.process import claim_process

        claim_process()
        watch_interrupts()
        from attnviz.cli.app import main as run

        code = run()
    except KeyboardInterrupt:
        code = INTERRUPTED
    leave(code)


if __name__ == "__main__":
    main()
