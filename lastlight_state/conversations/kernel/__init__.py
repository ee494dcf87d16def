"""What the repositories of conversations share: classes, messages, orders and the line of ancestors."""
