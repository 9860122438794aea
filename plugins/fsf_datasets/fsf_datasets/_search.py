"""Search names with a regular expression; a program of its own, which can be stopped.

Reads ``[pattern, [name, ...]]`` as JSON and prints, for each name, the text of each named group, or
``null`` where the pattern does not match.
"""

from __future__ import annotations

import json
import re
import sys


def main() -> None:
    """Answer the request on the standard input."""
    pattern, names = json.load(sys.stdin)
    matches = map(re.compile(pattern).search, names)
    json.dump([match and match.groupdict("") for match in matches], sys.stdout)


if __name__ == "__main__":
    main()
