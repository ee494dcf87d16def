"""The vocabularies of receipts."""

from __future__ import annotations

from datetime import timedelta
from typing import Literal

from lastlight_state.db.valid import words

Kind = Literal["prune", "redact", "reap", "import", "copy", "restore", "repair", "bundle"]
State = Literal["running", "done", "failed", "interrupted"]
End = Literal["done", "failed", "interrupted"]

KINDS = words(Kind)
STATES = words(State)
ENDS = words(End)

#: How long a running receipt must be silent before another owner may take it over.
SILENCE = timedelta(minutes=10)


#: What `NotFound` calls a receipt.
RECEIPT = "receipt"
