"""When things run: crons, what operators changed about them, and what each fire did."""
