"""Makes the description of a wheel or source distribution: the README without links to files of the repository."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

_LINK = re.compile(r"\[([^\]]+)\]\((?!https?://)[^)]+\)")


class Description(MetadataHookInterface):
    """Sets the description, in which an index of packages would find no file of ours."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Set the readme, with the text of each relative link in its place."""
        readme = Path(self.root, "README.md").read_text("utf-8")
        metadata["readme"] = {"content-type": "text/markdown", "text": _LINK.sub(r"\1", readme)}
