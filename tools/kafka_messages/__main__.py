"""Write the generated files of multiraft/kafka: ``python -m tools.kafka_messages``.

Contract.  ``generated`` returns the text of each file by its path in the repository; what is
written is that and nothing else.  A file of an earlier run that is no longer generated is removed.
"""

from __future__ import annotations

from pathlib import Path

from tools.kafka_messages import cython_source, python_source
from tools.kafka_messages.schema_files import Message, messages

ROOT = Path(__file__).parents[2]
PYTHON = "multiraft/kafka/messages"
PARTS = "multiraft/kafka/codec_parts"
#: Files of the two folders that are written by hand.
BY_HAND = (f"{PYTHON}/__init__.py", f"{PARTS}/reader.pxi", f"{PARTS}/writer.pxi")


def generated() -> dict[str, str]:
    """Return the path and the text of each generated file."""
    found = messages()
    modules: dict[str, list[Message]] = {}
    for message in found:
        modules.setdefault(python_source.module_of(message), []).append(message)
    files = {f"{PYTHON}/{name}.py": python_source.module(members)
             for name, members in modules.items()}
    files[f"{PYTHON}/table.py"] = python_source.table(found)
    files.update({f"{PARTS}/{name}": text for name, text in cython_source.parts(found).items()})
    return files


def existing() -> set[str]:
    """Return the paths of the files in the two folders that were generated."""
    paths = [*ROOT.glob(f"{PYTHON}/*.py"), *ROOT.glob(f"{PARTS}/*.pxi")]
    return {str(path.relative_to(ROOT)) for path in paths} - set(BY_HAND)


def write() -> None:
    """Write all generated files."""
    files = generated()
    for path in existing() - set(files):
        (ROOT / path).unlink()
    for path, text in files.items():
        (ROOT / path).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    write()
