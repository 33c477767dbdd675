"""Types of the compiled twin, taken from its specification.

Contract.  ``_core`` has the public names of ``_reference``, with equal parameters, defaults,
annotations and docstrings; tests/codec/test_surface.py compares the two at run time.  So a type
checker reads the reference, and no signature stands here a second time.
"""

from multiraft.codec.reference import *  # noqa: F403
from multiraft.codec.reference import __all__ as __all__
