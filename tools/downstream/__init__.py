"""The tools behind the doors in tools/."""

# Read by any Python, so that an old one gets a sentence instead of a syntax error:
# no annotations, no f-strings, nothing that Python 2 could not parse.
import sys

if sys.version_info < (3, 11):
    sys.stderr.write(
        "error: these tools need Python 3.11 or newer, this is %d.%d\n"
        "  next: python3.11 -m venv .venv && .venv/bin/pip install -e .\n" % tuple(sys.version_info[:2])
    )
    sys.exit(2)
