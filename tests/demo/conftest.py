"""The demo is a program, not a package: tests put its folder on the path, as running it does."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "demo"))
