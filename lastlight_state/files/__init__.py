"""Files: line files, the logs of agents and runs over them, and mailboxes."""
