"""Java and Spark, found and started, or a sentence that says what is missing.

Contract.  ``started`` gives a session and ends it, unless somebody else had one open, which is used
as it is.  What the JVM writes about itself goes to a log or nowhere: whoever makes a plan is told
what went wrong by ``sentence``.  Nothing here changes what a plan says.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import warnings
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from spark.errors import NoSpark, SparkFailed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: Of Spark 4.
JAVA_MIN = 17
PACKAGES = ("pyspark", "pyarrow", "pandas")
#: PySpark's processes find each other by it.
LOCALHOST = "localhost"
#: What the driver's JVM may have.  Of millions of partitions it holds sums, never rows.
DRIVER_MEMORY = "2g"
#: Of one machine: 200, as Spark has it, are mostly empty there.
LOCAL_SHUFFLES = 8
#: A plan takes seconds: translating code twice costs more of them than the better code gives back.
LOCAL_JAVA = "-XX:TieredStopAtLevel=1"
#: Our packages that workers import.
SHIPPED = ("placement", "spark")

#: Names a file for what Spark and its JVM say of themselves; nowhere without it.
LOG_VARIABLE = "MULTIRAFT_SPARK_LOG"


def check_machine() -> None:
    """Raises ``NoSpark`` when a package, Java or the name localhost is missing.  Starts nothing but
    ``java -version``."""
    missing = [name for name in PACKAGES if importlib.util.find_spec(name) is None]
    if missing:
        raise NoSpark(f"planning with Spark needs {', '.join(missing)}, which "
                      f"{'is' if len(missing) == 1 else 'are'} not installed.",
                      "pip install 'multiraft[spark]'")
    found = java_version(java_path())
    if found is None:
        raise NoSpark(f"Spark needs Java {JAVA_MIN} or newer, and there is none.", _JAVA)
    if found < JAVA_MIN:
        raise NoSpark(f"Spark needs Java {JAVA_MIN} or newer, {java_path()} is {found}.", _JAVA)
    try:
        socket.getaddrinfo(LOCALHOST, None)
    except OSError as error:
        raise NoSpark(f"Spark needs the name {LOCALHOST}, which this machine does not know.",
                      f"As root: echo 127.0.0.1 {LOCALHOST} >>/etc/hosts") from error


_JAVA = ("Debian, Ubuntu: apt-get install -y default-jre-headless; or point JAVA_HOME at one "
         "that is there.")


def java_path() -> str | None:
    """The Java that Spark would run: JAVA_HOME's, else the first of PATH."""
    home = os.environ.get("JAVA_HOME")
    if home:
        return shutil.which(os.path.join(home, "bin", "java"))
    return shutil.which("java")


def java_version(path: str | None) -> int | None:
    """17 of ``openjdk version "17.0.15"``; 8 of ``1.8.0``; None when it cannot be run."""
    if path is None:
        return None
    try:
        said = subprocess.run([path, "-version"], capture_output=True, text=True, timeout=60)
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = re.search(r'version "(?:1\.)?(\d+)', said.stderr + said.stdout)
    return int(found[1]) if found else None


@contextlib.contextmanager
def started(master: str | None) -> Iterator[SparkSession]:
    """A session; ``master`` None = this machine, all cores.

    Raises ``NoSpark``; ``SparkFailed`` for what Spark itself raises inside the block.
    """
    check_machine()
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException
    from pyspark.sql import SparkSession

    theirs = SparkSession.getActiveSession()
    session = theirs
    try:
        with contextlib.ExitStack() as held:
            if session is None:
                session = _start(master or "local[*]")
                if not session.sparkContext.master.startswith("local"):
                    directory = held.enter_context(tempfile.TemporaryDirectory())
                    session.sparkContext.addPyFile(str(shipped(Path(directory))))
            yield session
    except (PySparkException, Py4JError) as error:
        said = sentence(error)
        raise SparkFailed(f"Spark gave up: {said}", advice(said)) from error
    finally:
        if theirs is None and session is not None:
            session.stop()


def _start(master: str) -> SparkSession:
    from pyspark.sql import SparkSession

    builder = (SparkSession.builder.master(master).appName("multiraft rebalance plan")
               .config("spark.ui.enabled", "false")
               .config("spark.driver.memory", DRIVER_MEMORY)
               .config("spark.sql.session.timeZone", "UTC"))
    if master.startswith("local"):
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        # Else it asks for the address of the machine's name, which nobody may know.
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        builder = (builder.config("spark.driver.extraJavaOptions", LOCAL_JAVA)
                   .config("spark.driver.host", "127.0.0.1")
                   .config("spark.driver.bindAddress", "127.0.0.1")
                   .config("spark.sql.shuffle.partitions", LOCAL_SHUFFLES))
    with _logged(), warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # of what PySpark imports
        return builder.getOrCreate()


@contextlib.contextmanager
def _logged() -> Iterator[None]:
    """A process that is started inside writes its standard error to the log, for all its life: the
    JVM's words are for whoever debugs Spark."""
    sys.stderr.flush()
    kept = os.dup(2)
    log = os.open(os.environ.get(LOG_VARIABLE, os.devnull),
                  os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    try:
        os.dup2(log, 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(log)


def shipped(directory: Path) -> Path:
    """A file with the packages that workers import, for a cluster that has not installed them."""
    root = Path(__file__).resolve().parents[1]
    target = directory / "multiraft_planning.zip"
    with zipfile.ZipFile(target, "w") as archive:
        for package in SHIPPED:
            for path in sorted((root / package).glob("*.py")):
                archive.write(path, f"{package}/{path.name}")
    return target


def sentence(error: Exception) -> str:
    """What Spark raised, without its stack: the last line of what a Python worker raised, else the
    first line that says something."""
    lines = [line.strip() for line in str(error).splitlines()]
    raised = [line for line in lines if _RAISED.match(line)]
    said = raised[-1:] or [line for line in lines if line and not _NOISE.match(line)]
    return _CLASS.sub("", said[0]).removesuffix(".") + "." if said else f"{type(error).__name__}."


def advice(said: str) -> str:
    """What to do about a ``sentence``."""
    if said.startswith("ModuleNotFoundError"):
        return (f"Where tasks run, {', '.join(PACKAGES[1:])} and numpy are needed: PYSPARK_PYTHON "
                f"names the Python there that has them, python3 of the path without it.")
    return (f"{LOG_VARIABLE}=FILE keeps what Spark says of it; another --master may have more "
            f"memory.")


#: ``ValueError: no``, as Python's tracebacks end; what says nothing; a class of Java's.
_RAISED = re.compile(r"\w*(?:Error|Warning|Refused|Exception): ")
_NOISE = re.compile(r"at |Traceback|An error occurred while calling|: *$|\.\.\. ")
_CLASS = re.compile(r"^:? ?(?:[\w$]+\.)+[\w$]+: ")
