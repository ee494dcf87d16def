"""Code that both sides of a mailbox share."""
