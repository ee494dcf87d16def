"""What all streams of the journal share."""
