"""What several rooms of maintenance use."""
