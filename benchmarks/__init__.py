"""What the library costs, side by side with hand-written driver code for the same work, as ratios."""
