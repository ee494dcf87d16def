"""What is running and what to do next."""
