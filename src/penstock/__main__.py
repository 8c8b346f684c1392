"""``python -m penstock``, and the command ``penstock``."""

import sys


def main() -> None:
    try:
        from penstock.cli.main import main as run  # takes a moment, in which people may think better of it
    except KeyboardInterrupt:
        sys.exit(130)
    run()


if __name__ == "__main__":
    main()
