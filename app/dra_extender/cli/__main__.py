"""`python -m dra_extender.cli` is `dra-extender`."""

from dra_extender.cli.main import main

if __name__ == "__main__":
    main()
