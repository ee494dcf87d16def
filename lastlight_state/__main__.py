"""``python -m lastlight_state`` is the command line."""

from lastlight_state.cli import main

if __name__ == "__main__":
    main()
