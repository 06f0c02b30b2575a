"""The command line: it parses, calls the rest, and says in one sentence what failed."""

from flatgauge.cli.app import main as main
