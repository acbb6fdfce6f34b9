"""`python -m specdeck`, the same as the `specdeck` command."""

from specdeck.console.cli.main import main

if __name__ == "__main__":
    main()
