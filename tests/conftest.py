"""Settings that every test shares: Hypothesis profiles.

The default profile is derandomized and small, so that two runs of ``make test`` do the same; set
``HYPOTHESIS_PROFILE=long`` to search.
"""

from __future__ import annotations

import os

from hypothesis import HealthCheck, Phase, settings

settings.register_profile("short", derandomize=True, max_examples=50, deadline=None,
                          suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("long", max_examples=2000, deadline=None, print_blob=True)
# With a bug planted the first failure is enough: nobody reads the smallest one.
settings.register_profile("planted", settings.get_profile("short"),
                          phases=(Phase.explicit, Phase.generate))
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "short"))
