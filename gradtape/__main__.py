"""`python -m gradtape`: the same as the `gradtape` command. Stands on `gradtape.cli`."""

import sys

from gradtape.cli import main

if __name__ == "__main__":
    sys.exit(main())
