"""`python -m fedstein`."""

from fedstein.cli.main import main

if __name__ == "__main__":
    main()
