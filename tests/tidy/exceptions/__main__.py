"""Show or lower the lists of exceptions: ``python -m tests.tidy.exceptions [--write [--moved]]``.

``--write`` rewrites the lists with the counts of today and refuses to raise one.  With ``--moved``
a count may pass from a file to another one, as long as the sum of a list does not rise; for a
commit that moves, splits or renames files.
"""

from __future__ import annotations

import argparse
import sys

from tests.tidy import rules


def main(arguments: list[str]) -> int:
    """Print a line per rule; 1 when a list is wrong and was not rewritten."""
    parser = argparse.ArgumentParser(prog="python -m tests.tidy.exceptions")
    parser.add_argument("--write", action="store_true", help="rewrite the lists, never upwards")
    parser.add_argument("--moved", action="store_true",
                        help="let counts pass from file to file; only their sum may not rise")
    parser.add_argument("rules", nargs="*", metavar="RULE", help="all without")
    options = parser.parse_args(arguments)
    if unknown := {*options.rules} - {*rules.RULES}:
        parser.error(f"no rule {', '.join(sorted(unknown))}; there are {', '.join(rules.RULES)}")
    wrong = 0
    for name in options.rules or rules.RULES:
        found, allowed = rules.RULES[name](), rules.read(name)
        print(f"{name}: {len(found)} places, {sum(allowed.values())} listed")
        if not options.write:
            complaints = rules.compare(name, found, allowed)
            wrong |= bool(complaints)
            print("".join(f"  {complaint}\n" for complaint in complaints), end="")
            continue
        try:
            counts = rules.rewritten(name, found, allowed, options.moved)
        except rules.Refused as refused:
            print(f"refused: {refused}", file=sys.stderr)
            wrong = 1
            continue
        file = rules.FOLDER / f"{name}.txt"
        if counts:
            file.write_text(rules.written(counts))
        else:
            file.unlink(missing_ok=True)
    return wrong


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
