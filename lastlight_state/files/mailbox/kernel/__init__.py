"""What both sides of a mailbox share."""
