"""Files: line files, the logs of agents and runs in such files, and mailboxes."""
