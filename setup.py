"""Builds the compiled hot path and the compiled codec of Kafka's protocol; everything else stands
in pyproject.toml.

Environment:
    MULTIRAFT_WERROR=1        warnings of Cython and of the C compiler are errors (CI)
    MULTIRAFT_DEBUG_BUILD=1   bounds checks, no optimisation, an annotated listing beside the source
    MULTIRAFT_SANITIZE=1      address and undefined behaviour sanitizers, with bounds checks
"""

import hashlib
import os
from pathlib import Path

from setuptools import Extension, setup

ROOT = Path(__file__).parent
#: Files that _core.pyx includes; found and not listed, so that a new one counts by itself.
PARTS = sorted(f"multiraft/core_parts/{path.name}"
               for path in ROOT.glob("multiraft/core_parts/*.pxi"))
KAFKA_PARTS = sorted(f"multiraft/kafka/codec_parts/{path.name}"
                     for path in ROOT.glob("multiraft/kafka/codec_parts/*.pxi"))
KAFKA_SOURCES = ("multiraft/kafka/_codec.pyx", *KAFKA_PARTS, "multiraft/_bytes.h")
SOURCES = ("multiraft/_core.pyx", "multiraft/_core.pxd", *PARTS, "multiraft/_bytes.h",
           "multiraft/_crc32c.h", "multiraft/_disk.h", "multiraft/_index.h",
           "multiraft/_index_rows.h")
WERROR = os.environ.get("MULTIRAFT_WERROR") == "1"
DEBUG = os.environ.get("MULTIRAFT_DEBUG_BUILD") == "1"
SANITIZE = os.environ.get("MULTIRAFT_SANITIZE") == "1"
SANITIZERS = ["-fsanitize=address,undefined", "-fno-sanitize-recover=undefined",
              "-fno-omit-frame-pointer"] if SANITIZE else []


def source_digest(sources: tuple[str, ...]) -> str:
    """Return the SHA-256 of the sources in their order: ``SOURCE_DIGEST`` of the extension."""
    return hashlib.sha256(b"".join((ROOT / name).read_bytes() for name in sources)).hexdigest()


def extension(name: str, sources: tuple[str, ...], level: str) -> Extension:
    """Return the extension of the first source, optimised at that level."""
    optimisation = ["-O0", "-g"] if DEBUG else ["-O1", "-g"] if SANITIZE else [level, "-g1"]
    return Extension(
        name, [sources[0]], depends=list(sources),
        define_macros=[("MULTIRAFT_SOURCE_DIGEST", f'"{source_digest(sources)}"')],
        extra_compile_args=[*optimisation, "-std=gnu11", "-Wall", *["-Werror"] * WERROR,
                            *SANITIZERS],
        extra_link_args=["-pthread", *SANITIZERS])


def extensions() -> list[Extension]:
    from Cython.Build import cythonize
    from Cython.Compiler import Options

    Options.warning_errors = WERROR
    made = [extension("multiraft._core", SOURCES, "-O3"),
            # Generated code with little to gain, and much of it: -O3 compiles twice as long.
            extension("multiraft.kafka._codec", KAFKA_SOURCES, "-O2")]
    return cythonize(made, annotate=DEBUG, compiler_directives={
        "language_level": 3, "boundscheck": DEBUG or SANITIZE, "wraparound": False,
        "cdivision": True, "initializedcheck": DEBUG, "binding": True, "annotation_typing": False,
        "warn.undeclared": False})


setup(ext_modules=extensions())
