"""Code that the conversation repositories share: message classes, messages, message orders and branch ancestry."""
