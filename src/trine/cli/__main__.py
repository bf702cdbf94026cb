"""`python -m trine.cli` is the same as `trine`."""

from trine.cli.main import main

if __name__ == "__main__":
    main()
