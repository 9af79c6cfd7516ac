"""``python -m zoo fit``, ``validate``, ``test``, ``predict`` and ``publish``: run the command that ``sys.argv`` holds."""

import os
import sys

from zoo.runs.cli import ZooCLI, import_names
from zoo.runs.parser_messages import error_message
from zoo.runs.processes import let_the_first_speak
from zoo.runs.resume import INTERRUPTED
from zoo.runs.trainer import quietly


def main() -> None:
    """Run the command; an expected error ends it with a message, and with ``ZOO_TRACEBACK=1`` with a traceback."""
    import_names()
    try:
        with quietly():
            ZooCLI()
    except KeyboardInterrupt:  # before there is a run
        sys.stderr.write("Interrupted before training started.\n")
        sys.exit(INTERRUPTED)
    except Exception as error:
        if os.environ.get("ZOO_TRACEBACK") or not (message := error_message(error)):
            raise
        let_the_first_speak()
        sys.exit(message)
