"""`python -m admin_cli`: the same as `multiraft`."""

from admin_cli.main import main

if __name__ == "__main__":
    main()
