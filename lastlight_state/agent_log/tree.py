"""LogTree: the directories under which logs are, looked at without reading any."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

from lastlight_state.agent_log import paths
from lastlight_state.agent_log.records import SessionFile
from lastlight_state.clock import to_millis
from lastlight_state.errors import NotFound, UnsafePath
from lastlight_state.jsonl import files

PROJECTS = "projects"


def open_log(log: SessionFile) -> int:
    """A descriptor of a log to read from. Raises `NotFound` when it has vanished, `BackendUnavailable`."""
    try:
        return files.open_to_read(log.path)
    except FileNotFoundError:
        raise NotFound("agent_session", log.id) from None
    except OSError as error:
        raise files.failure(error, log.path) from error


class LogTree:
    """The logs below a directory ``agent-sessions``. Directories that are links out of the tree are not entered."""

    def __init__(self, root: Path) -> None:
        self.projects = root / PROJECTS

    def path_to_write(self, slug: str, session_id: str) -> Path:
        """The path of a log that is to be written; nothing is created. Raises `UnsafePath`, `ReservedName`."""
        directory = self.projects / paths.checked_slug(slug)
        if self._leads_outside(directory):
            raise UnsafePath("slug", f"{slug!r} leads out of {self.projects}")
        return directory / (paths.checked_session_id(session_id) + paths.LOG_SUFFIX)

    def find(self, session_id: str, slug: str) -> SessionFile | None:
        """The log of this id in one project directory."""
        directory = self.projects / slug
        return self._file(slug, directory / (session_id + paths.LOG_SUFFIX)) if self._is_ours(directory) else None

    def slugs(self) -> tuple[list[str], int]:
        """The project directories, and how many entries were none: links out of the tree, plain files, bad names."""
        try:
            entries = sorted(os.listdir(self.projects))  # noqa: PTH208 - names are needed, not paths
        except FileNotFoundError:
            return [], 0
        except OSError as error:
            raise files.failure(error, self.projects) from error
        found = [name for name in entries if not paths.component_problem(name) and self._is_ours(self.projects / name)]
        return found, len(entries) - len(found)

    def logs(self, slug: str) -> tuple[list[SessionFile], int]:
        """The main logs of a project directory, and how many could not be looked at."""
        directory = self.projects / slug
        found: list[SessionFile] = []
        skipped = 0
        try:
            names = os.listdir(directory)  # noqa: PTH208 - names are needed, not paths
        except OSError:
            return [], 1
        for name in names:
            if paths.session_of(name) is None:
                continue
            log = None if paths.component_problem(name) else self._file(slug, directory / name)
            if log is None:
                skipped += 1
            else:
                found.append(log)
        return found, skipped

    def agent_files(self, log: SessionFile) -> Iterator[tuple[Path, bool]]:
        """Files that may be sub-agents' logs of a session, and whether they lie in its own directory."""
        own = log.path.with_suffix("") / paths.SUBAGENTS
        for directory, is_own in ((own, True), (log.path.parent, False)):
            try:
                names = sorted(os.listdir(directory))  # noqa: PTH208 - names are needed, not paths
            except OSError:
                continue
            for name in names:
                if name.startswith(paths.AGENT_PREFIX) and name.endswith(paths.LOG_SUFFIX):
                    yield directory / name, is_own

    def _file(self, slug: str, path: Path) -> SessionFile | None:
        try:
            found = path.lstat()
        except OSError:  # vanished meanwhile, or behind something that is no directory
            return None
        if not stat.S_ISREG(found.st_mode):
            return None
        session_id = path.name.removesuffix(paths.LOG_SUFFIX)
        modified = datetime.fromtimestamp(found.st_mtime_ns // 1_000_000 / 1000, UTC)
        return SessionFile.of(
            {
                "id": session_id,
                "slug": slug,
                "scope": paths.scope_of(slug),
                "bytes": found.st_size,
                "modified_at": to_millis(modified),
                "path": path,
                "safe": paths.is_safe_id(session_id),
            }
        )

    def _is_ours(self, directory: Path) -> bool:
        try:
            return directory.is_dir() and not self._leads_outside(directory)
        except (OSError, RuntimeError):  # not to be looked at; a loop of links
            return False

    def _leads_outside(self, directory: Path) -> bool:
        return directory.is_symlink() and not directory.resolve().is_relative_to(self.projects.resolve())
