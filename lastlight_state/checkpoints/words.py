"""The vocabularies and limits of checkpoints."""

from __future__ import annotations

from typing import Literal

from lastlight_state.db.valid import words

#: How a value is stored: whole, as the change since a value before, or as the same as a value before.
Encoding = Literal["whole", "change", "same"]
#: What happens to a write whose place is taken: the first stays, or the later one replaces it.
Taken = Literal["keep", "replace"]

#: What happens where a version has another value already: that is refused, or the value that is there stays.
Other = Literal["refuse", "keep"]

ENCODINGS = words(Encoding)
TAKEN = words(Taken)
OTHERS = words(Other)

#: One value of so many is stored whole. A power of two: reading one takes at most its logarithm of others.
WHOLE_INTERVAL = 64
#: The most channels of a checkpoint, and the most writes of one call.
MANY = 10_000
#: The most bytes of the values, or of the writes, of one call together.
TOGETHER_BYTES = 128 * 1024 * 1024

#: What `NotFound` calls a thread, and a checkpoint.
THREAD, CHECKPOINT = "checkpoint_thread", "checkpoint"
#: What `AlreadyExists` calls the value of a channel.
VALUE = "checkpoint_value"
