"""`python -m fsframework` is `fsf`."""

from fsframework.cli.main import main

if __name__ == "__main__":
    main()
