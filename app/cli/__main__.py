"""`python -m app.cli` is `dra-extender`."""

from app.cli.main import main

main()
