"""The version after this one, made up for tests: the wheel of this checkout, with a revision 0003 and code for it.

The revision adds a nullable column to a table with large values, a column that a list shows (in a companion), an index
that an operator may make before the upgrade, and a table. The code uses all of them, and deprecates three names.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

from support.migrations.installing import install

ROOT = Path(__file__).parents[3]
PROGRAM = Path(__file__).with_name("version_program.py")
REVISION = "0003_next"
INDEX = "ix_run_events_type"
ADDED = "type, occurred_at"
#: What an operator runs on a busy Postgres before the upgrade.
BEFOREHAND = f"CREATE INDEX CONCURRENTLY IF NOT EXISTS {INDEX} ON run_events ({ADDED})"

_REVISION = f'''"""Adds rubrics of scores, provenances of states, and notes."""

import sqlalchemy as sa
from alembic import op

revision = "{REVISION}"
down_revision = "0002_lastlight_state"
branch_labels = None
depends_on = None
TEXT = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")


def upgrade() -> None:
    op.add_column("scores", sa.Column("rubric", TEXT))
    op.create_table(
        "lastlight_states_more",
        sa.Column("id", TEXT, nullable=False),
        sa.Column("provenance", TEXT),
        sa.PrimaryKeyConstraint("id", name="pk_lastlight_states_more"),
        sa.ForeignKeyConstraint(["id"], ["states.id"], name="fk_lastlight_states_more_id", ondelete="CASCADE"),
        comment="lastlight_state: more about states",
    )
    op.create_table(
        "lastlight_notes",
        sa.Column("id", TEXT, nullable=False),
        sa.Column("note", TEXT),
        sa.PrimaryKeyConstraint("id", name="pk_lastlight_notes"),
        comment="lastlight_state: notes",
    )
    op.create_index("{INDEX}", "run_events", ["type", "occurred_at"], if_not_exists=True)
'''
_MODELS = '''

class StateMoreModel(Base):
    """What a later version says about a state."""

    __tablename__ = "lastlight_states_more"
    __table_args__ = describe_table("more about states", kept="goes with its state")

    id: Mapped[str] = text_column(None, ForeignKey("states.id", ondelete="CASCADE"), primary_key=True, personal=False)
    provenance: Mapped[str | None] = text_column(64, personal=False)


class NoteModel(Base):
    """A note."""

    __tablename__ = "lastlight_notes"
    __table_args__ = describe_table("notes", kept="a few notes")

    id: Mapped[str] = text_column(64, primary_key=True, personal=False)
    note: Mapped[str | None] = text_column(64, personal=False)


STATES_MORE = table_of(StateMoreModel)
'''
_DEPRECATED = '@deprecate("{instead}", since="0.2.0")\n'
_IMPORT = "from lastlight_state.deprecation import deprecate\n"
#: Files of the package, each with texts that stand there once and what the next version has instead.
_CHANGES: dict[str, list[tuple[str, str]]] = {
    "journal/models.py": [
        (
            r"    expected: Mapped\[Any\] = .*\n",
            r"\g<0>    rubric: Mapped[str | None] = text_column(64, personal=False)\n",
        )
    ],
    "journal/records.py": [(r"    expected: Any\n", r"\g<0>    rubric: str | None = None\n")],
    "journal/scores/__init__.py": [(r'        "expected": .*\n', r'\g<0>        "rubric": "strict",\n')],
    "states/models.py": [(r"from sqlalchemy import ", r"\g<0>ForeignKey, "), (r"\Z", _MODELS)],
    "states/records.py": [
        (r"(    user: str \| None\n)(\n\nclass State\()", r"\1    provenance: str | None = None\n\2")
    ],
    "states/statements.py": [
        (r"import later_of\n", "import later_of, of_companion\n"),
        (r"states.models import STATES\n", "states.models import STATES, STATES_MORE\n"),
        (r'_list\("states", _SUMMARY,', '_list("states", (*_SUMMARY, of_companion(STATES_MORE.c.provenance)),'),
    ],
    "states/face.py": [
        (r"from lastlight_state.errors ", rf"{_IMPORT}\g<0>"),
        (r"    def state_of\(", "    " + _DEPRECATED.format(instead="get") + r"\g<0>"),
    ],
    "db/lists/pages.py": [
        (r"from lastlight_state.errors ", rf"{_IMPORT}\g<0>"),
        (r"def iterate\(", _DEPRECATED.format(instead="pages") + r"\g<0>"),
    ],
}
_WRITE_SHAPE = """
import sys
from lastlight_state.backends import open_backend
from lastlight_state.backends.base import Options
from lastlight_state.migrations import drift, scripts
from lastlight_state.migrations.adoption.fit import blueprints
backend = open_backend(sys.argv[1], Options())
shapes = blueprints(backend, *scripts.revisions())
file = scripts.folder() / "shapes" / f"{backend.name}.txt"
file.write_text("\\n".join([*drift.lines_of(backend, shapes), ""]))
backend.close()
"""


class Version:
    """An installed version of this library. One process does what its program is asked for."""

    def __init__(self, name: str, folder: Path) -> None:
        self.name = name
        self.folder = folder
        self._server: subprocess.Popen[str] | None = None

    def environment(self) -> dict[str, str]:
        """Return the environment in which Python imports this version, and the tests' own modules."""
        kept = {
            name: value for name, value in os.environ.items() if not name.startswith(("LASTLIGHT_STATE_", "PYTHON"))
        }
        path = f"{self.folder}{os.pathsep}{ROOT / 'tests'}"
        return {**kept, "PYTHONPATH": path}

    def start(self, *words: Any) -> subprocess.Popen[str]:
        """Start Python with these words."""
        return subprocess.Popen(
            [sys.executable, "-P", *map(str, words)],
            env=self.environment(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def does(self, folder: Path, verb: str, *words: str) -> Any:
        """Return what the version's program answers, in this folder: its result, or the name of its error."""
        if self._server is None:
            self._server = self.start(PROGRAM)
        assert self._server.stdin
        assert self._server.stdout
        self._server.stdin.write(json.dumps([str(folder), verb, *words]) + "\n")
        self._server.stdin.flush()
        said = json.loads(self._server.stdout.readline())
        return said["result"] if "result" in said else Refused(said["error"], said["trace"])

    def close(self) -> None:
        """End the version's process."""
        if self._server is not None:
            self._server.communicate(timeout=60)


@dataclass(frozen=True)
class Refused:
    """An error that a version raised."""

    name: str
    trace: str


def candidate(folder: Path) -> tuple[Version, str]:
    """Build the wheel of this checkout and install it. Return it with the digest of the wheel."""
    environment = {**os.environ, "SOURCE_DATE_EPOCH": "1580601600"}
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder / "wheels")]
    subprocess.run(command, cwd=ROOT, env=environment, check=True, capture_output=True)
    [wheel] = (folder / "wheels").glob("*.whl")
    install(wheel, folder / "candidate")
    return Version("candidate", folder / "candidate"), sha256(wheel.read_bytes()).hexdigest()


def next_after(version: Version, folder: Path) -> Version:
    """Make the version after this one."""
    shutil.copytree(version.folder, folder)
    package = folder / "lastlight_state"
    (package / "_migrations" / "versions" / f"{REVISION}.py").write_text(_REVISION)
    for name, changes in _CHANGES.items():
        text = (package / name).read_text("utf-8")
        for pattern, changed in changes:
            text, found = re.subn(pattern, changed, text)
            assert found == 1, f"{name} has {pattern!r} {found} times: write the next version anew"
        (package / name).write_text(text, "utf-8")
    return Version("next", folder)


def write_shape(version: Version, url: str) -> None:
    """Write the list by which the version knows its schema, on the product of an empty database."""
    subprocess.run([sys.executable, "-P", "-c", _WRITE_SHAPE, url], env=version.environment(), check=True)
