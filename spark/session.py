"""Session of Spark: finds Java and Spark, starts them, or names what is missing.

Contract.  ``started`` yields a session and ends it.  A session that is already open is used as it
is and stays open.  Output of the JVM goes to a log or is discarded: ``sentence`` returns the error
for the user.  The session does not affect the plan.
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
#: PySpark's processes find each other by this name.
LOCALHOST = "localhost"
#: Memory of the driver's JVM.  Of millions of partitions it holds sums, never rows.
DRIVER_MEMORY = "2g"
#: Shuffle partitions on one machine: most of Spark's 200 would be empty.
LOCAL_SHUFFLES = 8
#: A plan takes seconds: the second compiler costs more time than its code saves.
LOCAL_JAVA = "-XX:TieredStopAtLevel=1"
#: Packages of this project that workers import.
SHIPPED = ("placement", "spark")

#: Variable that names a file for the output of Spark and its JVM; without it the output is
#: discarded.
LOG_VARIABLE = "MULTIRAFT_SPARK_LOG"


def check_machine() -> None:
    """Return if packages, Java and the name localhost are there. Raises ``NoSpark`` otherwise.
    Starts no process but ``java -version``."""
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
    """Return the Java that Spark would run: JAVA_HOME's, else the first of PATH; None = there is
    none."""
    home = os.environ.get("JAVA_HOME")
    if home:
        return shutil.which(os.path.join(home, "bin", "java"))
    return shutil.which("java")


def java_version(path: str | None) -> int | None:
    """Return the major version of the Java at ``path``: 17 for ``openjdk version "17.0.15"``, 8 for
    ``1.8.0``; None when it cannot be run."""
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
    """Yield a session that is already open, or start one and stop it afterwards; ``master`` None =
    this machine, all cores.

    Raises ``NoSpark``; ``SparkFailed`` for errors of Spark inside the block."""
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
        # Otherwise Spark resolves the machine's name, which may have no address.
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        builder = (builder.config("spark.driver.extraJavaOptions", LOCAL_JAVA)
                   .config("spark.driver.host", "127.0.0.1")
                   .config("spark.driver.bindAddress", "127.0.0.1")
                   .config("spark.sql.shuffle.partitions", LOCAL_SHUFFLES))
    with _logged(), warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # PySpark's imports cause these
        return builder.getOrCreate()


@contextlib.contextmanager
def _logged() -> Iterator[None]:
    """Send the standard error of processes that are started inside to the log, until they end: the
    JVM's output is for debugging Spark."""
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
    """Write a zip file of the packages that workers import into ``directory``, for a cluster that
    has not installed them. Return its path."""
    root = Path(__file__).resolve().parents[1]
    target = directory / "multiraft_planning.zip"
    with zipfile.ZipFile(target, "w") as archive:
        for package in SHIPPED:
            for path in sorted((root / package).glob("*.py")):
                archive.write(path, f"{package}/{path.name}")
    return target


def sentence(error: Exception) -> str:
    """Return Spark's error without its stack: the last line of a Python worker's error, else the
    first line with content."""
    lines = [line.strip() for line in str(error).splitlines()]
    raised = [line for line in lines if _RAISED.match(line)]
    said = raised[-1:] or [line for line in lines if line and not _NOISE.match(line)]
    return _CLASS.sub("", said[0]).removesuffix(".") + "." if said else f"{type(error).__name__}."


def advice(said: str) -> str:
    """Return the remedy for an error of Spark, by the text that ``sentence`` returned for it."""
    if said.startswith("ModuleNotFoundError"):
        return (f"Where tasks run, {', '.join(PACKAGES[1:])} and numpy are needed: PYSPARK_PYTHON "
                f"names the Python there that has them, python3 of the path without it.")
    return (f"{LOG_VARIABLE}=FILE keeps what Spark says of it; another --master may have more "
            f"memory.")


#: ``ValueError: no``, as Python's tracebacks end; what says nothing; a class of Java's.
_RAISED = re.compile(r"\w*(?:Error|Warning|Refused|Exception): ")
_NOISE = re.compile(r"at |Traceback|An error occurred while calling|: *$|\.\.\. ")
_CLASS = re.compile(r"^:? ?(?:[\w$]+\.)+[\w$]+: ")
