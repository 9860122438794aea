"""`python -m fsframework` is `fsf`."""

import sys

if __name__ == "__main__":
    if not sys.flags.safe_path:
        del sys.path[0]  # the current folder, in which `fsf` looks for no module
    from fsframework.cli.main import main

    main()
