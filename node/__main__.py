"""``python -m node start --config node.toml``."""

import sys

if not __debug__:
    sys.exit("multiraft node: refuses to run with python -O: assertions are part of its safety")

from node.main import main  # noqa: E402  (the refusal above comes first)

if __name__ == "__main__":
    sys.exit(main())
