"""What maintenance did, and its leave to do it."""
