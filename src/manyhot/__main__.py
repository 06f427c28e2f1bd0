"""``python -m manyhot``: the command line."""

from manyhot.cli.main import main

if __name__ == "__main__":
    main()
