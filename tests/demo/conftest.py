"""The demo is a program, not a package: its folder is on the path when it runs, so here too."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "demo"))
